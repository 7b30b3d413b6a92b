"""A command of the user's own on this host: its program, its terminal, its streams and its environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import until
from local_jobs import Start, order, own, read
from local_jobs import engine as engine  # a fixture
from local_jobs import start as start  # a fixture

from ngcdl import processes
from ngcdl.engines import local
from ngcdl.engines.values import Chunk, Order
from ngcdl.errors import CannotInvoke, CommandNotFound, LocalUnavailable
from ngcdl.record import Run
from ngcdl.spec import Workload
from ngcdl.storing.store import Store


def test_a_program_is_found_as_a_shell_finds_it(
    engine: local.LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name, mode in {"bin/tool": 0o755, "train.sh": 0o755, "notes": 0o644}.items():
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"bin:{os.environ['PATH']}")
    assert engine.without_image(own("tool"), False, None) == str(tmp_path / "bin/tool"), "its folder may be another"
    monkeypatch.chdir("/")
    assert engine.without_image(own("./train.sh", workdir=str(tmp_path)), True, None) == f"{tmp_path}/train.sh"
    for word, error, code in [
        ("no-such-program", CommandNotFound, 127), ("./missing.sh", CommandNotFound, 127),
        ("./notes", CannotInvoke, 126), ("./bin", CannotInvoke, 126),
    ]:  # fmt: skip
        with pytest.raises(error) as found:
            engine.without_image(own(word, workdir=str(tmp_path)), False, None)
        assert (found.value.exit_code, word in found.value.message) == (code, True)


def test_a_folder_that_is_gone_is_named(engine: local.LocalEngine, tmp_path: Path) -> None:
    with pytest.raises(LocalUnavailable, match=r"can't be started in /gone: No such file"):
        engine.start(order(tmp_path, "-c", "", workdir="/gone"))


def test_input_is_passed_on_to_its_end(start: Start) -> None:
    job = start("import sys; print(len(sys.stdin.read()), sys.stdin.isatty())", stdin=True)
    job.write(b"x" * 300_000)  # more than a pipe holds
    job.close_input()
    assert read(job)["stdout"] == b"300000 False\n"
    job.wait()
    with pytest.raises(OSError, match="has ended"):
        job.write(b"")
    job.remove()


def typed_into(job: local.LocalJob, said: Iterator[Chunk], seen: bytes = b"") -> Callable[[bytes, bytes], bytes]:
    def type_until(data: bytes, wanted: bytes) -> bytes:
        nonlocal seen
        job.write(data)
        while wanted not in seen:
            chunk = next(said)
            assert chunk.stream == "stdout"
            seen += chunk.data
        found, seen = seen, b""
        return found

    return type_until


def test_on_a_terminal_of_its_own_ctrl_c_and_the_size_reach_the_program(start: Start) -> None:
    code = (
        "import os, select, signal, sys, time\n"
        # not print, which may be interrupted by this signal, and must not be called again then
        "signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'now %d %d' % os.get_terminal_size()))\n"
        "print('size', *os.get_terminal_size(), os.isatty(0), os.isatty(2), open('/dev/tty').isatty(), flush=True)\n"
        # a signal just before a long wait is handled only after it
        "while not select.select([0], [], [], 0.1)[0]: pass\n"
        "try:\n    print('got', sys.stdin.readline(), flush=True)\n    while True: time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    sys.exit(5)"
    )
    job = start(code, tty=True, stdin=True)
    until_said = typed_into(job, job.output())
    assert b"True True True" in until_said(b"", b"\n")
    job.resize(33, 77)
    until_said(b"", b"now 77 33")
    until_said(b"a line\n", b"got a line")
    until_said(b"\x03", b"interrupted")
    assert job.wait().code == 5
    job.remove()
    job.remove()


def test_what_a_shell_leaves_behind_does_not_hold_its_terminal(start: Start) -> None:
    job = start("import subprocess; subprocess.Popen(['sleep', '60']); print('left')", tty=True, stdin=True)
    assert b"left" in read(job)["stdout"]
    assert job.wait().code == 0
    job.kill()
    job.remove()


def test_a_command_is_found_again_though_its_environment_does_not_name_the_run_and_no_other_process_is(
    engine: local.LocalEngine, tmp_path: Path
) -> None:
    store = Store(tmp_path / "runs")
    folder = store.create(Run(id="run-1", status="running", started=1.0, engine="local"))
    words = ("env", "-i", "/bin/sleep", "60")
    job = engine.start(Order(own(*words, workdir="/"), "run-1", folder, "/usr/bin/env", "none"))
    assert isinstance(job, local.LocalJob)
    until(lambda: not processes.environment(job._process.pid), "sleep")
    store.save(Run(id="run-1", status="running", started=1.0, engine="local", container=job.identity))
    found = engine.find("run-1")
    assert found is not None
    found.stop(10)
    assert job.wait().code == 143
    assert engine.find("run-1") is None
    job.remove()


def test_all_of_a_run_s_own_output_is_read_however_slowly_it_is_shown(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As into `less`: the command has long ended when its last pipe full is shown."""
    monkeypatch.setattr("ngcdl.engines.local.job.OVER_SECONDS", 0.0)
    job = start("import subprocess; subprocess.Popen(['sleep', '60']); print('x' * 60_000)")
    until(lambda: job.ended(), "its end")
    assert len(read(job)["stdout"]) == 60_001
    job.kill()
    job.remove()


def test_a_stream_that_nobody_reads_is_closed_for_a_command_and_not_for_a_training(start: Start) -> None:
    code = "import sys\nwhile 1: print('y'); print('x', file=sys.stderr)"
    job = start(f"import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n{code}")
    for chunk in job.output():
        if chunk.stream == "stdout":
            assert job.hang_up(chunk.stream)
    assert (job.wait().code, job.wait().reason) == (141, "ended by SIGPIPE: nobody read its stdout any more")
    job.remove()
    training = start("print('y', flush=True); input()", stdin=True, workload=Workload("smoke"))
    next(training.output())
    assert not training.hang_up("stdout")
    training.kill()
    assert not training.hang_up("stdout")
    training.wait()
    training.remove()


@pytest.mark.parametrize("tty", [False, True])
def test_the_environment_and_the_program_s_name_arrive_as_they_were(
    start: Start, monkeypatch: pytest.MonkeyPatch, tty: bool
) -> None:
    """Exported functions of bash are such variables, and `module` and `conda` are such functions."""
    monkeypatch.setenv("BASH_FUNC_myf%%", "() {  echo called\n}")
    monkeypatch.setenv("a.b", "1")
    monkeypatch.setenv("LC_ALL", "")
    monkeypatch.setenv("LANG", "C")
    code = "import os, signal, sys; print({}, signal.getsignal(signal.SIGXFSZ).name, flush=True)"
    shown = "os.environ['a.b'], open('/proc/self/environ').read().count('LC_CTYPE'), sys.orig_argv[0]"
    before = os.environ.get("LC_CTYPE")
    job = start(code.format(shown), tty=tty, environment=(("LD_LIBRARY_PATH", "/nowhere"),))
    said = read(job)["stdout"]
    assert said.split() == [b"1", b"1" if before else b"0", b"python", b"SIG_IGN"]
    assert job.wait().code == 0
    job.remove()


def test_a_function_of_bash_reaches_a_shell_on_a_terminal(
    engine: local.LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASH_FUNC_myf%%", "() {  echo called $0\n}")
    spec = own("bash", "-c", "myf; cat /proc/$$/status | grep SigIgn", tty=True)
    job = engine.start(Order(spec, "run-1", tmp_path, "/bin/bash", "none"))
    assert isinstance(job, local.LocalJob)
    called, ignored = read(job)["stdout"].splitlines()
    assert (called, int(ignored.split()[1], 16) >> (signal.SIGPIPE - 1) & 1) == (b"called bash", 0)
    job.wait()
    job.remove()


@pytest.mark.parametrize("tty", [False, True])
def test_what_can_t_be_run_is_the_same_with_and_without_a_terminal(
    engine: local.LocalEngine, tmp_path: Path, tty: bool
) -> None:
    texts = {
        "ns.sh": b"echo $0 $1 $BASH_VERSION", "sp.sh": b"#!/nonexistent/python -u\n", "win.sh": b"#!/bin/sh\r\n",
        "arm": b"\x7fELF\x02\x01\x01\0", "by.sh": f"#!{tmp_path}/notes\n".encode(),
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "notes").touch(0o644)

    def started(name: str) -> local.LocalJob:
        spec = own(f"./{name}", "a b", tty=tty, workdir=str(tmp_path))
        job = engine.start(Order(spec, "run-1", tmp_path, str(tmp_path / name), "none"))
        assert isinstance(job, local.LocalJob)
        return job

    job = started("ns.sh")
    assert (read(job)["stdout"].strip(), job.wait().code) == (b"./ns.sh a b", 0)
    job.remove()
    for name, error, code, said in [
        ("sp.sh", CommandNotFound, 127, "This host lacks what runs ./sp.sh: /nonexistent/python."),
        ("win.sh", CommandNotFound, 127, "./win.sh: /bin/sh and a carriage return: its lines end as on Windows."),
        ("arm", CannotInvoke, 126, "./arm: it was built for another kind of machine, or is damaged."),
        ("by.sh", CannotInvoke, 126, "./by.sh"),
    ]:  # fmt: skip
        with pytest.raises(error) as found:
            started(name)
        assert (found.value.exit_code, said in found.value.message) == (code, True), found.value.message


def test_a_program_is_looked_up_in_the_path_that_it_gets(engine: local.LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").write_text("#!/bin/sh\n")
    (tmp_path / "bin/tool").chmod(0o755)
    for path in (f"/usr/bin:{tmp_path}/bin", "bin"):
        spec = own("tool", workdir=str(tmp_path), environment=(("PATH", path),))
        assert engine.without_image(spec, False, None) == f"{tmp_path}/bin/tool"
    with pytest.raises(CommandNotFound):
        engine.without_image(own("sh", environment=(("PATH", "/nowhere"),)), False, None)
