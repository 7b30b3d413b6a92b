"""How the local engine installs TensorFlow: once, from a lock for this kind of host, whole or not at all."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from house import until
from local_jobs import engine as engine  # a fixture
from packaging.requirements import Requirement
from packaging.version import Version

from ngcdl import processes, waiting, whole
from ngcdl.engines import local
from ngcdl.engines.local.engine import _tool, size
from ngcdl.engines.values import PullEvent
from ngcdl.errors import LocalUnavailable
from ngcdl.running.signals import Interrupted


def test_an_installation_shows_what_it_fetches_and_that_it_goes_on(tmp_path: Path) -> None:
    said = list[str]()

    def show(event: PullEvent) -> None:
        said.append(re.sub(r"\d+ s", "N s", event.status))
        if event.status.startswith("waiting"):
            (tmp_path / "told").touch()

    code = "print('  Downloading numpy-2.4.6-cp311-any.whl (16.9 MB)', flush=True)\nimport os, sys, time\n"
    code += "while not os.path.exists(sys.argv[1]): time.sleep(0.02)"
    _tool([sys.executable, "-c", code, str(tmp_path / "told")], show, pause=0.05)
    assert "Downloading numpy 2.4.6 (16.9 MB)" in said
    assert "waiting for the installation (N s so far); Ctrl-C cancels" in said


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


def test_there_is_a_lock_for_each_kind_of_host() -> None:
    assert local.lock_name(has_gpu=True) == "local.txt"
    for name in {local.lock_name(has_gpu=False), "local.txt"}:
        text = local.lock_path(name).read_text()
        assert "--hash=sha256:" in text
        assert "tensorflow" in text
    with pytest.raises(LocalUnavailable):
        local.lock_path("none.txt")


@pytest.mark.parametrize("lock", ["local.txt", "local-cpu.txt", "frameworks.txt"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_python_gets_one_tensorflow_and_3_14_the_first_that_has_wheels_for_it(lock: str, machine: str) -> None:
    lines = local.lock_path(lock).read_text().splitlines()
    asked = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalpha()]
    for python in ("3.11", "3.12", "3.13", "3.14"):
        host = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
        taken = [one for one in asked if not one.marker or one.marker.evaluate(host)]
        assert len({one.name for one in taken}) == len(taken)
        (tensorflow,) = (one for one in taken if one.name in ("tensorflow", "tensorflow-cpu"))
        (version,) = tensorflow.specifier
        is_2_22 = Version(version.version) >= Version("2.22.0rc0")
        assert is_2_22 == (python == "3.14"), f"{tensorflow}: a release candidate only where no release will do"


def test_a_python_that_tensorflow_has_no_wheel_for_is_told_before_anything_is_fetched(
    engine: local.LocalEngine, no_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 15, 0, "final", 0))
    monkeypatch.setattr("platform.python_version", lambda: "3.15.0")
    shown: list[PullEvent] = []
    with pytest.raises(LocalUnavailable) as caught:
        engine.prepare(False, shown.append)
    assert "for Python 3.15.0, only up to 3.14." in caught.value.message
    assert "NGCDL_PYTHON=python3.14 ngcdl run --train cifar10\n" in (caught.value.hint or "")
    assert shown == []


def test_nvidia_s_libraries_are_for_x86_64_and_their_cudnn_still_computes_on_volta() -> None:
    # TensorFlow's kernels are for cards from Pascal on; cuDNN 9.11 and later only for Turing and newer
    lines = [line for line in local.lock_path("local.txt").read_text().splitlines() if line.startswith("nvidia-")]
    assert lines
    assert [line for line in lines if not line.endswith(" platform_machine == 'x86_64' \\")] == []
    (cudnn,) = (line.split("==")[1].split(" ")[0] for line in lines if line.startswith("nvidia-cudnn-cu12=="))
    assert tuple(map(int, cudnn.split(".")))[:2] < (9, 11)


def test_on_another_processor_tensorflow_s_wheel_has_no_cuda_and_nobody_is_told_that_it_has(
    engine: local.LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("ngcdl.engines.local.engine._installed", lambda: False)
    assert local.lock_name(has_gpu=False) == "local.txt"
    assert size(has_gpu=True) == "a wheel without CUDA and its dependencies"
    assert engine.why_unfit("12.1", "580.95.05") == "TensorFlow's wheel for this processor is CPU-only"
    monkeypatch.setattr("ngcdl.engines.local.engine._installed", lambda: True)
    assert engine.why_unfit("12.1", "580.95.05") is None, "what is installed already may be built for it"


def test_a_run_that_is_to_use_no_gpu_takes_tensorflow_with_cuda_where_that_is_here_already(
    engine: local.LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("ngcdl.engines.local.engine._installed", lambda: False)
    for lock in ("local.txt", "local-cpu.txt"):
        assert engine.python(has_gpu=False) == engine.python(has_gpu=True), f"before {lock}"
        (folder := engine._environment(lock)).mkdir(parents=True)
        (folder / local.READY).touch()
    pythons = [engine.python(has_gpu) for has_gpu in (True, False)]
    assert pythons == [engine._environment(lock) / "bin" / "python" for lock in ("local.txt", "local-cpu.txt")]


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
