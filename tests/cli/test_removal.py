"""`ngcdl runs rm`, as typed, on real folders."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from house import LIKE_OTHERS, House, strace
from made_runs import Made

from ngcdl.cli import removal
from ngcdl.errors import StateNotWritable
from ngcdl.folder import IMPORTED
from ngcdl.record import Machine, Run
from ngcdl.running.owner import this_process
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial
from ngcdl.storing.store import Store

OLD, NEW, OPEN = (f"2023111{day}-221320-cifar10-{name}" for day, name in ((4, "old001"), (5, "new001"), (6, "open01")))
RM = ("runs", "rm")
DAY = 86400.0


def keep(house: House, name: str, ended_days_ago: float = 0.0) -> Path:
    """Keep a finished training with 2 MiB of checkpoints, 1 MiB in its home, and a file that its command wrote."""
    folder = Made("cpu", steps=20).keep(house.store, name, finished=time.time() - ended_days_ago * DAY)
    for path, mebibytes in (("checkpoints/step-20.npz", 2), ("home/.cache/pip/wheel", 1), ("out/model.bin", 0)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(os.urandom(mebibytes << 20))
    return folder


@pytest.fixture
def kept(house: House) -> House:
    keep(house, OLD, 40)
    keep(house, NEW, 1)
    return house


def compared(*trials: Trial) -> StoredComparison:
    return StoredComparison("20231114-230000-compare-000abc", "", 2, (("a", None), ("b", None)), 1.0, trials=trials)


def rounded(text: str) -> str:
    """Return `text` without the decimals of its sizes: folders differ in size between file systems."""
    return re.sub(r"\.[0-4] MiB", " MiB", text)


def answered(house: House, *argv: str, answer: str, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, str]:
    code, seen = house.answer(*argv, answer=answer, meanwhile=meanwhile)
    return code, rounded(seen)


def test_named_runs_are_removed_and_what_that_freed_is_printed(kept: House) -> None:
    keep(kept, OPEN)
    done = kept.run(*RM, "last", OLD, OLD[:15], "--yes")
    assert (done.returncode, kept.store.ids()) == (0, [NEW]), done.stderr
    head, *rows, last = rounded(done.stdout).splitlines()
    assert (head.split(), last) == (["RUN", "STATUS", "SIZE"], "removed 2 runs, 6 MiB freed")
    assert [row.split() for row in rows] == [[name, "finished", "3", "MiB"] for name in (OPEN, OLD)]
    assert list((kept.store.root / ".removed").iterdir()) == []
    assert {path.name for path in kept.store.root.with_name("vouched").iterdir()} == set(kept.store.ids())


def test_without_their_checkpoints_and_files_runs_are_still_shown_reported_and_replayed(kept: House) -> None:
    folder, outside = kept.store.folder(NEW), kept.home / "mine"
    outside.mkdir()
    (outside / "precious").touch()
    (folder / "link").symlink_to(outside)
    (folder / "report-of-2.html").symlink_to(outside / "precious")
    (folder / IMPORTED).touch()
    kept.run("report", NEW)
    ways = (("show", NEW, "--json"), ("runs", "replay", NEW, "--dry-run", "--json"), ("report", NEW, "--csv", "-"))
    before = [kept.run(*way) for way in ways]
    done = kept.run(*RM, NEW, "--keep-record", "--yes")
    last = rounded(done.stdout).splitlines()[-1]
    assert (done.returncode, last) == (0, "kept the record of 1 run, 3 MiB freed"), done.stderr
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "events.jsonl", "samples.jsonl", "log.txt", "report.html", IMPORTED,
    }  # fmt: skip
    assert (outside / "precious").exists()
    for way, was in zip(ways[1:], before[1:], strict=True):
        assert (was.returncode, was.stdout) == (kept.run(*way).returncode, kept.run(*way).stdout), way
    shown, was = json.loads(kept.run(*ways[0]).stdout), json.loads(before[0].stdout)
    (note,) = shown.pop("notes")
    assert (shown, "its checkpoints" in note) == ({name: it for name, it in was.items() if name != "notes"}, True)
    assert kept.run("show", NEW).returncode == 0
    again = kept.run(*RM, NEW, "--keep-record", "--yes")
    assert (again.returncode, again.stdout) == (0, "")
    assert "there is nothing to remove" in again.stderr


@pytest.mark.parametrize(("age", "left"), [("30d", [NEW]), ("5w", [NEW]), ("12h", [OPEN]), ("6w", [NEW, OLD])])
def test_runs_that_ended_long_ago_are_chosen_by_their_end(kept: House, age: str, left: list[str]) -> None:
    if age == "12h":
        keep(kept, OPEN, 0.1)
    done = kept.run(*RM, "--older-than", age, "-y")
    assert (done.returncode, kept.store.ids()) == (0, left), done.stderr


def test_a_run_whose_end_is_unknown_is_as_old_as_what_it_wrote_last(kept: House) -> None:
    for name in (OLD, NEW):
        kept.store.save(replace(kept.store.load(name), status="lost", finished=None, started=time.time() - 40 * DAY))
    for path in kept.store.folder(OLD).iterdir():
        os.utime(path, (0, 0))
    done = kept.run(*RM, "--older-than", "30d", "-y")
    assert (done.returncode, kept.store.ids()) == (0, [NEW]), done.stderr


def test_a_dry_run_lists_what_would_go_and_removes_nothing(kept: House) -> None:
    before = sorted(kept.home.rglob("*"))
    done = kept.run(*RM, "--older-than", "1h", "--dry-run")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["RUN", NEW, OLD, "2"]
    assert rounded(done.stdout).splitlines()[-1] == "2 runs, 6 MiB: nothing was removed"
    assert (done.returncode, sorted(kept.home.rglob("*"))) == (0, before)


def test_on_a_terminal_it_asks_once(kept: House) -> None:
    code, shown = answered(kept, *RM, OLD, NEW, answer="n\n")
    assert (code, kept.store.ids()) == (0, [NEW, OLD])
    assert shown.count("[y/N]") == 1
    assert "Remove 2 runs, 6 MiB? [y/N]" in shown
    assert "nothing was removed" in shown
    code, shown = answered(kept, *RM, OLD, "--keep-record", answer="y\n")
    assert "Remove all but the records of 1 run, 3 MiB? [y/N]" in shown
    assert (code, (kept.store.folder(OLD) / "checkpoints").exists()) == (0, False)
    code, shown = answered(kept, *RM, OLD, NEW, answer="y\n")
    assert (code, kept.store.ids()) == (0, []), shown


def test_without_a_terminal_it_needs_yes_and_says_what_to_type(kept: House) -> None:
    done = kept.run(*RM, NEW, "last-1", "--keep-record")
    assert (done.returncode, done.stdout, kept.store.ids()) == (2, "", [NEW, OLD])
    assert f"    ngcdl runs rm {NEW} last-1 --keep-record --yes\n" in done.stderr
    assert f"    ngcdl runs rm {NEW} last-1 --keep-record --dry-run\n" in done.stderr
    assert "    ngcdl runs rm --older-than 3w --yes\n" in kept.run(*RM, "--older-than", "3w").stderr
    none = kept.run(*RM, "all")
    assert (none.returncode, "There is no run 'all'" in none.stderr) == (125, True), "no line that fails, too"


@pytest.mark.parametrize(
    ("words", "code"), [((), 2), ((NEW, "--older-than", "1d"), 2), (("--older-than", "a month"), 2), ((NEW, "x"), 125)]
)
def test_what_was_typed_wrong_removes_nothing(kept: House, words: tuple[str, ...], code: int) -> None:
    done = kept.run(*RM, *words, "--yes")
    assert (done.returncode, kept.store.ids()) == (code, [NEW, OLD])


@pytest.mark.parametrize(
    ("run", "typed"),
    [
        (Run(OPEN, "running", time.time(), engine="local", owner=this_process()), f"ngcdl stop {OPEN}"),
        (Run(OPEN, "running", time.time(), engine="slurm", reason="Resources"), f"ngcdl stop {OPEN}"),
        (Run(OPEN, "lost", 1.0, engine="docker", owner=this_process()), f"ngcdl show {OPEN}"),
    ],
)
def test_an_open_run_is_left_and_the_rest_goes_on(kept: House, run: Run, typed: str) -> None:
    kept.store.create(run)
    done = kept.run(*RM, OPEN, OLD, "--yes")
    assert (done.returncode, kept.store.ids()) == (125, [OPEN, NEW])
    assert f"{OPEN} was not removed: " in done.stderr
    assert f"    {typed}\n" in done.stderr


def test_a_run_whose_watcher_was_killed_is_closed_first_and_then_removed(kept: House) -> None:
    dead = replace(this_process(), ticks=1)
    Made("cpu").keep(kept.store, OPEN, status="running", owner=dead, engine="local", machine=Machine())
    done = kept.run(*RM, OPEN, "--yes")
    assert (done.returncode, kept.store.ids()) == (0, [NEW, OLD]), done.stderr


def test_a_run_that_an_open_one_continues_from_is_left(kept: House) -> None:
    later = Run(OPEN, "running", 1.0, engine="local", owner=this_process(), spec={"workload": {"resume": NEW}})
    kept.store.create(later)
    done = kept.run(*RM, NEW, "--keep-record", "--yes")
    assert (done.returncode, f"ngcdl stop {OPEN}" in done.stderr) == (125, True)
    assert (kept.store.folder(NEW) / "checkpoints/step-20.npz").exists()


def test_a_run_that_was_resumed_while_it_asked_is_left(kept: House) -> None:
    later = Run(OPEN, "running", 1.0, engine="local", owner=this_process(), spec={"workload": {"resume": NEW}})
    code, shown = answered(kept, *RM, NEW, OLD, answer="y\n", meanwhile=lambda: kept.store.create(later))
    assert (code, kept.store.ids()) == (125, [OPEN, NEW]), shown
    assert "removed 1 run, 3 MiB freed" in shown


def test_a_comparison_that_loses_runs_is_named(kept: House) -> None:
    comparison = compared(Trial("a", 1, OLD), Trial("b", 1, NEW), Trial("a", 2, "20231114-221320-cifar10-gone00"))
    comparisons.save(comparison, kept.store)
    said = f"the comparison {comparison.id} loses 1 of its 2 runs"
    assert said not in kept.run(*RM, OLD, "--keep-record", "--dry-run").stdout, "it needs the records only"
    code, shown = answered(kept, *RM, OLD, answer="n\n")
    assert (code, shown.index(said) < shown.index("[y/N]")) == (0, True)
    assert said in kept.run(*RM, OLD, "--yes").stdout
    assert OLD in kept.run("compare", "--show", comparison.id).stdout, "as a run that is not there any more"
    last = kept.run(*RM, NEW, "--yes").stdout
    assert f"the comparison {comparison.id} goes, too" in last
    assert (comparisons.ids(kept.store), last.splitlines()[-1]) == ([], f"removed the comparison {comparison.id}")


def test_a_comparison_that_is_named_goes_with_all_of_its_runs(kept: House) -> None:
    for name, run in (("lr3", OLD), ("lr4", NEW)):
        it = StoredComparison(f"20231114-230000-compare-{name}-000abc", "", 1, (), 1.0, trials=(Trial("a", 1, run),))
        comparisons.save(it, kept.store)
    for words in (("--dry-run",), ("--keep-record", "--yes")):
        assert kept.run(*RM, "lr3", *words).returncode == 0
        assert (kept.store.ids(), len(comparisons.ids(kept.store))) == ([NEW, OLD], 2)
    gone = kept.run(*RM, "lr3", "--yes").stdout
    assert gone.endswith("removed the comparison 20231114-230000-compare-lr3-000abc\n")
    assert (kept.store.ids(), comparisons.ids(kept.store)) == ([NEW], [it.id])
    (kept.store.folder(NEW) / "run.json").unlink()
    bare = f"the comparison {it.id}, of which no run is left"
    assert kept.run(*RM, "lr4", "--dry-run").stdout == f"{bare}: nothing was removed\n"
    comparisons.save(replace(it, owner=this_process()), kept.store)
    assert f"    ngcdl stop {it.id}\n" in kept.run(*RM, "lr4", "--yes").stderr, "it may be about to begin its first run"
    comparisons.save(it, kept.store)
    assert answered(kept, *RM, "lr4", answer="n\n")[0] == 0
    assert comparisons.ids(kept.store) == [it.id]
    assert kept.run(*RM, "lr4", "--yes").stdout == f"{bare}\nremoved the comparison {it.id}\n"


def test_the_runs_of_a_comparison_that_goes_on_are_left_but_for_what_it_does_not_need(kept: House) -> None:
    kept.store.create(Run(OPEN, "running", time.time(), engine="local", owner=this_process()))
    comparison = compared(Trial("a", 1, OLD), Trial("b", 1, OPEN))
    comparisons.save(comparison, kept.store)
    done = kept.run(*RM, "--older-than", "1h", "--yes")
    assert (done.returncode, kept.store.ids()) == (125, [OPEN, OLD])
    assert f"{OLD} was not removed: the comparison {comparison.id} has not ended" in done.stderr
    assert f"    ngcdl stop {comparison.id}\n" in done.stderr
    assert kept.run(*RM, OLD, "--keep-record", "--yes").returncode == 0


def test_the_runs_of_a_comparison_that_is_between_two_runs_are_left(kept: House) -> None:
    comparison = compared(Trial("a", 1, OLD), Trial("b", 1, NEW))
    me = this_process()
    others = (replace(me, namespace="another sandbox's"), replace(me, boot="another host's"))  # via a shared home
    for owner in (me, *others):
        comparisons.save(replace(comparison, owner=owner), kept.store)
        done = kept.run(*RM, OLD, "--yes")
        assert (done.returncode, kept.store.ids()) == (125, [NEW, OLD])
        assert f"{OLD} was not removed: the comparison {comparison.id} has not ended" in done.stderr
    for path, ago in ((comparisons.path(comparison.id, kept.store), 400), (kept.store.folder(NEW) / "run.json", -3600)):
        os.utime(path, (time.time() - ago,) * 2)  # before the clock was set back
    assert kept.run(*RM, OLD, "--yes").returncode == 0


def test_a_full_disk_is_freed_before_the_record_says_so(kept: House) -> None:
    class Full(Store):
        def save(self, run: Run, known: bool = True) -> None:
            if any([*path.glob("step-*")] for path in self.left_over()):
                raise StateNotWritable(self.root, "No space left on device")
            super().save(run, known)

    full = Full(kept.store.root)
    going = [*removal._going(full, full.load(NEW), keep_record=True)]
    assert removal._carry_out(full, going, keep_record=True) == 0
    assert (full.load(NEW).notes[-1].startswith("its checkpoints"), full.left_over()) == (True, [])


def test_what_a_pod_saved_on_a_claim_is_told_and_not_called_removed(kept: House) -> None:
    placement = {"data_pvc": "cifar"}
    folder = Made("cpu").keep(kept.store, OPEN, engine="kubernetes", spec={"placement": placement})
    (folder / "report.pdf").touch()
    said = f"what {OPEN} saved on the claim cifar stays there, in ngcdl-runs/{OPEN}"
    assert said in kept.run(*RM, OPEN, "--keep-record", "--yes").stdout
    (note,) = kept.store.load(OPEN).notes
    assert "checkpoints" not in note
    assert said in kept.run(*RM, OPEN, "--dry-run").stdout
    assert "claim" not in kept.run(*RM, NEW, "--dry-run").stdout


@pytest.mark.parametrize("note", [
    "log.txt may lack its end (File too large):  docker logs 6331a1a74017",
    "The container 6331a1a74017 could not be removed (device or resource busy):  docker rm -f 6331a1a74017",
])  # fmt: skip
def test_a_container_that_was_kept_for_a_run_is_told_before_its_record_goes(kept: House, note: str) -> None:
    kept.store.save(replace(kept.store.load(OLD), container="6331a1a74017" + "0" * 52, notes=(note,)))
    told = f"the container of {OLD} stays, if it is still there:  docker rm -f 6331a1a74017\n"
    assert told not in kept.run(*RM, OLD, "--keep-record", "--yes").stdout, "the record names it"
    assert told in kept.run(*RM, OLD, NEW, "--yes").stdout
    assert kept.store.ids() == []


@pytest.mark.parametrize("keep_record", [(), ("--keep-record",)])
def test_files_that_this_user_can_t_delete_are_told_before_anything_goes(
    kept: House, keep_record: tuple[str, ...]
) -> None:
    home = kept.store.folder(NEW) / "home"
    (home / ".cache").chmod(0o500)
    if os.geteuid() == 0:
        shutil.chown(home / ".cache", "nobody")
        (home / ".cache").chmod(0o755)
    before = sorted(kept.store.folder(NEW).rglob("*"))
    done = kept.run(*RM, NEW, OLD, *keep_record, "--yes", before=LIKE_OTHERS)
    assert (done.returncode, sorted(kept.store.folder(NEW).rglob("*"))) == (125, before)
    assert f"    sudo rm -rf {home if keep_record else home.parent}\n" in done.stderr
    assert f"{home}/.cache: Permission denied" in done.stderr
    assert ("(it belongs to nobody)" in done.stderr) == (os.geteuid() == 0)
    assert not (kept.store.folder(OLD) / "checkpoints").exists()
    assert kept.store.has(NEW)


def test_a_broken_record_is_named_and_left_and_the_rest_goes_on(kept: House) -> None:
    (kept.store.folder(NEW) / "run.json").write_text("{")
    done = kept.run(*RM, NEW, OLD, "--yes")
    assert (done.returncode, kept.store.ids()) == (125, [NEW])
    assert f"    rm -rf {kept.store.folder(NEW)}\n" in done.stderr
    assert kept.run(*RM, "--older-than", "1h", "--yes").returncode == 0, "nobody can tell when it ended"


def test_nothing_is_swept_through_a_link(kept: House) -> None:
    """Which a container could leave to which compose gave the folder of all runs."""
    photos = kept.home / "photos"
    photos.mkdir()
    (photos / "a.jpg").touch()
    (kept.store.root / ".removed").symlink_to(photos)
    done = kept.run(*RM, NEW, "--yes")
    assert (done.returncode, (photos / "a.jpg").exists(), kept.store.has(NEW)) == (125, True, True)
    assert f"{kept.store.root}/.removed: it is a link" in done.stderr


def test_folders_that_a_run_nested_too_deeply_for_a_path_are_removed(kept: House) -> None:
    at = os.open(kept.store.folder(OLD), os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("deeper", dir_fd=at)
        above, at = at, os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(above)
    os.close(at)
    done = kept.run(*RM, OLD, "--yes")
    assert (done.returncode, kept.store.left_over(), kept.store.has(OLD)) == (0, [], False), done.stderr


def test_a_folder_that_is_a_link_is_not_followed(kept: House) -> None:
    elsewhere = kept.home / "large-disk"
    kept.store.folder(NEW).rename(elsewhere)
    kept.store.folder(NEW).symlink_to(elsewhere)
    done = kept.run(*RM, NEW, "--yes")
    assert (done.returncode, (elsewhere / "checkpoints/step-20.npz").exists()) == (125, True)
    assert f"is a link to {elsewhere}" in done.stderr


def test_a_removal_that_is_killed_at_any_point_leaves_a_whole_run_or_none_and_the_next_one_sweeps(kept: House) -> None:
    folder, aside = kept.store.folder(NEW), kept.store.root / ".removed"
    files = sorted(folder.rglob("*"))
    for point in (
        "/^rename.*:signal=KILL",
        "fsync:signal=KILL",
        *(f"unlinkat:signal=KILL:when={n}" for n in (1, 3, 9)),
    ):
        before = (strace(), "-f", "-qq", "-o", "/dev/null", "-e", f"inject={point}")
        assert kept.run(*RM, NEW, "--yes", before=before).returncode != 0, point
        if kept.store.has(NEW):
            assert sorted(folder.rglob("*")) == files, point
        else:
            assert list(aside.iterdir()), point
            done = kept.run("runs")
            assert ([line.split()[0] for line in done.stdout.splitlines()], done.stderr) == (["RUN", OLD], ""), point
            done = kept.run(*RM, "--older-than", "6w", "--yes")
            assert (done.returncode, list(aside.iterdir())) == (0, []), done.stderr
            assert rounded(done.stdout).startswith("removed 0 runs, "), point
            keep(kept, NEW, 1)


def test_checkpoints_whose_removal_is_killed_are_all_there_or_none_and_the_record_says_which(kept: House) -> None:
    before = (strace(), "-f", "-qq", "-o", "/dev/null", "-e", "inject=unlinkat:signal=KILL")
    for number in range(20):
        (kept.store.folder(NEW) / f"checkpoints/step-{number}.npz").touch()
    assert kept.run(*RM, NEW, "--keep-record", "--yes", before=before).returncode != 0
    assert not (kept.store.folder(NEW) / "checkpoints").exists()
    assert ["its checkpoints" in note for note in kept.store.load(NEW).notes] == [True]
    assert list((kept.store.root / ".removed").iterdir())
    done = kept.run(*RM, "--older-than", "6w", "--yes")
    assert (done.returncode, list((kept.store.root / ".removed").iterdir())) == (0, []), done.stderr
