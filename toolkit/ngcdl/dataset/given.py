"""Does a folder that the user names contain CIFAR-10, in which form, and is it bit-identical to the official one?"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ngcdl import whole
from ngcdl.dataset import disk, pickled
from ngcdl.dataset.official import BINARY, CLASSES, PICKLED, PICKLES, RECORD_BYTES, Archive, is_training
from ngcdl.errors import DatasetWrong, NgcdlError, at_once
from ngcdl.frozen import dataclass
from ngcdl.there import exists, is_file, is_folder


@dataclass(frozen=True)
class Batches:
    """A folder of six batches, checked. `sha256` is that of the five training files, concatenated."""

    folder: Path
    name: str  # what the folder must be called when mounted
    files: tuple[str, ...]
    sha256: str
    note: str


def batches(given: Path, archive: Archive) -> Batches | None:
    """Check the batches in either form; None if there are none. Raise an error about all wrong files."""
    binary = {member.name: member.md5 for member in archive.batches}
    for name, official in ((BINARY, binary), (PICKLED, PICKLES)):
        for folder in (given / name, given):
            if (folder.name == name and is_folder(folder)) or any(exists(folder / file) for file in official):
                return _checked(folder, name, official, archive)
    return None


def _checked(folder: Path, name: str, official: Mapping[str, str | None], archive: Archive) -> Batches:
    training = hashlib.sha256()
    other, wrong = list[str](), list[NgcdlError]()
    sizes = {member.name: member.bytes for member in archive.batches}
    for file, md5 in official.items():
        path = folder / file
        try:
            if not is_file(path):
                raise DatasetWrong(path, "it is missing" if not exists(path) else "it is not a file")
            size = sizes.get(file)
            content = _binary(path, size) if size is not None else _pickle(path, archive)
        except OSError as error:
            wrong.append(DatasetWrong(path, error.strerror or str(error)))
        except DatasetWrong as error:
            wrong.append(error)
        else:
            if is_training(file):
                training.update(content)
            if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
                other.append(file)
    if wrong:
        raise at_once(wrong)
    note = "the official files, bit for bit"
    if other:
        which = "all six" if len(other) == 6 else ", ".join(other)
        note = f"not identical to the official files (other bytes: {which}), but sizes and labels are right"
    return Batches(folder, name, tuple(official), training.hexdigest(), note)


def _binary(path: Path, size: int) -> bytes:
    found = path.stat().st_size
    if found != size:
        raise DatasetWrong(path, f"it has {found} bytes instead of {size}")
    content = path.read_bytes()
    labels = content[::RECORD_BYTES]
    if max(labels) >= CLASSES:
        record = next(i for i, label in enumerate(labels) if label >= CLASSES)
        raise DatasetWrong(path, f"record {record} has the label {labels[record]}, and labels are 0 to {CLASSES - 1}")
    return content


def _pickle(path: Path, archive: Archive) -> bytes:
    fault = pickled.fault(path, (archive.batches[0].bytes or 0) // RECORD_BYTES)
    if fault is not None:
        raise DatasetWrong(path, fault)
    return path.read_bytes()


def mountable(found: Batches, cache: Path) -> Path:
    """Return a folder that holds the batches under their proper name and may be mounted.

    If the user named the batches' own folder, its parent must not be mounted, because that may be a home. A symbolic
    link to elsewhere is broken inside a container. In both cases the result is a folder in the cache, with hard links
    if the file system allows them, else copies.
    """
    above = cache / f"given-{found.sha256[:16]}"
    with disk.written(cache):
        (above / found.name).mkdir(parents=True, exist_ok=True)
        for file in found.files:
            _place((found.folder / file).resolve(), above / found.name / file)
    return above


def lies_plainly(found: Batches, given: Path) -> bool:
    """Return whether the folder that the user named can be mounted as it is."""
    inside = [found.folder, *(found.folder / file for file in found.files)]
    return found.folder == given / found.name and not any(path.is_symlink() for path in inside)


def _place(source: Path, target: Path) -> None:
    if target.exists() and (target.samefile(source) or disk.sha256(target) == disk.sha256(source)):
        return
    # A new name: what a killed ngcdl has left may be a link to the user's file, which a copy would be written through.
    beside = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    try:
        os.link(source, beside)
        beside.replace(target)
    except OSError:
        with source.open("rb") as file, whole.written(target, 0o666) as copy:
            shutil.copyfileobj(file, copy)
    finally:
        beside.unlink(missing_ok=True)
