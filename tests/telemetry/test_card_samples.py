"""What a run's cards do, on the stand-in driver, and whose processes use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import psutil
import pytest

from ngcdl.telemetry import card_samples, container
from ngcdl.telemetry.card import GpuProcess
from ngcdl.telemetry.card_samples import RunProcesses
from ngcdl.telemetry.gpu import Nvml
from ngcdl.telemetry.sample import MEASURED

from .stand_in import Host


def others_on(processes: Sequence[GpuProcess] | None, run: RunProcesses, desktop: Collection[int]) -> int | None:
    return card_samples.counted(processes, run, desktop)[1]


def test_the_run_s_own_processes_are_counted_as_far_as_all_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda pid: None if pid == 404 else "0::/")
    ours, theirs, hidden = GpuProcess(1, container_id="a"), GpuProcess(2, container_id="b"), GpuProcess(404)
    server, screen = GpuProcess(3, name="nvidia-cuda-mps"), replace(ours, draws=True, computes=False)

    def own_on(*processes: GpuProcess) -> int | None:
        return card_samples.counted(processes, RunProcesses([], "a"), ())[0]

    assert [own_on(ours, theirs), own_on(ours, hidden), own_on(ours, ours, server)] == [1, 1, 2]
    assert [own_on(), own_on(theirs), own_on(screen)] == [0, 0, 0]
    assert [own_on(hidden), own_on(theirs, server)] == [None, None], "they may be the run's"
    assert card_samples.counted(None, RunProcesses([], "a"), ()) == (None, None)


def test_processes_of_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda pid: None if pid == 404 else "0::/")
    ours, theirs, hidden = GpuProcess(1, container_id="a"), GpuProcess(2, container_id="b"), GpuProcess(404)
    run = RunProcesses([], "a")
    assert others_on((ours, theirs, GpuProcess(os.getpid())), run, ()) == 2
    assert others_on((), run, ()) == 0
    assert others_on((ours, hidden), run, ()) is None
    assert others_on(None, run, ()) is None
    assert others_on((ours,), RunProcesses([]), ()) is None
    with subprocess.Popen(["sleep", "60"]) as child:  # our parent may be process 1 itself
        assert others_on((GpuProcess(child.pid), GpuProcess(1)), RunProcesses([], pid=os.getpid()), ()) == 1
        child.kill()


def test_what_draws_is_the_desktop_that_was_there_before_the_run_or_the_run_s_own_and_else_maybe_a_game(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    ours, screen, run = (
        GpuProcess(1, container_id="a"),
        GpuProcess(3, draws=True, computes=False),
        RunProcesses([], "a"),
    )
    for desktop, known in ((3,), 0), ((7,), None), ((), None):
        assert others_on((ours, screen), run, desktop) == known
    assert others_on((ours, screen, GpuProcess(2, container_id="b")), run, ()) == 1
    assert others_on((ours, replace(ours, draws=True)), run, ()) == 0


def test_through_an_mps_server_others_may_compute_and_it_is_not_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    server = GpuProcess(1, name="nvidia-cuda-mps")
    assert others_on((server,), RunProcesses([], "a"), ()) is None
    assert others_on((server, GpuProcess(2, container_id="b")), RunProcesses([], "a"), ()) == 1
    told, client = replace(server, lists_clients=True), GpuProcess(2, container_id="a")
    assert others_on((told, client), RunProcesses([], "a"), ()) == 0, "every client is listed"
    assert others_on((told, client), RunProcesses([], "b"), ()) == 1


class Played:
    """A card whose readings have the given processes and use, one after the other."""

    def __init__(self, *readings: tuple[tuple[GpuProcess, ...], int]) -> None:
        self._readings = iter(readings)

    def use(self, uuid: str, detail: str) -> tuple[dict[str, Any], None]:
        on_it, percent = next(self._readings)
        return {"uuid": uuid, "gpu_percent": percent} | ({} if detail == "brief" else {"processes": on_it}), None

    def activity(self, uuid: str) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(("before", "foreign"), [((4, 30), 0), ((30, 30), None)])
def test_a_card_was_idle_if_it_was_once_until_the_run_computed(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], foreign: int | None
) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    ours, screen = GpuProcess(1, container_id="a"), GpuProcess(3, container_id="x", draws=True, computes=False)
    readings = [((screen,), percent) for percent in before] + [((screen, ours), percent) for percent in (0, 99)]
    reader = card_samples.Cards(cast(Nvml, Played(*readings)), RunProcesses(["GPU-1"], "a"))
    assert [reader.read()[0]["foreign_processes"] for _ in readings][-1] == foreign


def counts(*readings: tuple[tuple[GpuProcess, ...], int]) -> list[int | None]:
    reader = card_samples.Cards(cast(Nvml, Played(*readings)), RunProcesses(["GPU-1"], "a"))
    return [reader.read()[0]["foreign_processes"] for _ in readings]


def test_a_game_that_starts_beside_a_run_is_not_the_desktop_and_what_the_run_draws_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    ours, screen = GpuProcess(1, container_id="a"), GpuProcess(3, container_id="x", draws=True, computes=False)
    game, window = replace(screen, pid=4), replace(ours, draws=True)
    assert counts(((screen,), 4), ((screen, ours), 99), ((screen, ours, game), 99)) == [0, 0, None]
    assert counts(((window,), 99)) == [0], "already in the first sample"
    assert counts(((screen,), 4), ((screen, game), 60), ((screen, game, ours), 99)) == [0, None, None]


def test_where_not_every_process_is_visible_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: False)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    for processes in (), (GpuProcess(1, container_id="a"),), (GpuProcess(3, draws=True),):
        assert others_on(processes, RunProcesses([], "a"), ()) is None


def test_a_worker_that_outlived_its_parent_is_the_run_s_by_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    start = ["sh", "-c", "(sleep 60 >/dev/null & echo $!); echo; read ended"]
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout is not None
        worker = GpuProcess(int(first.stdout.readline()))
        first.stdout.readline()  # its parent has ended
        assert first.pid not in [one.pid for one in psutil.Process(worker.pid).parents()]
        assert others_on((worker,), RunProcesses([], pid=first.pid), ()) == 0
        assert others_on((worker,), RunProcesses([], pid=os.getpid()), ()) == 1
        os.kill(worker.pid, signal.SIGKILL)
        first.communicate()


def test_a_process_in_no_group_of_its_container_is_known_by_the_shim_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In rootless Docker without cgroups a container's processes are in the user session's control group."""
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    start = "import subprocess; one = subprocess.Popen(['cat']); print(one.pid, flush=True); one.wait()"
    shim = [sys.executable, "-c", start, "-namespace", "moby", "-id", "a1" * 32]
    with subprocess.Popen(shim, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inside = GpuProcess(int(process.stdout.readline()))
        assert others_on((inside,), RunProcesses([], "a1" * 32), ()) == 0
        assert others_on((inside,), RunProcesses([], "b2" * 32), ()) == 1
        process.communicate()
    assert others_on((inside,), RunProcesses([], "a1" * 32), ()) is None, "it is gone"


READ = """
import json
from ngcdl.telemetry import card_samples, container, gpu
container.cgroup_text = lambda pid: "0::/"
uuids = ["GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"]
reader = card_samples.Cards(gpu.connect(), card_samples.RunProcesses(uuids, "a"))
print(json.dumps([reader.read(is_brief) for is_brief in (False, True, False)]))
"""


def test_a_brief_look_is_at_use_and_power_and_leaves_out_what_it_did_not_ask(card: Host) -> None:
    card.set(gpu0__processes=f"{os.getpid()}:-")
    whole, brief, again = card.ask(READ)
    assert [one["foreign_processes"] for one in whole] == [1, 0]
    assert again == whole
    known = ("index", "uuid", "name", "gpu_percent", "memory_percent", "watts", "error")
    assert [list(one) for one in brief] == [list(known)] * 2
    assert brief == [{name: one[name] for name in known} for one in whole]
    assert brief[0]["watts"] is not None


def test_a_card_that_is_lost_has_each_field_of_a_sample_and_the_others_have_their_values(card: Host) -> None:
    whole, *_ = card.ask(READ)
    card.set(**{"fail_after__gpu0__DeviceGetPowerUsage": "1:15"})
    first, _, (lost, other) = card.ask(READ)
    assert first[0]["error"] is None
    assert "GPU is lost" in lost["error"]
    assert (lost["name"], lost["gpu_percent"], lost["watts"]) == ("NVIDIA GeForce GTX 1050 Ti", None, None)
    assert lost["memory_total_bytes"] == whole[0]["memory_total_bytes"]
    assert list(lost) == list(other) == [*MEASURED, "own_processes", "foreign_processes", "error"]
    assert other == whole[1]
