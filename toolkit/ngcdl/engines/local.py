"""The local engine: this host's own Python with TensorFlow, no container.

TensorFlow comes from the Python that ngcdl runs on, if it has it (`pip install ngcdl[local]`); else from an environment
of its own in $XDG_DATA_HOME/ngcdl/, made once from the lock with hashes that ngcdl brings: tensorflow-cpu (274 MB) on
x86-64 without an NVIDIA GPU, else tensorflow.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ngcdl import settings
from ngcdl.engines.base import (
    RUN_FOLDER,
    Chunk,
    Exit,
    GpuWay,
    Job,
    LayerStore,
    NoImages,
    NoInput,
    Order,
    PullEvent,
    Show,
    Started,
)
from ngcdl.errors import LocalUnavailable
from ngcdl.folder import HOME
from ngcdl.spec import ImageRef, Placement, redacted

READY = "ready"
# The wheel of TensorFlow 2.21 for x86-64, by far the largest; unpacked, with all it needs, the CPU's takes 1.6 GB.
SIZES = {"local-cpu.txt": "a wheel of 274 MB and what it needs,", "local.txt": "a wheel of 572 MB and CUDA,"}


def connect() -> LocalEngine:
    return LocalEngine(settings.load().share)


def lock_name(has_gpu: bool) -> str:
    """The lock to install from. The CPU wheel exists for x86-64 only; on arm64 the usual one is CPU-only anyway."""
    return "local-cpu.txt" if platform.machine() in ("x86_64", "AMD64") and not has_gpu else "local.txt"


def lock_path(name: str) -> Path:
    """Find a lock beside the checkout first: an editable install leaves old copies in site-packages."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parents[1] / "requirements", package / "requirements"):
        if (folder / name).exists():
            return folder / name
    raise LocalUnavailable(f"{name} is missing from this installation of ngcdl.", "Install ngcdl once more.")


class LocalEngine(NoImages):
    name = "local"
    identity: str | None = None
    is_here = True
    has_containers = False
    is_cluster = False
    shares_files = True

    def __init__(self, share: Path) -> None:
        self._share = share

    @property
    def version(self) -> str:
        return f"Python {platform.python_version()}"

    def gpu_way(self) -> GpuWay:
        return GpuWay("none", "no container is in between")

    def placed(self, placement: Placement | None) -> Placement | None:
        del placement
        return None

    def fits(self, order: Order) -> str | None:
        del order
        return None

    def caller(self) -> str | None:
        return None

    def target(self, image: ImageRef, digest: str) -> str:
        del image
        return digest

    def pull(self, image: ImageRef, show: Show, auth: Mapping[str, str] | None = None) -> str:
        del image, show, auth
        raise LocalUnavailable("The local engine runs no images.", "    ngcdl run IMAGE --engine docker ...")

    def layer_store(self) -> LayerStore:
        return LayerStore("the local engine runs no images")

    def python(self, has_gpu: bool) -> Path | None:
        """Give the Python that has TensorFlow, None where `prepare` has to make one."""
        found = importlib.util.find_spec("tensorflow")
        if found and found.origin:  # a mere folder of that name, as containers/tensorflow, has none
            return Path(sys.executable)
        python = self._environment(lock_name(has_gpu)) / "bin" / "python"
        return python if (python.parent.parent / READY).exists() else None

    def without_image(self, has_gpu: bool, show: Show | None) -> str:
        """Give the Python that has TensorFlow; with `show` it is installed where it is missing."""
        planned = self.python(has_gpu) or self._environment(lock_name(has_gpu)) / "bin" / "python"
        return str(planned if show is None else self.prepare(has_gpu, show))

    def _environment(self, lock: str) -> Path:
        key = hashlib.sha256(lock_path(lock).read_bytes() + platform.python_version().encode()).hexdigest()[:12]
        return self._share / f"{lock.removesuffix('.txt')}-{key}"

    def prepare(self, has_gpu: bool, show: Show) -> Path:
        """Give the Python that has TensorFlow, installing it first where it is missing. Raises LocalUnavailable."""
        found = self.python(has_gpu)
        if found:
            return found
        import filelock

        lock = lock_name(has_gpu)
        folder = self._environment(lock)
        try:
            self._share.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(str(folder) + ".lock"):
                if not (folder / READY).exists():
                    show(PullEvent(None, f"Installing TensorFlow for this host, once: {SIZES[lock]} into {folder}"))
                    self._install(folder, lock, show)
        except OSError as error:
            raise LocalUnavailable(
                f"{folder} can't be made: {error.strerror or error}", "Free some space, or set XDG_DATA_HOME."
            ) from error
        return folder / "bin" / "python"

    def _install(self, folder: Path, lock: str, show: Show) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        uv = shutil.which("uv")
        python = folder / "bin" / "python"
        if uv:
            _tool([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], show)
            install = [uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes"]
            _tool([*install, "-r", str(lock_path(lock))], show)
        else:
            _tool([sys.executable, "-m", "venv", str(folder)], show)
            # a part of a framework is ever loaded, and compiled then: to compile all takes longer than to unpack it
            options = ["--disable-pip-version-check", "--no-input", "--no-compile", "--require-hashes"]
            _tool([str(python), "-m", "pip", "install", *options, "-r", str(lock_path(lock))], show)
        (folder / READY).touch()

    def request(self, order: Order) -> dict[str, Any]:
        words = [str(order.folder) if word == RUN_FOLDER else word for word in order.spec.command]
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(order.spec.gpus.devices)} if order.spec.gpus.devices else {}
        home = str(order.folder / HOME)  # Keras leaves a file in its home, and this one is not the caller's
        return {
            "argv": [order.target, *words[1:]],
            "cwd": order.spec.workdir,
            "environment": {
                **visible,
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so an index in the caller's variable is NVML's (telemetry/free.py)
                "KERAS_HOME": home,
                **dict(order.spec.environment),
            },
        }

    def command_line(self, order: Order) -> str:
        asked = self.request(order)
        variables = [f"{name}={redacted(name, value)}" for name, value in asked["environment"].items()]
        return f"cd {shlex.quote(asked['cwd'] or '.')} && " + shlex.join([*variables, *asked["argv"]])

    def start(self, order: Order) -> Job:
        asked = self.request(order)
        environment = {**os.environ, **asked["environment"]}
        for secret in ("NGC_API_KEY", "NGC_CLI_API_KEY"):
            environment.pop(secret, None)
        try:
            process = subprocess.Popen(
                asked["argv"],
                cwd=asked["cwd"] or order.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for ngcdl, which asks the training to stop
            )
        except OSError as error:
            raise LocalUnavailable(f"{order.target} can't be started: {error}") from error
        return LocalJob(process)

    def find(self, run_id: str) -> Job | None:
        del run_id
        return None


def _tool(argv: list[str], show: Show) -> None:
    """Run an installer, one event a line. Raises LocalUnavailable with the end of what it said."""
    environment = {**os.environ, "PYTHONPATH": "", "PIP_PROGRESS_BAR": "off"}
    said: list[str] = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None  # PIPE was asked for
        for line in process.stdout:
            said.append(line.rstrip())
            if line.lstrip().startswith("Downloading") and "MB" in line:
                show(PullEvent(None, line.strip()[:150]))
    if process.returncode:
        tail = "\n".join(said[-5:])
        raise LocalUnavailable(
            f"TensorFlow could not be installed: {argv[0]} ended with {process.returncode}.\n{tail}",
            "Is the network there, and is this Python 3.11 to 3.13 with venv (Debian: python3.11-venv and its like)?\n"
            "With Docker nothing has to be installed:\n    ngcdl run tensorflow:TAG --train cifar10",
        )


class LocalJob(NoInput):
    """A process of this host, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], clock: Callable[[], float] = time.time) -> None:
        self._process = process
        self._clock = clock
        self._stopped_by_us = False
        self.identity = f"pid:{process.pid}"
        self.started = Started(pid=process.pid)
        self.detached = False

    def output(self) -> Iterator[Chunk]:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None  # PIPE was asked for
        assert stderr is not None
        streams = {stdout: "stdout", stderr: "stderr"}
        while streams:
            ready, _, _ = select.select(list(streams), [], [], 1.0)
            for stream in ready:
                data = os.read(stream.fileno(), 65536)
                if data:
                    yield Chunk(streams[stream], data)
                else:
                    del streams[stream]
            if not ready and self._process.poll() is not None:
                return  # a grandchild may hold the pipe open for ever

    def wait(self) -> Exit:
        code = self._process.wait()
        if code >= 0:
            return Exit(code, False, None, self._clock())
        # The kernel does not say why it killed a process that is in no container.
        reason = None if self._stopped_by_us else f"ended by {signal.Signals(-code).name}"
        return Exit(128 - code, None if code == -signal.SIGKILL else False, reason, self._clock())

    def ended(self) -> Exit | None:
        return None if self._process.poll() is None else self.wait()

    def waiting(self) -> str | None:
        return None

    def stop(self, grace_seconds: float) -> None:
        self._stopped_by_us = True
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._stopped_by_us = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def gpus_inside(self) -> tuple[str, ...] | None:
        return None

    def remove(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
