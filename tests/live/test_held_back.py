"""What held a training back is derived from measurements: of faked cards, and of a container that does compute."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from house import House, lines_of
from ngcdl_child import User, drive, planted

pytestmark = pytest.mark.lab

SAMPLES = 6  # of the training: five are needed for a diagnosis
TRAIN = ("run", "--train", "cifar10", "--engine", "local", "--data", "synthetic", "--gpus", "0,", "--device", "gpu")


class Machine:
    """A user of a machine with the stand-in's cards, who trains with the local engine."""

    def __init__(self, lab: dict[str, Any], folder: Path) -> None:
        if "nvml" not in lab:
            pytest.skip("this engine has no stand-in GPUs: scripts/lab up without --engine existing")
        self.house, self.state, self.go = House(folder), folder / "nvml.state", folder / "go"
        self.house.bring_trainer()
        self.state.write_text(Path(lab["nvml"]["state_file"]).read_text())
        self.environment = {
            "LD_LIBRARY_PATH": lab["nvml"]["library_dir"], "NGCDL_NVML_STATE": str(self.state), "STAND_IN": "go",
            "STAND_IN_GO": str(self.go), "STAND_IN_DEVICE": "gpu",
        }  # fmt: skip

    def plant(self, **changes: int) -> None:
        """Change the first card's readings."""
        drive(self.state, **{f"gpu0__{name}": value for name, value in changes.items()})

    def taken(self) -> list[dict[str, Any]]:
        """Return the samples since the first step."""
        runs = self.house.store.root
        began = [event["t"] for event in lines_of(runs, "events.jsonl") if event["event"] == "step"][:1]
        return [sample for sample in lines_of(runs, "samples.jsonl") if began and sample["t"] >= began[0]]

    def train(self) -> tuple[str, dict[str, Any]]:
        """Run a training while its card's energy counter advances at 50 W. Return the output and the record."""
        with self.house.popen(*TRAIN, env=self.environment) as process:
            began = time.monotonic()
            while len(self.taken()) <= SAMPLES and process.poll() is None:
                self.plant(energy_mj=123_456_789 + int(50_000 * (time.monotonic() - began)))
                threading.Event().wait(0.1)
            self.go.touch()
            out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        return out, self.house.record()


@pytest.fixture
def machine(lab: dict[str, Any], tmp_path: Path) -> Machine:
    return Machine(lab, tmp_path)


def test_a_card_that_is_busy_sets_the_pace_and_its_energy_is_counted(machine: Machine) -> None:
    machine.plant(utilization=97, clock_reasons=0)
    out, record = machine.train()
    assert [found["rule"] for found in record["findings"]] == ["compute-bound"]
    assert "GPU 97 % busy: it sets the pace" in out
    summary = record["summary"]
    assert (summary["energy_from"], summary["throttled_share"]) == ("counter", {})
    *_, end = [event["t"] for event in lines_of(machine.house.store.root, "events.jsonl") if event["event"] == "step"]
    first, *_, last = [sample for sample in machine.taken() if sample["gpus"] and sample["t"] <= end]
    (before, after), seconds = [one["gpus"][0]["energy_joules"] for one in (first, last)], last["t"] - first["t"]
    assert (summary["energy_joules"], summary["energy_seconds"]) == pytest.approx((after - before, seconds), abs=0.1)
    assert "(counter)" in out


def test_a_busy_card_most_of_whose_sms_are_idle_is_told_so(machine: Machine) -> None:
    machine.plant(utilization=97, clock_reasons=0, gpm=1, gpm_sm=12, gpm_occupancy=5, gpm_tensor=3, gpm_dram=20)
    out, record = machine.train()
    assert [found["rule"] for found in record["findings"]] == ["unfilled-gpu"]
    assert "GPU 97 % busy, but its SMs were active for 12 % of that time on average" in " ".join(out.split())
    assert "SMs active 12 %, occupancy 5.0 %, tensor cores 3.0 %, DRAM 20 %" in out
    assert record["summary"]["tensor_active_percent_mean"] == 3.0


def test_a_planted_throttle_is_named_with_its_reason_and_what_to_do(machine: Machine) -> None:
    machine.plant(utilization=97, clock_reasons=0x48)
    out, record = machine.train()
    assert [found["rule"] for found in record["findings"]] == ["throttled", "compute-bound"]
    assert record["summary"]["throttled_share"] == {"hw_slowdown": 1.0, "hw_thermal_slowdown": 1.0}
    assert "the card is too hot (hw_thermal_slowdown)" in out
    assert "nvidia-smi -q -d TEMPERATURE" in out


def test_a_container_that_computes_is_measured_with_its_limit_and_told_why(user: User) -> None:
    # Samples count between the first line of steps and the last: short steps, so that a busy machine has many lines.
    words = ("--train", "cifar10", "--batch", "4", "--data", "synthetic", "--no-eval", "--gpus", "none")
    long = ("--steps", "100000", "--seconds", "10", *planted("few"))
    done = user.run("run", "tensorflow:18.01-py2", *words, *long, seconds=300)
    assert done.code == 0, done
    summary, findings = user.shown()["summary"], user.shown()["findings"]
    assert summary["training_samples"] >= 5
    assert 0 < summary["cpu_busiest_core_percent_mean"] <= 100
    assert 0 < summary["memory_bytes_max"] < summary["memory_limit_bytes"]
    assert summary["threads_running_mean"] > 0
    assert findings
    assert findings[0]["text"] in done.out
