"""A step that is recorded and played again is the ordinary one. Here a function is played, where a GPU has a graph."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import needs

from trainer.layers import constant, conv, dense, he, relu
from trainer.recipe import Model, adam, momentum, recipe, sgd

pytestmark = pytest.mark.torch
WORDS = [
    conv("conv", 3, 3, 4, he(3, 9), constant(0.1)),
    relu("relu"),
    dense("end", 6 * 6 * 4, 5, he(144), constant(0.0), decay=0.01),
]
RECIPES = {
    "sgd": recipe(sgd(), rate=lambda step, _: 0.1 / (1 + step), averages=lambda _: 0.5, counted=True),
    "momentum": recipe(momentum(0.9), rate=0.05, clip=0.5),
    "adam": recipe(adam(0.9, 0.999, 1e-7), rate=0.01, counted=True),
}


def network(name):
    needs("torch")
    from trainer.frameworks.pytorch import Network

    made = Network(Model(WORDS, RECIPES[name], (6, 6, 3), 8), "cpu")
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
        told.append(made.train(batch, made.model.turn(step, 0)))
    return [float(loss.detach()) for loss, _ in told], [right for _, right in told], made.values()


@pytest.mark.parametrize("name", list(RECIPES))
def test_what_is_played_trains_as_ordinary_steps_do(name):
    ordinary, played = network(name), network(name)
    from trainer.frameworks.pytorch.graphed import FIRST, Stepper

    recorded = []
    stepper = Stepper(played, lambda step: recorded.append(stepper.steps) or step)
    losses, right, values = trained(ordinary, None)
    found, counted, after = trained(played, stepper)
    assert recorded == [FIRST + 1], "once, after the ordinary ones"
    assert found == pytest.approx(losses, rel=1e-5)
    assert counted == right
    assert all(np.abs(after[key] - values[key]).max() < 1e-5 for key in values)


def test_a_batch_of_another_size_is_an_ordinary_step():
    sizes = 8, 8, 8, 8, 3, 8
    ordinary, played = network("adam"), network("adam")
    from trainer.frameworks.pytorch.graphed import Stepper

    assert trained(played, Stepper(played, lambda step: step), sizes)[0] == pytest.approx(
        trained(ordinary, None, sizes)[0], rel=1e-5
    )


def test_what_can_not_be_recorded_is_said_and_trained_as_ever(capsys):
    ordinary, played = network("sgd"), network("sgd")
    from trainer.frameworks.pytorch.graphed import Stepper

    def refuse(step):
        raise RuntimeError("operation not permitted when stream is capturing")

    assert trained(played, Stepper(played, refuse))[0] == trained(ordinary, None)[0]
    assert capsys.readouterr().err.count("not permitted when stream is capturing") == 1


def test_too_little_memory_for_it_ends_the_training():
    made = network("sgd")
    from trainer.frameworks.pytorch.graphed import Stepper

    def refuse(step):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    with pytest.raises(RuntimeError, match="out of memory"):
        trained(made, Stepper(made, refuse))


def test_on_a_cpu_there_are_no_graphs():
    made = network("sgd")
    from trainer.frameworks.pytorch.graphed import can_be

    assert not can_be(made, "resident")


def test_dropout_is_recorded_only_where_a_played_graph_draws_anew(monkeypatch):
    made = network("sgd")  # which tells what is missing
    import torch

    from trainer.frameworks.pytorch.graphed import can_be

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object, raising=False)

    def on_a_gpu(*ops):
        told = dict(made.__dict__, on=torch.device("cuda"), model=SimpleNamespace(trains=True, ops=set(ops)))
        return can_be(SimpleNamespace(**told), "resident")

    assert (on_a_gpu("conv"), on_a_gpu("conv", "dropout")) == (True, True)
    monkeypatch.delattr(torch, "compile")  # as PyTorch 1 is
    assert (on_a_gpu("conv"), on_a_gpu("conv", "dropout")) == (True, False)
