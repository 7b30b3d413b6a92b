"""What a run wrote is on the disk before its record says that the run has ended: a power cut then takes none of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from house import strace

from ngcdl.folder import EVENTS, LOG, RECORD, SAMPLES
from ngcdl.record import Run
from ngcdl.storing.store import Store

RUN = Run("20180213-182126-cifar10-0a1b", "running", 1.0)
SAVE = """
import sys
from pathlib import Path
from ngcdl.errors import StateNotWritable
from ngcdl.record import Run
from ngcdl.storing.store import Store
try:
    Store(Path(sys.argv[1])).save(Run(sys.argv[2], sys.argv[3], 1.0))
except StateNotWritable as error:
    sys.exit(error.message)
"""


@pytest.fixture
def written(store: Store) -> list[Path]:
    """What a run that is recorded has written so far."""
    folder = store.create(RUN)
    paths = [folder / name for name in (EVENTS, SAMPLES, LOG)]
    for path in paths:
        path.write_text("{}\n")
    return paths


def saved(store: Store, status: str, calls: Path, *options: str) -> tuple[list[str], str]:
    """Save the run's record with this status; return the system calls that change names, or bring files to the disk,
    and what was said."""
    done = subprocess.run(
        [strace(), "-f", "-qq", "-y", "-o", calls, "-e", "trace=fsync,rename", *options, sys.executable, "-c", SAVE,
         str(store.root), RUN.id, status],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    return [line.split(maxsplit=1)[1] for line in calls.read_text().splitlines()], done.stderr


def test_all_that_grew_during_a_run_and_who_vouches_for_it_come_before_its_record(
    store: Store, written: list[Path], tmp_path: Path
) -> None:
    calls, said = saved(store, "finished", tmp_path / "calls")
    vouched = store.root.with_name("vouched")
    synced = [*written, vouched / RUN.id, vouched]
    assert [re.findall(r"fsync\(\d+<(.*)>\)", call) for call in calls[:5]] == [[str(path)] for path in synced]
    assert [call.partition("(")[0] for call in calls[5:]] == ["fsync", "rename", "fsync"], "of the record"
    assert (said, store.load(RUN.id).status) == ("", "finished")


@pytest.mark.usefixtures("written")
def test_while_a_run_goes_on_only_its_record_is_brought_to_the_disk(store: Store, tmp_path: Path) -> None:
    calls, _ = saved(store, "running", tmp_path / "calls")
    assert [call.partition("(")[0] for call in calls] == ["fsync", "rename", "fsync"]


def test_the_record_does_not_say_that_its_run_has_ended_if_the_disk_does_not_take_what_it_wrote(
    store: Store, written: list[Path], tmp_path: Path
) -> None:
    log = written[-1]
    _, said = saved(store, "finished", tmp_path / "calls", "-e", "inject=fsync:error=EIO", "-P", str(log))
    assert said == f"Runs are recorded in {log}, which can't be written: Input/output error.\n"
    assert store.load(RUN.id).status == "running"
    assert saved(store, "finished", tmp_path / "calls")[1] == ""
    assert store.load(RUN.id).status == "finished"


def test_what_a_run_put_in_place_of_its_files_does_not_keep_its_end_from_being_recorded(
    store: Store, written: list[Path]
) -> None:
    for path in written:
        path.unlink()
    os.mkfifo(written[0])
    written[1].mkdir()
    written[2].symlink_to(store.folder(RUN.id) / RECORD)
    store.save(Run(RUN.id, "finished", 1.0))
    assert store.load(RUN.id).status == "finished"
