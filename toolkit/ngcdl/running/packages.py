"""Installs the Python packages that a run adds to its image: before the run, once for each image and list.

    FOLDER/<key>/requirements.txt     what was asked for, one line for pip each
    FOLDER/<key>/constraints.txt      what pip must leave as the image has it
    FOLDER/<key>/installed.txt        what pip installed besides what the image has: name==version
    FOLDER/<key>/packages/            Python's user base, seen inside as inside.PACKAGES
    FOLDER/<key>/pip.log              what pip wrote
    FOLDER/<key>.part/                the same while pip works, or after it has failed
    FOLDER/<key>.lock                 locked with flock meanwhile

A container of the image installs them, so they fit its Python and its libraries. Runs see them read-only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ngcdl import waiting
from ngcdl.engines.base import Engine
from ngcdl.engines.values import Exit, Order
from ngcdl.errors import NgcdlError, PackagesNotInstalled, PackagesNotKept
from ngcdl.folder import HOME
from ngcdl.planning.show import Show
from ngcdl.spec import GpuRequest, Mount, RunSpec, inside

LIST, CONSTRAINTS, INSTALLED, LOG, BASE = "requirements.txt", "constraints.txt", "installed.txt", "pip.log", "packages"
# The builds that people take NVIDIA's images for, and what these were compiled against. A package that depends on
# another version would bring another build of them, without a word. NVIDIA's images before 25.10 pin more than these
# (PIP_CONSTRAINT).
_KEPT = "torch|torchvision|torchaudio|torchtext|triton|pytorch-triton|tensorflow|tensorflow-gpu|jax|jaxlib|numpy"
_INSTALL = f"""cd {inside.RUN}; python=python; command -v python >/dev/null || python=python3
"$python" -m pip list --format=freeze | grep -iE '^({_KEPT})==' >{CONSTRAINTS}
"$python" -m pip install --user -r {LIST} && "$python" -m pip freeze --user >{INSTALLED}"""
# https://pip.pypa.io/en/stable/topics/configuration/#environment-variables (an older pip ignores those of a newer one)
_FOR_PIP = {
    "PYTHONUSERBASE": inside.PACKAGES,
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    # Nothing of the system's is touched: https://peps.python.org/pep-0668/
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
}


@dataclass(frozen=True)
class Packages:
    """`folder` is Python's user base on this host; `installed` are name==version."""

    folder: Path
    installed: tuple[str, ...]


def folder_of(root: Path, spec: RunSpec, target: str) -> Path:
    """Return the folder below `root` for what `spec` adds to the image `target`. It need not exist yet."""
    # variables for pip may name another index, with other packages
    for_pip = sorted(one for one in spec.environment if one[0].startswith("PIP_"))
    return root / hashlib.sha256(json.dumps([target, spec.packages, for_pip]).encode()).hexdigest()[:20]


def installed(engine: Engine, spec: RunSpec, target: str, cache: Path | None, root: Path, show: Show) -> Packages:
    """Install what `spec` adds to the image `target`, unless it is there. `cache` is as in Order.

    Raise PackagesNotInstalled, PackagesNotKept, or what a start of a container raises."""
    folder = folder_of(root, spec, target)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock"), show):
            there = _there(folder)
            if there is None:
                show.say(f"installing for this image, once: {', '.join(spec.packages)}")
                there = _install(engine, spec, target, cache, folder, show)
                show.say(f"installed: {', '.join(there) or 'nothing, as the image has it all'}")
            return Packages(folder / BASE, there)
    except OSError as error:
        raise PackagesNotKept(root, error.strerror or str(error)) from error


def as_before(spec: RunSpec, target: str, root: Path, before: tuple[str, ...] | None) -> RunSpec:
    """Return `spec` so that it adds what an earlier run had (`before`, name==version; None: whatever the list gives).

    What the list gave then is used if it is still there: an index may have lost it."""
    if before is None or _there(folder_of(root, spec, target)) == before:
        return spec
    options = (line for line in spec.packages if line.startswith("-") and not re.match("-e|--editable", line))
    return replace(spec, packages=(*options, *before))


def _there(folder: Path) -> tuple[str, ...] | None:
    """Return what is installed in `folder`; None if nothing is."""
    try:
        return tuple((folder / INSTALLED).read_text().splitlines())
    except FileNotFoundError:
        return None


def _install(
    engine: Engine, spec: RunSpec, target: str, cache: Path | None, folder: Path, show: Show
) -> tuple[str, ...]:
    part = folder.with_suffix(".part")
    run_id = f"packages-{folder.name}"
    _end(engine, run_id)  # what a killed ngcdl left running
    shutil.rmtree(part, ignore_errors=True)
    for made in (part, part / HOME, part / BASE):
        made.mkdir(mode=0o700)
    (part / LIST).write_text("".join(f"{line}\n" for line in (f"-c {CONSTRAINTS}", *spec.packages)))
    alone = replace(
        spec,
        command=("sh", "-c", _INSTALL),
        gpus=GpuRequest("none"),
        mounts=(*spec.mounts, Mount(str(part / BASE), inside.PACKAGES, writable=True)),
        environment=tuple((_FOR_PIP | dict(spec.environment)).items()),
        packages=(),
        ports=(),
        user=spec.user or engine.caller(),
        tty=False,
        stdin=False,
        workload=None,
    )
    try:
        how = _followed(engine, Order(alone, run_id, part, target, "none", cache=cache), part / LOG, show)
    finally:
        _end(engine, run_id)
    if how.code != 0:
        said = [*(part / LOG).read_text(errors="replace").splitlines(), how.reason or ""]
        raise PackagesNotInstalled(spec.packages, str(spec.image), said, part / LOG)
    shutil.rmtree(folder, ignore_errors=True)  # somebody has emptied it
    part.rename(folder)
    return _there(folder) or ()


def _followed(engine: Engine, order: Order, log: Path, show: Show) -> Exit:
    """Start pip, write its words to `log` until it has ended, and return how it did."""
    last = "pip"
    with log.open("wb") as file, waiting.telling(show.say, lambda: last, at_ctrl_c="gives up the installation"):
        job = engine.start(order)
        for chunk in job.output():
            file.write(chunk.data)
            file.flush()
            if lines := chunk.data.decode(errors="replace").split("\n")[-2:-1]:
                last = f"pip: {lines[0].strip()[:100]}"
        return job.wait()


def _end(engine: Engine, run_id: str) -> None:
    """Remove the container that installs, if there is one, even if it runs."""
    with contextlib.suppress(NgcdlError):
        if job := engine.find(run_id):
            job.remove()


@contextlib.contextmanager
def _locked(path: Path, show: Show) -> Iterator[None]:
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            show.say("waiting for another ngcdl, which installs the same packages")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
