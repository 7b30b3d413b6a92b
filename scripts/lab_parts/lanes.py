"""Run all tests, in groups that parallel lanes take one after another.

    lanes.py early RESULTS PYTHON                   what needs neither lab nor frameworks, while those are made
    lanes.py late RESULTS PYTHON FRAMEWORKS_PYTHON  everything else
    lanes.py sum RESULTS                            failures and a summary of both: `N passed, N failed`

Tuned for two cores: two lanes start with the compute-bound groups, and a third starts from the other end, with groups
that mostly wait: for an engine to come back, a registry to answer or a queue to move. A fourth joins them once the
early tests have ended, which until then kept as many processes busy. A group's output is printed when the group has
ended. RESULTS is a folder; the exit code is 1 if a group failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def live(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/live/test_{name}.py" for name in names)


# The trainer's most compute-intensive tests.
NETWORKS = tuple(f"tests/containers/test_trainer_{name}.py" for name in (
    "agreement", "precision", "compiled", "frameworks", "feeds", "plain", "layers", "race_net",
))  # fmt: skip
WAITING = live("engine_lost", "pulls_broken", "slow_starts")
# The live tests that train for seconds or minutes: those bound by the CPU.
TRAININGS = live(
    "out_of_memory", "bottlenecks", "comparisons_in_images", "autotune", "pictures", "replays", "held_back",
    "replicas_in_images", "users_lines", "feeds_in_images", "words", "gpus",
)  # fmt: skip
PULLS = live("pulls_kept", "pulls_refused", "doctor", "doctor_engine", "doctor_registry", "judged")
NAMED = ("tests/lab", "tests/slurm", "tests/compose", "tests/containers", "tests/live", "tests/cli")


@dataclass(frozen=True)
class Group:
    """`name` is one word; `words` are pytest's arguments; `is_trainer`: run with the frameworks' environment."""

    name: str
    words: tuple[str, ...]
    is_trainer: bool = False


def early() -> list[Group]:
    return [Group("ngcdl", ("tests", "-m", "not lab", *without(*NAMED)))]


def late() -> list[Group]:
    """Return the compute-bound groups first, those that mostly wait last."""
    return [
        Group("networks", NETWORKS, is_trainer=True),
        Group("trainings", TRAININGS),
        Group("trainer", ("tests/containers", *without(*NETWORKS)), is_trainer=True),
        Group("live", ("tests/live", *without(*WAITING, *TRAININGS, *PULLS))),
        Group("parts", ("-m", "lab", *marked())),
        Group("compose", ("tests/compose",)),
        Group("lab", ("tests/lab",)),
        Group("pulls", PULLS),
        Group("commands", ("tests/cli",)),
        Group("slurm", ("tests/slurm",)),
        Group("waiting", WAITING),
    ]


def without(*paths: str) -> tuple[str, ...]:
    return tuple(f"--ignore={path}" for path in paths)


def marked() -> tuple[str, ...]:
    """Return the other files with tests that need the lab: pytest takes seconds to collect all to find these few."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    return tuple(name for name in files if not name.startswith(NAMED) and "mark.lab" in (ROOT / name).read_text())


class Lanes:
    """`pythons`: ngcdl's, and the one with the frameworks. JUnit files, exit codes and the tests' own files go to
    `results`, the exit codes also to `codes`."""

    def __init__(self, pythons: Sequence[str], results: Path) -> None:
        self._pythons, self._results = pythons, results
        self._printing = threading.Lock()
        self.codes: list[int] = []

    def all(self, lanes: Iterable[Iterable[Group]]) -> None:
        """Run the groups of all lanes. The children get Ctrl-C directly from the terminal."""
        threads = [threading.Thread(target=self._lane, args=(lane,)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._run(group)

    def _run(self, group: Group) -> None:
        began = time.monotonic()
        words = ["-P", "-m", "pytest", "-p", "no:cacheprovider", "--durations=10", *group.words]
        # Folders of its own: of those that they share, each pytest deletes the oldest, and one fails if two do.
        words.append(f"--basetemp={self._results / group.name}")
        words.append(f"--junitxml={self._results / group.name}.xml")
        # PyTorch's threads spin while they wait for each other: on a busy machine two take many times as long as one.
        environment = os.environ | ({"OMP_NUM_THREADS": "1"} if group.is_trainer else {})
        done = subprocess.run(
            [self._pythons[group.is_trainer], *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=environment,
        )  # fmt: skip
        (self._results / f"{group.name}.code").write_text(str(done.returncode))
        with self._printing:
            ended = f", ended with {done.returncode}" if done.returncode else ""  # below 0: killed by a signal
            print(done.stdout, f"== {group.name}: {time.monotonic() - began:.0f} s{ended}\n", sep="", flush=True)
            self.codes.append(done.returncode)


def after(code: Path, shared: deque[Group], pause: Callable[[], object] = lambda: time.sleep(1)) -> Iterable[Group]:
    """Wait until the early tests have left their exit code, then yield groups from the end of `shared`."""
    while shared and not code.exists():
        pause()
    yield from taken(shared.pop)


def taken(take: Callable[[], Group]) -> Iterable[Group]:
    """Yield groups until `take` raises IndexError; several lanes may share one deque."""
    while True:
        try:
            group = take()
        except IndexError:
            return
        yield group


@dataclass
class Sum:
    """Test counts by outcome; `failures` has one line per failed test: its name and the start of the reason."""

    total: int = 0
    skipped: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, group: str, path: Path) -> None:
        """Count a group's results. A group that left none, for example because it was killed, or that failed without a
        test that did, counts as one failure."""
        if not path.exists():
            self.total, self.failed = self.total + 1, self.failed + 1
            self.failures.append(f"failed: {group} left no results")
            return
        before = self.failed
        root = ElementTree.parse(path).getroot()
        for suite in root.iter("testsuite"):
            self.total += int(suite.get("tests", 0))
            self.failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            self.skipped += int(suite.get("skipped", 0))
        for case in root.iter("testcase"):
            for about in (*case.findall("failure"), *case.findall("error")):
                why = " ".join(about.get("message", "").split())
                self.failures.append(f"failed: {case.get('classname')}::{case.get('name')}  {why}"[:300])
        code = path.with_suffix(".code").read_text()
        if code != "0" and self.failed == before:
            self.total, self.failed = self.total + 1, self.failed + 1
            self.failures.append(f"failed: {group} ended with {code}, though none of its tests failed")

    def __str__(self) -> str:
        line = f"{self.total - self.failed - self.skipped} passed, {self.failed} failed"
        return "\n".join([*self.failures, line + (f", {self.skipped} skipped" if self.skipped else "")])


def main(what: str, folder: str, *pythons: str) -> int:
    results = Path(folder)
    if what == "sum":
        found = Sum()
        for group in (*early(), *late()):
            found.add(group.name, results / f"{group.name}.xml")
        print(found)
        return int(found.failed > 0)
    lanes = Lanes(pythons, results)
    if what == "early":
        lanes.all([early()])
    else:
        shared = deque(late())
        joining = after(results / f"{early()[0].name}.code", shared)
        lanes.all([taken(shared.popleft), taken(shared.popleft), taken(shared.pop), joining])
    return int(any(lanes.codes))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
