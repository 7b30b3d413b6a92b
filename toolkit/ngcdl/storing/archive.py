"""Packs runs and comparisons in one file, to take them to another machine: a plain tar, with a checksum for each file.

    <id>/run.json  events.jsonl  samples.jsonl  log.txt  trace.json     as they are in the run's folder
    <id>/checkpoints/step-<n>.npz
    comparisons/<id>.json                                                            as comparisons.py stores it
    SHA256SUMS                                                                       last; `sha256sum -c` reads it

The tar has no absolute names, no owners, no links. What the record redacts stays redacted; a log is packed as it is. An
import trusts nothing: it accepts only these names and only regular files, and checks every checksum and every record.
Nothing is imported unless the whole file is valid. If the disk fills up or Ctrl-C arrives while runs are moved into
place, some of them may be there already; importing the file again adds the others. What has been exported or imported
survives a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from ngcdl import tars, whole
from ngcdl.errors import ArchiveBroken, BadOption, NgcdlError, NotWritten, RecordBroken, StateNotWritable
from ngcdl.folder import CHECKPOINTS, FILES, HOME, IMPORTED, SAMPLES_OF_NODES, opened
from ngcdl.folder import content as content_of
from ngcdl.record import Run
from ngcdl.storing.comparisons import BROKEN, StoredComparison, has, save
from ngcdl.storing.comparisons import FOLDER as COMPARISONS
from ngcdl.storing.store import Store

SUMS = "SHA256SUMS"
_OF_NODE = r"samples-[0-9A-Za-z_.-]{1,120}\.jsonl"
_STEP = r"step-[0-9]{1,18}\.npz"
_RUN = r"\w[\w.-]{0,120}"  # nothing that a shell would read in a line that ngcdl advises
_NAME = re.compile(
    rf"(?P<run>{_RUN})/"
    rf"(?P<file>{'|'.join(re.escape(one) for one in FILES)}|{_OF_NODE}|{CHECKPOINTS}/{_STEP})"
)
_COMPARISON = re.compile(rf"{COMPARISONS}/[0-9A-Za-z][0-9A-Za-z_.-]{{0,120}}\.json")
_DRAFT = ".import-"
_MODE = 0o600
_BLOCK = 1 << 20
_SUMS_BYTES = 1 << 22


def export(store: Store, runs: Sequence[Run], file: Path, comparisons: Sequence[StoredComparison] = ()) -> None:
    """Write `runs`, which must have ended, and `comparisons` to `file`. Raise NotWritten, BadOption or RecordBroken,
    leaving no file behind."""
    if not file.name:
        raise NotWritten(file, "it is a folder")
    try:
        with whole.written(file, is_new=True) as raw:
            write(store, runs, comparisons, raw)
    except FileExistsError as error:
        raise NotWritten(file, "it is there already, and is left as it is") from error
    except OSError as error:
        raise NotWritten(file, error.strerror or str(error)) from error
    with contextlib.suppress(OSError):  # a folder that may only be written; the file is there all the same
        whole.sync_folder(file.parent)  # else a power cut may take its name, when its runs have been removed


def write(store: Store, runs: Sequence[Run], comparisons: Sequence[StoredComparison], raw: IO[bytes]) -> None:
    """Write `runs`, which must have ended, and `comparisons` to `raw`, which may be a pipe. Raise OSError,
    BadOption or RecordBroken."""
    sums = []
    with tarfile.open(fileobj=raw, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for run in runs:
            if not re.fullmatch(_RUN, run.id):  # what the trainer recorded by itself has its folder's name
                hint = f"Its folder, and the id in the run.json there, can have another:\n    {store.folder(run.id)}"
                raise BadOption(f"{run.id}: no import takes in a name of more than letters, digits, _, . and -.", hint)
            for name, path in _files(store.folder(run.id)):
                sums.append(f"{_add(archive, f'{run.id}/{name}', path)}  {run.id}/{name}\n")
        for kept in comparisons:
            name, content = f"{COMPARISONS}/{kept.id}.json", json.dumps(kept.as_json(), indent=1).encode()
            tars.add(archive, name, content, mode=_MODE, changed=kept.finished or kept.started)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        text = "".join(sums).encode()
        tars.add(archive, SUMS, text, mode=_MODE)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for name in FILES:
        if _is_file(folder / name):
            yield name, folder / name
    for path in sorted(folder.glob(SAMPLES_OF_NODES)):
        if re.fullmatch(_OF_NODE, path.name) and _is_file(path):
            yield path.name, path
    checkpoints = folder / CHECKPOINTS
    if checkpoints.is_dir() and not checkpoints.is_symlink():
        for path in sorted(checkpoints.iterdir()):
            if re.fullmatch(_STEP, path.name) and _is_file(path):
                yield f"{CHECKPOINTS}/{path.name}", path


def _is_file(path: Path) -> bool:
    """Return whether `path` is a regular file. A run can write in its folder, where a link may lead anywhere."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _add(archive: tarfile.TarFile, name: str, path: Path) -> str:
    """Add the current content of the file, and return its SHA-256. Raise RecordBroken if it can't be read."""
    try:
        content = opened(path)
    except OSError as error:
        raise RecordBroken(path, error.strerror or str(error)) from error
    with content as file:
        state = os.fstat(file.fileno())
        return tars.add_hashed(archive, name, file, state.st_size, mode=_MODE, changed=state.st_mtime)


def take_in(store: Store, file: Path, say: Callable[[str], None], stream: IO[bytes] | None = None) -> list[str]:
    """Import the runs and comparisons in `file`, and return their ids. Runs and comparisons that are already here are
    left as they are, which `say` reports. `stream`: what to read, if it is open already; `file` is its name then. Raise
    BadOption or ArchiveBroken, having imported nothing, or StateNotWritable, when some may have been imported: see
    above."""
    store.ensure_writable()
    try:
        with _draft(store.root) as draft:
            found = _unpack(file, stream, Path(draft))
            folders = [path for path in found if path.parent.name != COMPARISONS]
            for folder in folders:
                _accept(file, Store(Path(draft)), folder.name)
            comparisons = [_read(file, path) for path in found if path.parent.name == COMPARISONS]
            # Comparisons come first, as writing them takes space on the disk; placing the runs only renames folders.
            new = [kept for kept in comparisons if not has(kept.id, store)]
            for kept in new:
                save(kept, store)
            whole.sync_all(store.root)  # a power cut must not leave names without contents
            taken = [one.name for one in folders if _placed(one, store)] + [kept.id for kept in new]
            whole.sync_folder(store.root)
            left = dict.fromkeys((*(kept.id for kept in comparisons), *(folder.name for folder in folders)))
            for name in taken:
                del left[name]
            for name in left:
                say(f"{name} is here already, and is left as it is")
            return taken
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:  # tarfile raises all of these
        raise ArchiveBroken(file, str(error)) from error
    except OSError as error:
        is_ours = error.filename is not None and str(error.filename).startswith(str(store.root))
        if is_ours or error.errno in (errno.ENOSPC, errno.EDQUOT):  # a failed write names no file
            raise StateNotWritable(store.root, error.strerror or str(error)) from error
        if error.errno == errno.ENOENT:
            raise BadOption(f"{file}: there is no such file.") from error
        raise ArchiveBroken(file, error.strerror or str(error)) from error


@contextlib.contextmanager
def _draft(root: Path) -> Iterator[str]:
    """Yield a new folder in `root`. Those of imports that were killed, perhaps with gigabytes of checkpoints, are
    removed before."""
    whole.remove_dead(root, f"{_DRAFT}*", folders=True)
    with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=root) as draft, whole.kept(Path(draft)):
        yield draft


def _unpack(file: Path, stream: IO[bytes] | None, draft: Path) -> list[Path]:
    found: dict[str, str] = {}
    sums: dict[str, str] | None = None
    with tarfile.open(file, mode="r|", fileobj=stream) as archive:
        for entry in archive:
            if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or entry.sparse is not None:
                raise ArchiveBroken(file, f"{entry.name[:80]!r} is not a regular file")
            content = archive.extractfile(entry)
            assert content is not None  # it is a regular file
            if entry.name == SUMS and sums is None:
                sums = _sums(file, content.read(_SUMS_BYTES))
                continue
            if not (_NAME.fullmatch(entry.name) or _COMPARISON.fullmatch(entry.name)) or entry.name in found:
                raise ArchiveBroken(
                    file, f"{entry.name[:80]!r} does not belong in an archive of runs, or is there twice"
                )
            found[entry.name] = _copied(content, draft / entry.name)
    wrong = [name for name, digest in found.items() if (sums or {}).get(name) != digest]
    missing = [name for name in sums or {} if name not in found]
    if sums is None or wrong or missing:
        what = f"{[*wrong, *missing][0]} does not match its checksum" if sums else f"{SUMS} is missing"
        raise ArchiveBroken(file, what)
    if not found:
        raise ArchiveBroken(file, "there is no run in it")
    return [draft / name for name in dict.fromkeys(_root(name) for name in found)]


def _root(name: str) -> str:
    """Return the name of a run's folder, or of a comparison's only file."""
    return name if _COMPARISON.fullmatch(name) else name.partition("/")[0]


def _copied(content: IO[bytes], path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while data := content.read(_BLOCK):
            digest.update(data)
            file.write(data)
    return digest.hexdigest()


def _sums(file: Path, text: bytes) -> dict[str, str]:
    sums = {}
    for line in text.decode("utf-8", "replace").splitlines():
        digest, _, name = line.partition("  ")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ArchiveBroken(file, f"{SUMS} has an invalid line")
        sums[name] = digest
    return sums


def _accept(file: Path, drafts: Store, run_id: str) -> None:
    """Check a run's record, remove owner and container from it (they are another machine's, not ours to stop), and mark
    the run as imported. Raise ArchiveBroken."""
    try:
        run = drafts.load(run_id)
    except NgcdlError as error:
        raise ArchiveBroken(file, f"{run_id} has no readable record, or that of another run") from error
    if run.status == "running":
        raise ArchiveBroken(file, f"the record of {run_id} says that it is still running")
    drafts.save(replace(run, owner=None, engine_id=None, container=None), known=False)
    (drafts.folder(run_id) / HOME).mkdir(mode=0o700)
    (drafts.folder(run_id) / IMPORTED).touch(mode=0o600)


def _placed(folder: Path, store: Store) -> bool:
    """Move a run's folder into its place. Return False if one is there; another import may have been faster. Raise
    OSError."""
    place = store.folder(folder.name)
    try:
        if not os.path.lexists(place):
            folder.rename(place)
            return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    return False


def _read(file: Path, path: Path) -> StoredComparison:
    """Read and check a comparison. Raise ArchiveBroken. Its runs need not be in the file: if some are missing, the
    comparison's results say so."""
    try:
        kept = StoredComparison.from_json(json.loads(content_of(path)))
        json.dumps(kept.as_json(), allow_nan=False)  # as `save` will
    except (OSError, *BROKEN) as error:
        raise ArchiveBroken(file, f"{path.stem} is not a readable comparison") from error
    known = all(device in (None, "cpu", "gpu") for _, device in kept.arms)
    if kept.id != path.stem or not known or not isinstance(kept.finished, float | None):
        raise ArchiveBroken(file, f"{path.stem} is another comparison, or none")
    return replace(kept, owner=None)  # a process of another machine
