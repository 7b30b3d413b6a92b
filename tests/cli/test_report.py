"""`ngcdl report`: which files it writes, where, and what it says."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from house import House, until
from made_runs import Made
from stand_ins import stand_in

from ngcdl.errors import NoBrowser
from ngcdl.report.compared.comparison import Arm, comparison
from ngcdl.report.compared.unlike import MeasuredRun
from ngcdl.report.shown import browser, markdown, page
from ngcdl.report.shown.story import LETTERS
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial

GOLDEN = Path(__file__).parents[1] / "golden"
RUN = "run-format-1"


@pytest.fixture
def kept(house: House) -> House:
    """A home with the sample run of format 1, and a run on a GPU."""
    shutil.copytree(GOLDEN / RUN, house.store.root / RUN)
    Made(steps=100).keep(house.store, "20231114-221320-cifar10-gpu001")
    return house


def test_without_more_the_page_is_written_into_the_run_s_folder_and_its_path_is_the_result(kept: House) -> None:
    done = kept.run("report", RUN)
    page = kept.store.folder(RUN) / "report.html"
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
    page = kept.store.folder(RUN) / "report.html"
    page.symlink_to(mine)
    assert kept.run("report", RUN).returncode == 0
    assert mine.read_text() == "mine"
    assert not page.is_symlink()
    assert kept.run("report", RUN, "--html", "mine").returncode == 0
    assert mine.read_text().startswith("<!doctype html>")


def test_the_page_is_opened_where_that_was_asked(kept: House) -> None:
    program = stand_in(kept.home, "browser", 'echo "$1" > opened')
    done = kept.run("report", RUN, "--open", env={"BROWSER": str(program)})
    assert done.returncode == 0, done.stderr
    page = kept.store.folder(RUN) / "report.html"
    until((kept.home / "opened").exists, "the browser")
    assert until((kept.home / "opened").read_text).strip() == page.as_uri()


def test_the_last_run_is_meant_where_none_is_named(kept: House) -> None:
    first = kept.store.ids()[0]
    assert kept.run("report").stdout.strip() == str(kept.store.folder(first) / "report.html")


def test_each_file_that_is_asked_for_is_written_and_no_other(kept: House) -> None:
    done = kept.run("report", RUN, "gpu001", "--html", "x.html", "--markdown", "x.md", "--csv", "x.csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(kept.home / name) for name in ("x.csv", "x.md", "x.html")]
    assert "These 2 runs can&#x27;t be compared" in (kept.home / "x.html").read_text()
    rows = list(csv.DictReader((kept.home / "x.csv").read_text().splitlines()))
    trained_on = {(row["run"], row["dataset"]) for row in rows}
    assert trained_on == {(RUN, "synthetic"), ("20231114-221320-cifar10-gpu001", "cifar10")}
    assert not (kept.store.folder(RUN) / "report.html").exists()


def test_markdown_and_csv_can_go_to_stdout(kept: House) -> None:
    assert kept.run("report", RUN, "--markdown", "-").stdout == (GOLDEN / "report-run-format-1.md").read_text()
    assert kept.run("report", RUN, "--csv", "-").stdout.startswith("run,kind,t,seconds,")


@pytest.mark.parametrize("more", [("--csv", "y.csv"), ("--html", "y.html"), ("--open",)])
def test_beside_a_document_on_stdout_the_paths_of_files_are_told_on_stderr(kept: House, more: tuple[str, ...]) -> None:
    done = kept.run("report", RUN, *more, "--markdown", "-", env={"BROWSER": "true"})
    assert (done.returncode, done.stdout) == (0, (GOLDEN / "report-run-format-1.md").read_text())
    page = kept.store.folder(RUN) / "report.html"
    assert done.stderr.startswith(f"ngcdl: written: {page if more == ('--open',) else kept.home / more[1]}\n")


def test_two_documents_for_stdout_are_refused_before_anything_is_written(kept: House) -> None:
    done = kept.run("report", RUN, "--html", "x.html", "--csv", "-", "--markdown", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--markdown and --csv: stdout takes one document." in done.stderr
    assert "    ngcdl report run-format-1 --html x.html --markdown FILE --csv -" in done.stderr
    assert not (kept.home / "x.html").exists()


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
    done = kept.run("report", RUN, "its.md")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"  To write that file:\n      ngcdl report {RUN} --markdown its.md\n" in done.stderr


def test_a_picture_without_a_browser_says_what_to_install_and_that_the_page_needs_none(kept: House) -> None:
    done = kept.run("report", RUN, "--png", "x.png", env={"NGCDL_BROWSER": "/nowhere/chromium"})
    assert done.returncode == 125
    assert f"    sudo apt-get install chromium\n      ngcdl report {RUN} --html report.html\n" in done.stderr
    assert not (kept.home / "x.png").exists()


def test_a_picture_that_can_t_be_drawn_keeps_no_other_file_back(kept: House) -> None:
    files = {"--png": "x.png", "--html": "x.html", "--csv": "x.csv", "--markdown": "x.md"}
    words = [word for pair in files.items() for word in pair]
    done = kept.run("report", RUN, *words, env={"NGCDL_BROWSER": "/nowhere/chromium"})
    assert (done.returncode, done.stdout.split()) == (125, [f"{kept.home}/x.{end}" for end in ("csv", "md", "html")])
    assert "apt-get install chromium" in done.stderr


def test_a_picture_is_drawn_by_the_browser_that_is_here(kept: House) -> None:
    try:
        program = browser.found()
    except NoBrowser as error:
        pytest.skip(f"{error.message} export NGCDL_BROWSER=$(scripts/lab browser)")
    done = kept.run("report", RUN, "--png", "x.png", env={"NGCDL_BROWSER": program})
    assert (done.returncode, done.stdout) == (0, f"{kept.home}/x.png\n"), done.stderr
    assert (kept.home / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_that_is_too_long_for_a_picture_is_cut_and_that_is_said(kept: House) -> None:
    try:
        program = browser.found()
    except NoBrowser as error:
        pytest.skip(f"{error.message} export NGCDL_BROWSER=$(scripts/lab browser)")
    Made(steps=30).keep(kept.store, "long", notes=tuple(f"note {number}" for number in range(1000)))
    done = kept.run("report", "long", "--png", "x.png", env={"NGCDL_BROWSER": program})
    assert (done.returncode, done.stdout) == (0, f"{kept.home}/x.png\n"), done.stderr
    assert re.fullmatch(r"ngcdl: the image has the first \d\d % of the page; --html has all of it\n", done.stderr)


def test_a_run_whose_files_are_torn_or_missing_has_a_report_of_what_is_left(kept: House) -> None:
    folder = kept.store.folder(RUN)
    (folder / "events.jsonl").write_bytes(b'{"event": "step", "t": 1\n\xff\xfe{]\n')
    (folder / "samples.jsonl").unlink()
    assert kept.run("report", RUN).returncode == 0
    text = (folder / "report.html").read_text()
    assert "Not measured, so not drawn" in text
    assert "590.0 examples/s" in text, "the record has its figures"


def test_a_record_that_the_trainer_wrote_by_itself_has_its_figures_out_of_its_files(kept: House) -> None:
    path = kept.store.folder(RUN) / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"summary": {}, "spec": None, "engine": "compose"}))
    assert "590.0 examples/s" in kept.run("report", RUN, "--markdown", "-").stdout


# -- comparisons ----------------------------------------------------------------------------------------------------

ID = "20231114-230000-compare-abc123"


def compared(house: House, repeat: int, arms: dict[str, Made]) -> None:
    """Save a comparison with all of its runs."""
    trials = []
    for number in range(1, repeat + 1):
        for at, (name, made) in enumerate(arms.items()):
            run = f"20231114-2213{number:02d}-cifar10-{at:03d}{number:03d}"
            made.keep(house.store, run)
            trials.append(Trial(name, number, run))
    kept = StoredComparison(
        ID, next(iter(arms)).partition("=")[0], repeat, tuple((name, None) for name in arms), 1.0, 2.0
    )
    comparisons.save(replace(kept, trials=tuple(trials)), house.store)


def test_a_comparison_of_more_runs_than_letters_is_a_report_and_its_arms_are_named_in_the_charts(house: House) -> None:
    compared(house, 14, {f"batch={n}": Made(steps=100, batch=n, rate=90.0 * n, samples=3) for n in (8, 64)})
    done = house.run("report", "abc123", "--html", "x.html")
    assert done.returncode == 0, done.stderr
    page = (house.home / "x.html").read_text()
    assert "An epoch takes " in page
    for label in ("A: batch=8", "N: batch=8", "O: batch=64", "AB: batch=64"):
        assert f'<th scope="col">{label}</th>' in page, "in the tables, too"
    assert not re.search(r"<td>\d+%", page), "14 % as in the tables beside it, and not 14% as in the terminal"
    assert "AC: " not in page
    bars = page.partition('class="bars"')[2].partition("</div>")[0]
    assert re.findall(r"<span>(.*?)</span>", bars) == ["batch=8", "batch=64"]
    small, large = (float(width) for width in re.findall(r'width="([\d.]+)" height', bars))
    assert small * 7 < large <= 1000, "medians on one scale, which ends at the most of all rounds"


def test_a_report_of_a_comparison_says_what_compare_show_says(house: House) -> None:
    compared(house, 2, {f"batch={n}": Made(steps=100, batch=n, rate=90.0 * n, samples=3) for n in (8, 64)})
    shown = house.run("compare", "--show", "last").stdout.splitlines()
    assert house.run("report", ID, "--markdown", "x.md").returncode == 0
    said = (house.home / "x.md").read_text()
    assert shown[-1].startswith("An epoch takes ")
    assert f"**{markdown.plain(shown[-1])}**" in said
    assert "| C: batch=64, 20231114-2213" in said
    assert not [line for line in shown if line.startswith("published")], "theirs are a CPU and a GPU"


def test_what_others_measured_stands_beside_cpu_against_gpu_and_the_threads_of_table_7_alone(house: House) -> None:
    for vary, workload, stands in (
        (("batch=8", "batch=64"), "cifar10", False),
        (("threads=1", "threads=2"), "cifar10", False),
        (("threads=1", "threads=2"), "resnet-50", True),
        (("cpu", "gpu"), "cifar10", True),
    ):
        arms = [Arm(name, (MeasuredRun(Made(workload=workload).story(name).run),)) for name in vary]
        stories = [Made(steps=20, samples=2, workload=workload).story(name) for name in vary]
        found = comparison(arms, "device" if vary == ("cpu", "gpu") else vary[0].partition("=")[0])
        assert ("What others measured" in page.page(stories, found)) is stands, (vary, workload)


def test_a_run_whose_name_looks_like_a_comparison_is_a_run(house: House) -> None:
    name = "20231114-221320-compare-fff001"
    Made(steps=100).keep(house.store, name)
    for typed in (name, "fff001"):
        done = house.run("report", typed)
        assert (done.returncode, done.stdout) == (0, f"{house.store.folder(name)}/report.html\n"), done.stderr
    assert house.run("report", "20991231-000000-compare-000000").returncode == 125


def test_a_comparison_without_any_run_left_is_said_and_no_other_run_is_reported(house: House) -> None:
    Made(steps=100).keep(house.store, "20231114-221320-cifar10-gpu001")
    lost = StoredComparison(ID, "batch", 1, (("batch=8", None),), 1.0, None, (), (Trial("batch=8", 1, "gone"),))
    comparisons.save(lost, house.store)
    done = house.run("report", ID)
    assert (done.returncode, done.stdout) == (2, "")
    assert "None of its runs exists any more" in done.stderr


def test_letters_go_on_after_z() -> None:
    assert LETTERS[:3] == ("A", "B", "C")
    assert LETTERS[25:28] == ("Z", "AA", "AB")
    assert LETTERS[-1] == "ZZ"
    assert len(set(LETTERS)) == len(LETTERS)
