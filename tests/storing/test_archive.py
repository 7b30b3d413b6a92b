"""Runs in one file: what is packed, what is imported, and what is never accepted."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from made_runs import Made

from ngcdl import whole
from ngcdl.errors import ArchiveBroken, BadOption, NotWritten, RecordBroken, StateNotWritable
from ngcdl.folder import IMPORTED, MOST_BYTES
from ngcdl.record import Run
from ngcdl.running.owner import this_process
from ngcdl.storing import archive, comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial
from ngcdl.storing.store import Store

MADE = Made(steps=50)
COMPARISON = StoredComparison(
    "20260101-000000-compare-000abc", "threads", 1, (("threads=1", None), ("threads=2", "cpu")), 5.0, 9.0,
    ("a remark",), (Trial("threads=1", 1, "run-1"), Trial("threads=2", 1, "run-gone")),
)  # fmt: skip
Member = tuple[tarfile.TarInfo, bytes]


def quiet(_: str) -> None: ...


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "elsewhere/runs")


def packed(store: Store, file: Path, *ids: str) -> None:
    archive.export(store, [store.load(run_id) for run_id in ids], file)


def test_what_is_exported_comes_back_to_the_bit(store: Store, other: Store, tmp_path: Path) -> None:
    folder = MADE.keep(store, "run-1")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/step-50.npz").write_bytes(os.urandom(3 << 20))
    (folder / "checkpoints/step-60.npz.tmp").touch()  # which an import would refuse
    (folder / "samples-node-1.a.jsonl").write_text("{}")
    (folder / "job.sh").write_text("#!/bin/bash")
    MADE.keep(store, "run-2")
    packed(store, tmp_path / "x.tar", "run-1", "run-2")
    for left in (".import-killed", ".import-going-on"):
        (other.root / left / "run-1").mkdir(parents=True)
        os.utime(other.root / left, (1, 1))
    with whole.kept(other.root / left):
        assert archive.take_in(other, tmp_path / "x.tar", quiet) == ["run-1", "run-2"]
    (other.root / left / "run-1").rmdir()
    (other.root / left).rmdir()
    assert other.load("run-1") == store.load("run-1")
    for name in (
        "events.jsonl", "samples.jsonl", "samples-node-1.a.jsonl", "log.txt", "job.sh", "checkpoints/step-50.npz",
    ):  # fmt: skip
        assert (other.folder("run-1") / name).read_bytes() == (folder / name).read_bytes()
    assert other.folder("run-1").stat().st_mode & 0o777 == 0o700
    assert (other.folder("run-1") / "run.json").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in other.root.iterdir()) == ["run-1", "run-2"]


def test_the_archive_is_for_its_owner_alone_names_nobody_and_sha256sum_can_check_it(
    store: Store, tmp_path: Path
) -> None:
    MADE.keep(store, "run-1")
    packed(store, tmp_path / "x.tar", "run-1")
    assert (tmp_path / "x.tar").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert all((one.uid, one.gid, one.uname, one.gname) == (0, 0, "", "") for one in tar)
        assert not [one.name for one in tar if one.name.startswith("/") or ".." in one.name]
    assert str(store.root).encode() not in (tmp_path / "x.tar").read_bytes()
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xf", "../x.tar"], cwd=tmp_path / "out", check=True)
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path / "out", check=True)


def test_a_link_that_the_run_put_into_its_folder_is_not_followed(store: Store, tmp_path: Path) -> None:
    folder = MADE.keep(store, "run-1")
    (tmp_path / "secret").write_text("the key")
    (folder / "log.txt").unlink()
    (folder / "log.txt").symlink_to(tmp_path / "secret")
    (folder / "samples.jsonl").unlink()
    os.mkfifo(folder / "samples.jsonl")
    (folder / "samples-node-1.jsonl").symlink_to(tmp_path / "secret")
    (tmp_path / "step-1.npz").touch()
    (folder / "checkpoints").symlink_to(tmp_path)
    packed(store, tmp_path / "x.tar", "run-1")
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert tar.getnames() == ["run-1/run.json", "run-1/events.jsonl", "SHA256SUMS"]


def test_a_run_by_a_name_that_no_import_takes_in_is_not_exported(store: Store, other: Store, tmp_path: Path) -> None:
    for name in ("lauf-ö", "my run", "x;ls"):
        MADE.keep(store, name)
    packed(store, tmp_path / "x.tar", "lauf-ö")
    assert archive.take_in(other, tmp_path / "x.tar", quiet) == ["lauf-ö"]
    for name in ("my run", "x;ls"):
        with pytest.raises(BadOption, match=f"{name}: no import takes in"):
            packed(store, tmp_path / "y.tar", name)


def test_a_file_of_a_run_that_can_t_be_read_is_named_and_not_the_archive(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> IO[bytes]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    MADE.keep(store, "run-1")
    monkeypatch.setattr(archive, "opened", refused)  # root may read all
    with pytest.raises(RecordBroken, match=r"run-1/run\.json .*Permission denied"):
        packed(store, tmp_path / "x.tar", "run-1")
    assert not (tmp_path / "x.tar").exists()


def test_a_file_that_is_there_already_is_left_as_it_is(store: Store, tmp_path: Path) -> None:
    MADE.keep(store, "run-1")
    (tmp_path / "x.tar").write_text("mine")
    with pytest.raises(NotWritten, match="is there already"):
        packed(store, tmp_path / "x.tar", "run-1")
    assert (tmp_path / "x.tar").read_text() == "mine"
    with pytest.raises(NotWritten, match="No such file"):
        packed(store, tmp_path / "no/x.tar", "run-1")
    for folder in (Path(), tmp_path):
        with pytest.raises(NotWritten):
            packed(store, folder, "run-1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "vouched", "x.tar"]


def test_a_run_that_is_here_already_is_left_as_it_is_and_said(store: Store, tmp_path: Path) -> None:
    MADE.keep(store, "run-1")
    packed(store, tmp_path / "x.tar", "run-1")
    (store.folder("run-1") / "log.txt").write_text("newer")
    said: list[str] = []
    assert archive.take_in(store, tmp_path / "x.tar", said.append) == []
    assert said == ["run-1 is here already, and is left as it is"]
    assert (store.folder("run-1") / "log.txt").read_text() == "newer"


def test_a_comparison_comes_back_once_and_verified(store: Store, other: Store, tmp_path: Path) -> None:
    MADE.keep(store, "run-1")
    archive.export(store, [store.load("run-1")], tmp_path / "x.tar", [replace(COMPARISON, owner=this_process())])
    said: list[str] = []
    assert archive.take_in(other, tmp_path / "x.tar", said.append) == ["run-1", COMPARISON.id]
    assert said == []
    assert comparisons.load("last", other) == COMPARISON
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xf", "../x.tar"], cwd=tmp_path / "out", check=True)
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path / "out", check=True)
    assert archive.take_in(other, tmp_path / "x.tar", said.append) == []
    assert said[:1] == [f"{COMPARISON.id} is here already, and is left as it is"]


@pytest.mark.parametrize("changed", [
    {"id": "another"}, {"format": 99}, {"trials": 1}, {"arms": [{"name": "a", "device": {}}]}, {"finished": "never"},
    {"arms": [{"name": "a", "device": "cpu"}, {"name": "b", "device": "tpu"}]}, {"started": math.nan},
    {"finished": math.inf}, {"scaling": math.nan},
    {"remarks": ["x" * MOST_BYTES]}, {"repeat": math.inf},
    {"repeat": 10**9, "trials": [{"arm": "threads=1", "round": 10**9, "run": "run-1"}]},
])  # fmt: skip
def test_a_comparison_that_is_none_keeps_all_of_it_out(
    store: Store, other: Store, tmp_path: Path, changed: dict[str, Any]
) -> None:
    content = json.dumps({**COMPARISON.as_json(), **changed}).encode()
    entry = tarfile.TarInfo(f"comparisons/{COMPARISON.id}.json")
    written(tmp_path / "x.tar", [*good(store), (entry, content)])
    with pytest.raises(ArchiveBroken, match="comparison"):
        archive.take_in(other, tmp_path / "x.tar", quiet)
    assert list(other.root.iterdir()) == []
    assert not other.root.with_name("comparisons").exists()


def test_where_a_comparison_can_t_be_saved_no_run_is_placed(store: Store, other: Store, tmp_path: Path) -> None:
    MADE.keep(store, "run-1")
    archive.export(store, [store.load("run-1")], tmp_path / "x.tar", [COMPARISON])
    other.ensure_writable()
    other.root.with_name("comparisons").touch()
    with pytest.raises(StateNotWritable):
        archive.take_in(other, tmp_path / "x.tar", quiet)
    assert list(other.root.iterdir()) == []
    other.root.with_name("comparisons").unlink()
    assert archive.take_in(other, tmp_path / "x.tar", quiet) == ["run-1", COMPARISON.id], "the next time brings it all"


def test_a_full_disk_is_not_called_a_broken_archive(store: Store, other: Store, tmp_path: Path) -> None:
    (MADE.keep(store, "run-1") / "log.txt").write_bytes(bytes(1 << 20))
    packed(store, tmp_path / "x.tar", "run-1")
    other.ensure_writable()
    script = tmp_path / "import.sh"  # a tmpfs of 256 KiB that only this process sees
    script.write_text(
        f"mount -t tmpfs -o size=256k none {other.root} && exec {sys.executable} -c 'import sys\n"
        "from pathlib import Path\nfrom ngcdl.storing import archive\nfrom ngcdl.storing.store import Store\n"
        "try: archive.take_in(Store(Path(sys.argv[1])), Path(sys.argv[2]), print)\n"
        "except Exception as e: print(type(e).__name__, e)\n"
        f"print(*Path(sys.argv[1]).iterdir())' {other.root} {tmp_path}/x.tar\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", str(script)],
        capture_output=True,
        text=True,
        env=environ,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount of its own here: {done.stderr}")
    assert done.stdout.startswith("StateNotWritable"), done.stderr
    assert "No space left on device" in done.stdout
    assert done.stdout.endswith("\n\n"), "nothing is left"


# -- what is never accepted ---------------------------------------------------------------------------------------


def written(file: Path, members: list[Member], sums: bool = True, mode: str = "w") -> None:
    with tarfile.open(file, mode) as tar:  # type: ignore[call-overload]  # mode is a parameter here
        text = ""
        for entry, content in members:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
            text += f"{hashlib.sha256(content).hexdigest()}  {entry.name}\n"
        if sums:
            entry = tarfile.TarInfo("SHA256SUMS")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))


def good(store: Store) -> list[Member]:
    folder = MADE.keep(store, "run-1")
    return [
        (tarfile.TarInfo(f"run-1/{name}"), (folder / name).read_bytes())
        for name in ("run.json", "events.jsonl", "samples.jsonl", "log.txt")
    ]


def named(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Callable[[list[Member]], None]:
    def change(members: list[Member]) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        members.append((entry, b"" if kind != tarfile.REGTYPE else b"x"))

    return change


def test_the_archive_that_the_bad_ones_are_made_of_is_taken_in(store: Store, other: Store, tmp_path: Path) -> None:
    written(tmp_path / "x.tar", good(store))
    assert archive.take_in(other, tmp_path / "x.tar", quiet) == ["run-1"]


@pytest.mark.parametrize(
    "change",
    [
        named("../evil/run.json"),
        named("/tmp/evil/run.json"),
        named("run-1/../../evil"),
        named("run-1/checkpoints/../../evil"),
        named("run-1/checkpoints/step-1.npz/x"),
        named("run-1/evil.sh"),
        named("run-1/home/.bashrc"),
        named("./run-1/run.json"),
        named("run-1/run.json\x00x"),
        named(".run/run.json"),
        named("-rf/run.json"),
        named("run-1/log.txt"),  # twice
        named("run-1/checkpoints/step-1.npz", tarfile.SYMTYPE, "/etc/passwd"),
        named("run-1/checkpoints/step-1.npz", tarfile.LNKTYPE, "run-1/run.json"),
        named("run-1/checkpoints", tarfile.SYMTYPE, "/tmp"),
        named("run-1", tarfile.DIRTYPE),
        named("run-1/checkpoints/step-1.npz", tarfile.CHRTYPE),
        named("run-1/checkpoints/step-1.npz", tarfile.FIFOTYPE),
        named("run-1/checkpoints/step-1.npz", tarfile.GNUTYPE_SPARSE),
        named("run-1/checkpoints/step-1.npz", tarfile.CONTTYPE),
        named("comparisons/../evil.json"),
        named("comparisons/.evil.json"),
        named("comparisons/run.json/x"),
        named("run-2/log.txt"),  # a run without a record
    ],
)
def test_a_bad_member_keeps_all_of_it_out(
    store: Store, other: Store, tmp_path: Path, change: Callable[[list[Member]], None]
) -> None:
    members = good(store)
    change(members)
    written(tmp_path / "x.tar", members)
    with pytest.raises(ArchiveBroken):
        archive.take_in(other, tmp_path / "x.tar", quiet)
    assert list(other.root.iterdir()) == []


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_a_compressed_archive_which_could_hold_any_amount_is_none(
    store: Store, other: Store, tmp_path: Path, mode: str
) -> None:
    written(tmp_path / "x.tar", good(store), mode=mode)
    with pytest.raises(ArchiveBroken):
        archive.take_in(other, tmp_path / "x.tar", quiet)


def test_what_was_changed_cut_or_has_no_checksums_is_not_taken_in(store: Store, other: Store, tmp_path: Path) -> None:
    members, file = good(store), tmp_path / "x.tar"
    written(file, members)
    whole = file.read_bytes()
    at = whole.index(b"step 0")
    for data, why in (
        (whole[:at] + b"step 9" + whole[at + 6 :], "log.txt does not match its checksum"),
        (whole[: at + 3], "unexpected end of data"),
        (whole[:100], "truncated header"),
        (b"x" * 4096, "not a tar|invalid header|bad checksum"),
    ):
        file.write_bytes(data)
        with pytest.raises(ArchiveBroken, match=why):
            archive.take_in(other, file, quiet)
        assert list(other.root.iterdir()) == []
    written(file, members)
    with tarfile.open(file) as tar:
        sums = tar.extractfile("SHA256SUMS")
        assert sums is not None
        written(file, [*members[:-1], (tarfile.TarInfo("SHA256SUMS"), sums.read())], sums=False)
    with pytest.raises(ArchiveBroken, match="does not match its checksum"):
        archive.take_in(other, file, quiet)
    with pytest.raises(ArchiveBroken, match="Is a directory"):
        archive.take_in(other, tmp_path, quiet)
    written(file, members, sums=False)
    with pytest.raises(ArchiveBroken, match="SHA256SUMS is missing"):
        archive.take_in(other, file, quiet)
    with pytest.raises(BadOption, match=r"none\.tar: there is no such file") as refused:
        archive.take_in(other, tmp_path / "none.tar", quiet)
    assert refused.value.hint == "", "there is nothing to export anew"


def test_a_record_of_a_run_that_goes_on_or_of_another_one_is_not_taken_in(
    store: Store, other: Store, tmp_path: Path
) -> None:
    for run, why in (
        (Run("run-9", "finished", 1.0), "that of another run"),
        (Run("run-1", "running", 1.0, owner=this_process()), "still running"),
    ):
        made = Store(tmp_path / run.status)
        made.create(run)
        record = (made.folder(run.id) / "run.json").read_bytes()
        written(tmp_path / "x.tar", [(tarfile.TarInfo("run-1/run.json"), record)])
        with pytest.raises(ArchiveBroken, match=why):
            archive.take_in(other, tmp_path / "x.tar", quiet)
        assert list(other.root.iterdir()) == []


def test_a_run_that_is_taken_in_bears_a_mark_that_no_archive_takes_along_or_brings(
    store: Store, other: Store, tmp_path: Path
) -> None:
    MADE.keep(store, "run-1")
    packed(store, tmp_path / "x.tar", "run-1")
    archive.take_in(other, tmp_path / "x.tar", quiet)
    assert (other.folder("run-1") / IMPORTED).exists()
    assert not (store.folder("run-1") / IMPORTED).exists()
    packed(other, tmp_path / "y.tar", "run-1")
    with tarfile.open(tmp_path / "y.tar") as tar:
        assert f"run-1/{IMPORTED}" not in tar.getnames()


def test_processes_and_containers_of_the_other_machine_are_not_ours_to_stop(
    store: Store, other: Store, tmp_path: Path
) -> None:
    MADE.keep(store, "run-1", owner=this_process(), container="c0ffee", engine_id="7TWA", status="lost")
    packed(store, tmp_path / "x.tar", "run-1")
    archive.take_in(other, tmp_path / "x.tar", quiet)
    taken = other.load("run-1")
    assert (taken.owner, taken.container, taken.engine_id) == (None, None, None)


@pytest.mark.parametrize("header", [{"GNU.sparse.map": "a,b"}, {"GNU.sparse.size": "x"}, {"GNU.sparse.major": "1"}])
def test_a_header_that_tarfile_stumbles_over_is_a_broken_archive(
    store: Store, tmp_path: Path, header: dict[str, str]
) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as made:
        entry = tarfile.TarInfo("run-1/run.json")
        entry.pax_headers = header
        made.addfile(entry, io.BytesIO(b""))
    with pytest.raises(ArchiveBroken):
        archive.take_in(store, tmp_path / "x.tar", quiet)
