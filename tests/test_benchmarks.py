"""scripts/bench: alternating measurements are judged by goal and spread, saved, and shown on the page as saved."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from house import ROOT

sys.path.append(str(ROOT / "scripts" / "benchmarks"))

import figures
import page
import turns
from figures import Figure, Goal, Spread

BENCHMARKS = ROOT / "scripts" / "benchmarks"
PAIRED = Figure("ngcdl x", "s", (1.0, 1.2, 1.1), Goal("ratio", 1.0), "docker x", (1.0, 1.0, 1.0), benchmark="start_up")
ALONE = Figure("ngcdl report", "s", (2.0, 2.2, 2.1), Goal("ours", 3), conditions={"machine": "one"}, benchmark="report")


def test_the_page_has_the_table_of_the_committed_figures_and_counts_what_it_misses_as_the_readme_does() -> None:
    text = page.DOCUMENT.read_text(encoding="utf-8")
    assert page.written(text, figures.load()) == text, "scripts/bench --write"
    told = page.table(figures.load())
    missed = told.count("| **no** |")
    goals = missed + told.count("| yes |")
    assert f"({missed} of {goals} goals)" in text
    assert f"which of its {goals} goals it misses ({missed})" in " ".join((ROOT / "README.md").read_text().split())


def test_every_committed_figure_is_of_a_benchmark_that_there_is_and_has_a_spread() -> None:
    for one in figures.load():
        assert (BENCHMARKS / f"{one.benchmark}.py").exists(), one
        assert len(one.ours) >= 3, one
        assert not one.theirs or len(one.theirs) == len(one.ours), one
        assert {"machine", "date"} <= one.conditions.keys(), one


def test_a_benchmark_that_is_typed_as_a_program_is_one() -> None:
    typed = {path.name for path in BENCHMARKS.glob("*.py") if path.read_text(encoding="utf-8").startswith("#!")}
    assert typed == {path.name for path in BENCHMARKS.glob("*.py") if os.access(path, os.X_OK)} >= {"apart.py"}


def test_each_way_is_measured_in_each_round_and_every_other_round_goes_backwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    order: list[str] = []
    ways = {name: lambda name=name: float(order.append(name) or len(order)) for name in ("a", "b")}
    taken = turns.in_turn(ways, 3)
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]  # the first two are the warm-up
    assert taken == {"a": (3, 6, 7), "b": (4, 5, 8)}
    told = capsys.readouterr().out.splitlines()
    assert told == ["    round 1: a 3; b 4", "    round 2: a 6; b 5", "    round 3: a 7; b 8"]


def test_where_time_is_short_there_are_as_many_rounds_as_a_verdict_needs() -> None:
    ways = {"a": lambda: 1.0}
    assert turns.in_turn(ways, 9, until=0.0) == {"a": (1.0,) * 3}
    assert turns.in_turn(ways, 2, until=0.0) == {"a": (1.0,) * 2}


def test_a_command_that_fails_ends_the_benchmark_with_what_it_said() -> None:
    with pytest.raises(SystemExit, match="ended with 3: no room"):
        turns.seconds([sys.executable, "-c", "import sys; sys.stderr.write('no room'); sys.exit(3)"])


def test_a_goal_is_held_against_the_median_of_what_it_is_about() -> None:
    assert not PAIRED.is_met  # 1.1 x
    assert replace(PAIRED, goal=Goal("difference", 0.1000001)).is_met
    assert replace(PAIRED, goal=Goal("ratio", 1.05, at_least=True)).is_met
    assert not replace(PAIRED, goal=Goal("ours", 1.2, at_least=True)).is_met


def test_a_figure_fell_only_where_it_is_worse_by_more_than_the_spread_of_both() -> None:
    worse = replace(PAIRED, ours=(1.4, 1.3, 1.35))
    assert figures.fell(PAIRED, worse) == "1.35 (1.30..1.40) x, committed 1.10 (1.00..1.20) x"
    assert figures.fell(PAIRED, replace(PAIRED, ours=(1.4, 1.05, 1.35))) is None  # once as good as before
    assert figures.fell(worse, PAIRED) is None
    assert figures.fell(worse, replace(PAIRED, goal=Goal("ratio", 1.0, at_least=True)))


def test_a_rate_without_a_goal_fell_where_it_is_less() -> None:
    rate = replace(PAIRED, unit="examples/s", goal=None)
    half, twice = (replace(rate, ours=tuple(times * one for one in rate.ours)) for times in (0.5, 2))
    assert figures.fell(rate, half) == "0.550 (0.500..0.600) x, committed 1.10 (1.00..1.20) x"
    assert figures.fell(rate, twice) is None
    assert figures.fell(rate, replace(twice, unit="ms a step"))


def test_of_every_rate_with_a_goal_more_is_better() -> None:
    rates = [one for one in figures.load() if one.goal and one.unit.endswith("/s")]
    assert rates
    assert all(one.is_more_better for one in rates)


def test_what_has_no_peer_is_compared_on_the_same_machine_alone() -> None:
    worse = replace(ALONE, ours=(9.0, 9.1, 9.2))
    assert figures.is_comparable(ALONE, worse)
    assert figures.fell(ALONE, worse)
    assert not figures.is_comparable(ALONE, replace(worse, conditions={"machine": "another"}))
    assert figures.is_comparable(PAIRED, replace(PAIRED, conditions={"machine": "another"})), "a ratio is everywhere"
    assert not figures.is_comparable(ALONE, replace(ALONE, ours=(9.0, 9.1))), "nothing is said of two rounds"


@pytest.mark.parametrize("one", [PAIRED, ALONE], ids=["a ratio", "seconds"])
def test_figures_of_different_cards_are_never_compared(one: Figure) -> None:
    h100, h200 = (replace(one, conditions={**one.conditions, "card": card}) for card in ("H100", "H200"))
    assert figures.is_comparable(h100, h100)
    assert not figures.is_comparable(h100, h200)
    assert not figures.is_comparable(one, h100), "nothing is known of the card"


def test_what_is_worse_says_that_only_a_name_is_the_same_and_a_figure_of_a_gpu_names_its_card(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = importlib.util.spec_from_file_location("bench", BENCHMARKS / "__main__.py")
    assert spec
    assert spec.loader
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    found = [replace(one, ours=(9.0, 9.1, 9.2)) for one in (ALONE, PAIRED)]
    assert bench._is_worse(found, {one.key: one for one in (ALONE, PAIRED)})
    alone, paired, _ = capsys.readouterr().out.splitlines()
    assert alone.endswith("committed 2.10 (2.00..2.20) s, on a machine whose processor has the same name")
    assert paired.endswith("committed 1.10 (1.00..1.20) x")
    card = {"machine": "one", "card": "H100", "pytorch": "2.13"}
    assert bench.said(replace(ALONE, conditions=card)).startswith("    ngcdl report (H100, PyTorch 2.13)\n")


def test_every_committed_figure_of_a_gpu_names_its_card() -> None:
    for one in figures.load():
        assert ("card" in one.conditions) == one.benchmark.startswith("gpu"), one


def test_what_is_kept_is_read_again_and_takes_the_place_of_the_same_figure(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    figures.keep([PAIRED, ALONE], path)
    figures.keep([replace(ALONE, ours=(1.0, 1.0, 1.0))], path)
    assert figures.load(path) == [replace(ALONE, ours=(1.0, 1.0, 1.0)), PAIRED]


def test_a_newer_peer_takes_the_place_of_the_older(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    older, newer = (replace(PAIRED, against=f"gpustat {version} -i 0.1") for version in ("1.1.1", "1.2"))
    figures.keep([older, replace(PAIRED, against="nvitop 1.7.2's collector")], path)
    figures.keep([newer], path)
    assert [one.against for one in figures.load(path)] == ["gpustat 1.2 -i 0.1", "nvitop 1.7.2's collector"]


def test_the_table_says_what_was_reached_and_under_which_conditions() -> None:
    told = page.table([PAIRED, ALONE]).splitlines()
    assert told[2:4] == [
        "| ngcdl x | docker x | ≤ 1 x | **no** | 1.10 (1.00..1.20) s | 1.00 (1.00..1.00) s "
        "| 1.10 (1.00..1.20) x | 3 | a |",
        "| ngcdl report |  | ≤ 3 s | yes | 2.10 (2.00..2.20) s |  |  | 3 | b |",
    ]
    assert told[-1] == "- b: one"
    told = page.table([replace(PAIRED, goal=Goal("difference", 0.5))]).splitlines()
    assert told[2].endswith("| ≤ +0.5 s | yes | 1.10 (1.00..1.20) s | 1.00 (1.00..1.00) s "
                            "| 0.100 (0..0.200) s more | 3 | a |")  # fmt: skip


def test_less_than_three_rounds_have_no_spread_and_no_figure() -> None:
    assert Spread.of([1.0, 2.0]).told("s") == "n/a (2 rounds)"
    assert [figures.short(value) for value in (0.01234, 1.5, 1234.5, 0.0)] == ["0.0123", "1.50", "1,234", "0"]


MEASURES = """
from figures import Figure, Goal

def measure(rounds, until):
    yield Figure("a thing", "s", ({},) * (rounds or 3), Goal("ours", 2.0))
"""


CUT = """
import os, signal
from figures import Figure

def measure(rounds, until):
    try:
        yield Figure("a thing", "s", (1.5, 1.25, 1.0), None, "a peer", (2.0, 2.0, 2.0))
        os.kill(os.getpid(), signal.{0})
    finally:
        os.kill(os.getpid(), signal.{0})  # timeout sends it twice
        print("in order", flush=True)
"""


def benched(folder: Path, *words: str, **benchmarks: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks with these in place of start_up, launch and others; page and figures are in the folder."""
    own = shutil.copytree(BENCHMARKS, folder / "scripts/benchmarks", dirs_exist_ok=True)
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs/performance.md").write_text(f"{page.BEGIN}\n{page.END}\n")
    (own / "figures.json").write_text("[]")
    for name, source in benchmarks.items():
        (own / f"{name}.py").write_text(source)
    # -B: a file written twice within a second would run its first bytecode
    asked = [sys.executable, "-B", own, *(benchmarks or ["start_up"]), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=False)


def test_a_missed_goal_fails_and_with_check_what_is_worse_than_committed(tmp_path: Path) -> None:
    assert benched(tmp_path, start_up=MEASURES.format("1.0")).returncode == 0
    assert benched(tmp_path, start_up=MEASURES.format("2.5")).returncode == 1
    done = benched(tmp_path, "--check", start_up=MEASURES.format("2.5"))
    said = "0 of 1 figures could be compared with committed ones, 0 of them worse"
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, said)


def test_a_figure_that_is_told_again_takes_the_place_of_what_was_told_before(tmp_path: Path) -> None:
    both = [MEASURES.format(value) for value in ("2.5", "1.0")]
    twice = both[0] + both[1].splitlines()[-1] + "\n"
    done = benched(tmp_path, "--keep", start_up=twice)
    assert (done.returncode, done.stdout.count("a thing")) == (0, 2), "the last one reaches the goal"
    assert [one.ours for one in figures.load(tmp_path / "scripts/benchmarks/figures.json")] == [(1.0,) * 3]


def test_where_nothing_could_be_measured_nothing_is_well(tmp_path: Path) -> None:
    missing = "from figures import Missing\ndef measure(*_):\n    raise Missing('it wants a card')\n    yield\n"
    done = benched(tmp_path, "--check", start_up=missing)
    assert (done.returncode, "not measured here: it wants a card" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("SystemExit('the engine is gone')", "the engine is gone\n"),
        ("RuntimeError('a CUDA error')", "RuntimeError: a CUDA error\n"),
    ],
)
def test_what_was_measured_before_and_after_a_benchmark_failed_is_kept(tmp_path: Path, raised: str, said: str) -> None:
    fails = f"def measure(*_):\n    raise {raised}\n    yield\n"
    whole = MEASURES.format("1.0")
    done = benched(tmp_path, "--keep", start_up=whole, launch=fails, pull=whole.replace("a thing", "another"))
    assert (done.returncode, done.stderr[-len(said) :]) == (1, said)
    assert "    launch failed:\n" in done.stdout
    kept = figures.load(tmp_path / "scripts/benchmarks/figures.json")
    assert [(one.what, one.ours) for one in kept] == [("another", (1.0,) * 3), ("a thing", (1.0,) * 3)]
    assert "| a thing |" in (tmp_path / "docs/performance.md").read_text()


@pytest.mark.parametrize(("name", "left"), [("SIGTERM", "in order\n"), ("SIGKILL", "")])
def test_of_a_benchmark_that_is_cut_short_what_was_measured_before_is_kept(
    tmp_path: Path, name: str, left: str
) -> None:
    done = benched(tmp_path, "--keep", start_up=CUT.format(name), launch=MEASURES.format("1.0"))
    assert done.returncode == -signal.Signals[name if not left else "SIGINT"], done.stderr
    assert done.stdout.endswith(f"        each round: ours 1.5, 1.25, 1; theirs 2, 2, 2\n{left}"), "and nothing begins"
    (kept,) = figures.load(tmp_path / "scripts/benchmarks/figures.json")
    assert kept.ours == (1.5, 1.25, 1.0)
    assert "| a thing |" in (tmp_path / "docs/performance.md").read_text()


LEFT = """
import time
from figures import Figure

def measure(rounds, until):
    yield Figure("time left", "s", (until - time.monotonic(),) * 3)
"""


def test_each_benchmark_may_use_an_equal_share_of_the_seconds_that_are_left(tmp_path: Path) -> None:
    benched(tmp_path, "--keep", "--seconds", "9000", start_up=LEFT, launch=LEFT, pull=LEFT)
    kept = {one.benchmark: one.ours[0] for one in figures.load(tmp_path / "scripts/benchmarks/figures.json")}
    assert kept == pytest.approx({"start_up": 3000, "launch": 4500, "pull": 9000}, abs=300)


def test_when_the_time_is_up_no_benchmark_begins(tmp_path: Path) -> None:
    done = benched(tmp_path, "--seconds", "1e-9", start_up=LEFT)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (1, ["    not measured here: the time is up"])
    done = benched(tmp_path, "--seconds", "0")
    assert (done.returncode, "use --seconds 600, or another number above 0" in done.stderr) == (2, True)


@pytest.mark.parametrize("words", [("--rounds", "0"), ("--rounds", "2", "--keep"), ("--rounds", "1", "--check")])
def test_too_few_rounds_are_refused_where_something_is_to_be_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = benched(tmp_path, *words)
    assert done.returncode == 2
    assert f"use --rounds {'1' if words[1] == '0' else '3'}" in done.stderr


def test_of_two_rounds_neither_goal_nor_figure_is_told(tmp_path: Path) -> None:
    done = benched(tmp_path, "--rounds", "2", start_up=MEASURES.format("2.5"))
    assert (done.returncode, done.stdout.splitlines()[2]) == (0, "        ours n/a (2 rounds)")


def test_names_may_follow_an_option(tmp_path: Path) -> None:
    done = benched(tmp_path, "--rounds", "3", "start_up", start_up=MEASURES.format("1.0"))
    assert (done.returncode, done.stdout.count("a thing")) == (0, 2), done.stderr


def test_a_benchmark_that_is_none_is_refused_with_those_that_there_are() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS, "speed"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no such benchmark: speed; choose from start_up, launch" in done.stderr


# Stands for a Python: prints its arguments and where it runs. With neither "-c" nor "-" it would run the benchmark or
# pytest.
TOLD = """#!/bin/sh
case $1 in -c | -) exit 0 ;; esac
echo "$PWD|$PYTHONPATH|$*"
"""


def scripted(folder: Path, name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script from `folder`, in a clone whose other programs are stand-ins; bin/python is a relative path
    there."""
    clone = folder / "a clone"
    (clone / "scripts").mkdir(parents=True)
    (folder / "bin").mkdir()
    for one in (name, "environment"):
        shutil.copy(ROOT / "scripts" / one, clone / "scripts" / one)
    fakes = {"bin/python": TOLD, "bin/nvidia-smi": "#!/bin/sh\n", "a clone/scripts/lab": "#!/bin/sh\nexit 1\n"}
    for path, text in {"a clone/scripts/ngcdl": "#!/bin/sh\necho ngcdl $*\n", **fakes, **variables}.items():
        if "/" in path:
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
    environment = {"PATH": f"{folder}/bin:{os.defpath}", "HOME": str(folder), "NGCDL_BENCH_PYTHON": "bin/python"}
    environment |= {key: value for key, value in variables.items() if "/" not in key}
    asked = [clone / "scripts" / name, *words]
    return subprocess.run(asked, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def test_paths_and_packages_are_those_of_the_folder_that_a_benchmark_is_started_in(tmp_path: Path) -> None:
    done = scripted(tmp_path, "bench", "gpu", NGCDL_CIFAR10="images", PYTHONPATH="wheels")
    clone = f"{tmp_path}/a clone"
    assert done.stdout == f"{tmp_path}|{clone}/toolkit:wheels|{clone}/scripts/benchmarks gpu\n", done.stderr


def test_the_look_at_a_gpu_finds_a_python_beside_the_caller_and_ends_with_what_leaves_disorder(tmp_path: Path) -> None:
    done = scripted(tmp_path, "gpu-check")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "-m pytest" in line]
    place = "tests/containers/test_trainer_"
    assert line.endswith("".join(f" {place}{name}.py" for name in ("graphed", "recorded", "graphs")))
    assert line.startswith(f"{tmp_path}/a clone|")
    assert f"{tmp_path}/a clone||scripts/benchmarks/gpu_apart.py" in done.stdout
    assert done.stdout.splitlines()[-1] == "ngcdl gpu"


def test_where_no_environment_can_be_made_the_look_at_a_gpu_reads_the_sampler_by_itself(tmp_path: Path) -> None:
    fakes = {"a clone/scripts/ngcdl": "#!/bin/sh\nexit 125\n", "bin/nvidia-smi": "#!/bin/sh\necho a card\n"}
    reader = "#!/bin/sh\ncase $PYTHONPATH in */containers) echo \"$2\" | grep -c 'nvml.read()' ;; esac\n"
    done = scripted(tmp_path, "gpu-check", "an image", **fakes, **{"bin/python": reader})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == ["1", HELD, "a card", "1"]
    assert done.stderr.endswith("container part skipped: ngcdl's environment could not be made\n")


HELD = "== the sampler against nvidia-smi: utilisation and memory should agree within a few percent"
