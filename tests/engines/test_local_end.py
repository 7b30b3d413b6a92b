"""How a command on this host ends: a stop, Ctrl-C and a kill reach all of its processes, and what outlives it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from house import until
from local_jobs import Start, own, read
from local_jobs import engine as engine  # a fixture
from local_jobs import start as start  # a fixture

from ngcdl import processes
from ngcdl.engines import local
from ngcdl.engines.local.family import Family
from ngcdl.engines.values import Order
from ngcdl.record import Run
from ngcdl.storing.store import Store


def pids(folder: Path, many: int) -> list[int]:
    """Wait until `many` processes have written their PID to a file in `folder`, named *.pid."""
    until(lambda: len([path for path in folder.glob("*.pid") if path.read_text().strip()]) == many, "the processes")
    return [int(path.read_text()) for path in folder.glob("*.pid")]


def are_gone(all_pids: list[int]) -> bool:
    return all((found := processes.look(pid)) is None or found.has_ended for pid in all_pids)


# Workers with a session each: one that its parent waits for, one whose parent has ended, and one that also left its
# environment behind, while its parent lives.
WORKERS = """
trap '' TERM
setsid sh -c 'echo $$ > 1.pid; exec sleep 60' &
(setsid sh -c 'trap "" TERM; echo $$ > 2.pid; while :; do sleep 0.1; done' &)
setsid env -i sh -c 'echo $$ > 3.pid; sleep 60; :' &
echo up
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("is_found", [False, True])
def test_a_stop_and_a_kill_reach_every_process_of_the_run(
    engine: local.LocalEngine, tmp_path: Path, is_found: bool
) -> None:
    folder = Store(tmp_path / "runs").create(Run("run-1", "running", 1.0))
    for grace_seconds in (0.3, None):
        for path in tmp_path.glob("*.pid"):
            path.unlink()
        job = engine.start(Order(own("sh", "-c", WORKERS, workdir=str(tmp_path)), "run-1", folder, "/bin/sh", "none"))
        assert isinstance(job, local.LocalJob)
        all_pids = [*pids(tmp_path, 3), job._process.pid]
        asked = local.FoundJob.named(job.identity, folder) if is_found else job
        assert asked
        asked.kill() if grace_seconds is None else asked.stop(grace_seconds)
        assert are_gone(all_pids)
        assert job.wait().code == 137
        job.remove()


def test_a_run_is_over_when_all_that_a_stop_asked_has_ended(start: Start, tmp_path: Path) -> None:
    saves = "trap 'sleep 0.5; echo > saved; exit' TERM; echo $$ > 1.pid; while :; do sleep 0.1; done"
    job = start(f"import subprocess; subprocess.Popen(['setsid', 'sh', '-c', {saves!r}]); input()", stdin=True)
    worker = pids(tmp_path, 1)
    stop = threading.Thread(target=job.stop, args=(20,))
    stop.start()
    read(job)
    job.wait()
    assert (tmp_path / "saved").exists()
    assert are_gone(worker)
    stop.join()
    job.remove()


def test_what_a_program_starts_for_its_end_is_not_asked_to_end(start: Start, tmp_path: Path) -> None:
    job = start("import os; os.execvp('sh', ['sh', '-c', \"trap 'sleep 0.3 && echo > saved; exit 9' TERM; echo up; "
                "while :; do sleep 0.1; done\"])")  # fmt: skip
    next(job.output())
    job.stop(20)
    assert (job.wait().code, (tmp_path / "saved").exists()) == (9, True)
    job.remove()


# Like a pool of workers: the main process finishes its step with one, and says how often that heard of the stop.
POOL = """
import os, signal, sys, time
heard = []
def note(*_): heard.append(1)
ask, answer = os.pipe(), os.pipe()
if not os.fork():
    signal.signal(signal.SIGTERM, note if {passes_on} else signal.SIG_DFL)
    os.write(answer[1], b"up")
    while os.read(ask[0], 1) != b"e": os.write(answer[1], b"%d" % len(heard))
    sys.exit()
signal.signal(signal.SIGTERM, note)
os.read(answer[0], 2)
print("up", flush=True)
while not heard: time.sleep(0.02)
if {passes_on}: os.kill(int(open("/proc/self/task/%d/children" % os.getpid()).read()), signal.SIGTERM)
time.sleep(0.5)
os.write(ask[1], b"a")
print("saved", os.read(answer[0], 1).decode(), flush=True)
os.write(ask[1], b"e")
os.wait()
"""


@pytest.mark.parametrize("passes_on", [False, True])
@pytest.mark.parametrize("before", ["", "trap : TERM; "])
def test_what_catches_a_stop_keeps_its_workers_until_it_has_ended(
    engine: local.LocalEngine, tmp_path: Path, before: str, passes_on: bool
) -> None:
    """Also below a shell, which heeds its trap only once its command has ended."""
    (tmp_path / "pool.py").write_text(POOL.format(passes_on=passes_on))
    line = f"{before}{sys.executable} pool.py; exit $?"
    job = engine.start(Order(own("sh", "-c", line, workdir=str(tmp_path)), "run-1", tmp_path, "/bin/sh", "none"))
    assert isinstance(job, local.LocalJob)
    output = job.output()
    next(output)
    job.stop(20)
    assert b"".join(chunk.data for chunk in output).strip() == (b"saved 1" if passes_on else b"saved 0")
    job.wait()
    job.remove()


def test_what_waits_for_another_process_is_asked_to_end_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a script would go on after its `wait`, and a stopped run end as if nothing had happened."""
    chain = [(900, 10, 1), (17, 20, 900), (400, 30, 17), (3, 40, 400)]  # the numbers of processes had begun anew
    alive = {pid: processes.Process(pid, began, parent, pid, pid, False, False, False) for pid, began, parent in chain}
    asked: list[int] = []

    def ask(group: int, _: int) -> None:
        asked.append(group)
        del alive[group]

    monkeypatch.setattr(processes, "table", lambda: dict(alive))
    monkeypatch.setattr(processes, "environment", lambda _: frozenset())
    monkeypatch.setattr(processes, "program", lambda _: "sh")
    monkeypatch.setattr(processes, "is_running", lambda pid, _: pid in alive)
    monkeypatch.setattr(os, "killpg", ask)
    Family(900, 10, tmp_path).stop(1)
    assert asked == [900, 17, 400, 3]


def test_workers_that_outlive_what_caught_the_stop_are_asked_then(start: Start, tmp_path: Path) -> None:
    worker = "trap 'echo > saved; exit' TERM; echo $$ > 1.pid; while :; do sleep 0.1; done"
    code = "import signal, subprocess, sys, time; signal.signal(15, lambda *_: sys.exit(3)); "
    job = start(f"{code}subprocess.Popen(['setsid', 'sh', '-c', {worker!r}]); print(1, flush=True)\n"
                "while True: time.sleep(0.1)")  # fmt: skip
    next(job.output())
    all_pids = pids(tmp_path, 1)
    job.stop(20)
    assert (job.wait().code, (tmp_path / "saved").exists(), are_gone(all_pids)) == (3, True, True)
    job.remove()


def test_ctrl_c_reaches_what_heeds_it_and_then_comes_the_usual_stop(start: Start, tmp_path: Path) -> None:
    code = (
        "import subprocess, time\n"
        "subprocess.Popen(['sh', '-c', 'trap \"\" INT; echo $$ > 1.pid; while :; do sleep 0.1; done'],"
        " stderr=subprocess.DEVNULL)\n"  # a shell may say how its sleep ended
        "try:\n    print('up', flush=True)\n    while True: time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.3); print('saved', flush=True)"
    )
    job = start(code)
    output = job.output()
    next(output)
    deaf = pids(tmp_path, 1)
    job.interrupt(20)
    assert (b"".join(chunk.data for chunk in output).strip(), job.wait().code) == (b"saved", 0)
    assert are_gone(deaf)
    job.remove()


@pytest.mark.parametrize("tty", [False, True])
def test_what_goes_on_in_the_background_holds_a_run_for_2_s_at_most_and_is_not_stopped(
    start: Start, tmp_path: Path, tty: bool
) -> None:
    ticks = "trap '' PIPE HUP; echo tick; echo $$ > 1.pid; while sleep 0.05; do echo tick; done"
    job = start(f"import os, subprocess, time\nsubprocess.Popen(['setsid', 'sh', '-c', {ticks!r}])\n"
                "while not os.path.exists('1.pid'): time.sleep(0.02)\nprint('bye')", tty=tty)  # fmt: skip
    began = time.monotonic()
    said = read(job)["stdout"]
    assert (b"tick" in said, b"bye" in said, time.monotonic() - began < 20) == (True, True, True)
    assert job.wait().code == 0
    (left,) = pids(tmp_path, 1)
    assert not are_gone([left])
    job.remove()
    os.kill(left, signal.SIGKILL)
