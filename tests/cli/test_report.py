"""`ngcdl report`: which files it writes, where, and what it says."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from house import House, until
from made_runs import Made

from ngcdl.errors import NoBrowser
from ngcdl.report import browser

GOLDEN = Path(__file__).parents[1] / "golden"
RUN = "run-format-1"


@pytest.fixture
def kept(house: House) -> House:
    """A home with the sample run of format 1, and a run on a GPU."""
    shutil.copytree(GOLDEN / RUN, house.shelf.root / RUN)
    Made(steps=100).keep(house.shelf, "20231114-221320-cifar10-gpu001")
    return house


def test_without_more_the_page_is_written_into_the_run_s_folder_and_its_path_is_the_result(kept: House) -> None:
    done = kept.run("report", RUN)
    page = kept.shelf.folder(RUN) / "report.html"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{page}\n", "")
    assert page.read_text().startswith("<!doctype html>")
    assert page.stat().st_mode & 0o777 == 0o600
    assert kept.run("report", RUN).returncode == 0, "a report is made anew as often as one likes"
    assert sorted(one.name for one in page.parent.iterdir()) == [
        "events.jsonl", "log.txt", "report.html", "run.json", "samples.jsonl",
    ]  # fmt: skip


def test_a_link_that_the_run_left_in_its_folder_is_replaced_and_not_followed(kept: House) -> None:
    mine = kept.home / "mine"
    mine.write_text("mine")
    page = kept.shelf.folder(RUN) / "report.html"
    page.symlink_to(mine)
    assert kept.run("report", RUN).returncode == 0
    assert mine.read_text() == "mine"
    assert not page.is_symlink()
    assert kept.run("report", RUN, "--html", "mine").returncode == 0
    assert mine.read_text().startswith("<!doctype html>")


def test_the_page_is_opened_where_that_was_asked(kept: House) -> None:
    program = kept.home / "browser"
    program.write_text('#!/bin/sh\necho "$1" > opened\n')
    program.chmod(0o755)
    done = kept.run("report", RUN, "--open", env={"BROWSER": str(program)})
    assert done.returncode == 0, done.stderr
    page = kept.shelf.folder(RUN) / "report.html"
    until((kept.home / "opened").exists, "the browser")
    assert until((kept.home / "opened").read_text).strip() == page.as_uri()


def test_the_last_run_is_meant_where_none_is_named(kept: House) -> None:
    first = kept.shelf.ids()[0]
    assert kept.run("report").stdout.strip() == str(kept.shelf.folder(first) / "report.html")


def test_each_file_that_is_asked_for_is_written_and_no_other(kept: House) -> None:
    done = kept.run("report", RUN, "gpu001", "--html", "x.html", "--markdown", "x.md", "--csv", "x.csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(kept.home / name) for name in ("x.csv", "x.md", "x.html")]
    assert "These 2 runs can&#x27;t be set against each other" in (kept.home / "x.html").read_text()
    rows = list(csv.DictReader((kept.home / "x.csv").read_text().splitlines()))
    assert {row["run"] for row in rows} == {RUN, "20231114-221320-cifar10-gpu001"}
    assert not (kept.shelf.folder(RUN) / "report.html").exists()


def test_markdown_and_csv_can_go_to_stdout(kept: House) -> None:
    assert kept.run("report", RUN, "--markdown", "-").stdout == (GOLDEN / "report-run-format-1.md").read_text()
    assert kept.run("report", RUN, "--csv", "-").stdout.startswith("run,kind,t,seconds,")


def test_a_place_that_can_t_be_written_is_told_and_nothing_is_left(kept: House) -> None:
    done = kept.run("report", RUN, "--html", "nowhere/x.html")
    assert (done.returncode, done.stdout) == (125, "")
    assert "nowhere/x.html can't be written: No such file or directory." in done.stderr
    (kept.home / "folder").mkdir()
    assert kept.run("report", RUN, "--html", "folder").returncode == 125


def test_a_pipe_gets_the_report_and_stays_a_pipe(kept: House) -> None:
    done = kept.shell(f"mkfifo pipe; wc -l < pipe > lines & ngcdl report {RUN} --csv pipe && wait && test -p pipe")
    assert done.returncode == 0, done.stderr
    assert int((kept.home / "lines").read_text()) == len(kept.run("report", RUN, "--csv", "-").stdout.splitlines())


def test_a_run_named_twice_or_not_there_is_told(kept: House) -> None:
    done = kept.run("report", RUN, RUN)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is named twice" in done.stderr
    assert kept.run("report", "nothing").returncode == 125


def test_a_picture_without_a_browser_says_what_to_install_and_that_the_page_needs_none(kept: House) -> None:
    done = kept.run("report", RUN, "--png", "x.png", env={"NGCDL_BROWSER": "/nowhere/chromium"})
    assert done.returncode == 125
    assert "apt-get install chromium" in done.stderr
    assert not (kept.home / "x.png").exists()


def test_a_picture_is_drawn_by_the_browser_that_is_here(kept: House) -> None:
    try:
        program = browser.found()
    except NoBrowser as error:
        pytest.skip(f"{error.message} export NGCDL_BROWSER=$(scripts/lab browser)")
    done = kept.run("report", RUN, "--png", "x.png", env={"NGCDL_BROWSER": program})
    assert (done.returncode, done.stdout) == (0, f"{kept.home}/x.png\n"), done.stderr
    assert (kept.home / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_whose_files_are_torn_or_missing_has_a_report_of_what_is_left(kept: House) -> None:
    folder = kept.shelf.folder(RUN)
    (folder / "events.jsonl").write_bytes(b'{"event": "step", "t": 1\n\xff\xfe{]\n')
    (folder / "samples.jsonl").unlink()
    assert kept.run("report", RUN).returncode == 0
    text = (folder / "report.html").read_text()
    assert "Not measured, so not drawn" in text
    assert "590.0 examples/s" in text, "the record has its figures"


def test_a_record_that_the_trainer_wrote_by_itself_has_its_figures_out_of_its_files(kept: House) -> None:
    path = kept.shelf.folder(RUN) / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"summary": {}, "spec": None, "engine": "compose"}))
    assert "590.0 examples/s" in kept.run("report", RUN, "--markdown", "-").stdout
