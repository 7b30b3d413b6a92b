"""The local engine: a process on this host, as a job."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from house import until
from local_jobs import Start, order, read
from local_jobs import engine as engine  # a fixture
from local_jobs import start as start  # a fixture

from ngcdl import processes
from ngcdl.engines import local
from ngcdl.engines.values import Exit
from ngcdl.errors import StartError
from ngcdl.record import Run
from ngcdl.spec import GpuRequest, ImageRef, Workload, inside
from ngcdl.storing.store import Store


def test_tensorflow_is_kept_in_the_caller_s_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the specification says to ignore such a value
    assert (
        local.connect().without_image(None, False, None).startswith((f"{tmp_path}/.local/share/ngcdl/", sys.executable))
    )


def test_output_comes_by_stream_and_the_end_with_its_code(start: Start) -> None:
    job = start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert read(job) == {"stdout": b"out\n", "stderr": b"err\n"}
    ended = job.wait()
    assert (ended.code, ended.oom_killed, ended.reason) == (7, False, None)
    assert job.ended() is not None
    assert job.wait().code == 7, "harmless twice"
    job.remove()
    job.remove()


def test_the_run_s_folder_stands_where_the_container_would_have_it(engine: local.LocalEngine, tmp_path: Path) -> None:
    words = ("-m", "trainer", "--out", "/ngcdl/run", "--data", "/ngcdl/run/x")
    asked = engine.request(order(tmp_path, *words, workload=Workload("smoke")))
    assert asked["argv"] == [sys.executable, "-m", "trainer", "--out", str(tmp_path), "--data", "/ngcdl/run/x"]
    assert "NGCDL_RUN" not in asked["environment"]
    own = engine.request(order(tmp_path, *words))
    assert (own["program"], own["argv"]) == (sys.executable, ["python", *words]), "a command stays as it was typed"
    assert own["environment"]["NGCDL_RUN"] == str(tmp_path)


def test_the_cards_that_were_asked_for_are_the_visible_ones(engine: local.LocalEngine, tmp_path: Path) -> None:
    asked = engine.request(order(tmp_path, gpus=GpuRequest("devices", devices=("GPU-1", "GPU-2"))))
    assert asked["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert "CUDA_VISIBLE_DEVICES" not in engine.request(order(tmp_path))["environment"]
    none = GpuRequest("none")
    assert engine.request(order(tmp_path, gpus=none))["environment"]["CUDA_VISIBLE_DEVICES"] == "-1"
    training = engine.request(order(tmp_path, gpus=none, workload=Workload("smoke")))
    assert "CUDA_VISIBLE_DEVICES" not in training["environment"], "it is told its device"


def test_a_command_s_first_card_is_the_one_that_it_would_be_without_ngcdl(
    engine: local.LocalEngine, tmp_path: Path
) -> None:
    def counts(**spec: object) -> str | None:
        found = engine.request(order(tmp_path, **spec))["environment"].get("CUDA_DEVICE_ORDER")
        return None if found is None else str(found)

    assert counts() is None
    assert counts(gpus=GpuRequest("devices", devices=("GPU-1", "GPU-2"))) is None, "in whichever order"
    assert counts(gpus=GpuRequest("devices", devices=("0",))) == "PCI_BUS_ID", "a Jetson's, by NVML's index"
    assert counts(workload=Workload("smoke")) == "PCI_BUS_ID", "it reads NVML itself"


def test_the_command_line_can_be_typed_and_hides_secrets(engine: local.LocalEngine, tmp_path: Path) -> None:
    line = engine.command_line(
        order(tmp_path, "-c", "a b", environment=(("TOKEN", "hush"), ("A", "b c")), workdir="/w")
    )
    assert line.startswith("cd /w && ")
    assert "'A=b c'" in line
    assert "'a b'" in line
    assert "hush" not in line


def test_no_key_of_ngc_reaches_the_process(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-hush")
    monkeypatch.setenv("NGC_CLI_API_KEY", "nvapi-hush")
    job = start("import os; print(sorted(os.environ), os.environ['A'])", environment=(("A", "1"),))
    said = read(job)["stdout"]
    job.wait()
    job.remove()
    assert b"NGC_" not in said
    assert said.endswith(b" 1\n")


def test_a_stop_asks_and_a_training_that_listens_ends_as_it_likes(start: Start) -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); print(1, flush=True)"
    job = start(f"{code}\nwhile True: time.sleep(0.1)")
    output = job.output()
    next(output)
    job.stop(20)
    assert b"".join(chunk.data for chunk in output).strip() == b""
    assert (job.wait().code, job.wait().reason) == (143, None)
    job.remove()


def test_a_stop_kills_what_does_not_listen_when_its_grace_is_over(start: Start) -> None:
    job = start("import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True)\nwhile 1: signal.pause()")
    next(job.output())
    job.stop(0.05)
    ended = job.wait()
    assert (ended.code, ended.reason) == (137, None), "by us, so there is nothing to explain"
    job.kill()
    job.stop(0)
    job.remove()


def test_a_kill_from_outside_is_named(start: Start) -> None:
    job = start("import signal; print(1, flush=True); signal.pause()")
    next(job.output())
    os.kill(int(job.identity.split(":")[1]), signal.SIGKILL)
    ended = job.wait()
    assert (ended.code, ended.oom_killed, ended.reason) == (137, None, "ended by SIGKILL")
    job.remove()


def test_an_end_by_a_real_time_signal_is_named(start: Start) -> None:
    job = start("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 1)")
    assert (job.wait().code, job.wait().reason) == (128 + signal.SIGRTMIN + 1, "ended by SIGRTMIN+1")
    job.remove()


def test_a_kill_takes_the_helpers_along(start: Start, tmp_path: Path) -> None:
    code = "import os, signal, sys\npid = os.fork()\nif pid: print(pid, flush=True)\nsignal.pause()"
    job = start(code)
    helper = int(next(job.output()).data)
    job.kill()
    job.wait()
    until(lambda: (found := processes.look(helper)) is None or found.has_ended)
    job.remove()


def test_a_helper_that_holds_the_pipe_open_does_not_hold_the_run(start: Start) -> None:
    job = start("import os, signal\nif not os.fork(): signal.pause()")
    assert read(job) == {"stdout": b"", "stderr": b""}
    assert job.wait().code == 0
    job.kill()
    job.remove()


def test_ctrl_c_is_not_for_the_training(start: Start) -> None:
    job = start("import os; print(os.getpgrp() == os.getpid())")
    assert read(job)["stdout"] == b"True\n"
    job.wait()
    job.remove()


TRAINS = "import signal, sys; print(1, flush=True); signal.pause()"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True)\nwhile 1: signal.pause()"


@pytest.fixture
def left(engine: local.LocalEngine, tmp_path: Path) -> Iterator[Callable[[str], local.LocalJob]]:
    """Start a run that its ngcdl then abandons: only its record knows of it."""
    store, begun = Store(tmp_path / "runs"), list[local.LocalJob]()

    def started(code: str) -> local.LocalJob:
        folder = store.create(Run("run-1", "running", 1.0))
        job = engine.start(order(folder, "-c", code, "--out", inside.RUN))
        assert isinstance(job, local.LocalJob)
        begun.append(job)
        next(job.output())
        store.save(Run("run-1", "running", 1.0, container=job.identity))
        return job

    yield started
    for job in begun:
        job.kill()
        job.wait()
        job.remove()


@pytest.mark.parametrize(("code", "grace_seconds", "ended"), [(TRAINS, 60, -15), (DEAF, 0.3, -9)])
def test_a_training_whose_ngcdl_has_gone_is_found_by_its_record_and_can_be_stopped(
    engine: local.LocalEngine, left: Callable[[str], local.LocalJob], code: str, grace_seconds: float, ended: int
) -> None:
    job = left(code)
    found = engine.find("run-1")
    assert found
    assert (found.identity, found.ended(), list(found.output())) == (job.identity, None, [])
    found.stop(grace_seconds)
    assert found.ended() == found.wait() == Exit(None), "its code was for who started it"
    assert engine.find("run-1") is None
    assert job._process.wait() == ended
    found.kill()
    found.remove()


def test_a_process_that_only_has_the_number_of_a_run_is_not_found(engine: local.LocalEngine, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    began = processes.began(os.getpid())
    assert began
    for container in (f"pid:{os.getpid()}", f"pid:{os.getpid()}:{began + 1}", "c0ffee", None):
        store.create(run := Run(f"run-{container}", "running", 1.0, container=container))
        assert engine.find(run.id) is None
    assert engine.find("none") is None


def test_what_can_t_be_started_is_an_error_with_its_reason(engine: local.LocalEngine, tmp_path: Path) -> None:
    missing = replace(order(tmp_path), target=str(tmp_path / "no-python"))
    for bad in (missing, order(tmp_path, workdir=str(tmp_path / "no-folder"))):
        with pytest.raises(StartError, match="no-"):
            engine.start(bad)


def test_an_image_is_not_for_this_engine(engine: local.LocalEngine) -> None:
    image = ImageRef.parse("tensorflow:1")
    assert (engine.has(image), engine.config(image)) == (None, None)
