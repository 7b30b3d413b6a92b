"""A recorded and replayed step equals an ordinary one. Without a GPU a function is replayed, not a graph."""

from types import SimpleNamespace

import numpy as np
import pytest
from own_process import Played, places

from trainer.computing import Way
from trainer.layers import constant, conv, dense, dropout, he, relu
from trainer.recipe import Model, adam, momentum, recipe, sgd

pytestmark = pytest.mark.torch
WORDS = [
    conv("conv", 3, 3, 4, he(3, 9), constant(0.1)),
    relu("relu"),
    dropout("dropout", 0.2),
    dense("end", 6 * 6 * 4, 5, he(144), constant(0.0), decay=0.01),
]
RECIPES = {
    "sgd": recipe(sgd(), rate=lambda step, _: 0.1 / (1 + step), averages=lambda _: 0.5, counted=True),
    "momentum": recipe(momentum(0.9), rate=0.05, clip=0.5),
    "adam": recipe(adam(0.9, 0.999, 1e-7), rate=0.01, counted=True),
}


def network(name, place="cpu", is_compiled=False):
    from trainer.frameworks.pytorch import Network

    way = Way("float32", is_compiled, None)
    made = Network(Model(WORDS, RECIPES[name], (6, 6, 3), 8), place, way=way)
    made.load(made.model.first(1))
    return made


def batches(torch, sizes):
    random = np.random.RandomState(4)
    for size in sizes:
        examples = torch.from_numpy(random.normal(size=(size, 6, 6, 3)).astype(np.float32))
        yield examples, torch.from_numpy(random.randint(0, 5, size))


def trained(made, stepper, sizes=(8,) * 6):
    import torch

    made.stepper, told = stepper, []
    for step, batch in enumerate(batches(torch, sizes)):
        told.append(made.train([one.to(made.on) for one in batch], made.model.turn(step, 0)))
    right = [None if one is None else int(one) for _, one in told]
    return [float(loss.detach()) for loss, _ in told], right, made.values()


def stepper(made, recorder):
    from trainer.frameworks.pytorch.graphed import Stepper

    return Stepper(made, recorder)


@pytest.mark.parametrize(
    ("place", "name", "is_compiled"),
    [(place, name, False) for place in places() for name in RECIPES]
    + [(place, "adam", True) for place in places() if place == "gpu"],  # other tests cover compiling on a CPU
)
def test_what_is_played_trains_as_ordinary_steps_do(place, name, is_compiled):
    ordinary, played = (network(name, place, is_compiled) for _ in range(2))
    losses, right, values = trained(ordinary, None)
    steps = stepper(played, Played() if place == "cpu" else None)
    found, counted, after = trained(played, steps)
    assert steps.replay, "it was recorded"
    assert found == pytest.approx(losses, rel=1e-5 if place == "cpu" else 1e-3)
    assert counted == right
    assert all(np.abs(after[key] - values[key]).max() < (1e-5 if place == "cpu" else 1e-2) for key in values)


def test_steps_are_recorded_once_after_ordinary_ones():
    made, recorder = network("sgd"), Played()
    trained(made, stepper(made, recorder))
    from trainer.frameworks.pytorch.graphs import FIRST

    assert (recorder.ordinary, recorder.recordings) == (FIRST, 1)


def test_a_batch_of_another_size_is_an_ordinary_step():
    sizes = 8, 8, 8, 8, 3, 8
    ordinary, played = network("adam"), network("adam")
    assert trained(played, stepper(played, Played()), sizes)[0] == pytest.approx(
        trained(ordinary, None, sizes)[0], rel=1e-5
    )


def test_what_can_not_be_recorded_is_said_and_trained_as_ever(capsys):
    ordinary, played = network("sgd"), network("sgd")
    recorder = Played("operation not permitted when stream is capturing")
    found = trained(played, stepper(played, recorder))[0]
    assert found == pytest.approx(trained(ordinary, None)[0], rel=1e-5)
    assert recorder.recordings == 1
    assert capsys.readouterr().err.count("not permitted when stream is capturing") == 1


def test_steps_that_would_leave_too_little_memory_are_not_recorded(capsys):
    made, recorder = network("sgd"), Played(tight=True)
    assert len(trained(made, stepper(made, recorder))[0]) == 6
    assert recorder.recordings == 0
    assert "too little memory beside it" in capsys.readouterr().err


def test_too_little_memory_for_it_ends_the_training():
    made = network("sgd")
    with pytest.raises(RuntimeError, match="out of memory"):
        trained(made, stepper(made, Played("CUDA out of memory. Tried to allocate 2 GiB")))


def test_on_a_cpu_there_are_no_graphs():
    made = network("sgd")
    from trainer.frameworks.pytorch.graphed import can_be

    assert not can_be(made, "resident")


def test_dropout_is_recorded_only_where_a_played_graph_draws_anew(torch, monkeypatch):
    made = network("sgd")
    from trainer.frameworks.pytorch.graphed import can_be

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object, raising=False)

    def on_a_gpu(*ops):
        told = dict(made.__dict__, on=torch.device("cuda"), model=SimpleNamespace(trains=True, ops=set(ops)))
        return can_be(SimpleNamespace(**told), "resident")

    assert (on_a_gpu("conv"), on_a_gpu("conv", "dropout")) == (True, True)
    monkeypatch.delattr(torch, "compile")  # like PyTorch 1
    assert (on_a_gpu("conv"), on_a_gpu("conv", "dropout")) == (True, False)
