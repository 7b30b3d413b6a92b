"""An isolated home folder, the ngcdl command in it, and a stand-in for the trainer of the local engine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forking
import pytest

from ngcdl.engines import local
from ngcdl.storing.store import Store

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).with_name("stand_in_trainer.py")
# Root may enter every folder; without these two capabilities file permissions apply to it like to other users.
LIKE_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--") if os.geteuid() == 0 else ()
TRAIN = ("run", "--train", "cifar10", "--engine", "local", "--data", "synthetic", "--gpus", "none")


@dataclass(frozen=True)
class House:
    """An isolated home: everything that ngcdl reads or writes is below `home`."""

    home: Path
    _started: list[subprocess.Popen[str]] = field(default_factory=list, init=False)

    @property
    def store(self) -> Store:
        return Store(self.home / "state/ngcdl/runs")

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TZ") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_DATA_HOME": str(self.home / "share"),
            "DOCKER_HOST": f"unix://{self.home}/no-docker.sock",
            "PYTHONPATH": str(ROOT / "toolkit"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "error,ignore::ResourceWarning",  # docker's SDK leaves closing its socket to the GC
            "LANG": "C.UTF-8",
            **more,
        }

    def popen(
        self, *argv: str, env: dict[str, str] | None = None, before: tuple[str, ...] = (), **how: Any
    ) -> subprocess.Popen[str]:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process: subprocess.Popen[str] = subprocess.Popen(
            [*before, sys.executable, "-m", "ngcdl", *argv],
            errors="surrogateescape",
            env=self.environment(**(env or {})),
            **({"cwd": self.home} | streams | how),
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Kill what a test that failed has left running, so that it fails no other."""
        for process in self._started:
            with process:
                process.kill()

    def run(self, *argv: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """Run ngcdl to its end. A traceback always fails the test."""
        done = self._forked(argv, **how) if how.keys() <= {"env", "cwd", "stdin"} else None
        if done is None:
            with self.popen(*argv, **how) as process:
                out, err = process.communicate(timeout=120)
            done = subprocess.CompletedProcess(argv, process.returncode, out or "", err or "")
        assert "Traceback" not in done.stderr, done.stderr
        assert "Exception ignored" not in done.stderr, done.stderr
        return done

    def answer(self, *argv: str, answer: str, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, str]:
        """Run ngcdl on a terminal, answer its question after `meanwhile`, and return the exit code and what the
        terminal shows."""
        ours, theirs = pty.openpty()
        with self.popen(*argv, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            seen, is_answered = b"", False
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                while data := os.read(ours, 65536):
                    seen += data
                    if b"[y/N]" in seen and not is_answered:
                        meanwhile()
                        os.write(ours, answer.encode())
                        is_answered = True
            os.close(ours)
        assert b"Traceback" not in seen, seen
        return process.returncode, seen.decode().replace("\r", "")

    def _forked(
        self, argv: tuple[str, ...], env: dict[str, str] | None = None, cwd: Path | None = None, stdin: Any = None
    ) -> subprocess.CompletedProcess[str] | None:
        given = b"" if stdin in (None, subprocess.DEVNULL) else stdin if isinstance(stdin, int) else stdin.fileno()
        found = forking.run(argv, self.environment(**(env or {})), cwd or self.home, given)
        if found is None:
            return None
        code, *streams = found
        out, err = (io.TextIOWrapper(io.BytesIO(one), "utf-8", "surrogateescape").read() for one in streams)
        return subprocess.CompletedProcess(argv, code, out, err)

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line of bash in which `ngcdl` is a command; the exit code is 124 if it takes too long."""
        function = f'ngcdl() {{ {shlex.quote(sys.executable)} -m ngcdl "$@"; }}\n'
        done = subprocess.run(
            ["bash", "-c", function + line], capture_output=True, errors="surrogateescape", timeout=120, check=False,
            env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert "Exception ignored" not in done.stderr, done.stderr
        return done

    def bring_trainer(self) -> None:
        """Install the stand-in where the local engine keeps the Python that has TensorFlow."""
        engine = local.LocalEngine(self.home / "share/ngcdl", self.store.root)
        for lock in ("local.txt", "local-cpu.txt"):
            folder = engine._environment(lock)
            (folder / "bin").mkdir(parents=True)
            python = folder / "bin/python"
            python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(STAND_IN))} "$@"\n')
            python.chmod(0o755)
            (folder / local.READY).touch()

    def hastened(self, module: str) -> dict[str, str]:
        """Return the variables with which ngcdl's `module` hardly pauses: a look follows the one before at once."""
        folder, (package, _, name) = self.home / "hasty", module.rpartition(".")
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(f"from {package} import {name}\n{name}.PAUSE_SECONDS = 0.05\n")
        return {"PYTHONPATH": f"{folder}:{ROOT / 'toolkit'}"}

    def record(self, name: str = "last") -> dict[str, Any]:
        done = self.run("show", name, "--json")
        assert done.returncode == 0, done.stderr
        record: dict[str, Any] = json.loads(done.stdout)
        return record


def lines_of(runs: Path, name: str) -> list[dict[str, Any]]:
    """Return the entries so far of a .jsonl file of the newest run in this folder; [] before there is one."""
    found = list(runs.glob(f"*/{name}"))
    text = max(found).read_text() if found else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def strace() -> str:
    """Return the program that shows a process's system calls, or makes them fail. Without it skip the test, which CI
    does not allow."""
    return shutil.which("strace") or pytest.skip("strace is not installed")


def until(there: Callable[[], Any], what: str = "it", seconds: float = 240) -> Any:
    """Poll `there`, for at most `seconds`, until it returns something true; return that."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := there()):
        assert time.monotonic() < end, f"{what} never came"
        pause.wait(0.02)
    return found
