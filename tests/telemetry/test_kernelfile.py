from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from ngcdl.telemetry.kernelfile import KernelFile


def test_each_reading_is_of_its_moment_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "counter"
    file.write_text("1\n")
    kept = KernelFile(file)
    assert kept.read() == "1\n"
    for length in (4095, 4096, 4097, 100_000, 1):
        file.write_text("x" * length)
        assert kept.read() == "x" * length


def test_the_kernel_s_files_can_be_kept() -> None:
    for name in ("/proc/stat", "/proc/meminfo", "/proc/uptime"):
        kept = KernelFile(Path(name))
        first = kept.read()
        assert first
        assert len((kept.read() or "").split()) == len(first.split())


def test_what_is_gone_can_not_be_read_and_what_comes_again_can(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        kept = KernelFile(Path(f"/proc/{process.pid}/stat"))
        assert kept.read()
        process.kill()
    assert kept.read() is None
    kept = KernelFile(tmp_path / "file")
    assert kept.read() is None
    (tmp_path / "file").write_text("there")
    assert kept.read() == "there"


def test_it_is_closed_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("there")
    kept = KernelFile(tmp_path / "file")
    kept.read()
    assert tmp_path / "file" in open_files()
    del kept
    assert tmp_path / "file" not in open_files()


def open_files() -> list[Path]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(link.readlink())
    return found
