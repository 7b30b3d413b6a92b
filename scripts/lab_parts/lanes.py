"""Runs all tests, in groups that two lanes take from one queue, and prints one closing line: `N passed, N failed`.

    lanes.py PYTHON FRAMEWORKS_PYTHON

For a machine of two cores: what waits for engines goes beside what computes, whichever of them takes longer there. What
mostly waits, for an engine to come back, a registry to give in or a queue to move, has a lane of its own. What a
group wrote is printed when it has ended.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

WAITING = ("tests/live/test_engine_lost.py", "tests/live/test_pulls_broken.py")


@dataclass(frozen=True)
class Group:
    """`name` is one word. `words` for pytest. `is_trainer`: for the environment with the frameworks."""

    name: str
    words: tuple[str, ...]
    is_trainer: bool = False


def groups() -> list[Group]:
    """Give what the two lanes take, in this order: the longest early. Live tests stay one group: some of them cut
    their engine's lines, or look at all of its containers."""
    waiting = tuple(f"--ignore={one}" for one in WAITING)
    named = ("tests/lab", "tests/slurm", "tests/compose", "tests/containers", "tests/live", "tests/cli")
    return [
        Group("bench", ("tests/lab",)),
        Group("trainer", ("tests/containers",), is_trainer=True),
        Group("live", ("tests/live", *waiting)),
        Group("commands", ("tests/cli",)),
        Group("ngcdl", ("tests", *(f"--ignore={one}" for one in named))),
        Group("compose", ("tests/compose",)),
    ]


class Lanes:
    """`pythons`: that of ngcdl, and that with the frameworks. What came out is collected in `results`."""

    def __init__(self, pythons: tuple[str, str], results: Path) -> None:
        self._pythons, self._results = pythons, results
        self._printing = threading.Lock()
        self.codes: list[int] = []

    def all(self, lanes: Iterable[Iterable[Group]]) -> None:
        """Run the groups of all lanes; several lanes may be one queue. Ctrl-C reaches what runs by itself."""
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
        words.append(f"--junitxml={self._results / group.name}.xml")
        # PyTorch's threads wait for each other by spinning: beside something else two are many times slower than one.
        environment = os.environ | ({"OMP_NUM_THREADS": "1"} if group.is_trainer else {})
        done = subprocess.run(
            [self._pythons[group.is_trainer], *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=environment,
        )  # fmt: skip
        with self._printing:
            ended = f", ended with {done.returncode}" if done.returncode else ""  # below 0: by a signal
            print(done.stdout, f"== {group.name}: {time.monotonic() - began:.0f} s{ended}\n", sep="", flush=True)
            self.codes.append(done.returncode)


def taken(waiting: queue.SimpleQueue[Group]) -> Iterable[Group]:
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


def summed(results: Path, names: Iterable[str]) -> str:
    """Count what these groups came to. One that left nothing, such as one that was killed, is a failure."""
    total = failed = skipped = 0
    for path in (results / f"{name}.xml" for name in names):
        if not path.exists():
            total, failed = total + 1, failed + 1
            continue
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    return f"{total - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def main(python: str, frameworks: str) -> int:
    shared: queue.SimpleQueue[Group] = queue.SimpleQueue()
    waiting = [Group("waiting", WAITING), Group("slurm", ("tests/slurm",))]
    names = [group.name for group in (*groups(), *waiting)]
    for group in groups():
        shared.put(group)
    with tempfile.TemporaryDirectory() as folder:
        lanes = Lanes((python, frameworks), Path(folder))
        lanes.all([taken(shared), taken(shared), waiting])
        print(summed(Path(folder), names))
    return 0 if lanes.codes == [0] * len(names) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
