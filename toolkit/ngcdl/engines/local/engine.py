"""The local engine: a command becomes a process of this host, a training one of a Python that has TensorFlow.

A command runs as it would without ngcdl, in the caller's folder and environment, but for the registry's keys, which
only -e passes on, and for the cards that it may see.

TensorFlow comes from the Python that runs ngcdl, if installed there (`pip install ngcdl[local]`); else from a separate
environment in $XDG_DATA_HOME/ngcdl/, created once from the lock with hashes that ngcdl ships: tensorflow-cpu on x86-64
without an NVIDIA GPU, or for a run that is to use none, else tensorflow. Where tensorflow is, it serves both.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngcdl import settings, waiting, whole
from ngcdl.catalog.rows import comparable, known
from ngcdl.engines import NoImages, OfKind
from ngcdl.engines.base import Job
from ngcdl.engines.local import program
from ngcdl.engines.local.family import mark
from ngcdl.engines.local.job import FoundJob, LocalJob
from ngcdl.engines.values import GpuWay, Order, PullEvent, ShowPull, architecture
from ngcdl.errors import LocalUnavailable, StartError
from ngcdl.folder import job_of
from ngcdl.spec import RunSpec, inside, redacted

READY = "ready"
_WITH_DOCKER = "With Docker there is nothing to install:\n    ngcdl run tensorflow:TAG --train cifar10"
_WHEEL = re.compile(r"(?:\S*/)?([^\s/-]+)-([^\s-]+)-\S+\.whl")  # its tags are of no interest, and long
# Variables that name other versions (NVIDIA's images set the first), or another place, than what is installed here.
_PIP_ELSEWHERE = ("PIP_CONSTRAINT", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")
# The newest Python that the locks have TensorFlow for.
_NEWEST_PYTHON = (3, 14)
# TensorFlow's wheels for x86-64, of 2.21 and, for Python 3.14, of 2.22, and what the locked CUDA libraries are to
# download. With its dependencies, the CPU's takes 1.6 GB once installed, the GPU's 6.5 GB.
_IS_2_22 = sys.version_info >= (3, 14)
SIZES = {
    "local-cpu.txt": f"a {296 if _IS_2_22 else 274} MB wheel and its dependencies",
    "local.txt": f"a {638 if _IS_2_22 else 572} MB wheel and 2.8 GB of CUDA",
}
_ON_ARM64 = "a wheel without CUDA and its dependencies"
# What those wheels with CUDA are for. Their kernels are sm_60, sm_70, sm_80, sm_89, sm_90 and compute_90's PTX, so a
# newer card gets no kernels: https://github.com/tensorflow/tensorflow/issues/101746
_OLDEST, _NEWEST = "6.0", "9.0"
# any CUDA 12: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_OLDEST_DRIVER = "525.60.13"


def connect() -> LocalEngine:
    config = settings.load()
    return LocalEngine(config.share, config.runs)


def lock_name(has_gpu: bool) -> str:
    """Return the lock file's name. The CPU's wheel exists for x86-64 only; on arm64 the usual one is CPU-only."""
    return "local-cpu.txt" if architecture(platform.machine()) == "amd64" and not has_gpu else "local.txt"


def size(has_gpu: bool) -> str:
    """Say what is installed, and how much that is."""
    return SIZES[lock_name(has_gpu)] if architecture(platform.machine()) == "amd64" else _ON_ARM64


def lock_path(name: str) -> Path:
    """Return the path of a lock file, the checkout's first: an editable install leaves old copies in site-packages."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package.parents[1] / "requirements", package / "requirements"):
        if (folder / name).exists():
            return folder / name
    raise LocalUnavailable(f"{name} is missing from this installation of ngcdl.", "Reinstall ngcdl.")


class LocalEngine(OfKind, NoImages):
    """`share` holds the Python environment that ngcdl installs, `runs` is the folder of all runs."""

    name = "local"
    identity: str | None = None
    is_here = True

    def __init__(self, share: Path, runs: Path) -> None:
        self._share, self._runs = share, runs

    @property
    def version(self) -> str:
        return f"Python {platform.python_version()}"

    def gpu_way(self) -> GpuWay:
        return GpuWay("none", "there is no container")

    def caller(self) -> str | None:
        return None

    def python(self, has_gpu: bool) -> Path | None:
        """Return the Python that has TensorFlow, None if `prepare` must install it. CUDA's also computes on the CPU."""
        if _installed():
            return Path(sys.executable)
        folders = [self._environment(lock_name(with_cuda)) for with_cuda in (has_gpu, True)]
        return next((folder / "bin" / "python" for folder in folders if (folder / READY).exists()), None)

    def why_unfit(self, capability: str | None, driver: str | None) -> str | None:
        if _installed():
            return None  # nobody knows what it was built for
        if architecture(platform.machine()) != "amd64":
            return "TensorFlow's wheel for this processor is CPU-only"
        if (version := known(driver)) and version < comparable(_OLDEST_DRIVER):
            return f"TensorFlow's wheel needs driver {_OLDEST_DRIVER} or later, and this is {driver}"
        if (own := known(capability)) and not comparable(_OLDEST) <= own <= comparable(_NEWEST):
            its = f"{_OLDEST} to {_NEWEST}"
            return f"TensorFlow's wheel is for compute capability {its}, and the card has {capability}"
        return None

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        """Return the program of `own`, or the Python that has TensorFlow; with `show`, install it if it is missing."""
        if own:
            return program.find(own.command[0], own.workdir, dict(own.environment).get("PATH"))
        planned = self.python(has_gpu) or self._environment(lock_name(has_gpu)) / "bin" / "python"
        return str(planned if show is None else self.prepare(has_gpu, show))

    def _environment(self, lock: str) -> Path:
        key = hashlib.sha256(lock_path(lock).read_bytes() + platform.python_version().encode()).hexdigest()[:12]
        return self._share / f"{lock.removesuffix('.txt')}-{key}"

    def prepare(self, has_gpu: bool, show: ShowPull) -> Path:
        """Return the Python that has TensorFlow, installing it first if it is missing. Raise LocalUnavailable."""
        found = self.python(has_gpu)
        if found:
            return found
        if sys.version_info[:2] > _NEWEST_PYTHON:
            newest = "python{}.{}".format(*_NEWEST_PYTHON)
            raise LocalUnavailable(
                f"TensorFlow has no wheels for Python {platform.python_version()}, only up to {newest[6:]}.",
                "With that Python, from a clone, in an environment of its own:\n"
                f"    NGCDL_VENV=~/.local/share/ngcdl/{newest} NGCDL_PYTHON={newest} ngcdl run --train cifar10\n"
                + _WITH_DOCKER,
            )
        lock = lock_name(has_gpu)
        folder = self._environment(lock)
        try:
            self._share.mkdir(parents=True, exist_ok=True)
            what = f"another ngcdl, which installs TensorFlow into {folder}"
            with waiting.locked(Path(f"{folder}.lock"), lambda text: show(PullEvent(None, text)), what):
                if not (folder / READY).exists():
                    show(PullEvent(None, f"Installing TensorFlow for this host, once: {size(has_gpu)}, into {folder}"))
                    try:
                        self._install(folder, lock, show)
                        # else a power cut may leave the mark and empty files: ext4 writes files seconds after names
                        whole.sync_all(folder)
                        (folder / READY).touch()
                    except BaseException:  # a full disk, above all: what has arrived may be gigabytes
                        shutil.rmtree(folder, ignore_errors=True)
                        raise
        except OSError as error:
            raise LocalUnavailable(
                f"{folder} can't be created: {error.strerror or error}", "Free some space, or set XDG_DATA_HOME."
            ) from error
        return folder / "bin" / "python"

    def _install(self, folder: Path, lock: str, show: ShowPull) -> None:
        uv = shutil.which("uv")
        python, packages = folder / "bin" / "python", ["--require-hashes", "-r", str(lock_path(lock))]
        if uv:
            try:
                shutil.rmtree(folder, ignore_errors=True)
                _tool([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], show)
                _tool([uv, "pip", "install", "--quiet", "--python", str(python), *packages], show)
                return
            except LocalUnavailable as error:
                # uv does not read pip's settings, such as a site's own index
                show(PullEvent(None, f"{error.message}\nTrying pip instead."))
        shutil.rmtree(folder, ignore_errors=True)
        _tool([sys.executable, "-m", "venv", str(folder)], show)
        # --no-compile: a module is compiled when it is first loaded, and few are; compiling all of them now would
        # take longer than unpacking
        options = ["--disable-pip-version-check", "--no-input", "--no-user", "--no-compile"]
        _tool([str(python), "-m", "pip", "install", *options, *packages], show)

    def request(self, order: Order) -> dict[str, Any]:
        spec, words = order.spec, order.spec.command
        if spec.workload:
            words = (order.target, *(str(order.folder) if word == inside.RUN else word for word in words[1:]))
        return {
            "program": order.target,
            "argv": list(words),
            "cwd": spec.workdir,
            "environment": {
                **_visible(spec),
                **mark(order.folder, is_training=bool(spec.workload)),
                **dict(spec.environment),
            },
        }

    def command_line(self, order: Order) -> str:
        asked = self.request(order)
        variables = [f"{name}={redacted(name, value)}" for name, value in asked["environment"].items()]
        words = [asked["program"], *asked["argv"][1:]]
        return f"cd {shlex.quote(asked['cwd'] or '.')} && " + shlex.join([*variables, *words])

    def start(self, order: Order) -> Job:
        asked, spec = self.request(order), order.spec
        folder = asked["cwd"] or str(order.folder)
        environment = {**settings.without_keys(os.environ), **asked["environment"]}
        command = program.Command(asked["program"], tuple(asked["argv"]), folder, environment)
        try:
            process, screen = program.started(command, tty=spec.tty, stdin=spec.stdin)
        except StartError as error:
            if not spec.workload:
                raise
            raise LocalUnavailable(f"{order.target} can't be started: {error.message}", error.hint) from error
        return LocalJob(process, order.folder, screen=screen, is_training=bool(spec.workload))

    def find(self, run_id: str) -> Job | None:
        """Return the process that the run's record names, if it still runs; nothing is kept of an ended process."""
        folder = self._runs / run_id
        job = FoundJob.named(job_of(folder) or "", folder)
        return job if job and job.ended() is None else None


def _installed() -> bool:
    """Return whether the Python that runs ngcdl has TensorFlow."""
    found = importlib.util.find_spec("tensorflow")
    return bool(found and found.origin)  # a mere folder of that name, such as containers/tensorflow, has none


def _visible(spec: RunSpec) -> dict[str, str]:
    """Return the variables that show CUDA only the run's cards. A training is told its device, but a command that may
    use no card must see none: -1, because some programs take an empty value for a variable that is not set.

    CUDA counts as NVML does where an index names a card, and in a training, which reads NVML itself. A command counts
    as it would without ngcdl: usually the fastest card is its first.
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"""
    as_nvml = spec.workload or any(name.isdecimal() for name in spec.gpus.devices)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if as_nvml else {}
    if spec.gpus.devices:
        return {"CUDA_VISIBLE_DEVICES": ",".join(spec.gpus.devices), **order}
    is_to_see_none = spec.gpus.kind == "none" and not spec.workload
    return {"CUDA_VISIBLE_DEVICES": "-1"} if is_to_see_none else order


def _tool(argv: list[str], show: ShowPull, pause: float = waiting.FIRST_SECONDS) -> None:
    """Run an installer and show an event per download, and now and then that it goes on: a large wheel takes minutes.
    Raise LocalUnavailable with its last lines of output."""
    kept = {name: value for name, value in settings.without_keys(os.environ).items() if name not in _PIP_ELSEWHERE}
    environment = {**kept, "PYTHONPATH": "", "PIP_PROGRESS_BAR": "off"}
    said: list[str] = []
    pipe, same = subprocess.PIPE, subprocess.STDOUT
    with (
        subprocess.Popen(argv, stdout=pipe, stderr=same, text=True, env=environment, start_new_session=True) as process,
        _ending_with_us(process),
        waiting.telling(lambda text: show(PullEvent(None, text)), lambda: "the installation", pause),
    ):
        assert process.stdout is not None  # it is a PIPE
        for line in process.stdout:
            said.append(line.rstrip())
            if line.lstrip().startswith("Downloading") and "MB" in line:
                show(PullEvent(None, _WHEEL.sub(r"\1 \2", line.strip())[:150]))
    if process.returncode:
        tail = "\n".join(said[-5:])
        raise LocalUnavailable(
            f"TensorFlow could not be installed: {argv[0]} exited with {process.returncode}.\n{tail}",
            "Check the network, the free space, and that this Python has venv (Debian: "
            f"python{sys.version_info[0]}.{sys.version_info[1]}-venv).\n{_WITH_DOCKER}",
        )


@contextlib.contextmanager
def _ending_with_us(leader: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the group that a process leads if an error or a signal ends the block, and if this process is killed: the
    next installation would find the group still at work in the same folder."""
    words = ["/bin/sh", "-c", 'read -r _; kill -9 "-$1" 2>/dev/null', "sh", str(leader.pid)]
    try:
        with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as guard:  # its stdin ends with us
            try:
                yield
            finally:
                guard.kill()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGKILL)
        raise
