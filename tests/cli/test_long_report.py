"""`ngcdl report` on a run whose files are long enough for a second process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from house import House, until
from made_runs import Made

from ngcdl.folder import EVENTS
from ngcdl.reading import LEAST_BYTES


@pytest.fixture
def long(house: House) -> House:
    folder = Made(steps=20_000).keep(house.store, "long")
    text = (folder / EVENTS).read_text()
    (folder / EVENTS).write_text(text * (6 * LEAST_BYTES // len(text)))
    return house


# The report must not be done before a busy machine has sent the signal. The second process waits as well: nobody reads
# its output. One long sleep would miss a signal that comes just before it: Python handles it only afterwards.
READS_LONG = "import time; reading.told_in_two = lambda *_: [time.sleep(0.1) for _ in range(6000)]; "


def ngcdl(processors: int, *words: str, more: str = "") -> list[str]:
    """Return argv of an ngcdl that sees this many processors: the machine of the test may have only one."""
    script = f"from ngcdl import reading, __main__; {more}reading.processors = lambda: {processors}; __main__.main()"
    return [sys.executable, "-P", "-c", script, *words]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_report_that_is_ended_leaves_no_process_behind(long: House, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        ngcdl(2, "report", "long", more=READS_LONG), env=long.environment(), cwd=long.home, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    child = until(lambda: children.read_text().split(), "the second process")[0]
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    assert process.returncode == code
    assert said in ("", "ngcdl: interrupted\n")
    until(lambda: not Path(f"/proc/{child}").exists(), "its end")


def test_all_that_a_report_writes_is_the_same_by_two_processes_and_by_one(long: House) -> None:
    events = long.store.folder("long") / EVENTS
    events.write_bytes(events.read_bytes()[: 2 * LEAST_BYTES])  # its last line is torn
    words = ["report", "long", "--html", "x.html", "--markdown", "x.md", "--csv", "x.csv"]
    found = []
    for processors in (2, 1):
        done = subprocess.run(
            ngcdl(processors, *words), env=long.environment(), cwd=long.home, check=True, capture_output=True
        )
        found.append([done.stdout, done.stderr, *((long.home / name).read_bytes() for name in words[3::2])])
    assert found[0] == found[1]
