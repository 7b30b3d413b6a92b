"""How much of a card worked, by the stand-in's performance monitoring: of cards that have it, and of all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngcdl.telemetry.gpm import METRICS, SHORTEST_SECONDS

from .stand_in import ROOT, Host
from .test_gpu import MIG

# Read both cards for each of the given additions to the state, one second apart. At the end: how often the cards were
# asked for support and for a sample, and how many samples are allocated before and after the driver is closed.
READ = """
import ctypes, json, os, sys
from itertools import count
from pathlib import Path
import pynvml
from ngcdl.telemetry.gpu import open_nvml
path, step = Path(os.environ["NGCDL_NVML_STATE"]), float(sys.argv[2])
base, read, errors, asked = path.read_text(), [], [], {"_supports": 0, "_take": 0}
held = lambda: ctypes.c_int.in_dll(pynvml.nvmlLib, "ngcdl_gpm_samples").value if hasattr(
    pynvml.nvmlLib, "ngcdl_gpm_samples") else 0
def counted(name, function):
    def call(*arguments):
        asked[name] += 1
        return function(*arguments)
    return call
with open_nvml() as nvml:
    gpm, clock = nvml._gpm, count(0, step)
    for name in asked:
        setattr(gpm, name, counted(name, getattr(gpm, name)))
    for more in json.loads(sys.argv[1]):
        path.write_text(base + "".join(f"{key}={value}\\n" for key, value in more.items() if value is not None))
        now = next(clock)
        gpm._now = lambda: now
        found = [(nvml.use(index), nvml.activity(index)) for index in range(2)]
        read.append([list(activity.values()) for _, activity in found])
        errors += [error for (_, error), _ in found if error]
    most = held()
print(json.dumps({"read": read, "errors": errors, "asked": asked, "held": [most, held()]}))
"""
NONE = [None] * 4
BUSY: dict[str, object] = {"gpu1.gpm_sm": 12.5, "gpu1.gpm_occupancy": 7, "gpu1.gpm_tensor": 0, "gpu1.gpm_dram": 20.25}
PERCENTS = [12.5, 7.0, 0.0, 20.2]


def readings(card: Host, *states: dict[str, object], step: float = 1.0) -> Any:
    return card.ask(READ, json.dumps(states), str(step))


@pytest.fixture
def new(card: Host) -> Host:
    """A host whose second card has performance monitoring, and whose first has not."""
    card.set(gpu1__gpm=1)
    return card


def test_a_reading_is_the_mean_since_the_one_before_and_the_first_is_unknown(new: Host) -> None:
    idle = BUSY | dict.fromkeys(BUSY, 0)
    found = readings(new, BUSY, BUSY, idle)
    assert found["read"] == [[NONE, NONE], [NONE, PERCENTS], [NONE, [0.0] * 4]]
    assert found["errors"] == []
    assert found["asked"] == {"_supports": 2, "_take": 3}, "each card once, and only the one that has it for samples"
    assert found["held"] == [2, 0], "what was allocated is freed"


def test_a_metric_that_is_not_given_or_cannot_be_true_is_unknown_alone(new: Host) -> None:
    told = {"code:21": None, "code:3": None, "code:999": None, "nan": None, "inf": None, "-1": None, "100.06": None}
    told |= {None: None, "100.04": 100.0, "100": 100.0, "0": 0.0}
    cases = [(place, value) for place in range(len(METRICS)) for value in told]
    states = [BUSY | {list(BUSY)[place]: value} for place, value in cases]
    read = [card for _, card in readings(new, BUSY, *states)["read"][1:]]
    for (place, value), percents in zip(cases, read, strict=True):
        assert percents == [*PERCENTS[:place], told[value], *PERCENTS[place + 1 :]], (place, value)


@pytest.mark.parametrize("call", ["GpmQueryDeviceSupport", "GpmSampleAlloc"])
@pytest.mark.parametrize("code", [3, 13, 15, 999])
def test_a_card_that_does_not_say_that_it_has_the_counters_is_asked_once(new: Host, call: str, code: int) -> None:
    found = readings(new, BUSY | {f"fail.{call}": code}, BUSY, BUSY)
    assert found["read"] == [[NONE, NONE]] * 3
    assert found["errors"] == []
    assert found["asked"] == {"_supports": 2, "_take": 0}
    assert found["held"] == [0, 0]


def test_a_sample_that_there_is_no_memory_for_leaves_none_behind(new: Host) -> None:
    found = readings(new, BUSY | {"fail_after.GpmSampleAlloc": "1:20"}, BUSY)
    assert found["read"] == [[NONE, NONE]] * 2
    assert found["held"] == [0, 0]


@pytest.mark.parametrize("call", ["GpmSampleGet", "GpmMetricsGet"])
def test_a_call_that_fails_later_costs_these_percents_of_that_reading_only(new: Host, call: str) -> None:
    codes = (1, 2, 3, 4, 15, 17, 21, 999)
    states = [state for code in codes for state in (BUSY | {f"fail.{call}": code}, BUSY)]
    found = readings(new, BUSY, *states)
    assert [card for _, card in found["read"][1:]] == [NONE, PERCENTS] * len(codes)
    assert found["errors"] == [], "the card is well"


def test_a_first_sample_that_fails_is_taken_at_the_next_reading(new: Host) -> None:
    found = readings(new, BUSY | {"fail.GpmSampleGet": 21}, BUSY, BUSY)
    assert [card for _, card in found["read"]] == [NONE, NONE, PERCENTS]


def test_readings_that_are_too_close_for_the_counters_get_the_last_answer(new: Host) -> None:
    idle = BUSY | dict.fromkeys(BUSY, 0)
    found = readings(new, BUSY, BUSY, BUSY, idle, idle, step=0.5 * SHORTEST_SECONDS)
    assert [card for _, card in found["read"]] == [NONE, NONE, PERCENTS, PERCENTS, [0.0] * 4]
    assert found["asked"]["_take"] == 3


def test_with_mig_on_and_for_a_lost_card_nothing_is_asked(new: Host) -> None:
    new.set(gpu1__gpm=1, gpu1__mig0__gpm=1, **MIG)
    parts = new.ask("""
import json
from ngcdl.telemetry.gpu import open_nvml
with open_nvml() as nvml:
    nvml._gpm.read = None  # asking would fail
    nvml.use("MIG-41b3"), nvml.use(1)
    print(json.dumps([list(nvml.activity(which).values()) for which in ("MIG-41b3", 1, "GPU-unknown")]))
""")
    assert parts == [NONE] * 3
    new.set(gpu1__gpm=1)
    lost = {"fail.gpu1.DeviceGetUtilizationRates": 15}
    found = readings(new, BUSY, BUSY, BUSY | lost, BUSY)
    assert [card for _, card in found["read"]] == [NONE, PERCENTS, NONE, NONE]
    assert found["asked"]["_take"] == 2
    assert found["held"] == [2, 0], "what a lost card had is freed, too"


def test_an_old_driver_without_the_calls_is_asked_once(new: Host, old_library: Path) -> None:
    found = readings(replace(new, library=old_library), BUSY, BUSY)
    assert found["read"] == [[NONE, NONE]] * 2
    assert found["errors"] == []
    assert found["asked"] == {"_supports": 2, "_take": 0}


def test_a_sample_of_a_run_has_the_percents_and_a_brief_one_leaves_them_out(new: Host) -> None:
    new.set(gpu1__gpm=1, **{key.replace(".", "__"): value for key, value in BUSY.items()})
    samples = new.ask("""
import json
from itertools import count
from ngcdl.telemetry import card_samples, gpu
nvml = gpu.connect()
nvml._gpm._now = count().__next__
reader = card_samples.Cards(nvml, card_samples.RunProcesses(["GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"], "a"))
print(json.dumps([reader.read(is_brief)[0] for is_brief in (False, True, False)]))
""")
    first, brief, second = samples
    assert [first[name] for name in METRICS] == NONE
    assert not METRICS.keys() & brief.keys()
    assert [second[name] for name in METRICS] == PERCENTS


# Stands for PyTorch: its work changes what the card says of itself.
TORCH = """
import os
from pathlib import Path
float16 = None
ones = matmul = lambda *_, **more: None
class cuda:
    def synchronize():
        Path(os.environ["NGCDL_NVML_STATE"]).write_text(os.environ["LOADED"])
"""


@pytest.mark.parametrize(("idle", "loaded", "said", "passed"), [
    ({}, {}, "no card here gives them: not checked\n", True),
    (BUSY, dict.fromkeys(BUSY, 90), "tensor_active_percent: 0.0 idle, 90.0 under load\n", True),
    (BUSY, BUSY, f"not given, or no higher under load: {', '.join(METRICS)}\n", False),
    (BUSY, dict.fromkeys(BUSY, 90) | {"gpu1.gpm_dram": "code:21"}, "under load: dram_bandwidth_percent\n", False),
    (BUSY, dict.fromkeys(BUSY, 90) | {"gpu1.gpm_sm": 101}, "no higher under load: sm_active_percent\n", False),
])  # fmt: skip
def test_a_real_card_is_checked_to_give_each_percentage_and_more_under_load(
    new: Host, tmp_path: Path, idle: dict[str, object], loaded: dict[str, object], said: str, passed: bool
) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    base = new.state.read_text()
    states = [base + "".join(f"{key}={value}\n" for key, value in more.items()) for more in (idle, loaded)]
    new.state.write_text(states[0])
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/benchmarks/gpu_worked.py", "0"],
        capture_output=True,
        text=True,
        env={**new.environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}", "LOADED": states[1]},
    )
    assert done.returncode == (0 if passed else 1), done.stderr
    assert said in (done.stdout if passed else done.stderr)
