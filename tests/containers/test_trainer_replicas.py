"""Several replicas train like one process: the same losses and one record.

In float32 twelve steps are compared: after that these networks amplify the 1e-7 by which sums in another order differ
to 1e-4, in one process too. With float64 weights and images twenty steps agree.
"""

import multiprocessing
from contextlib import closing

import numpy as np
import pytest
from trainer_process import CONTAINERS, FEW, events, losses, names, python, trained, trainer

from trainer import __main__ as entry
from trainer import checkpoint, data, group, layers, meeting
from trainer.group import Group
from trainer.recipe import Model, Turn, untrained
from trainer.workloads import resnet_56

LIMIT = 240
# As sitecustomize.py: of 50,000 windows an epoch takes a minute.
FEWER_CHAINS = 'from trainer import made\nmade.WINDOWS = {"train": 1000}\n'


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return one process's losses in the first 12 steps of the tutorial."""
    known = {}

    def of(framework):
        if framework not in known:
            folder = tmp_path_factory.mktemp(framework)
            words = "cifar10", "--framework", framework, "--steps", "12", "--batch", "64"
            known[framework] = trained(folder, *words, images={"train": FEW["train"][0]})[0]
        return known[framework]

    return of


def test_two_replicas_have_the_losses_of_one_process_and_go_on_as_three(framework, alone, tmp_path, monkeypatch, few):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # for the outside, never between replicas
    words = "cifar10", "--framework", framework, "--batch", "64"
    found, out = trained(tmp_path, *words, "--replicas", "2", "--steps", "6", "--samples", "n1", PYTHONPATH=few)
    assert out.count(": step ") == 6
    (began,) = events(tmp_path, "start")
    assert (began["replicas"], began["nodes"], began["batch"]) == (2, 1, 64)
    assert names(tmp_path) == ["checkpoints", "events.jsonl", "lock", "samples-n1.jsonl"]
    if framework == "pytorch":  # TensorFlow starts slowly
        found, _ = trained(tmp_path, *words, "--replicas", "3", "--steps", "12", "--resume", tmp_path, PYTHONPATH=few)
        assert [event["step"] for event in events(tmp_path, "checkpoint")] == [6, 12]
    assert found == pytest.approx(alone(framework)[: len(found)], abs=1e-4)


@pytest.mark.torch
def test_epochs_and_accuracy_are_of_the_whole_batch_and_adam_moves_the_same(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FEWER_CHAINS)
    words, few = ("batch-sweep", "--framework", "pytorch", "--batch", "400", "--steps", "3"), f"{tmp_path}:{CONTAINERS}"
    one, _ = trained(tmp_path / "1", *words, PYTHONPATH=few)
    three, _ = trained(tmp_path / "3", *words, "--replicas", "3", PYTHONPATH=few)
    assert three == pytest.approx(one, abs=1e-4)
    told = [{key: event[key] for key in ("epoch", "examples", "accuracy")}
            for folder in ("1", "3") for event in events(tmp_path / folder, "epoch")]  # fmt: skip
    assert told[0] == told[1]
    assert told[0]["examples"] == 1000


class Doubled:
    """Batches with float64 examples: with float64 weights, all but the loss is then in float64."""

    def __init__(self, source):
        self.source = source

    def __call__(self, step):
        examples, labels = self.source(step)
        return examples.astype(np.float64), labels


def doubled_losses(name, own, steps=20):
    """Train a workload in PyTorch in float64 without dropout, as the replica `own`; return the losses."""
    from trainer.frameworks.pytorch import Network

    workload, random = entry.imported(name), np.random.RandomState(6)
    images, labels = random.randint(0, 256, (640, 32, 32, 3)).astype(np.uint8), random.randint(0, 10, 640)
    dataset = data.Dataset(images, labels.astype(np.int32), "synthetic", 1)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, 16)
    network = Network(model, "cpu", threads=1, group=own)
    network.load({key: array.astype(np.float64) for key, array in model.first(0).items()})
    source = Doubled(group.sliced(workload.source(dataset, 16, 0, 0.01), own))
    batches = network.batches(source, 0, steps)
    turns = [model.turn(step, 0, own.share(16)) for step in range(steps)]
    found = [float(network.train(batch, turn)[0]) for batch, turn in zip(batches, turns, strict=True)]
    network.close()
    return found


@pytest.fixture(scope="module")
def two_processes():
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GLOO_SOCKET_IFNAME", "lo")  # meeting.py does so in a training
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            yield pool


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras"])
def test_twenty_steps_of_two_replicas_are_those_of_one_process_where_little_is_rounded(name, two_processes):
    with closing(meeting.Ports(2)) as ports:
        workers = [f"127.0.0.1:{port}" for port in ports.numbers]
        asked = [(name, Group(rank, 2, rank, 2, workers=workers)) for rank in range(2)]
        two = two_processes.starmap_async(doubled_losses, asked, chunksize=1)
        one = doubled_losses(name, Group())
        first, second = two.get(LIMIT)
    assert first == second == pytest.approx(one, abs=1e-5)


@pytest.mark.torch
def test_with_batch_norm_a_step_is_the_mean_of_what_each_replica_would_do_alone(tmp_path, monkeypatch, few):
    """Each replica's statistics cover its own part, as in DistributedDataParallel; the first's are kept."""
    from trainer.frameworks.pytorch import Network

    words = "resnet-56", "--framework", "pytorch", "--batch", "8", "--steps", "1", "--replicas", "2"
    trained(tmp_path, *words, PYTHONPATH=few)
    monkeypatch.setattr(data, "SYNTHETIC", FEW)
    assert events(tmp_path, "replicas")[0]["identical"] is True
    _, found = checkpoint.read(str(tmp_path / "checkpoints" / "step-1.npz"))
    source = resnet_56.source(resnet_56.load(None), 8, 0, None)
    alone = []
    for rank in range(2):
        network = Network(Model(resnet_56.NETWORK, resnet_56.RECIPE, resnet_56.INPUT, 4), "cpu", threads=1)
        network.load(network.model.first(0))
        (batch,) = network.batches(group.sliced(source, Group(rank, 2)), 0, 1)
        alone.append((float(network.train(batch, network.model.turn(0, 0))[0]), network.values()))
    (loss, first), (other, second) = alone
    assert losses(tmp_path) == pytest.approx([(loss + other) / 2], abs=1e-5)
    for name, array in found.items():
        wanted = (first[name] + second[name]) / 2 if name in network.model.weights else first[name]
        if "/" in name and not name.startswith("velocity/"):
            assert np.abs(array - wanted).max() < 1e-5, name


@pytest.mark.tensorflow
def test_the_replicas_of_tensorflow_2_take_the_usual_step_all_or_none():
    """Of a batch of 7 they have 3 and 4 examples, of the last one of 6 each has 3."""
    import tensorflow
    from trainer.frameworks.tf2 import Network

    network, taken, loss = Network(Model([], untrained(), (1,), 7), "cpu"), [], tensorflow.zeros(())
    network.fast, network.step = (
        lambda *_, name=name: taken.append(name) or (loss, None, None) for name in ("fast", "step")
    )
    for rank in range(2):
        network.group = own = Group(rank, 2)
        for count in 7, 6:
            turn = Turn(0, 0, 0.1, None, own.share(count))
            network.train((np.zeros(count)[own.part(count)],), turn)
    assert taken == ["fast", "step"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cifar10", "--batch", "2", "--replicas", "3"), "a batch of 2 is too small for 3 replicas: use --batch 3"),
        (("resnet-56", "--batch", "5", "--replicas", "3"), "a batch of 5 is too small for 3 replicas: use --batch 6"),
        (("smoke", "--replicas", "2"), "smoke trains nothing"),
        (("inference", "--replicas", "2"), "inference trains nothing"),
        (("cifar10", "--feed", "input", "--replicas", "2"), "--feed input trains nothing"),
        (("distill", "--replicas", "2"), "use --teacher none"),
    ],
)
def test_what_replicas_cannot_do_is_refused_before_any_begins(tmp_path, words, said):
    code, _, err = trainer(*words, "--out", tmp_path)
    (error,) = events(tmp_path, "error")
    assert (code, error["kind"]) == (1, "bad_argument")
    assert said in error["message"]
    assert said in err


def test_the_parent_loads_no_framework():
    found = python("import trainer.__main__, sys; print({'torch', 'tensorflow'} & set(sys.modules))")
    assert found[:2] == (0, "set()\n"), found
