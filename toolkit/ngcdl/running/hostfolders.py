"""This host's folders that a run sees besides its own. Docker would create a missing one, owned by root."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path, PurePosixPath

from ngcdl.choice import Choice
from ngcdl.errors import StateNotWritable
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef, Mount, RunSpec, Workload
from ngcdl.storing.store import Store
from ngcdl.there import is_folder


def choices_of(workload: Workload | None, image: ImageRef | None, store: Store) -> Path | None:
    """Return the folder that keeps the choices of --autotune for later runs; None without --autotune. As in cache_of
    each repository has its own, and trainings without an image, whose trainer on this host would follow links there."""
    folder = store.root.with_name("autotune") / (_of_repository(image) if image else "+host")
    return folder if workload and workload.autotune else None


def _of_repository(image: ImageRef) -> str:
    return image.name.replace("/", "+")  # no name contains a +


def cache_of(picked: Choice, spec: RunSpec, settings: Settings) -> Path | None:
    """Return the folder for what programs in the container cache. None if their caches are lost with the run: on a
    cluster, and as root, whose files the caller could not delete.

    Each repository has its own folder, because files that one image leaves there could break another image, or spy on
    it."""
    if settings.inside is None or picked.image is None or spec.user is None or picked.engine.is_cluster:
        return None
    return settings.inside / _of_repository(picked.image)


def make_choices(folder: Path | None) -> None:
    """Create the folder of choices_of. Raise StateNotWritable."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateNotWritable(folder, error.strerror or str(error), "What --autotune chose is remembered") from error


def made_cache(cache: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    """Create the cache folder and return it, or None and a note if it can't be used. Docker would create a missing
    folder, owned by root."""
    if cache is None:
        return None, ()
    why = None
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(cache, os.W_OK | os.X_OK):
            why = "it is not writable"
        elif os.statvfs(cache).f_flag & os.ST_NOEXEC:  # compiled kernels are loaded from there
            why = "its file system is mounted noexec"
    except OSError as error:
        why = error.strerror or str(error)
    lost = f"What programs in the container cache is lost with the run: {cache} can't be used ({why})."
    return (None, (lost,)) if why else (cache, ())


def make_mount_points(mounts: tuple[Mount, ...]) -> None:
    """Create what a mount inside another one, a writable folder of the caller's, is mounted on. Docker would create it,
    owned by root."""
    for mount in mounts:
        above = [str(place) for place in PurePosixPath(mount.place).parents]
        outer = max((one for one in mounts if one.place in above), key=lambda one: len(one.place), default=None)
        if outer is None or outer.is_volume or not outer.writable:
            continue
        folder = Path(outer.host)
        point = folder / mount.place[len(outer.place) :].lstrip("/")
        with contextlib.suppress(OSError):  # then Docker says what is in its way
            # a link may lead elsewhere inside the container
            if point.exists() or not point.resolve().is_relative_to(folder.resolve()):
                continue
            if mount.is_volume or is_folder(Path(mount.host)):
                point.mkdir(parents=True)
            else:
                point.parent.mkdir(parents=True, exist_ok=True)
                point.touch()
