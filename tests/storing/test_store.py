"""The store of runs: a record is written as a whole or not at all, and a broken one hides no other run."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from house import strace

from ngcdl.errors import RecordBroken, StateNotWritable
from ngcdl.folder import EVENTS, HOME, MOST_BYTES, RECORD, lines
from ngcdl.record import STATUSES, Owner, Run
from ngcdl.storing import vouched
from ngcdl.storing.store import NameTaken, Store, delete

RUN = Run("20180216-182126-cifar10-beef", "running", 1.0)
# A second save of the same run, in another process: 0 saved, 3 refused.
SAVE = """
import sys
from pathlib import Path
from ngcdl.errors import StateNotWritable
from ngcdl.record import Run
from ngcdl.storing.store import Store
try:
    Store(Path(sys.argv[1])).save(Run(sys.argv[2], "finished", 1.0, exit_code=0, notes=("x" * 20000,)))
except StateNotWritable:
    sys.exit(3)
"""

# The first one, of a run that a process watches: 3 if it is refused, or interrupted.
CREATE = """
import sys
from pathlib import Path
from ngcdl.errors import StateNotWritable
from ngcdl.record import Owner, Run
from ngcdl.running.signals import Interrupted, raise_on_signals
from ngcdl.storing.store import Store
raise_on_signals()
try:
    Store(Path(sys.argv[1])).create(Run(sys.argv[2], "running", 1.0, owner=Owner(1)))
except (StateNotWritable, Interrupted):
    sys.exit(3)
"""

# Which runs there are, and why one of them can't be read.
LOOK = """
import sys
from pathlib import Path
from ngcdl.errors import RecordBroken
from ngcdl.storing.store import Store
store = Store(Path(sys.argv[1]))
try:
    store.load(sys.argv[2])
except RecordBroken as error:
    print(store.ids(), error.__cause__.strerror)
"""


def in_order(store: Store, *statuses: str) -> None:
    """Check that the record reads as one of `statuses`."""
    assert store.load(RUN.id).status in statuses


def temporary_files(store: Store) -> list[str]:
    return [path.name for path in store.folder(RUN.id).iterdir() if path.name not in (RECORD, "home")]


def saving(store: Store, inject: str, code: str = SAVE, *only: str) -> subprocess.CompletedProcess[str]:
    """Save while strace injects the fault `inject` (man strace) into system calls, or those that `only` selects."""
    return subprocess.run(
        [strace(), "-f", "-qq", "-o", "/dev/null", "-e", f"inject={inject}", *only, sys.executable, "-c", code,
         str(store.root), RUN.id],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def test_a_new_run_is_recorded_before_anything_runs(store: Store) -> None:
    folder = store.create(RUN)
    assert store.load(RUN.id) == RUN
    assert (folder / "home").is_dir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / RECORD)] == [0o700, 0o600]
    assert json.loads((folder / RECORD).read_text())["format"] == 1


def test_the_runs_that_have_an_owner_are_known_without_a_look_at_the_others(store: Store) -> None:
    assert list(store.owned()) == []
    runs = [Run(f"2018021{day}-182126-cifar10-beef", "running", 1.0, owner=Owner(1)) for day in range(5)]
    for run in (*runs, RUN):
        store.create(run)
    store.save(runs[0].closed("finished", 0, None, 2.0))
    shutil.rmtree(store.folder(runs[1].id))
    (store.folder(runs[2].id) / RECORD).write_text("{")
    store.save(replace(runs[4], id=RUN.id))
    (store.folder(RUN.id) / RECORD).write_text(json.dumps(RUN.as_json()))  # killed before its mark was removed
    assert RUN not in list(store.owned())
    for other in (runs[0], RUN):  # which are not even opened
        (store.folder(other.id) / RECORD).unlink()
        os.mkfifo(store.folder(other.id) / RECORD)
    assert list(store.owned()) == [runs[4], runs[3]]
    assert sorted(path.name for path in (store.root / ".owned").iterdir()) == [run.id for run in runs[2:]]


def test_an_owner_that_cannot_be_noted_is_an_error(store: Store) -> None:
    store.create(RUN)
    (store.root / ".owned").touch()
    with pytest.raises(StateNotWritable, match=re.escape(".owned")):
        store.save(Run(RUN.id, "running", 1.0, owner=Owner(1)))
    with pytest.raises(StateNotWritable):
        list(store.owned())


def test_only_a_record_that_can_be_read_and_says_so_is_of_a_run_that_ended(store: Store) -> None:
    assert not store.is_ended(RUN.id)
    folder = store.create(RUN)
    assert not store.is_ended(RUN.id)
    store.save(Run(RUN.id, "failed", 1.0, exit_code=1))
    assert store.is_ended(RUN.id)
    store.save(Run(RUN.id, "lost", 1.0))
    assert store.is_ended(RUN.id)
    store.save(Run(RUN.id, "lost", 1.0, owner=Owner(1)))
    assert not store.is_ended(RUN.id), "it lost its engine, which may come back"
    store.save(Run(RUN.id, "interrupted", 1.0, exit_code=130, owner=Owner(1)))
    assert not store.is_ended(RUN.id), "its engine may make the container yet"
    for broken in ("{", "[]", "{}"):
        (folder / RECORD).write_text(broken)
        assert not store.is_ended(RUN.id)


@pytest.mark.parametrize("owner", [None, Owner(1)])
@pytest.mark.parametrize("status", STATUSES)
def test_the_short_look_at_a_record_says_what_the_whole_of_it_does(
    store: Store, status: str, owner: Owner | None
) -> None:
    run = Run(RUN.id, status, 1.0, owner=owner)
    store.create(run)
    assert store.is_ended(run.id) == (not run.is_open)


def test_a_save_takes_the_place_of_the_record_before(store: Store) -> None:
    store.create(RUN)
    store.save(Run(RUN.id, "finished", 1.0, exit_code=0))
    in_order(store, "finished")
    assert temporary_files(store) == []


@pytest.mark.parametrize("fault", ["write:error=ENOSPC", "write:error=EIO", "fsync:error=EIO", "/^rename:error=EACCES"])
def test_a_save_that_fails_leaves_the_record_before_and_nothing_else(store: Store, fault: str) -> None:
    store.create(RUN)
    done = saving(store, fault)
    assert done.returncode == 3, done.stderr
    in_order(store, "running")
    assert temporary_files(store) == []


def test_a_save_beyond_the_limit_of_a_file_s_size_leaves_the_record_before(store: Store) -> None:
    store.create(RUN)
    code = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + SAVE
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.root), RUN.id], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    in_order(store, "running")
    assert temporary_files(store) == []


def test_a_save_that_is_killed_at_any_point_leaves_one_whole_record(store: Store) -> None:
    store.create(RUN)
    points = 0
    for call in ("write", "fsync", "/^rename"):
        for number in range(1, 9):
            done = saving(store, f"{call}:signal=KILL:when={number}")
            in_order(store, "running", "finished")
            if done.returncode == 0:
                break
            points += 1
            store.save(RUN)
    assert points >= 7, "two writes, four fsyncs, one rename"


def test_a_place_that_takes_no_files_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "runs")
    for attempt in (store.ensure_writable, lambda: store.create(RUN), lambda: store.save(RUN)):
        with pytest.raises(StateNotWritable, match="Not a directory"):
            attempt()


@pytest.mark.parametrize(
    "fault", ["write:error=ENOSPC", "fsync:error=EIO", "fsync:signal=TERM:when=1", "fsync:signal=TERM:when=2"]
)
def test_a_run_that_could_not_be_created_leaves_nothing(store: Store, fault: str) -> None:
    done = saving(store, fault, CREATE)
    assert done.returncode == 3, done.stderr
    assert [path.name for path in store.root.rglob("*") if path.name != ".owned"] == []
    assert list(store.root.with_name("vouched").iterdir()) == []


def test_a_file_system_that_can_t_sync_folders_keeps_records_all_the_same(store: Store) -> None:
    store.create(RUN)
    done = saving(store, "fsync:error=EINVAL:when=2+2")  # every second one is of a folder
    assert done.returncode == 0, done.stderr
    in_order(store, "finished")


@pytest.mark.parametrize("error", ["ESTALE", "EIO"])
def test_a_run_on_a_server_or_disk_that_fails_is_told_and_not_left_out(store: Store, error: str) -> None:
    path = store.create(RUN) / RECORD
    done = saving(store, f"%%stat,openat:error={error}", LOOK, "-P", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['{RUN.id}'] {os.strerror(getattr(errno, error))}\n"


def test_a_run_is_never_created_over_another(store: Store) -> None:
    store.create(RUN)
    with pytest.raises(NameTaken, match=RUN.id):
        store.create(replace(RUN, status="finished"))
    assert store.load(RUN.id) == RUN


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b'{"format": 1, "id"', "Expecting"),
        (b"\xff\xfe\xff", "decode"),
        (b"[]", "no id"),
        (b'{"format": 2, "id": "x"}', "update ngcdl"),
        (b'{"format": 1, "id": "x", "status": "lost", "started": NaN}', "started"),
        (b"[" * 100_000, "recursion|Stack overflow"),
    ],
)
def test_a_broken_or_later_record_is_told_and_left_as_it_is(store: Store, content: bytes, why: str) -> None:
    path = store.create(RUN) / RECORD
    path.write_bytes(content)
    with pytest.raises(RecordBroken, match=why):
        store.load(RUN.id)
    assert path.read_bytes() == content
    assert store.ids() == [RUN.id]


def test_a_copy_of_a_folder_is_not_taken_for_the_run_that_it_is_of(store: Store) -> None:
    folder = store.create(RUN)
    shutil.copytree(folder, folder.with_name("20180216-182126-cifar10-before"))
    assert store.load(RUN.id) == RUN
    with pytest.raises(RecordBroken, match=f"it belongs to {RUN.id}, but its folder has another name"):
        store.load("20180216-182126-cifar10-before")


def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_and_never_waited_for(
    store: Store,
) -> None:
    folder = store.create(RUN)
    os.mkfifo(folder / EVENTS)
    with pytest.warns(UserWarning, match="events.jsonl can't be read: it is not a regular file"):
        assert list(lines(folder / EVENTS)) == []
    (folder / RECORD).unlink()
    os.mkfifo(folder / RECORD)
    with pytest.raises(RecordBroken, match="not a regular file"):
        store.load(RUN.id)
    (folder / RECORD).unlink()
    (folder / RECORD).mkdir()
    with pytest.raises(RecordBroken, match="not a regular file"):
        store.load(RUN.id)


def test_a_record_that_would_fill_the_memory_is_broken_and_no_end(store: Store) -> None:
    store.create(replace(RUN, status="finished"))
    assert store.is_ended(RUN.id)
    path = store.folder(RUN.id) / RECORD
    path.write_text(path.read_text().ljust(MOST_BYTES + 1))
    with pytest.raises(RecordBroken, match="it has more than 16 MiB"):
        store.load(RUN.id)
    assert not store.is_ended(RUN.id)


def test_a_run_that_is_set_aside_is_none_any_more_and_its_name_is_free(store: Store) -> None:
    for number in (1, 2):
        folder = store.create(RUN)
        store.tell_stop(RUN.id)
        delete(store.set_aside(RUN.id, folder / HOME))
        assert (store.is_known(RUN), store.is_told_stop(RUN.id)) == (True, True), "only a part of it was set aside"
        aside = store.set_aside(RUN.id, folder)
        assert (store.is_known(RUN), store.is_told_stop(RUN.id)) == (False, False)
        assert (store.ids(), store.has(RUN.id), (aside / RECORD).exists()) == ([], False, True)
        assert len(store.left_over()) == number
    assert aside in store.left_over()
    with pytest.raises(FileNotFoundError):
        store.set_aside(RUN.id, store.folder(RUN.id))


def test_a_link_in_the_place_of_what_was_set_aside_is_not_followed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").touch()
    folder = store.create(RUN)
    (store.root / ".removed").symlink_to(tmp_path / "photos")
    assert store.left_over() == []
    with pytest.raises(OSError, match="it is a link"):
        store.set_aside(RUN.id, folder)
    assert folder.exists()
    assert list((tmp_path / "photos").iterdir()) == [tmp_path / "photos/a.jpg"]


def test_a_link_in_the_place_of_the_marks_or_of_a_mark_is_not_followed(store: Store, tmp_path: Path) -> None:
    photos, going = tmp_path / "photos", replace(RUN, owner=Owner(1))
    photos.mkdir()
    (photos / "a.jpg").touch()
    store.create(RUN)
    (store.root / ".owned").symlink_to(photos)
    with pytest.raises(StateNotWritable, match="it is a link"):
        store.save(going)
    with pytest.raises(StateNotWritable, match="it is a link"):
        list(store.owned())
    (photos / RUN.id).touch()
    store.save(RUN)
    assert sorted(path.name for path in photos.iterdir()) == [RUN.id, "a.jpg"]
    (store.root / ".owned").unlink()
    (store.root / ".owned").mkdir()
    (store.root / ".owned" / RUN.id).symlink_to(photos / "new")
    store.save(going)
    assert not (photos / "new").exists()
    assert list(store.owned()) == [going]


def test_what_a_file_can_be_written_with_has_a_name_that_nobody_foresees(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.root.mkdir()
    (tmp_path / "thesis.tex").write_text("thesis")
    (store.root / f".probe.{os.getpid()}").symlink_to(tmp_path / "thesis.tex")
    store.ensure_writable()
    with monkeypatch.context() as foreseen:
        foreseen.setattr("os.urandom", lambda count: bytes(count))
        (store.root / f".probe.{bytes(8).hex()}").symlink_to(tmp_path / "thesis.tex")
        with pytest.raises(StateNotWritable, match="File exists"):
            store.ensure_writable()
    assert (tmp_path / "thesis.tex").read_text() == "thesis"


def test_what_a_folder_takes_counts_each_file_once_and_follows_no_link(store: Store, tmp_path: Path) -> None:
    folder = store.create(RUN)
    before, trouble = store.taken(folder)
    assert trouble is None
    (folder / "home/model").write_bytes(os.urandom(1 << 20))
    (folder / "home/again").hardlink_to(folder / "home/model")
    with (folder / "home/sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "outside").write_bytes(os.urandom(4 << 20))
    (folder / "home/link").symlink_to(tmp_path)
    assert 1 << 20 <= store.taken(folder)[0] - before < 2 << 20
    assert store.taken(folder / "missing") == (0, None)


def test_what_is_mounted_in_a_folder_keeps_it_from_being_deleted(store: Store) -> None:
    store.root.mkdir()
    total, trouble = store.taken(Path("/proc/sys"))
    assert (total, trouble and trouble.errno) == (0, errno.EBUSY)


def test_two_may_delete_the_same_and_a_link_is_only_a_link(store: Store, tmp_path: Path) -> None:
    folder = store.create(RUN)
    (tmp_path / "outside").mkdir()
    (folder / "outside").symlink_to(tmp_path / "outside")
    for name in range(300):
        (folder / "home" / f"{name}").mkdir()
        (folder / "home" / f"{name}/file").touch()
    with ThreadPoolExecutor(3) as pool:
        for deletion in [pool.submit(delete, folder) for _ in range(3)]:
            deletion.result()
    assert (folder.exists(), (tmp_path / "outside").is_dir()) == (False, True)
    store.folder(RUN.id).symlink_to(tmp_path / "outside")
    delete(folder)
    assert (folder.is_symlink(), (tmp_path / "outside").is_dir()) == (False, True)


def test_a_record_is_ngcdl_s_own_also_where_a_crash_left_the_one_before_and_where_a_later_ngcdl_has_more_fields(
    tmp_path: Path,
) -> None:
    store, run = Store(tmp_path / "runs"), Run("run-1", "running", 1.0)
    record = store.create(run) / RECORD
    before = record.read_bytes()
    store.save(replace(run, reason="waits"))
    record.write_bytes(before)
    assert store.is_known(store.load("run-1"))
    assert vouched.has(store.root, "run-1", {**run.as_json(), "later": None, "machine": {"more": None}})
    assert vouched.has(store.root, "run-1", {**run.as_json(), "summary": {"steps": 7}}), "what is read from its files"
    assert not vouched.has(store.root, "run-1", {**run.as_json(), "later": 1})
