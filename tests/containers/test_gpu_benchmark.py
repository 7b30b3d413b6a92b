"""scripts/bench gpu, as far as a test can go without a GPU: it compares like with like."""

import re
import sys
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from trainer_process import CONTAINERS

from trainer import data
from trainer.__main__ import imported

sys.path.append(str(CONTAINERS.parent / "scripts" / "benchmarks"))

pytestmark = pytest.mark.torch
CARD = {"card": "a card", "pytorch": "2.13"}


def test_without_a_gpu_it_says_so(torch, monkeypatch):
    import gpu
    from figures import Missing

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # with a GPU, this would measure for minutes
    with pytest.raises(Missing, match="a GPU that PyTorch sees"):
        list(gpu.measure(3, inf))


@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras"])
def test_the_usual_way_has_the_network_of_the_words(torch, name):
    import gpu_networks

    workload = imported(name)
    model = torch.nn.Sequential(*gpu_networks.layers(workload))
    assert sum(weight.numel() for weight in model.parameters()) == workload.PARAMETERS
    assert model(torch.zeros(2, 3, *workload.INPUT[:2])).shape == (2, 10)
    decayed = [layer for layer, factor in zip(model, gpu_networks.decays(workload), strict=True) if factor]
    assert [layer.out_features for layer in decayed] == ([384, 192] if name == "cifar10" else [])


@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras"])
def test_both_ways_train_the_network_at_its_sources_batch(name):
    import gpu_networks

    pixels = np.random.RandomState(0).randint(0, 256, (512, 32, 32, 3)).astype(np.uint8)
    workload, images = imported(name), data.Dataset(pixels, np.arange(512, dtype=np.int32) % 10, "made", 1)
    step = gpu_networks.usual(workload, images, gpu_networks.NETWORKS[name], None, "cpu")
    own, network = gpu_networks.ours(workload, images, gpu_networks.NETWORKS[name], "cpu")
    loss, _ = own()
    assert network.stepper is None, "there are no CUDA graphs on the CPU"
    for first in float(step()), float(loss.detach()):
        assert 2 < first < 5, "nothing is learned yet: a cross-entropy of ln 10, and decay terms"


def test_each_network_is_compiled_for_its_own_sizes_and_sees_nothing_of_what_ran_before(torch, monkeypatch):
    import card
    import gpu_networks

    compiled, sizes, peaks = torch.compile, [], []

    def seen(module, examples, **_):
        sizes.extend(size for one in examples for size in getattr(one, "shape", [one]))
        return module.forward

    def rate(step, *_):
        step()
        return 1.0

    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled(model, backend=seen))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: peaks.append("reset"))
    monkeypatch.setattr(card, "products_per_second", lambda _: 1e12)
    monkeypatch.setattr(card, "bytes_per_second", lambda: 1e12)
    monkeypatch.setattr(data, "SYNTHETIC", {"train": (512, 1)})
    monkeypatch.setattr(gpu_networks, "rate", rate)
    for way in "ours", "usual":
        made = getattr(gpu_networks, way)
        monkeypatch.setattr(gpu_networks, way, lambda *words, made=made: made(*words, on="cpu"))
    found = [figure for name in gpu_networks.NETWORKS for figure in gpu_networks.rates(name, 1, CARD, inf)]
    assert [figure.against for figure in found] == list(gpu_networks.WAYS) * 2
    assert all(figure.note.startswith("no CUDA graphs; ") for figure in found)
    assert sizes
    assert {type(size) for size in sizes} == {int}, sizes
    assert (torch.backends.cudnn.benchmark, peaks) == (False, ["reset"] * 2)


def test_where_time_is_short_networks_are_measured_in_as_many_rounds_as_a_verdict_needs(torch, monkeypatch):
    import card
    import gpu_networks

    monkeypatch.setattr(card, "fresh", lambda: None)
    monkeypatch.setattr(card, "products_per_second", lambda _: 1e12)
    monkeypatch.setattr(card, "bytes_per_second", lambda: 1e12)
    monkeypatch.setattr(data, "SYNTHETIC", {"train": (32, 1)})
    monkeypatch.setattr(gpu_networks, "ours", lambda *_: (None, SimpleNamespace(stepper=None)))
    monkeypatch.setattr(gpu_networks, "usual", lambda *_: None)
    monkeypatch.setattr(gpu_networks, "rate", lambda *_: 1.0)
    for until, rounds in (0.0, 3), (inf, 6):
        found = list(gpu_networks.rates("cifar10-keras", 6, CARD, until))
        assert [len(one.ours) for one in found] == [rounds] * len(gpu_networks.WAYS)


def test_accuracies_are_told_where_the_images_are_real(capsys):
    import gpu

    way = gpu.Trained("graphs", lambda seed: (0.5 + seed / 100, 0.94 + seed / 1000))
    assert [way() for _ in range(3)] == [0.5, 0.51, 0.52]
    gpu.tell([way], True, 500e12, 4e12)
    told = capsys.readouterr().out
    assert "| graphs | 3 | 0.510 | 0.010 | 0.9410 | 0.0010 | 0.11 | 92% |" in told
    assert "0.234 PFLOP" in told
    gpu.tell([way], False, 500e12, 4e12)
    assert "| 0.9410 of made-up images | n/a | n/a |" in capsys.readouterr().out


def test_the_fastest_of_ours_is_held_against_the_others_and_says_whether_it_was_a_graph():
    import gpu

    taken = {"graphs": (0.5,) * 3, "compiled": (0.4,) * 3, "peer": (0.9,) * 3}
    graphs = {"graphs": "no CUDA graphs (the host waits)", "compiled": "CUDA graphs", "peer": ""}
    right = {"graphs": [0.941], "compiled": [0.9401, 0.9402, 0.9403], "peer": [0.9398]}
    own, peer = gpu.beside("compiled", taken, graphs, CARD, right)
    assert (own.against, own.goal) == ("graphs", None)
    assert own.note == (
        "by compiled: CUDA graphs; by graphs: no CUDA graphs (the host waits); "
        "94.02% right on average by compiled, n = 3; 94.10% right on average by graphs, n = 1"
    )
    assert own.conditions == CARD
    assert (peer.against, peer.goal, peer.is_met) == ("peer", gpu.Goal("ratio", 0.8), True)
    for slow in [0.9399, 0.9399, 0.9398], [0.9390, 0.9402, 0.9409], [0.9402] * 3, [0.95]:
        _, peer = gpu.beside("compiled", taken, graphs, CARD, {**right, "compiled": slow})
        assert peer.goal is None, "a network that is not surely accurate enough has won no race"
    made_up = list(gpu.beside("compiled", taken, graphs, CARD, None))
    assert [one.goal for one in made_up] == [None, None], "of images that need fewer views nothing is claimed"
    assert "right" not in made_up[0].note
    assert not {one.key for one in made_up} & {own.key, peer.key}, "and no figure of real ones is replaced"


@pytest.mark.parametrize(
    ("recorded", "why", "said"),
    [
        (True, None, "CUDA graphs"),
        (False, None, "no CUDA graphs"),
        (False, "the host waits", "no CUDA graphs (the host waits)"),
    ],
)
def test_a_way_of_ours_says_whether_it_was_recorded(torch, monkeypatch, recorded, why, said):
    import gpu

    from trainer.frameworks.pytorch import race

    numbers = torch.arange(4)
    steps = {"prepare": lambda *_: None, "wait": lambda: None, "train": lambda _: None, "predict": lambda x: x % 3}
    steps["losses"] = torch.ones(3)
    monkeypatch.setattr(race, "Race", lambda *_: SimpleNamespace(recorded=recorded, why=why, fused=None, **steps))
    monkeypatch.setattr(race, "put", lambda array, _: array)
    part = SimpleNamespace(images=numbers, labels=numbers)
    way = gpu.ours("graphs", part, part)
    assert (way.name, way.graphs) == ("graphs", said)
    assert way() >= 0
    assert way.accuracies == [0.75]
    steps["losses"][2] = float("nan")
    with pytest.raises(FloatingPointError, match=r"losses are not finite: \.\.\., 1, 1, nan"):
        way()
    assert len(way.seconds) == 1, "what learns nothing is no figure"


def test_made_up_images_are_as_many_as_cifar_10_has_and_a_peer_takes_its_steps_from_them(monkeypatch):
    import gpu

    monkeypatch.setattr(data, "SYNTHETIC", {"train": (30, 1), "test": (10, 2)})
    once, (train, test) = data.synthetic("train"), gpu.images(None)
    assert train.images.shape == (50_000, 32, 32, 3)
    assert train.labels.shape == (50_000,)
    assert (train.images[60:90] == once.images).all()
    assert (train.labels[60:90] == once.labels).all()
    assert len(test.images) == 10


@pytest.fixture
def raced(torch, monkeypatch):
    """Run gpu.measure() with ways that only report durations: once(name) is such a way's train(seed)."""
    import card
    import gpu

    from trainer.frameworks.pytorch import numbers

    asked = []
    monkeypatch.setattr(card, "conditions", lambda: CARD)
    monkeypatch.setattr(card, "products_per_second", lambda _: 500e12)
    monkeypatch.setattr(card, "bytes_per_second", lambda: 4e12)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(numbers, "chosen", lambda *words: asked.append(words))
    monkeypatch.setattr(gpu, "images", lambda _: ())
    monkeypatch.setattr(gpu, "CERTIFIED", 5)
    monkeypatch.setenv("NGCDL_CIFAR10", "a folder")
    monkeypatch.delenv("NGCDL_GPU_PEERS", raising=False)

    def run(once, rounds=3, until=inf):
        monkeypatch.setattr(gpu, "ours", lambda name, *_, **__: gpu.Trained(name, once(name), "CUDA graphs"))
        asked.clear()
        yield from gpu.measure(rounds, until)
        assert asked == [("auto", "gpu")], "TF32 as in the trainer"

    return run


def test_what_is_known_is_told_before_the_long_end_and_after_it(raced, capsys):
    told = []

    def once(name):
        def train(seed):
            if seed == 3:  # only for the fastest
                told.append(capsys.readouterr().out)
            return {"graphs": 0.5}.get(name, 0.6), 0.9

        return train

    assert [one.against for one in raced(once)] == ["compiled", "eager"] * 2
    (before,) = told
    assert "| graphs | 3 | 0.500 |" in before
    assert "| eager | 3 | 0.600 |" in before
    assert "| graphs | 5 | 0.500 |" in capsys.readouterr().out


def test_trainings_beyond_the_rounds_are_told_one_by_one_and_count_where_they_are_cut_short(raced, capsys):
    def once(_):
        def train(seed):
            if seed == 4:
                raise KeyboardInterrupt
            return 0.5, 0.9 + seed / 100

        return train

    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(one.note for one in raced(once))
    assert [f"n = {many}" in note for note, many in zip(found, (3, 3, 4, 4), strict=True)] == [True] * 4
    assert "    compiled, training 4: 93.00% right\n" in capsys.readouterr().out


def test_what_is_right_on_average_is_judged_by_all_trainings_of_the_fastest_way(raced, monkeypatch):
    import gpu
    import gpu_peers

    monkeypatch.setattr(gpu, "CERTIFIED", 200)
    monkeypatch.setattr(gpu_peers, "loaded", lambda *_: lambda _: (0.9, 0.9398))
    monkeypatch.setenv("NGCDL_GPU_PEERS", "peer=a/file.py")
    for mean, is_race in (0.9405, True), (0.94, False):
        right = [0.9390, 0.9402, 0.9409, *np.random.RandomState(0).normal(mean, 0.0012, 200)]
        found = list(raced(lambda _: lambda seed: (0.5, right[seed])))  # noqa: B023
        assert [one.against for one in found[:2]] == ["graphs", "eager"], "known before a peer is compiled"
        assert "by compiled, n = 3;" in found[0].note
        peer = found[-1]
        assert (peer.against, peer.goal is not None, peer.ours) == ("peer", is_race, (0.5,) * 3)
        assert "by compiled, n = 203;" in peer.note


def test_a_peer_whose_compiler_takes_too_long_costs_none_of_our_figures(raced, monkeypatch, capsys):
    import gpu_peers

    def compiling(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_peers, "loaded", compiling)
    monkeypatch.setenv("NGCDL_GPU_PEERS", "peer=a/file.py")
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(raced(lambda _: lambda _: (0.5, 0.9)))
    assert [one.against for one in found] == ["graphs", "eager"] * 2
    assert "by compiled, n = 5;" in found[-1].note
    assert "| compiled | 5 | 0.500 |" in capsys.readouterr().out


def test_where_time_is_short_nothing_is_trained_beyond_the_rounds_of_a_verdict(raced, capsys):
    assert [len(one.ours) for one in raced(lambda _: lambda _: (0.5, 0.9), 9, 0.0)] == [3, 3]
    assert "| graphs | 3 | 0.500 |" in capsys.readouterr().out.split("This card")[-1]


def test_made_up_images_certify_nothing(raced, capsys, monkeypatch):
    monkeypatch.delenv("NGCDL_CIFAR10")
    assert len(list(raced(lambda _: lambda _: (0.5, 0.9)))) == 2
    assert "| graphs | 3 | 0.500 |" in capsys.readouterr().out.split("This card")[-1]


def test_a_way_that_does_not_learn_is_left_out(torch, raced, capsys):
    import gpu
    from figures import Missing

    def unless(*broken):
        def once(name):
            if name in broken:
                gpu.finite(torch.full((3,), float("nan")))
            return lambda _: (0.5, 0.9)

        return once

    assert {one.against for one in raced(unless("compiled"))} == {"eager"}
    assert "compiled: left out: FloatingPointError: losses are not finite" in capsys.readouterr().out
    with pytest.raises(Missing, match="one of our own ways trains"):
        list(raced(unless(*gpu.OURS)))


def test_what_trained_before_a_way_failed_is_told(raced, capsys):
    def once(name):
        def train(seed):
            if name == "eager":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return 0.5, 0.9

        return train

    with pytest.raises(RuntimeError, match="illegal memory access"):
        list(raced(once))
    told = capsys.readouterr().out
    assert "| graphs | 1 | 0.500 |" in told
    assert "| eager |" not in told


def test_a_process_sees_the_caller_s_packages_too_and_the_compiler_finds_its_caches_again(monkeypatch, capsys):
    import gpu_starts

    ran = []
    monkeypatch.setattr(gpu_starts.card, "conditions", lambda: CARD)
    told = b"more\nSteps are CUDA graphs; ready after 4.2 s\n"
    monkeypatch.setattr(gpu_starts, "run", lambda command, environment: ran.append((command, environment)) or told)
    monkeypatch.setenv("PYTHONPATH", "/wheels")
    monkeypatch.delenv("NGCDL_CIFAR10", raising=False)
    (made_up,) = gpu_starts.measure(None, inf)
    assert made_up.conditions == CARD
    assert (len(made_up.ours), made_up.goal) == (3, None)
    caches = [environment["TRITON_CACHE_DIR"] for _, environment in ran]
    assert (len(set(caches)), caches[3]) == (4, caches[4])
    assert ["--compile" in command for command, _ in ran] == [False] * 3 + [True] * 2
    assert {environment["PYTHONPATH"] for _, environment in ran} == {f"{CONTAINERS}:/wheels"}
    said = capsys.readouterr().out
    assert said.count(" s: Steps are CUDA graphs; ready after 4.2 s\n") == 5
    assert re.search(r"--compile: \d+\.\d s, once, again, with the compiler's caches", said)
    monkeypatch.setenv("NGCDL_CIFAR10", "/images")
    (real,) = gpu_starts.measure(None, inf)
    assert (real.goal, real.key != made_up.key) == (gpu_starts.Goal("ours", 10.0), True)
    ran.clear()
    assert [len(one.ours) for one in gpu_starts.measure(9, 0.0)] == [3]
    assert ["--compile" in command for command, _ in ran] == [False] * 3, "there is no time for compiling"
    assert "--compile: not measured, nothing kept: the time is up" in capsys.readouterr().out


def test_losses_are_held_against_those_on_the_cpu(monkeypatch, capsys):
    import gpu_apart

    theirs, is_graph = gpu_apart.losses("batch-sweep", "cpu")
    assert (len(theirs), is_graph) == (gpu_apart.STEPS, False)
    assert gpu_apart.apart(gpu_apart.losses("batch-sweep", "cpu")[0], theirs) == [0] * gpu_apart.STEPS
    assert 0 < gpu_apart.largest(gpu_apart.apart(gpu_apart.losses("batch-sweep", "cpu", 1e-4)[0], theirs)) < 1e-3
    told = {("gpu", 0.0): [2.0, 1.0, 0.01], ("cpu", 0.0): [2.0, 1.1, 0.0], ("cpu", gpu_apart.MOVED): [2.0, 1.1, 0.0]}
    recorded = {"gpu"}
    monkeypatch.setattr(gpu_apart, "losses", lambda _, device, moved=0.0: (told[device, moved], device in recorded))
    monkeypatch.setattr(sys, "argv", ["gpu_apart.py", "any"])
    assert gpu_apart.main() == "too far from the CPU: any"
    assert capsys.readouterr().out == "any: 9.1e-02, and of other roundings 0.0e+00\n"
    told["cpu", gpu_apart.MOVED] = [2.0, 1.12, 0.0]
    assert gpu_apart.main() == 0, "a network that makes so much of a rounding is no further apart than it must be"
    recorded.clear()
    assert gpu_apart.main() == "no CUDA graphs: any"
    assert "cifar10-keras" in gpu_apart.trained()


def test_a_training_whose_losses_are_held_against_each_other_finds_the_trainer_by_itself(monkeypatch):
    import apart

    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(apart, "STEPS", 2)
    monkeypatch.setattr(sys, "argv", ["apart.py", "synthetic"])
    assert len(apart._trained("cifar10-keras", 1)) == 2


def test_what_is_no_number_and_what_is_apart_before_any_step_is_too_far():
    import gpu_apart

    nothing = float("nan")
    assert gpu_apart.largest([1.0, nothing, 2.0]) != gpu_apart.largest([1.0, 2.0])
    assert gpu_apart.is_near([0.0, 0.2, 0.2], [0.0, 0.02, 0.01])
    assert not gpu_apart.is_near([0.0, 0.2, 0.3], [0.0, 0.02, 0.01])
    assert not gpu_apart.is_near([0.2, 0.0, 0.0], [0.0, 0.02, 0.01])
    assert not gpu_apart.is_near([0.0, nothing], [0.0, 0.1])
    assert not gpu_apart.is_near([0.0, 0.02], [0.0, nothing])


def test_what_compilers_ask_in_the_old_words_has_the_same_answer(torch):
    from trainer.frameworks.pytorch.numbers import allow_tf32

    for allowed in True, False:
        allow_tf32(allowed)
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cudnn.allow_tf32 is allowed
        assert (torch.get_float32_matmul_precision() == "high") is allowed
