"""What a run's cards do, on the stand-in driver, and whose processes use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from ngcdl.telemetry import cards, container
from ngcdl.telemetry.card import GpuProcess
from ngcdl.telemetry.cards import Run
from ngcdl.telemetry.sample import MEASURED

from .stand_in import Host


def test_processes_of_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda pid: None if pid == 404 else "0::/")
    ours, theirs, hidden = GpuProcess(1, container_id="a"), GpuProcess(2, container_id="b"), GpuProcess(404)
    run = Run([], "a")
    assert cards.foreign((ours, theirs, GpuProcess(os.getpid())), run) == 2
    assert cards.foreign((), run) == 0
    assert cards.foreign((ours, hidden), run) is None
    assert cards.foreign(None, run) is None
    assert cards.foreign((ours,), Run([])) is None
    assert cards.foreign((ours, GpuProcess(3, container_id="b", draws=True)), run) == 0, "a desktop's"
    with subprocess.Popen(["sleep", "60"]) as child:  # our parent may be process 1 itself
        assert cards.foreign((GpuProcess(child.pid), GpuProcess(1)), Run([], pid=os.getpid())) == 1
        child.kill()


def test_where_not_every_process_is_visible_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: False)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    for processes in (), (GpuProcess(1, container_id="a"),), (GpuProcess(3, draws=True),):
        assert cards.foreign(processes, Run([], "a")) is None


def test_a_worker_that_outlived_its_parent_is_the_run_s_by_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda _: "0::/")
    start = ["sh", "-c", "(sleep 60 >/dev/null & echo $!); echo; read ended"]
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout is not None
        worker = GpuProcess(int(first.stdout.readline()))
        first.stdout.readline()  # its parent has ended
        assert first.pid not in [one.pid for one in psutil.Process(worker.pid).parents()]
        assert cards.foreign((worker,), Run([], pid=first.pid)) == 0
        assert cards.foreign((worker,), Run([], pid=os.getpid())) == 1
        os.kill(worker.pid, signal.SIGKILL)
        first.communicate()


def test_a_process_in_no_group_of_its_container_is_known_by_the_shim_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rootless Docker without cgroups: a container's processes are in the user session's group."""
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    start = "import subprocess; one = subprocess.Popen(['cat']); print(one.pid, flush=True); one.wait()"
    shim = [sys.executable, "-c", start, "-namespace", "moby", "-id", "a1" * 32]
    with subprocess.Popen(shim, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inside = GpuProcess(int(process.stdout.readline()))
        assert cards.foreign((inside,), Run([], "a1" * 32)) == 0
        assert cards.foreign((inside,), Run([], "b2" * 32)) == 1
        process.communicate()
    assert cards.foreign((inside,), Run([], "a1" * 32)) is None, "it is gone"


READ = """
import json
from ngcdl.telemetry import cards, container, gpu
container.cgroup_text = lambda pid: "0::/"
uuids = ["GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"]
reader = cards.Cards(gpu.connect(), cards.Run(uuids, "a"))
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
    assert list(lost) == list(other) == [*MEASURED, "foreign_processes", "error"]
    assert other == whole[1]
