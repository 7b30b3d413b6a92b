"""Runs ngcdl, or a piece of code that uses it, in the fork of a process that has loaded it already.

Loading takes most of the time of a short command, and the tests run some thousands. A fork has its own environment,
folder and standard streams, and ends as any process does. It differs from `python -m ngcdl` in that all modules are
loaded, and in its command line as others see it: tests of start-up, of signals, terminals and process lists start a
real one (House.popen, User.start).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# What Python, its libraries or the loader read when a process starts: each combination has a process of its own.
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "OPENSSL", "SSL_")
_MOST_PROCESSES, _MOST_BYTES = 6, 60_000  # further combinations, and longer requests, are started as usual


class Ngcdl:
    """A process that has loaded ngcdl, with the variables of `environment` that matter when a process starts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def run(self, request: bytes, given: int | bytes, seconds: float) -> tuple[int, bytes, bytes]:
        """Return exit code, stdout and stderr. `given` is for stdin: a descriptor, or what to write."""
        pipes = [os.pipe() for _ in range(3)]
        (out, _), (err, _), (status, _) = pipes
        stdin, feed = (given, None) if isinstance(given, int) else os.pipe()
        socket.send_fds(self._channel, [request], [stdin, *(write for _, write in pipes)])
        for _, write in pipes:
            os.close(write)
        with ThreadPoolExecutor(4) as pool:
            if feed is not None and isinstance(given, bytes):
                os.close(stdin)
                pool.submit(_write, feed, given)
            found = [pool.submit(_read, descriptor) for descriptor in (out, err)]
            with os.fdopen(status) as told:
                pid = int(told.readline())
                try:
                    code = int(pool.submit(told.readline).result(seconds))
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired("ngcdl", seconds) from None
            out_bytes, err_bytes = (one.result(seconds) for one in found)
        return code, out_bytes, err_bytes

    def close(self) -> None:
        self._channel.close()  # the process ends at its next read
        self._process.wait(120)


_running: dict[tuple[tuple[str, str], ...], Ngcdl] = {}


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    given: int | bytes = b"",
    seconds: float = 120,
    *,
    is_code: bool = False,
    in_folder: bool = True,
    at_start: Mapping[str, str] | None = None,
) -> tuple[int, bytes, bytes] | None:
    """Run `ngcdl WORDS`, or with `is_code` Python's `-c WORDS`. `in_folder`: modules in `cwd` come first, as without
    -P. `at_start`: variables that only the loading process has.

    Return exit code, stdout and stderr; None if this must be started as usual."""
    begun = {name: value for name, value in environment.items() if name.startswith(_AT_START)} | dict(at_start or {})
    key = tuple(sorted(begun.items()))
    about = [list(words), dict(environment), str(cwd), is_code, in_folder]
    request = json.dumps(about).encode("utf-8", "surrogatepass")
    if len(request) > _MOST_BYTES or (key not in _running and len(_running) == _MOST_PROCESSES):
        return None
    if key not in _running:
        kept = {name: environment[name] for name in ("PATH", "HOME") if name in environment}
        _running[key] = Ngcdl(kept | begun)
    return _running[key].run(request, given, seconds)


def close() -> None:
    """End the processes."""
    while _running:
        _running.popitem()[1].close()


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


# -- in the process that has loaded ngcdl ---------------------------------------------------------------------------


def _serve(channel: socket.socket) -> None:
    """Fork a keeper for each request, until the channel is closed. It tells its child's id, and how that ended."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, 2 * _MOST_BYTES, 4)
        if not request:
            return
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        *streams, status = descriptors
        child = os.fork()
        if not child:
            os.close(status)
            _become(streams, *json.loads(request.decode("utf-8", "surrogatepass")))
        for descriptor in (0, 1, 2, *streams):  # its end of each pipe would keep a reader waiting
            os.close(descriptor)
        os.write(status, f"{child}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(status, f"{code}\n".encode())
        os._exit(0)


def _load() -> None:
    import docker
    import pynvml
    import typer.main

    import ngcdl
    from ngcdl.cli.app import app

    del docker, pynvml
    for module in pkgutil.walk_packages(ngcdl.__path__, "ngcdl."):
        if not module.name.endswith("_main") and "__main__" not in module.name:
            importlib.import_module(module.name)
    # Else typer reads the signatures of all commands in every fork, which took most of a short command's time.
    typer.main.get_command_from_info = functools.cache(typer.main.get_command_from_info)
    typer.main.get_command(app)


def _become(
    streams: Sequence[int], words: list[str], environment: dict[str, str], cwd: str, is_code: bool, in_folder: bool
) -> None:
    """Run the request in this process, and exit."""
    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        words, cwd = list(map(_here, words)), _here(cwd)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update({name: _here(value) for name, value in environment.items()})
        sys.path[:] = [*([cwd] if in_folder else []), *sys.path]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if is_code:
            sys.argv = ["-c", *words[1:]]
            exec(compile(words[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = ["ngcdl", *words]
            runpy.run_module("ngcdl", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # as Python's own top level: whatever ended it is shown
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _here(text: str) -> str:
    """Return the text as this process has it from the system: its locale may be another one than the tests'."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as theirs:
        _serve(theirs)
