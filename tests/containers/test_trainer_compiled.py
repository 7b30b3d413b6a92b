"""A compiled step: the same losses, compiled once, and refused by name where there is no compiler."""

import numpy as np
import pytest
from small_networks import BATCH, NUMBERS, PICTURES, TEXT, losses, made, source

from trainer.events import Stop
from trainer.recipe import recipe, sgd, untrained

# PyTorch's own compiler imports what PyTorch itself has deprecated.
COMPILES = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
# One of each op for the compiler, and two tokens: each more takes seconds to compile.
FEW = (
    ([word for word in PICTURES[0] if word["name"] not in ("lrn1", "conv2")], *PICTURES[1:]),
    (TEXT[0], recipe(sgd(), rate=0.1, clip=5.0, labels=(2,)), (2,)),
)


@COMPILES
@pytest.mark.parametrize("network", FEW, ids=["pictures", "text"])
def test_compiled_the_losses_are_those_of_the_uncompiled(framework, network):
    eager = made(framework, network, ("float32", False, None))
    compiled = made(framework, network, ("float32", True, None))
    assert (eager.compiled, compiled.compiled) == (False, True)
    assert losses(network, compiled) == pytest.approx(losses(network, eager), abs=1e-4)


@COMPILES
@pytest.mark.parametrize("precision", ["float32", "amp"])
def test_what_trains_nothing_is_compiled_as_well(framework, precision):
    forward = NUMBERS[0], untrained(), NUMBERS[2]
    eager, compiled = (made(framework, forward, (precision, wanted, None)) for wanted in (False, True))
    (batch,) = compiled.batches(source(forward), 0, 1, "plain")
    assert compiled.infer(batch).dtype == np.float32
    assert compiled.infer(batch) == pytest.approx(eager.infer(batch), abs=1e-5 if precision == "float32" else 0.03)


@COMPILES
def test_a_smaller_last_batch_is_not_compiled_for(framework):
    """Compiling takes tens of seconds, in the middle of what is timed. The stand-in for the compiled function records
    the batches that it gets."""
    forward, called = (NUMBERS[0], untrained(), NUMBERS[2]), []
    built = made(framework, forward, ("float32", True, None))
    built.quick = lambda examples: called.append(len(examples)) or built.look(examples)
    whole, smaller = (built.infer(batch) for batch in built.batches(source(forward), 1, 3, "plain"))
    assert (len(whole), len(smaller)) == (BATCH, BATCH - 3)
    assert called == [BATCH]


@pytest.mark.tensorflow
def test_what_fails_in_a_compiled_step_is_laid_to_xla_unless_memory_is_short():
    import tensorflow as tf
    from trainer.frameworks.tf2 import numbers

    def fails(compiled, text):
        with numbers.explained(compiled):
            raise tf.errors.InternalError(None, None, text)

    with pytest.raises(Stop, match=r"can't compile or run this: libdevice not found\nLeave --com"):
        fails(True, "libdevice not found")
    for compiled, text in (False, "Blas xGEMM launch failed"), (True, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"):
        with pytest.raises(tf.errors.InternalError):
            fails(compiled, text)


@COMPILES
@pytest.mark.torch
def test_without_a_compiler_it_is_said_what_is_missing(monkeypatch, tmp_path):
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # else other tests have left what is compiled here
    built = made("pytorch", NUMBERS, ("float32", True, None))
    lacking = config.patch({"cpp.cxx": (None, "/nowhere/g++")})
    with lacking, pytest.raises(Stop, match=r"(?s)torch\.compile failed: .*/nowhere/g\+\+") as stop:
        losses(NUMBERS, built, 0, 1)
    assert stop.value.kind == "bad_argument"
    assert str(stop.value).endswith(
        "\nIt needs a C++ compiler, and on a GPU Triton: leave --compile out, or use a container image that has them"
    )


@pytest.mark.torch
def test_a_pytorch_that_does_not_compile_on_this_python_is_refused(torch, monkeypatch):
    def early(function, dynamic):
        raise RuntimeError("Dynamo is not supported on Python 3.12+")

    monkeypatch.setattr(torch, "compile", early)
    with pytest.raises(Stop, match=r"here: Dynamo is not supported on Python 3.12\+\nLeave --compile out") as stop:
        made("pytorch", NUMBERS, ("float32", True, None))
    assert stop.value.kind == "bad_argument"


@COMPILES
@pytest.mark.torch
def test_after_its_first_step_pytorch_compiles_nothing_more():
    from torch._dynamo.utils import counters

    counters.clear()
    built = made("pytorch", NUMBERS, ("float32", True, None))
    losses(NUMBERS, built, 0, 1)
    once = counters["stats"]["unique_graphs"]
    losses(NUMBERS, built, 1, 5)
    assert (once, counters["stats"]["unique_graphs"]) == (1, 1)
