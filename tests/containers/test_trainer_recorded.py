"""What is recorded as a CUDA graph neither waits for the GPU nor touches host memory: a graph can do neither.

The steps run on PyTorch's "meta" device, which has shapes but no numbers and is separate from the host like a GPU:
bringing a number to the host fails there. Other forbidden operations are looked for among all that were done.
"""

import numpy as np
import pytest
from own_process import Played, places

from trainer import __main__ as entry
from trainer import data, race, workloads
from trainer.recipe import Model

pytestmark = pytest.mark.torch
# Their output size depends on values, or they return values to the host: PyTorch waits for the GPU in them
WAITING = {
    *("item", "_local_scalar_dense", "is_nonzero", "equal", "allclose", "nonzero", "masked_select", "randperm"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "histc", "multinomial", "_pin_memory"),
    *("repeat_interleave", "_linalg_eigh", "_linalg_svd", "linalg_qr", "_linalg_solve_ex", "lift_fresh"),
}
COPYING = {"tensor", "as_tensor", "asarray", "from_numpy", "new_tensor"}  # from the host's memory
TRAINED = [
    name
    for name in entry.names(workloads)
    if "pytorch" in (its := entry.imported(name)).FRAMEWORKS and not hasattr(its, "run") and its.RECIPE["loss"]
]


def watched(step):
    """Run a step and return the names of its operations; raise AssertionError for one that a recording forbids."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    done = []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name, found = function._schema.name.partition("::")[2], function(*args, **(kwargs or {}))
            done.append(name)
            assert name.rstrip("_") not in WAITING, f"{name} waits for the GPU"
            for one in tree_leaves((args, kwargs, found)):
                assert not isinstance(one, torch._C.Generator), f"{name} draws by a generator that no recording knows"
                assert not isinstance(one, torch.Tensor) or one.is_meta, f"{name} touches the host's memory"
            return found

    class Made(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            assert function.__name__ not in COPYING, f"{function.__name__} copies from the host"
            return function(*args, **(kwargs or {}))

    with Watched(), Made():
        step()
    return done


FORBIDDEN = {
    "x.sum().item()": "item",
    "float(x[0])": "item",
    "bool((x > 0).all())": "item|is_nonzero",
    "x.cpu()": "meta tensor",
    "x[x > 0]": "nonzero",
    "x * torch.ones(())": "touches the host's memory",
    "x * torch.ones(3).to(x.device)": "touches the host's memory",
    "x + torch.tensor([1.0], device=x.device)": "copies from the host",
    "x.new_tensor(0)": "copies from the host",
    "x + torch.from_numpy(np.ones(3)).to(x.device)": "lift_fresh waits",
    "torch.randperm(9, device=x.device)": "randperm waits",
}


@pytest.mark.parametrize("forbidden", list(FORBIDDEN))
def test_what_a_recording_forbids_would_be_found(torch, forbidden):
    known = {"torch": torch, "np": np, "x": torch.ones(3, device="meta")}
    with pytest.raises((AssertionError, RuntimeError), match=FORBIDDEN[forbidden]):
        watched(lambda: eval(forbidden, known))


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_of_every_network_can_be_recorded(torch, name):
    from trainer.frameworks.pytorch import Network
    from trainer.frameworks.pytorch.graphed import Stepper

    workload = entry.imported(name)
    model = Model(workload.NETWORK, {**workload.RECIPE, "loss": "softmax"}, workload.INPUT, workload.BATCH)
    network = Network(model, "cpu")
    network.on = torch.device("meta")
    network.load({name: np.empty(shape, np.float32) for name, shape in model.kept().items()})
    numbers = torch.int64 if model.tokens else torch.float32
    examples = torch.empty((model.batch, *model.shape), dtype=numbers, device="meta")
    labels = torch.empty((model.batch, *model.labels), dtype=torch.int64, device="meta")
    stepper = Stepper(network, Played())
    stepper.put((examples, labels), model.turn(0, 0))
    done = watched(stepper.step)
    assert {"_log_softmax_backward_data", "_foreach_sub_"} <= set(done), "it learns"
    assert stepper.told[0].shape == ()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_all_kinds_of_steps_of_the_race_can_be_recorded(torch, kind, monkeypatch):
    from trainer.frameworks.pytorch.race import Race

    255 * torch.ones(1, device="meta")  # the first such product loads modules that need the real generator
    monkeypatch.setattr(torch, "Generator", lambda _: None)  # "meta" has none; no step draws, which watched() sees
    images, labels = np.zeros((4000, 32, 32, 3), np.uint8), np.zeros(4000, np.int64)
    made = Race(torch.device("meta"), getattr(torch, kind), race.KNOBS, 225, 2000, images, labels)
    assert len(made.takes) == 4
    for take in made.takes:
        done = watched(take)
        assert (done.count("convolution"), done.count("convolution_backward")) == (7, 6)
        assert done[-1] == "add_", "the count of steps is the device's own"


@pytest.mark.parametrize("place", places())
def test_a_race_in_16_bits_begins_as_one_in_32_on_the_cpu_does(torch, place, monkeypatch):
    """On a GPU as in a real race: float16, prepared, recorded. On the CPU 16 bits take PyTorch seconds a step, most of
    them for the polynomials: it takes one of these, and each kind of step once."""
    from trainer.frameworks.pytorch.numbers import allow_tf32
    from trainer.frameworks.pytorch.race import Race

    batch = 30 if place == "cpu" else 100
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)  # prepare() sets it
    monkeypatch.setattr(data, "SYNTHETIC", {"train": (3 * batch, 1)})
    made, knobs = data.synthetic("train"), race.KNOBS._replace(bias_share=1 / 3, whitening_images=batch)
    if place == "cpu":
        knobs = knobs._replace(polynomials=knobs.polynomials[:1])
    wide = Race(torch.device("cpu"), torch.float32, knobs, 3, batch, made.images, made.labels)
    assert [phase[2:] for phase in wide.phases] == [(24, True), (28, False), (32, False)]
    wide.reset(3)
    begin = [array.clone() for array in (wide.arrays.weights, wide.arrays.whitening, *wide.drawn)]
    on, kind = (torch.device("cpu"), torch.bfloat16) if place == "cpu" else (torch.device("cuda"), torch.float16)
    half = Race(on, kind, knobs, 3, batch, made.images, made.labels)
    if place == "gpu":
        allow_tf32(True)
        half.prepare(half.images)
        assert half.recorded, half.why
    half.reset(4)  # each device draws its own numbers
    for old, new in zip([half.arrays.weights, half.arrays.whitening, *half.drawn], begin, strict=True):
        old.copy_(new)
    half.arrays.filters.copy_(half.arrays.weights[: half.arrays.edge])
    for one in wide, half:
        for take in one.takes:  # one step of each kind
            take()
    assert half.losses.tolist() == pytest.approx(wide.losses.tolist(), rel=0.02)
    assert wide.losses[2] < 0.9 * wide.losses[0]


@pytest.mark.parametrize("place", places())
def test_a_race_that_is_recorded_trains_as_one_that_is_not(torch, place):
    from trainer.frameworks.pytorch.graphs import FIRST, Recorder
    from trainer.frameworks.pytorch.race import Race

    made, knobs = data.synthetic("train"), race.KNOBS._replace(sides=((12, 0.5), (16, 1.0)), whitening_images=50)
    on = torch.device({"gpu": "cuda"}.get(place, place))
    one = Race(on, torch.float32, knobs, 4, 30, made.images[:60], made.labels[:60])
    one.train(3)
    losses, recorder = one.losses.clone(), Played("operation not permitted when stream is capturing")
    one.record(recorder)
    assert (one.recorded, one.why) == (False, recorder.refusing)
    one.record(recorder := Played() if place == "cpu" else Recorder())
    assert one.recorded
    if place == "cpu":
        assert (recorder.ordinary, recorder.recordings) == (FIRST * len(one.phases), len(one.phases))
    one.train(3)
    assert one.losses.tolist() == pytest.approx(losses.tolist(), rel=1e-6 if place == "cpu" else 0.02)
