"""`ngcdl run --wait`: it starts when its cards are free, and others are served in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import House, until
from telemetry.stand_in import write_state

from ngcdl.record import Run
from ngcdl.running.owner import is_alive, this_process
from ngcdl.spec import RunSpec, Workload

FIRST, SECOND = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"
BUSY = f"{os.getpid()}:1000"
CARDS = (sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
TRAIN = ("run", "--train", "cifar10", "--engine", "local", "--data", "synthetic")
# Computes until a file is there.
UNTIL = f"{CARDS[-1]}; import sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


class Host:
    """A user's home on a host with the two stand-in cards, where a look follows the one before at once."""

    def __init__(self, house: House, library: Path) -> None:
        self.house, self.state = house, house.home / "nvml.state"
        self.environment = {
            "LD_LIBRARY_PATH": str(library), "NGCDL_NVML_STATE": str(self.state),
            **house.hastened("ngcdl.running.turn"),
        }  # fmt: skip
        self.set(BUSY, BUSY)

    def set(self, *users: str) -> None:
        """Let these processes compute on the cards."""
        state = {f"gpu{index}.processes": who for index, who in enumerate(users)}
        write_state(self.state, {"gpu0.utilization": 0} | state)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.house.run(*words, env=self.environment)

    def waiting(self, name: str, *words: str) -> tuple[subprocess.Popen[str], str]:
        """Start a run, and return it once it says that it waits, with what it said."""
        said = self.house.home / f"{name}.err"
        with said.open("w") as err:
            process = self.house.popen("run", "--wait", *words, env=self.environment, stderr=err)
        return process, until(lambda: next((x for x in said.read_text().splitlines(True) if "waiting for" in x), ""))

    def holds(self, *cards: str) -> Run:
        """Record a training that holds `cards`."""
        spec = RunSpec(None, workload=Workload("cifar10")).as_json()
        run = Run(self.house.store.new_id("cifar10"), "running", time.time(), gpus=cards, spec=spec,
                  owner=this_process())  # fmt: skip
        self.house.store.create(run)
        return run

    def tickets(self) -> list[Path]:
        return list(self.house.store.root.glob(".*turn*"))

    def close(self) -> None:
        """Kill the watchers that a test which failed has left waiting."""
        for run in map(self.house.store.load, self.house.store.ids()):
            if run.owner and run.owner != this_process() and is_alive(run.owner):
                os.kill(run.owner.pid, signal.SIGKILL)


@pytest.fixture
def host(house: House, library: Path) -> Iterator[Host]:
    with contextlib.closing(Host(house, library)) as host:
        yield host


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=240)
    return process.returncode, out


def assert_one_after_the_other(host: Host, one: str, other: str) -> None:
    first, second = (host.house.store.load(host.house.store.find(name)) for name in (one, other))
    assert (first.gpus, second.gpus) == ((FIRST,), (FIRST,))
    assert first.finished is not None
    assert first.finished <= second.started


def test_a_run_waits_until_a_card_is_free_and_then_starts_on_it(host: Host) -> None:
    process, said = host.waiting("a", "--gpus", "1", "--", *CARDS)
    assert said.startswith("ngcdl: waiting for 1 free GPU; GPU 0 (NVIDIA GeForce GTX 1050 Ti): ")
    assert "; GPU 1 (NVIDIA A100-SXM4-40GB): " in said
    assert host.house.store.ids() == [], "nothing is recorded yet"
    host.set("", BUSY)
    assert ended(process) == (0, f"{FIRST}\n")
    assert host.house.record()["gpus"] == [FIRST]
    assert host.house.record()["reason"] is None
    assert host.tickets() == []


def test_two_that_wait_are_served_as_they_came(host: Host) -> None:
    go = host.house.home / "go"
    first, _ = host.waiting("a", "--gpus", "1", "--", sys.executable, "-c", UNTIL, str(go))
    second, said = host.waiting("b", "--gpus", "1", "--", *CARDS)
    assert said.endswith("; place 2 in line; Ctrl-C cancels\n")
    host.set("", BUSY)
    (run_id,) = until(host.house.store.ids)
    go.touch()
    assert [ended(process) for process in (first, second)] == [(0, f"{FIRST}\n")] * 2
    assert_one_after_the_other(host, run_id, "last")


def test_one_that_was_killed_while_it_waited_is_in_nobody_s_way(host: Host) -> None:
    first, _ = host.waiting("a", "--gpus", "1", "--", *CARDS)
    second, _ = host.waiting("b", "--gpus", "1", "--", *CARDS)
    first.kill()
    first.communicate(timeout=240)
    host.set("", "")
    assert ended(second) == (0, f"{SECOND}\n")
    assert (len(host.house.store.ids()), host.tickets()) == (1, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting_and_leaves_nothing(host: Host, number: signal.Signals) -> None:
    process, _ = host.waiting("a", "--gpus", "1", "--", *CARDS)
    process.send_signal(number)
    assert ended(process) == (128 + number, "")
    assert (host.house.store.ids(), host.tickets()) == ([], [])


def test_a_run_that_does_not_wait_takes_a_free_card_that_is_too_few_for_the_one_in_line(host: Host) -> None:
    host.set("", BUSY)
    process, said = host.waiting("a", "--gpus", "2", "--", *CARDS)
    assert said.startswith("ngcdl: waiting for 2 free GPUs; GPU 1 (NVIDIA A100-SXM4-40GB): ")
    assert host.run("run", "--gpus", "1", "--", *CARDS).stdout == f"{FIRST}\n"
    host.set("", "")
    assert ended(process) == (0, f"{SECOND},{FIRST}\n")


def test_cards_that_were_named_are_waited_for_and_those_of_another_line_are_not_in_the_way(host: Host) -> None:
    host.set("", "")
    run = host.holds(FIRST)
    named, said = host.waiting("a", "--gpus", "0,", "--", *CARDS)
    assert said == (f"ngcdl: waiting for 1 free GPU; GPU 0 (NVIDIA GeForce GTX 1050 Ti): {run.id}; Ctrl-C cancels\n")
    assert host.run("run", "--wait", "--gpus", SECOND, "--", *CARDS).stdout == f"{SECOND}\n"
    every, said = host.waiting("b", "--gpus", "all", "--", *CARDS)
    assert f"{run.id}; place 2 in line; " in said
    host.house.store.save(run.closed("finished", 0, None, time.time()))
    assert ended(named) == (0, f"{FIRST}\n")
    assert ended(every) == (0, f"{FIRST},{SECOND}\n")
    assert host.house.record()["spec"]["gpus"] == f"{FIRST},{SECOND}", "it holds them before it computes there"


def test_a_training_waits_for_one_card_and_shares_none(host: Host) -> None:
    host.house.bring_trainer()
    shared = host.run(*TRAIN)
    assert "this run shares GPU 1" in shared.stderr
    assert "ngcdl: with --wait it waits until a card is free\n" in shared.stderr
    run = host.holds(FIRST)
    process, said = host.waiting("a", *TRAIN[1:])
    assert "waiting for 1 free GPU; " in said
    assert f"GPU 0 (NVIDIA GeForce GTX 1050 Ti): {run.id}" in said
    host.set("", BUSY)
    host.house.store.save(run.closed("finished", 0, None, time.time()))
    assert ended(process)[0] == 0
    assert (host.house.record()["gpus"], host.house.record()["spec"]["gpus"]) == ([FIRST], f"auto:{FIRST}")


def test_a_detached_run_waits_in_the_background_and_is_listed_as_waiting(host: Host) -> None:
    go = host.house.home / "go"
    done = host.run("run", "-d", "--wait", "--gpus", "1", "--", sys.executable, "-c", UNTIL, str(go))
    run_id = done.stdout.strip()
    assert f"detached; it waits for 1 free GPU. Watch it, or stop it:\n    ngcdl show {run_id}\n" in done.stderr
    assert "waiting" in host.run("runs").stdout
    assert "(running, waits since 2" in host.run("show", run_id).stdout
    assert (host.house.record()["gpus"], host.house.record()["spec"]["gpus"]) == (None, "1")
    process, said = host.waiting("b", "--gpus", "1", "--", *CARDS)
    assert "; place 2 in line; " in said
    host.set("", BUSY)
    first = until(lambda: (run := host.house.store.load(run_id)).gpus and run)
    assert (first.gpus, first.reason, (first.spec or {})["gpus"]) == ((FIRST,), None, FIRST)
    go.touch()
    assert ended(process) == (0, f"{FIRST}\n")
    assert (host.house.store.folder(run_id) / "log.txt").read_text() == f"{FIRST}\n"
    assert_one_after_the_other(host, run_id, "last")


def test_one_that_waits_in_the_background_is_stopped(host: Host) -> None:
    run_id = host.run("run", "-d", "--wait", "--gpus", "1", "--", *CARDS).stdout.strip()
    assert host.run("stop", run_id).stderr.startswith(
        f"ngcdl: {run_id}: interrupted, exit code 143, stopped by ngcdl stop before it had started, "
    )
    assert host.tickets() == []


def test_one_whose_watcher_was_killed_while_it_waited_is_closed(host: Host) -> None:
    run_id = host.run("run", "-d", "--wait", "--gpus", "1", "--", *CARDS).stdout.strip()
    owner = host.house.store.load(run_id).owner
    assert owner is not None
    os.kill(owner.pid, signal.SIGKILL)
    until(lambda: "interrupted" in host.run("runs").stdout)
    assert host.house.record(run_id)["reason"] == "ngcdl was killed while the run waited for its GPUs"


def test_a_dry_run_says_what_it_would_wait_for_and_does_not_wait(host: Host) -> None:
    done = host.run("run", "--dry-run", "--wait", "--gpus", "2", "--", *CARDS)
    assert done.returncode == 0
    assert "ngcdl: --wait: it would wait for 2 free GPUs; GPU 0 (NVIDIA GeForce GTX 1050 Ti): " in done.stderr
    assert f"CUDA_VISIBLE_DEVICES={SECOND},{FIRST}" in done.stdout
    host.set("", "")
    assert "ngcdl: --wait: its GPUs are free now\n" in host.run("run", "--dry-run", "--wait", *TRAIN[1:]).stderr
    assert host.tickets() == []


@pytest.mark.parametrize(("words", "code", "said"), [
    (("--gpus", "none"), 2, "--wait: with --gpus none the run needs no GPU.\n  Leave one of them out.\n"),
    ((), 2, "--wait: a command gets all GPUs, free or not, unless it asks for some.\n"
     "      ngcdl run --wait --gpus 1 -- true\n"),
    (("--gpus", "3"), 125, "--gpus 3: of this host's GPUs, 2 can be waited for.\n  To run without a GPU, say so:\n"
     "      ngcdl run --gpus none -- true\n"),
    (("--gpus", "7,"), 125, "--gpus 7,: there is no GPU 7; this host has 0 ("),
])  # fmt: skip
def test_what_nobody_can_wait_for_is_refused_at_once(host: Host, words: tuple[str, ...], code: int, said: str) -> None:
    done = host.run("run", "--wait", *words, "--", "true")
    assert (done.returncode, done.stdout, host.house.store.ids()) == (code, "", [])
    assert said in done.stderr


@pytest.mark.parametrize(("words", "said"), [
    (("--device", "cpu"), "--wait: with --device cpu the run needs no GPU.\n"),
    (("--engine", "slurm"), "--wait: slurm has a queue of its own.\n"),
])  # fmt: skip
def test_neither_a_training_on_the_cpu_nor_a_cluster_has_something_to_wait_for(
    host: Host, words: tuple[str, ...], said: str
) -> None:
    done = host.run(*TRAIN, *words, "--wait")
    assert (done.returncode, host.house.store.ids()) == (2, [])
    assert said in done.stderr


def test_without_a_gpu_nobody_waits(house: House) -> None:
    done = house.run("run", "--wait", "--gpus", "1", "--", "true")
    assert (done.returncode, house.store.ids()) == (125, [])
    assert "--gpus 1: this host has no NVIDIA driver" in done.stderr
    house.bring_trainer()
    auto = house.run(*TRAIN, "--wait")
    assert (auto.returncode, house.store.ids()) == (125, [])
    assert "--gpus auto: this host has no NVIDIA driver" in auto.stderr


def test_a_run_that_is_refused_because_cards_are_busy_is_told_that_it_can_wait(host: Host) -> None:
    done = host.run("run", "--gpus", "2", "--", "echo", "a b")
    assert done.returncode == 125
    assert "  To wait until they are free:\n      ngcdl run --gpus 2 --wait -- echo 'a b'\n" in done.stderr
    assert "--wait" not in host.run("run", "--gpus", "3", "--", "true").stderr, "there are only two"


def test_neither_a_comparison_nor_a_replay_is_told_to_wait_for_busy_cards(host: Host) -> None:
    host.house.bring_trainer()
    compared = host.run("compare", *TRAIN[1:], "--gpus", "2", "--vary", "batch=8,16")
    assert "--gpus 2: 0 of 2 GPUs are free" in compared.stderr
    run_id = host.run("run", "-d", "--wait", "--gpus", "1", "--", *CARDS).stdout.strip()
    host.run("stop", run_id)
    again = host.run("runs", "replay", run_id)
    assert "--gpus 1: 0 of 2 GPUs are free" in again.stderr
    run_id = host.run("run", "-d", "--wait", *TRAIN[1:]).stdout.strip()
    host.run("stop", run_id)
    shared = host.run("runs", "replay", run_id)
    assert "this run shares GPU 1" in shared.stderr
    for done, code in ((compared, 125), (again, 125), (shared, 0)):
        assert done.returncode == code, done.stderr
        assert "--wait" not in done.stderr
