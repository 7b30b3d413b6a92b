"""A user who prepares a data set on a clock of their own, and what is then in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ngcdl.dataset import Archive, Dataset, Patience, prepare
from ngcdl.dataset.pace import Progress

from . import small


@dataclass
class Clock:
    """A clock that advances only when it is read and when someone sleeps."""

    step: float = 0.0
    t: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        self.t += self.step
        return self.t

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.t += seconds


@dataclass
class Host:
    """A user who prepares a data set, and the lines that were shown."""

    cache: Path
    clock: Clock = field(default_factory=Clock)
    said: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    stall_seconds: float = 20

    @property
    def part(self) -> Path:
        return self.cache / "cifar-10-binary.tar.gz.part"

    def prepare(
        self, choice: str = "auto", archive: Archive | None = None, progress: Progress | None = None
    ) -> Dataset:
        patience = Patience(
            connect_seconds=60, stall_seconds=self.stall_seconds, now=self.clock.now, sleep=self.clock.sleep
        )
        return prepare(
            choice,
            cache=self.cache,
            say=self.said.append,
            progress=progress,
            environ=self.environ,
            archive=archive or small.archive_of(small.PACKED),
            patience=patience,
        )


def whole(dataset: Dataset) -> bool:
    """Return whether this data set is the small CIFAR-10 in binary form."""
    assert dataset.folder is not None
    folder = dataset.folder / small.FOLDER
    return all((folder / name).read_bytes() == content for name, content in small.FILES.items())


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, to compare two moments."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
