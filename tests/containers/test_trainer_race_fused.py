"""cifar10-94's own kernels compute what PyTorch's operations do: on a GPU if there is one, else in Triton's
interpreter, which is chosen before Triton is imported: hence the processes."""

import json
import os

import pytest
from trainer_process import CONTAINERS, python

pytestmark = pytest.mark.torch

BEGIN = """
import json, torch
from trainer.frameworks.pytorch.race import fused, kernels, net, pictures
on = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
# How far results are from those of net.py.
APART = """
fused.CHECKED = 4
if on.type == "cpu":  # fewer programs for the interpreter; several still add up, and several the sums of theirs
    fused.NUMBERS, fused.PROGRAMS, fused.AT_ONCE = 2**16, 3, 16
apart = {}
for side in 24, 28, 32:
    plain = fused.computed(net.forward, pictures.pictured, on, torch.float32, side)
    for name, found in fused.computed(fused.forward, fused.pictured, on, torch.float32, side).items():
        apart[f"{side} {name}"] = float((found - plain[name]).norm() / plain[name].norm())
print(json.dumps(apart))
"""
# In place of each kernel something remembers what it is started with; then all are compiled for Hopper, without a card.
COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

KINDS = {torch.float16: "*fp16", torch.float32: "*fp32", torch.int64: "*i64", torch.int8: "*i8", torch.uint8: "*u8"}
asked = {}

class Started:
    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self.start

    def start(self, *values):
        given = dict(zip(self.function.arg_names, values, strict=True))
        fixed = {name: value for name, value in given.items() if name.isupper()}
        kinds = {name: "constexpr" if name in fixed else kind(value) for name, value in given.items()}
        asked[str((self.function.__name__, kinds, fixed))] = self.function, kinds, fixed

def kind(value):
    return KINDS[value.dtype] if isinstance(value, torch.Tensor) else "fp32" if isinstance(value, float) else "i32"

for name in NAMES:
    setattr(kernels, name, Started(getattr(kernels, name)))
fused.CHECKED = 4  # a CPU takes seconds to convolve more in float16
fused.computed(fused.forward, fused.pictured, torch.device("cpu"), torch.float16)
sizes = []
for function, kinds, fixed in asked.values():
    where = function.arg_names.index
    aligned = {(where(name),): [["tt.divisibility", 16]] for name, kind in kinds.items() if kind[0] == "*"}
    source = ASTSource(function, kinds, {(where(name),): value for name, value in fixed.items()}, aligned)
    sizes.append((function.__name__, len(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"])))
print(json.dumps(sizes))
"""
# Whether they would be used: on the CPU, where they can not be imported, and by results that are right, wrong, unknown.
CHOSEN = """
import sys
from trainer.frameworks.pytorch import race

def used():
    return bool(race.fused_here(torch.device("cpu"), torch.float32))

def by(factor):
    fused.computed = lambda forward, *_: {"logits": torch.ones(2) * (factor if forward is fused.forward else 1)}
    return used()

found = [used()]
sys.modules["trainer.frameworks.pytorch.race.fused"], race.fused = None, None
del race.fused
found.append(used())
sys.modules["trainer.frameworks.pytorch.race.fused"] = race.fused = fused
print(json.dumps([*found, by(1.0), by(1.1), by(float("nan"))]))
"""
NAMES = {"pool", "moments", "totals", "activate", "gather", "scatter", "whiten", "whiten_gather", "picture"}


def said(source, **environment):
    places = filter(None, [str(CONTAINERS), os.environ.get("NGCDL_TEST_TRITON")])  # else where PyTorch has it
    code, out, err = python(BEGIN + source, PYTHONPATH=os.pathsep.join(places), **environment)
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


def test_every_result_and_gradient_is_that_of_the_plain_operations(torch):
    apart = said(APART, **({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}))
    assert len(apart) > 90
    assert max(apart.values()) < (0.01 if torch.cuda.is_available() else 1e-4), apart  # TF32 on a GPU


def test_each_kernel_can_be_compiled_for_a_card(tmp_path):
    compiled = said(f"NAMES = {NAMES}\n{COMPILED}", TRITON_CACHE_DIR=tmp_path)
    assert {name for name, _ in compiled} == NAMES
    assert all(size > 1000 for _, size in compiled)


def test_they_are_used_only_where_they_run_and_compute_what_net_does():
    here, none, right, wrong, unknown = said(CHOSEN)
    assert not here, "Triton has no CPU"
    assert (none, right, wrong, unknown) == (False, True, False, False)
