"""CIFAR-10 on the host: found, or downloaded, verified and kept. Call `prepare`; for the user's own images, `pictures`.

    official   what the official archive is          address, pace, fetch         how it is downloaded
    given      a folder that the user names          unpack, kept                 how it is unpacked and kept intact
    pickled    ... in pickled form                   disk                         how it is written
    classes    ... of images, one folder per class

Only the sha256 of the whole archive is trusted. Only files of known names and sizes are extracted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ngcdl import waiting
from ngcdl.dataset import address, classes, disk, given, pace, unpack
from ngcdl.dataset.fetch import Fetch, Offline
from ngcdl.dataset.kept import CachedArchive
from ngcdl.dataset.official import CIFAR10, Archive, Member
from ngcdl.dataset.pace import Patience, Progress
from ngcdl.errors import BadOption, DatasetWrong
from ngcdl.frozen import dataclass
from ngcdl.settings import expanded
from ngcdl.there import exists, is_file, is_folder

__all__ = ["CIFAR10", "Archive", "Dataset", "Member", "Patience", "cached", "pictures", "prepare"]

FOLDER = "NGCDL_DATA"


@dataclass(frozen=True)
class Dataset:
    """What a training gets. `folder` is mounted read-only; for CIFAR-10 it holds cifar-10-batches-bin or -py."""

    kind: Literal["cifar10", "pictures", "synthetic"] | None  # None: it takes no data
    folder: Path | None  # None: the trainer makes its images itself
    sha256: str | None  # of CIFAR-10's five training files, concatenated
    note: str | None  # whether the bytes are the official ones, or why the images are synthetic


NO_DATA = Dataset(None, None, None, None)


def pictures(folder: str, wanted: int | None = None, is_tested: bool = True) -> Dataset:
    """Find a folder of the user's own images, one subfolder per class. Raise BadOption if it does not exist, does not
    have `wanted` classes, or, if `is_tested`, has different classes to test with."""
    place = expanded(folder).absolute()
    try:
        is_there = is_folder(place)
    except OSError as error:
        raise BadOption(f"--data {folder}: it can't be read: {error.strerror}.") from error
    if not is_there:
        raise BadOption(f"--data {folder}: there is no such folder.", "It needs one folder per class: cats/ and dogs/.")
    there, found = classes.find(place)
    if wanted is None or found is None:
        return Dataset("pictures", place, None, f"the images in {place}")
    if len(found) != wanted:
        raise BadOption(
            f"--data {folder}: {there} has {classes.described(found)}; it needs {wanted}, one per class, of JPEG or "
            "PNG.",
            f"For example {there / 'cats'} and {there / 'dogs'}. Synthetic images:\n    ngcdl run ... --data synthetic",
        )
    beside, others = classes.find(place, classes.TESTING)
    if is_tested and beside != place and others is not None and not classes.alike(found, others):
        raise BadOption(
            f"--data {folder}: {beside} has {classes.described(others)}; the test needs the same classes as the "
            f"training, {', '.join(found)}.",
            "Without a test:\n    ngcdl run ... --no-eval",
        )
    return Dataset("pictures", place, None, f"the images in {place}")


def prepare(
    choice: str,
    *,
    cache: Path,
    say: Callable[[str], None],
    progress: Progress | None = None,
    environ: Mapping[str, str] = os.environ,
    archive: Archive = CIFAR10,
    patience: Patience | None = None,
) -> Dataset:
    """Prepare the data set: `choice` is a folder, "synthetic", or "auto".

    "auto" uses $NGCDL_DATA if set, else the cache, else downloads. Without any network it falls back to synthetic
    images and says so in two lines. If a host answers but is too slow, or sends something else, DatasetUnavailable is
    raised.

    `say` gets one line at a time; `progress` the bytes so far, the total, and bytes/s (None while unknown).
    Raise DatasetWrong if a named folder is not CIFAR-10, DiskFull, and BadOption for an invalid variable.
    On any failure the partial download is kept, an archive with a wrong hash as .bad, and nothing else is left behind.
    """
    if choice == "auto":
        choice = environ.get(FOLDER, "").strip() or "auto"
    if choice == "synthetic":
        return Dataset("synthetic", None, None, "synthetic images, as asked for")
    kept = CachedArchive(cache.absolute(), archive)
    if choice != "auto":
        folder = expanded(choice).absolute()
        try:
            return _from_folder(folder, kept, say)
        except OSError as error:
            raise DatasetWrong(folder, error.strerror or str(error)) from error
    training, damage = kept.check()
    if training is not None:
        return _from_cache(kept, training)
    if damage is not None:
        say(f"The CIFAR-10 in {kept.cache} is damaged and will be restored: {damage}.")
    urls = address.addresses(archive, environ)
    patience = pace.from_environment(patience or Patience(), environ)
    fetch = Fetch(archive, kept.packed, patience, say, environ, progress)
    try:
        return _made(kept, say, lambda: _downloaded(kept, fetch, urls))
    except Offline as offline:
        say(f"CIFAR-10 is not in {kept.cache} and can't be downloaded, as nothing answers ({offline}).")
        say(
            "SYNTHETIC images are used instead: all figures are labelled synthetic, and the accuracy means nothing. "
            "If you have a copy of CIFAR-10:  --data DIR"
        )
        return Dataset("synthetic", None, None, f"no network: {offline}")


def cached(cache: Path) -> Dataset | None:
    """Return CIFAR-10 from the cache, complete and checked; None if `prepare` would have to download it."""
    kept = CachedArchive(cache.absolute(), CIFAR10)
    training, _ = kept.check()
    return None if training is None else _from_cache(kept, training)


def _from_cache(kept: CachedArchive, training: str) -> Dataset:
    return Dataset("cifar10", kept.folder, training, "the official files, bit for bit")


def _from_folder(folder: Path, kept: CachedArchive, say: Callable[[str], None]) -> Dataset:
    packed = folder
    if is_folder(folder):
        packed = folder / kept.archive.name
        found = given.batches(folder, kept.archive)
        if found is not None:
            mounted = folder if given.lies_plainly(found, folder) else given.mountable(found, kept.cache)
            return Dataset("cifar10", mounted, found.sha256, found.note)
    if not exists(folder):
        raise DatasetWrong(folder, "there is no such folder")
    if not is_file(packed):
        names = sorted(path.name for path in folder.iterdir())[:5] if is_folder(folder) else []
        raise DatasetWrong(folder, f"it holds {', '.join(names) or 'nothing'}, but no batches and no {packed.name}")
    with disk.written(packed):
        if disk.sha256(packed) != kept.archive.sha256:
            size = packed.stat().st_size
            raise DatasetWrong(packed, f"its sha256 is not the official one ({size} bytes of {kept.archive.bytes})")
    training, _ = kept.check()
    if training is not None:
        return _from_cache(kept, training)
    return _made(kept, say, lambda: packed)


def _made(kept: CachedArchive, say: Callable[[str], None], packed: Callable[[], Path]) -> Dataset:
    """Fill the cache, one process at a time; use what another process has prepared meanwhile."""
    with disk.written(kept.cache):
        kept.cache.mkdir(parents=True, exist_ok=True)
        with waiting.locked(kept.lock, say, f"another ngcdl, which fills {kept.cache}"):
            training, _ = kept.check()
            if training is None:
                unpack.sweep(kept.cache)
                unpack.unpack(packed(), kept.archive, kept.folder)
                training = kept.stamp()
    return _from_cache(kept, training)


def _downloaded(kept: CachedArchive, fetch: Fetch, urls: Sequence[str]) -> Path:
    """Return the archive in the cache; download it if it is missing or has changed."""
    if kept.packed.exists():
        if disk.sha256(kept.packed) == kept.archive.sha256:
            return kept.packed
        bad = kept.packed.with_name(kept.packed.name + ".bad")
        kept.packed.replace(bad)
        fetch.say(f"{kept.packed} has changed since it was downloaded; it is kept as {bad.name} and downloaded again.")
    fetch.run(urls)
    return kept.packed
