"""Installs the Python packages that a run adds to its image: before the run, once for each image and list.

    FOLDER/<key>/run/requirements.txt what was asked for, one line for pip each
    FOLDER/<key>/run/constraints.txt  what pip must leave as the image has it, and the versions of an earlier run
    FOLDER/<key>/run/kept.txt         the lines about packages that the image must have in that version
    FOLDER/<key>/run/installed.txt    what pip says that it installed besides what the image has: name==version
    FOLDER/<key>/packages/            Python's user base, seen inside as inside.PACKAGES
    FOLDER/<key>/installed.txt        the list in run/, once it was checked: the packages are complete
    FOLDER/<key>/pip.log              what pip wrote
    FOLDER/<key>.part/                the same while pip works; after it has failed, pip.log alone
    FOLDER/<key>.lock                 locked with flock meanwhile

A container of the image installs them, so they fit its Python and its libraries. Runs see them read-only.
A package may run anything while it is installed, so nothing in run/, which the container writes, is trusted to be a
regular file; the rest it can neither replace nor turn into a link.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from pathlib import Path, PurePosixPath

from ngcdl import waiting, whole
from ngcdl.engines.base import Engine
from ngcdl.engines.values import Exit, Order
from ngcdl.errors import ContainerLeft, NgcdlError, PackagesNotInstalled, PackagesNotKept
from ngcdl.folder import HOME, content
from ngcdl.frozen import dataclass
from ngcdl.planning.show import Show
from ngcdl.spec import GpuRequest, Mount, RunSpec, inside, redacted
from ngcdl.storing.store import delete

LIST, CONSTRAINTS, KEPT = "requirements.txt", "constraints.txt", "kept.txt"
INSTALLED, LOG, BASE, RUN = "installed.txt", "pip.log", "packages", "run"
_TAIL_BYTES = 64 << 10  # of what pip wrote: what it says at its end, and some lines before
# The builds that people take NVIDIA's images for, and what these were compiled against. A package that depends on
# another version would bring another build of them, without a word. NVIDIA's images before 25.10 pin more than these
# (PIP_CONSTRAINT).
_NAMES = "torch|torchvision|torchaudio|torchtext|triton|pytorch-triton|tensorflow|tensorflow-gpu|jax|jaxlib|numpy"
_OF_IMAGE = re.compile(rf"(?:{_NAMES})(?![\w.-])(?!.*@)", re.IGNORECASE)
# The last line is for pip before 20.3, whose constraints win over the list without a word: what they kept must fulfil
# the list. https://pip.pypa.io/en/stable/user_guide/#changes-to-the-pip-dependency-resolver-in-20-3-2020
_INSTALL = f"""set -e; cd {inside.RUN}; python=python; command -v python >/dev/null || python=python3
"$python" -m pip list --format=freeze | grep -iE '^({_NAMES})==' >>{CONSTRAINTS} || true
"$python" -m pip install --user -r {LIST}; "$python" -m pip freeze --user >{INSTALLED}
[ ! -s {KEPT} ] || "$python" -m pip install --user --no-index --no-deps -r {KEPT}"""
# https://pip.pypa.io/en/stable/topics/configuration/#environment-variables (an older pip ignores those of a newer one)
_FOR_PIP = {
    "PYTHONUSERBASE": inside.PACKAGES,
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    # Nothing of the system's is touched: https://peps.python.org/pep-0668/
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
}
# Variables that pip, and what it builds, read; they are part of the key. Others of the run would only split the keys.
_READ = re.compile(r"PIP_\w+|C(?:XX|PP)?FLAGS|LDFLAGS|CC|CXX|CMAKE_ARGS|TORCH_CUDA_ARCH_LIST|FORCE_CUDA|CUDA_HOME")
_PLACE = re.compile(r"(?:\A|[\s=]|file:(?://)?)(/[^\s\"']+)")
_READ_WITHOUT_EFFECT = re.compile(r"(?i:\w+_proxy)|MAX_JOBS")  # on what is installed


@dataclass(frozen=True)
class Packages:
    """`folder` is Python's user base on this host; `installed` are name==version."""

    folder: Path
    installed: tuple[str, ...]


def folder_of(root: Path, spec: RunSpec, target: str, pins: tuple[str, ...] = ()) -> Path:
    """Return the folder below `root` for what `spec` adds to the image `target`, in the versions of `pins`. It need not
    exist yet."""
    decides = [target, spec.packages, pins, _variables(spec), list(map(str, _named(spec)))]
    return root / hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:20]


def installed(
    engine: Engine,
    spec: RunSpec,
    target: str,
    cache: Path | None,
    root: Path,
    show: Show,
    before: tuple[str, ...] | None = None,
) -> Packages:
    """Install what `spec` adds to the image `target`, unless it is there. `cache` is as in Order. `before`: what an
    earlier run had, whose versions are taken.

    Raise PackagesNotInstalled, PackagesNotKept, or what a start of a container raises."""
    folder, pins = folder_of(root, spec, target), tuple[str, ...]()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before is not None and _there(folder) != before and not any("--hash" in line for line in spec.packages):
            pins = tuple(line for line in before if re.fullmatch(r"[\w.-]+==[\w.+!-]+", line))
            folder = folder_of(root, spec, target, pins)
        with waiting.locked(folder.with_suffix(".lock"), show.say, "another ngcdl, which installs the same packages"):
            there = _there(folder)
            if there is None:
                _sweep(engine, root, show)
                show.say(f"installing for this image, once: {', '.join(spec.packages)}")
                there = _install(engine, spec, target, cache, folder, pins, show)
                show.say(f"installed: {', '.join(there) or 'nothing, as the image has it all'}")
            return Packages(folder / BASE, there)
    except OSError as error:
        raise PackagesNotKept(root, error.strerror or str(error)) from error


def _there(folder: Path) -> tuple[str, ...] | None:
    """Return what is installed in `folder`, without the secrets in addresses; None if nothing is."""
    try:
        if stat.S_ISDIR((folder / BASE).lstat().st_mode):  # an older ngcdl let the container replace it
            return _listed(folder / INSTALLED)
    except OSError:
        return None
    return None


def _listed(path: Path) -> tuple[str, ...]:
    """Return the lines of a list of packages. Raise OSError, also if it is no list that pip could have written."""
    return tuple(redacted("", line) for line in content(path).decode(errors="replace").splitlines())


def _variables(spec: RunSpec) -> list[tuple[str, str]]:
    """Return the run's variables that decide what pip installs: those it reads, and those that the list names."""
    named = re.findall(r"\$\{([A-Z0-9_]+)\}", " ".join(spec.packages))
    return [one for one in spec.environment if _READ.fullmatch(one[0]) or one[0] in named]


def _named(spec: RunSpec) -> tuple[Mount, ...]:
    """Return those of the run's mounts in which the list, or a variable for pip, names a place inside."""
    said = (*spec.packages, *(value for _, value in _variables(spec)))
    places = [place for text in said for place in map(PurePosixPath, _PLACE.findall(text))]
    seen = [(mount, PurePosixPath(mount.container)) for mount in spec.mounts]
    return tuple(
        mount for mount, at in seen if any(place.is_relative_to(at) or at.is_relative_to(place) for place in places)
    )


def _install(
    engine: Engine,
    spec: RunSpec,
    target: str,
    cache: Path | None,
    folder: Path,
    pins: tuple[str, ...],
    show: Show,
) -> tuple[str, ...]:
    part = folder.with_suffix(".part")
    run, run_id = part / RUN, _run_id(part)
    _end(engine, run_id, show)  # what a killed ngcdl left running
    _remove(part)
    try:
        for made in (part, run, run / HOME, part / BASE):
            made.mkdir(mode=0o700)
        _write_lists(run, spec, pins)
        order = Order(_of_pip(spec, part / BASE, engine), run_id, run, target, "none", cache=cache)
        try:
            how = _followed(engine, order, part / LOG, show)
        finally:
            _end(engine, run_id, show)
        if how.code != 0:
            said = [*_last_words(part / LOG), how.reason or ""]
            raise PackagesNotInstalled(spec.packages, str(spec.image), said, part / LOG)
        try:
            there = _listed(run / INSTALLED)
        except OSError as error:
            why = "the list of what pip installed is missing, or is no file that pip writes"
            raise PackagesNotInstalled(spec.packages, str(spec.image), (), part / LOG, why) from error
        (part / INSTALLED).write_bytes("".join(f"{line}\n" for line in there).encode())
    except BaseException:
        _empty(part)  # the disk may be full of it
        raise
    _remove(folder)  # somebody has emptied it
    # else a power cut may leave the new name with empty files, as ext4 writes files seconds after names
    whole.sync_all(part)
    part.rename(folder)
    return there


def _write_lists(run: Path, spec: RunSpec, pins: tuple[str, ...]) -> None:
    """Write what pip reads."""
    kept = [line.partition(" --")[0] for line in spec.packages if _OF_IMAGE.match(line)]
    for name, lines in ((LIST, (f"-c {CONSTRAINTS}", *spec.packages)), (CONSTRAINTS, pins), (KEPT, kept)):
        (run / name).write_text("".join(f"{line}\n" for line in lines))


def _of_pip(spec: RunSpec, base: Path, engine: Engine) -> RunSpec:
    """Return the run of pip alone, in the image of `spec`; it installs into `base`."""
    harmless = [one for one in spec.environment if _READ_WITHOUT_EFFECT.fullmatch(one[0])]
    return RunSpec(
        image=spec.image,
        command=("sh", "-c", _INSTALL),
        gpus=GpuRequest("none"),
        # all: a configuration file that is named may name more
        mounts=(*(spec.mounts if _named(spec) else ()), Mount(str(base), inside.PACKAGES, writable=True)),
        environment=tuple((dict(_variables(spec)) | dict(harmless) | _FOR_PIP).items()),
        shm_bytes=spec.shm_bytes,
        ulimits=spec.ulimits,
        cpu_limit=spec.cpu_limit,
        memory_bytes=spec.memory_bytes,
        user=spec.user or engine.caller(),
    )


def _run_id(part: Path) -> str:
    # the engine may serve other users, each with a folder of their own
    return f"packages-{hashlib.sha256(f'{os.getuid()} {part}'.encode()).hexdigest()[:20]}"


def _empty(part: Path) -> None:
    """Remove what pip had brought before it failed; what it wrote, pip.log, stays."""
    for made in (part / BASE, part / RUN):
        _remove(made)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        delete(folder)


def _sweep(engine: Engine, root: Path, show: Show) -> None:
    """Remove what killed ngcdls left of other installations: containers, which may run for ever, and what pip had
    brought."""
    for part in root.glob("*.part"):
        with contextlib.suppress(OSError), waiting.locked_within(part.with_suffix(".lock"), 0):
            if (part / BASE).exists():
                _end(engine, _run_id(part), show)
                _empty(part)


def _last_words(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read(_TAIL_BYTES).decode(errors="replace").splitlines()


def _followed(engine: Engine, order: Order, log: Path, show: Show) -> Exit:
    """Start pip, write its words to `log` until it has ended, and return how it did."""
    last = "pip"
    with log.open("wb") as file, waiting.telling(show.say, lambda: last, at_ctrl_c="gives up the installation"):
        job = engine.start(order)
        for chunk in job.output():
            file.write(chunk.data)
            file.flush()
            if lines := chunk.data.decode(errors="replace").split("\n")[-2:-1]:
                last = f"pip: {redacted('', lines[0].strip()[:100])}"
        return job.wait()


def _end(engine: Engine, run_id: str, show: Show) -> None:
    """Remove the container that installs, if there is one, even if it runs."""
    try:
        if job := engine.find(run_id):
            job.remove()
    except ContainerLeft as error:
        show.say(error.note)
    except NgcdlError:
        return  # the next installation looks for it first
