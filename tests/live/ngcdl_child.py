"""ngcdl as users see it: a child process with its own HOME, and what its records and its engine say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forking
import pytest
from house import lines_of, until

NGCDL = [sys.executable, "-P", "-m", "ngcdl"]
PLANTED = Path(__file__).with_name("planted")
# Variables that a developer's shell may have set, and that would disturb tests.
_FOREIGN = ("NGC", "DOCKER_", "XDG_", "LD_LIBRARY_PATH", "CUDA_")

without_driver = pytest.mark.skipif(
    Path("/proc/driver/nvidia").exists(),
    reason="this host has an NVIDIA driver: what it does without one can't be seen",
)


def planted(what: str) -> tuple[str, ...]:
    """Return the words for a training in an image into which this is planted: see planted/sitecustomize.py."""
    return ("-v", f"{PLANTED}:/planted:ro", "-e", "PYTHONPATH=/planted:/ngcdl", "-e", f"PLANT={what}")


def drive(state: Path, **changes: str | int) -> None:
    """Change lines of a stand-in driver's state; write a dot in a key as two underscores. "" removes the line."""
    wanted = {key.replace("__", "."): value for key, value in changes.items()}
    lines = [line for line in state.read_text().splitlines() if line.split("=")[0] not in wanted]
    draft = state.with_suffix(".draft")
    draft.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in wanted.items() if value != "")]) + "\n")
    draft.replace(state)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "/toolkit/ngcdl/" not in self.err, f"a traceback of ngcdl:\n{self.err}"

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def told(done: Done, code: int = 0) -> dict[str, Any]:
    """Return the JSON document that a child printed, which must have ended with this exit code."""
    assert done.code == code, done
    document: dict[str, Any] = json.loads(done.out)
    return document


class Started:
    """A running child; its output goes to two files."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process, self._out, self._err = process, out, err

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def until_out(self, text: str) -> None:
        until(lambda: text in self.out or self.process.poll() is not None, f"{text!r} on stdout")
        assert text in self.out, self.out + self.err

    def until_err(self, text: str) -> None:
        until(lambda: text in self.err or self.process.poll() is not None, f"{text!r} on stderr")
        assert text in self.err, self.out + self.err

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def done(self, seconds: float = 240) -> Done:
        code = self.process.wait(seconds)
        return Done(code, self.out, self.err)


class User:
    """A user with a HOME below `folder`, the lab's registry and one engine."""

    def __init__(self, folder: Path, lab: Mapping[str, Any], engine: str | None = None) -> None:
        self.folder, self.lab = folder, lab
        self.home = folder / "home"
        self.here = folder / "here"
        for path in (self.home, self.here):
            path.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        self.environment = {
            **kept,
            "HOME": str(self.home),
            "DOCKER_HOST": engine or lab["engine"]["host"],
            "NGCDL_REGISTRY": lab["registry"]["host"],
        }
        self.words = list(NGCDL)
        self.may_leave_containers = False
        self._children: list[Started] = []

    def has_gpus(self, **changes: str | int) -> Path:
        """Give this user's ngcdl the stand-in NVML, with its own state file, changed as by drive(); return that."""
        if "nvml" not in self.lab:
            pytest.skip("this engine has no stand-in GPUs: scripts/lab up without --engine existing")
        state = self.folder / "nvml.state"
        state.write_text(Path(self.lab["nvml"]["state_file"]).read_text())
        drive(state, **changes)
        self.environment |= {"LD_LIBRARY_PATH": self.lab["nvml"]["library_dir"], "NGCDL_NVML_STATE": str(state)}
        return state

    # -- children ---------------------------------------------------------------------------------------------------

    def run(self, *words: str, stdin: str | None = None, seconds: float = 240, **environment: str) -> Done:
        """Run `ngcdl WORDS` to its end. Without `stdin` its input is empty."""
        given, variables = (stdin or "").encode(), self.environment | environment
        if self.words == NGCDL and (found := forking.run(words, variables, self.here, given, seconds, in_folder=False)):
            code, out, err = found
            return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))
        done = subprocess.run(
            [*self.words, *words], env=variables, cwd=self.here, timeout=seconds, input=given, capture_output=True
        )
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def start(self, *words: str, **environment: str) -> Started:
        number = len(self._children)
        out, err = self.folder / f"out{number}", self.folder / f"err{number}"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [*self.words, *words], env=self.environment | environment, cwd=self.here,
                stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file, start_new_session=True,
            )  # fmt: skip
        child = Started(process, out, err)
        self._children.append(child)
        return child

    def login(self, key: str | None = None) -> None:
        done = self.run("login", "--password-stdin", stdin=key or self.lab["registry"]["key"])
        assert done.code == 0, done

    # -- what is kept -----------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Path:
        return self.home / ".local/state/ngcdl/runs"

    def ids(self) -> list[str]:
        return sorted(path.parent.name for path in self.runs.glob("*/run.json"))

    def record(self) -> dict[str, Any]:
        """The newest run.json as it is on disk, before any ngcdl updates it."""
        text: dict[str, Any] = json.loads((self.runs / self.ids()[-1] / "run.json").read_text())
        return text

    def shown(self) -> dict[str, Any]:
        """What `ngcdl show last --json` says."""
        done = self.run("show", "last", "--json")
        assert done.code == 0, done
        text: dict[str, Any] = json.loads(done.out)
        return text

    def log(self) -> str:
        return (self.runs / self.ids()[-1] / "log.txt").read_text(errors="replace")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """As house.lines_of."""
        return lines_of(self.runs, name)

    # -- the engine -------------------------------------------------------------------------------------------------

    def docker(self, *words: str, seconds: float = 240) -> str:
        environment = self.environment | {"DOCKER_CONFIG": str(self.folder / "docker-cli")}
        done = subprocess.run(
            [self.lab["docker_cli"], *words], env=environment, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def containers(self) -> list[str]:
        """Return the containers of this user's runs that the engine still has."""
        ids = self.ids()
        lines = self.docker("ps", "-a", "--format", '{{.ID}} {{.Label "ngcdl.run"}}').splitlines() if ids else []
        return [line.split()[0] for line in lines if line.split()[-1] in ids]

    def inspect(self) -> dict[str, Any]:
        """`docker inspect` of this user's one container."""
        (one,) = json.loads(self.docker("inspect", *self.containers()))
        return dict(one)

    def running(self) -> dict[str, Any]:
        """Wait until the newest run has a container; return its record."""

        def found() -> dict[str, Any] | None:
            with contextlib.suppress(IndexError, ValueError):
                record = self.record()
                return record if record["container"] else None
            return None

        container: dict[str, Any] = until(found, "a container in the record")
        return container

    def close(self) -> list[str]:
        """End this user's processes, remove the containers, and return those that ngcdl should have removed itself."""
        for child in self._children:
            if child.process.poll() is None:
                child.process.kill()
            child.process.wait(240)
        for path in self.runs.glob("*/run.json"):
            owner = json.loads(path.read_text()).get("owner") or {}
            with contextlib.suppress(ProcessLookupError, OSError):
                if str(self.runs) in Path(f"/proc/{owner.get('pid')}/environ").read_text(errors="replace"):
                    os.kill(owner["pid"], signal.SIGKILL)
        left: list[str] = []
        with contextlib.suppress(AssertionError):  # the test may have killed its engine
            end = time.monotonic() + (0 if self.may_leave_containers else 120)
            while (left := self.containers()) and time.monotonic() < end:
                time.sleep(0.1)  # a detached run's container is removed after the record is closed
            if left:
                self.docker("rm", "-f", "-v", *left)
        return [] if self.may_leave_containers else left


@contextlib.contextmanager
def user_in(folder: Path, lab: Mapping[str, Any], engine: str | None = None) -> Iterator[User]:
    """Yield a user; afterwards stop their processes and remove containers. A container that ngcdl left is a failure."""
    user = User(folder, lab, engine)
    try:
        yield user
    finally:
        left = user.close()
    assert not left, f"containers were left behind: {left}"
