"""The local engine: a process on this host, as a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from house import until
from local_jobs import Start, order, read
from local_jobs import engine as engine  # a fixture
from local_jobs import start as start  # a fixture

from ngcdl import processes, waiting, whole
from ngcdl.engines import local
from ngcdl.engines.local.engine import _tool, size
from ngcdl.engines.values import Exit, PullEvent
from ngcdl.errors import LocalUnavailable, StartError
from ngcdl.record import Run
from ngcdl.running.signals import Interrupted
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


def test_an_installation_shows_what_it_fetches_and_that_it_goes_on() -> None:
    shown = list[PullEvent]()
    code = "print('  Downloading numpy-2.4.6-cp311-any.whl (16.9 MB)', flush=True)\nimport time; time.sleep(0.2)"
    _tool([sys.executable, "-c", code], shown.append, pause=0.05)
    said = [event.status for event in shown]
    assert "Downloading numpy 2.4.6 (16.9 MB)" in said
    assert "waiting for the installation (0 s so far); Ctrl-C cancels" in said


def test_a_signal_while_tensorflow_is_installed_ends_the_installer_at_once() -> None:
    def interrupted(event: PullEvent) -> None:
        raise Interrupted(signal.SIGTERM)

    code = "print('Downloading 1 MB', flush=True)\nimport time; time.sleep(3600)"
    with pytest.raises(Interrupted):
        _tool([sys.executable, "-c", code], interrupted)


def test_an_installer_and_what_it_started_end_with_an_ngcdl_that_is_killed() -> None:
    forks = "import os, time; pid = os.fork() or time.sleep(3600)"
    installs = f"{forks}; print('Downloading', os.getpid(), pid, 'MB', flush=True); time.sleep(3600)"
    shows = "lambda event: print(event.status, flush=True)"
    code = "import sys; from ngcdl.engines.local.engine import _tool\n"
    code += f"_tool([sys.executable, '-c', {installs!r}], {shows})"
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE) as ngcdl:
        assert ngcdl.stdout
        pids = list(map(int, ngcdl.stdout.readline().split()[1:3]))
        ngcdl.kill()
    until(lambda: all((one := processes.look(pid)) is None or one.has_ended for pid in pids), "their end")


def test_a_stop_asks_and_a_training_that_listens_ends_as_it_likes(start: Start) -> None:
    job = start("import signal, sys; signal.signal(15, lambda *_: sys.exit(143)); print(1, flush=True); signal.pause()")
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
    until(lambda: not Path(f"/proc/{helper}").exists() or "\tZ" in Path(f"/proc/{helper}/status").read_text())
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


@pytest.mark.parametrize(("code", "ended"), [(TRAINS, -15), (DEAF, -9)])
def test_a_training_whose_ngcdl_has_gone_is_found_by_its_record_and_can_be_stopped(
    engine: local.LocalEngine, left: Callable[[str], local.LocalJob], code: str, ended: int
) -> None:
    job = left(code)
    found = engine.find("run-1")
    assert found
    assert (found.identity, found.ended(), list(found.output())) == (job.identity, None, [])
    found.stop(0.3)
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


def test_there_is_a_lock_for_each_kind_of_host() -> None:
    assert local.lock_name(has_gpu=True) == "local.txt"
    for name in {local.lock_name(has_gpu=False), "local.txt"}:
        text = local.lock_path(name).read_text()
        assert "--hash=sha256:" in text
        assert "tensorflow" in text
    with pytest.raises(LocalUnavailable):
        local.lock_path("none.txt")


def test_nvidia_s_libraries_are_for_x86_64_and_their_cudnn_still_computes_on_volta() -> None:
    # TensorFlow's kernels are for cards from Pascal on; cuDNN 9.11 and later only for Turing and newer
    lines = [line for line in local.lock_path("local.txt").read_text().splitlines() if line.startswith("nvidia-")]
    assert lines
    assert [line for line in lines if not line.endswith("; platform_machine == 'x86_64' \\")] == []
    (cudnn,) = (line.split("==")[1].split(" ")[0] for line in lines if line.startswith("nvidia-cudnn-cu12=="))
    assert tuple(map(int, cudnn.split(".")))[:2] < (9, 11)


def test_on_another_processor_tensorflow_s_wheel_has_no_cuda_and_nobody_is_told_that_it_has(
    engine: local.LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("ngcdl.engines.local.engine._installed", lambda: False)
    assert local.lock_name(has_gpu=False) == "local.txt"
    assert size(has_gpu=True) == "a wheel without CUDA and its dependencies,"
    assert engine.why_unfit("12.1", "580.95.05") == "TensorFlow's wheel for this processor is CPU-only"
    monkeypatch.setattr("ngcdl.engines.local.engine._installed", lambda: True)
    assert engine.why_unfit("12.1", "580.95.05") is None, "what is installed already may be built for it"


def test_a_card_of_which_nothing_is_known_is_tried(engine: local.LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("ngcdl.engines.local.engine._installed", lambda: False)
    assert [engine.why_unfit(*known) for known in ((None, None), ("9.0", "535.104.05"), ("6.1", "odd"))] == [None] * 3


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a uv, and a Python for pip, that fail, so that nothing is downloaded."""
    tools = tmp_path / "tools"
    tools.mkdir()
    uv = tools / "uv"
    uv.write_text("#!/bin/sh\necho Downloading tensorflow 274 MB\necho no route to host >&2\nexit 2\n")
    uv.chmod(0o755)
    (tools / "python").symlink_to(uv)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tools / "python"))
    return uv


def test_an_installation_that_fails_says_so_and_is_tried_anew(engine: local.LocalEngine, no_tools: Path) -> None:
    shown: list[PullEvent] = []
    python = no_tools.with_name("python")
    python.unlink()
    python.write_text('#!/bin/sh\n[ "$2" != venv ] || mkdir -p "$3/bin"\necho no route to host\nexit 2\n')
    python.chmod(0o755)
    for _ in range(2):
        with pytest.raises(LocalUnavailable, match="no route to host"):
            engine.prepare(False, shown.append)
    assert engine.python(False) is None
    assert not engine._environment(local.lock_name(has_gpu=False)).exists(), "half of it may fill the disk"
    assert sum("once" in event.status for event in shown) == 2


def test_what_uv_can_t_install_pip_may(
    engine: local.LocalEngine, no_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_sync: list[Path | None] = []
    monkeypatch.setattr(whole, "sync_all", lambda _: at_sync.append(engine.python(False)))
    python = no_tools.with_name("python")
    python.unlink()
    python.write_text(
        f'#!/bin/sh\necho "$2" >> {no_tools}.pip\n[ "$2" != venv ] || {{ mkdir -p "$3/bin"; cp "$0" "$3/bin"; }}\n'
    )
    python.chmod(0o755)
    shown: list[PullEvent] = []
    assert engine.prepare(False, shown.append) == engine.python(False)
    assert Path(f"{no_tools}.pip").read_text().split() == ["venv", "pip"]
    assert at_sync == [None], "it is on the disk before it counts as complete"
    assert shown[-1].status.startswith(f"TensorFlow could not be installed: {no_tools} exited with 2.\n")
    assert shown[-1].status.endswith("no route to host.\nTrying pip instead.")


def test_an_installer_sees_no_key_of_ngc(
    engine: local.LocalEngine, no_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-hush")
    monkeypatch.setenv("NGC_CLI_API_KEY", "nvapi-hush")
    no_tools.write_text("#!/bin/sh\nenv | grep -c '^NGC_'\nexit 2\n")
    with pytest.raises(LocalUnavailable) as caught:
        engine.prepare(False, list[PullEvent]().append)
    assert caught.value.message.endswith("\n0.")


def test_an_installer_is_not_sent_elsewhere_by_settings_for_another_python(
    engine: local.LocalEngine, no_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_CONSTRAINT", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"):
        monkeypatch.setenv(name, "/elsewhere")
    no_tools.write_text("#!/bin/sh\nenv | grep -c '=/elsewhere'\nexit 2\n")
    with pytest.raises(LocalUnavailable) as caught:
        engine.prepare(False, list[PullEvent]().append)
    assert caught.value.message.endswith("\n0.")


def test_an_installation_is_made_once_also_by_two_at_once(engine: local.LocalEngine, no_tools: Path) -> None:
    count = no_tools.with_name("count")
    no_tools.write_text(f'#!/bin/sh\necho "$1" >> {count}\n[ "$1" = venv ] && mkdir -p "$5/bin"\nexit 0\n')
    shown: list[PullEvent] = []
    threads = [threading.Thread(target=engine.prepare, args=(False, shown.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text().split() == ["venv", "pip"]
    assert engine.prepare(False, shown.append) == engine.python(False)


def test_whoever_waits_for_another_s_installation_is_told(engine: local.LocalEngine, no_tools: Path) -> None:
    folder = engine._environment(local.lock_name(has_gpu=False))
    folder.mkdir(parents=True)
    shown: list[PullEvent] = []
    with waiting.locked(Path(f"{folder}.lock"), print, "nobody"):
        other = threading.Thread(target=engine.prepare, args=(False, shown.append))
        other.start()
        until(lambda: shown, "a word about the wait")
        (folder / local.READY).touch()
    other.join()
    assert [event.status for event in shown] == [f"waiting for another ngcdl, which installs TensorFlow into {folder}"]


def test_a_place_that_can_t_be_written_is_told(tmp_path: Path, no_tools: Path) -> None:
    (tmp_path / "share").touch()
    with pytest.raises(LocalUnavailable, match="can't be created: File exists"):
        local.LocalEngine(tmp_path / "share", tmp_path / "runs").prepare(False, list[PullEvent]().append)


def test_a_folder_named_tensorflow_is_not_the_library(
    engine: local.LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = engine.python(False)
    assert found is None or Path(sys.executable) == found, "what is installed counts, not the folder"
    if found:
        pytest.skip("this Python has TensorFlow")
