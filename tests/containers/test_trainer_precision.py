"""Precisions: refused by name where they can't be had, near float32 where they can, and reported."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from small_networks import BATCH, NUMBERS, PICTURES, TEXT, losses, made, model
from trainer_process import events, python, train, trainer

from trainer import computing, layers
from trainer.computing import Scale
from trainer.events import Stop
from trainer.layers import constant, normal


@pytest.mark.parametrize(
    ("asked", "device", "capability", "numbers"),
    [
        ("auto", "cpu", None, "float32"),
        ("auto", "gpu", None, "float32"),
        ("auto", "gpu", (7, 5), "float32"),
        ("auto", "gpu", (8, 0), "tf32"),
        ("float32", "gpu", (9, 0), "float32"),
        ("tf32", "gpu", (8, 6), "tf32"),
        ("amp", "cpu", None, "bfloat16"),
        ("amp", "gpu", (7, 0), "float16"),
        ("amp", "gpu", (12, 0), "bfloat16"),
    ],
)
def test_what_was_asked_for_means_what_the_device_has(asked, device, capability, numbers):
    assert computing.numbers(asked, device, capability) == numbers


@pytest.mark.parametrize(
    ("asked", "device", "capability", "here"),
    [
        ("tf32", "cpu", None, "this is the CPU"),
        ("tf32", "gpu", (7, 5), "this is one of 7.5"),
        ("tf32", "gpu", None, "does not report its own"),
        ("amp", "gpu", (6, 1), "this is one of 6.1"),
    ],
)
def test_what_the_device_lacks_is_refused_with_what_to_type(asked, device, capability, here):
    with pytest.raises(Stop, match=here) as stop:
        computing.numbers(asked, device, capability)
    assert stop.value.kind == "bad_argument"
    assert "leave --precision out" in stop.value.message


def test_nvidias_libraries_are_told_before_they_are_loaded(monkeypatch):
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    computing.prepare("auto")
    assert not {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE"} & set(computing.os.environ)
    computing.prepare("float32")
    assert computing.os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_the_scale_halves_when_gradients_overflow_and_doubles_after_two_thousand_good_steps():
    scale = Scale()
    for step in range(16):
        scale.move(False, step)
    assert scale.value == 1.0
    for step in range(16, 2015):
        scale.move(True, step)
    assert scale.value == 1.0
    scale.move(True, 2015)
    assert scale.value == 2.0


# bfloat16 keeps 8 bits, float16 11: each product is off by at most 1/256 or 1/2048 of itself. A batch's mean loss
# near 2.5 is then off by a few thousandths; the weights move by rate * gradient, which a second step sees.
@pytest.mark.parametrize(("precision", "apart"), [("amp", 0.02), ("float16", 0.004)])
@pytest.mark.parametrize("network", [PICTURES, TEXT], ids=["pictures", "text"])
def test_losses_in_16_bits_stay_near_those_in_float32(framework, network, precision, apart):
    exact = losses(network, made(framework, network, ("float32", False, None)))
    built = made(framework, network, (precision, False, None))
    if built.scale:
        built.scale.value = 1024.0  # as found in a long training: the initial scale would skip a step
    assert built.precision == {"amp": "bfloat16"}.get(precision, precision)
    found = losses(network, built)
    assert found == pytest.approx(exact, rel=apart)
    assert found != exact, "nothing was computed in 16 bits"
    assert {array.dtype for array in built.values().values()} == {np.dtype(np.float32)}


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.parametrize("network", [PICTURES, TEXT], ids=["pictures", "text"])
def test_amp_means_the_same_in_both_frameworks(network):
    one, other = (losses(network, made(name, network, ("amp", False, None))) for name in ("tf2", "pytorch"))
    assert one == pytest.approx(other, rel=0.01)


def test_what_was_trained_in_float32_goes_on_in_16_bits(framework):
    whole = losses(PICTURES, made(framework, PICTURES, ("float32", False, None)))
    begun = made(framework, PICTURES, ("float32", False, None))
    losses(PICTURES, begun, 0, 3)
    on = made(framework, PICTURES, ("amp", False, None), begun.values())
    assert losses(PICTURES, on, 3, 5) == pytest.approx(whole[3:], rel=0.02)


def test_a_step_whose_gradients_overflow_in_float16_moves_no_weight_and_halves_the_scale(framework):
    built = made(framework, NUMBERS, ("float16", False, None))
    before = built.values()

    def large(network):
        return lambda _: (np.full((BATCH, 6), 3e4, np.float32), np.zeros(BATCH, np.int32))

    (loss,) = losses(NUMBERS, built, 0, 1, large)
    assert np.isfinite(loss)
    assert built.scale.value == 32768.0
    after = built.values()
    assert all((after[name] == before[name]).all() for name in before)


def test_adams_first_step_is_as_large_after_some_that_float16_skipped(framework):
    """If the three counted, Adam's correction of its moments would make it 0.58 of that."""
    built = made(framework, NUMBERS, ("float16", False, None))
    before = built.values()["dense1/biases"]
    built.scale.value = 65536.0 * 4
    sizes = iter([3e4, 3e4, 3e4, 1e-2])

    def large_then_small(network):
        return lambda _: (np.full((BATCH, 6), next(sizes), np.float32), np.zeros(BATCH, np.int32))

    losses(NUMBERS, built, 0, 4, large_then_small)
    assert built.scale.skipped == 3
    assert np.abs(built.values()["dense1/biases"] - before) == pytest.approx([0.01] * 4, rel=1e-3)


def test_a_training_whose_gradients_overflow_float16_at_any_scale_stops_with_its_step(framework):
    """Its loss stays finite: steps that are skipped leave the weights as they are."""
    words = [layers.dense("small", 6, 4, constant(1e-4), constant(0.0))]
    words += [layers.dense("large", 4, 4, normal(30), constant(0.0))]
    network = (words, *NUMBERS[1:])
    built = made(framework, network, ("float16", False, None))

    def large(network):
        return lambda _: (np.full((BATCH, 6), 3e4, np.float32), np.arange(BATCH, dtype=np.int32) % 4)

    before = built.values()
    assert np.isfinite(losses(network, built, 0, 16, large)).all()
    assert built.scale.value == 1.0
    with pytest.raises(Stop, match="of step 16 are not finite in float16, even without loss scaling: leave") as stop:
        losses(network, built, 16, 17, large)
    assert (stop.value.kind, stop.value.step) == ("nan", 16)
    assert all((array == before[name]).all() for name, array in built.values().items())


def test_a_channels_layout_without_pictures_is_refused(framework):
    with pytest.raises(Stop, match="takes no images: leave --channels-last out"):
        made(framework, TEXT, ("auto", False, True))
    assert made(framework, TEXT, ("auto", False, None)).channels_last is None


@pytest.mark.torch
def test_pytorch_computes_the_same_with_channels_first_and_last():
    first, last = (made("pytorch", PICTURES, ("float32", False, asked)) for asked in (False, None))
    assert (first.channels_last, last.channels_last) == (False, True)
    assert losses(PICTURES, first) == pytest.approx(losses(PICTURES, last), abs=1e-5)
    picture = np.random.RandomState(1).normal(size=(4, 16, 16, 3)).astype(np.float32)
    assert first.logits(picture) == pytest.approx(last.logits(picture), abs=1e-4)


class Card:
    """A stand-in for PyTorch with a card of this compute capability; all else is PyTorch's own."""

    def __init__(self, torch, capability=(8, 0), lacking=(), cudnn=91300, takes_bfloat16=True):
        self.own, self.lacking = torch, lacking
        # until 1.0 the number of the card has no default: https://github.com/pytorch/pytorch/issues/17210
        self.cuda = SimpleNamespace(get_device_capability=lambda _: capability, current_device=lambda: 0)
        self.backends = SimpleNamespace(
            cuda=SimpleNamespace(), cudnn=SimpleNamespace(version=lambda: cudnn, allow_tf32=None)
        )
        self.empty, self.autocast = lambda *_, **__: None, lambda *_, **__: contextlib.nullcontext()
        self.cudnn_is_acceptable = lambda _: takes_bfloat16

    def __getattr__(self, name):
        if name in self.lacking:
            raise AttributeError(name)
        return getattr(self.own, name)


@pytest.fixture
def card(torch, monkeypatch):
    """Return what makes numbers.py see a fake card."""
    from trainer.frameworks.pytorch import numbers

    def seen(*words, **more):
        monkeypatch.setattr(numbers, "torch", Card(torch, *words, **more))
        return numbers

    return seen


@pytest.mark.torch
@pytest.mark.parametrize(
    ("capability", "lacking", "precision"),
    [((7, 5), (), "float16"), ((8, 0), (), "bfloat16"), ((8, 0), ("compile",), "float16")],
)
def test_amp_is_bfloat16_only_where_pytorch_convolves_in_it(card, capability, lacking, precision):
    assert card(capability, lacking).chosen("amp", "gpu") == precision
    assert card(capability, lacking).chosen("amp", "cpu") == "bfloat16"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("cudnn", "takes_bfloat16", "is_there"),
    [(91300, True, True), (91200, True, False), (91300, False, False), (None, False, False)],
)
def test_amid_bfloat16_lstms_are_float32_where_cudnn_has_them_in_no_other(torch, card, cudnn, takes_bfloat16, is_there):
    numbers, on = card(cudnn=cudnn, takes_bfloat16=takes_bfloat16), torch.device("cuda")
    assert numbers.recurrent(torch.bfloat16, on) == (torch.bfloat16 if is_there else torch.float32)
    assert numbers.recurrent(torch.bfloat16, torch.device("cpu")) == torch.bfloat16
    assert numbers.recurrent(torch.float16, on) == torch.float16
    assert numbers.recurrent(None, on) is None


@pytest.mark.torch
def test_an_lstm_in_float32_amid_16_bits_trains_as_it_should(torch, monkeypatch):
    """The CPU stands for a card whose cuDNN has no LSTM in bfloat16."""
    computed, own = [], torch.lstm
    monkeypatch.setattr(torch, "lstm", lambda x, *rest: computed.append(x.dtype) or own(x, *rest))
    built = made("pytorch", TEXT, ("amp", False, None))
    built.recurrent = torch.float32
    exact = losses(TEXT, made("pytorch", TEXT, ("float32", False, None)))
    computed.clear()
    found = losses(TEXT, built)
    assert set(computed) == {torch.float32}
    assert found == pytest.approx(exact, rel=0.02)
    assert found != exact, "all else is in 16 bits"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("device", "precision", "usual"),
    [("cpu", "float32", True), ("gpu", "float32", False), ("gpu", "tf32", True), ("gpu", "float16", True)],
)
def test_pictures_lie_channels_first_only_in_plain_float32_on_a_gpu(device, precision, usual):
    from trainer.frameworks.pytorch import numbers

    assert numbers.layout(None, model(PICTURES), precision, device) is usual
    assert [numbers.layout(asked, model(PICTURES), precision, device) for asked in (True, False)] == [True, False]
    assert numbers.layout(None, model(TEXT), precision, device) is None


@pytest.mark.torch
def test_a_pytorch_that_knows_no_channels_last_keeps_them_first_and_refuses_the_other(monkeypatch):
    from trainer.frameworks.pytorch import numbers

    monkeypatch.setattr(numbers, "LAST", None)
    assert [numbers.layout(asked, model(PICTURES), "float32", "cpu") for asked in (None, False)] == [False, False]
    with pytest.raises(Stop, match=r"no channels last: leave --channels-last out, or use a later") as stop:
        numbers.layout(True, model(PICTURES), "float32", "cpu")
    assert stop.value.kind == "bad_argument"


@pytest.mark.torch
def test_a_pytorch_before_tf32_is_told_nothing_of_it(torch, monkeypatch):
    monkeypatch.delattr(torch.backends.cuda, "matmul")
    assert made("pytorch", NUMBERS, ("auto", False, None)).precision == "float32"


@pytest.mark.tensorflow
def test_tensorflow_refuses_channels_first_and_says_why():
    with pytest.raises(Stop, match="only in channels-last layout") as stop:
        made("tf2", PICTURES, ("auto", False, False))
    assert stop.value.kind == "bad_argument"


def test_the_start_event_says_what_is_computed_in(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--batch", 4, "--steps", 2, "--precision", "amp"
    train("batch-sweep", "--out", tmp_path, *common, "--no-eval")
    (begun,) = events(tmp_path, "start")
    assert (begun["precision"], begun["compiled"], begun["channels_last"]) == ("bfloat16", False, True)


def test_tf32_on_the_cpu_stops_before_any_work(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--precision", "tf32"
    code, _, err = trainer("cifar10", "--out", tmp_path, *common)
    assert code == 1
    assert [event["kind"] for event in events(tmp_path)] == ["bad_argument"]
    assert "use --precision float32" in err


def test_variables_stay_on_the_cpu_for_the_tutorial_s_network_alone():
    from trainer import __main__ as entry
    from trainer import workloads

    kept = {name: getattr(entry.imported(name), "VARIABLES", None) for name in entry.names(workloads)}
    assert {name for name, where in kept.items() if where == "cpu"} == {"cifar10", "scaling"}
    assert layers.ops(entry.imported("cifar10").NETWORK).isdisjoint({"embedding", "lstm"})


@pytest.mark.torch
def test_on_a_cpu_each_of_pytorchs_threads_takes_numbers_below_float32s_normal_ones_as_zeros():
    # a separate process: a thread keeps the mode it was started with, and here some are running
    code, found, err = python(
        "import torch\n"
        "from trainer.frameworks.pytorch import Network\n"
        "from trainer.recipe import Model, recipe, sgd\n"
        "Network(Model([], recipe(sgd(), rate=0.1), (1,), 1), 'cpu', threads=2)\n"
        "small = torch.full((2**22,), 1e-39)\n"
        "print(torch.get_num_threads(), (small * 1).count_nonzero().item(), (small + 1).count_nonzero().item())\n"
    )
    assert (code, found.split()) == (0, ["2", "0", str(2**22)]), err
