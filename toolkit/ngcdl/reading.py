"""Reads a stored run into the story that the report draws, in two processes if its files are long.

The second process, a fork, reads the end of the events, while this process reads their beginning and the samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ngcdl.folder import EVENTS, lines, size
from ngcdl.forked import meanwhile
from ngcdl.record import Run
from ngcdl.report.measured.lines import number
from ngcdl.report.shown.columns import InTwo, read_story, rest_of, told_in_two
from ngcdl.report.shown.story import Story
from ngcdl.storing.nodesamples import sample_files, samples
from ngcdl.telemetry.processors import processors

# From how many bytes of events on a second process pays off: reading these takes 0.15 s, a fork and the return of its
# figures some 0.03 s.
LEAST_BYTES = 10_000_000
# A byte of samples costs as much as this many bytes of events (docs/experiments.md: 0.99 s for 47 MB, 2.3 for 159 MB).
_OF_A_SAMPLE = 1.5
# How much of the end of the events is searched for the last step: only some hundred bytes follow it.
_END_BYTES = 65_536

T = TypeVar("T")


def story_of(run: Run, folder: Path) -> Story:
    """Read the run stored in `folder`."""
    events = folder / EVENTS
    end = size(events)
    work = end + int(_OF_A_SAMPLE * sum(map(size, sample_files(folder))))
    # the first steps are always read by this process: they tell when the samples of the training begin
    begin = end - min(work // 2, end - end // 8)
    if end - begin < LEAST_BYTES or processors() < 2:
        return read_story(run, lines(events), samples(folder))
    return in_two(run, folder, begin, end)


def in_two(run: Run, folder: Path, begin: int, end: int) -> Story:
    """Read the run with a second process, which reads the events from byte `begin` to `end`."""
    events = folder / EVENTS
    theirs = lines(events, (begin, end))
    with meanwhile(lambda: _warned(lambda: rest_of(run.started, theirs))) as process:
        parts = InTwo(lines(events, (0, begin)), theirs, lambda: _said_here(process.result()), _last(events, end))
        return told_in_two(run, parts, lambda: samples(folder))


def _warned(work: Callable[[], T]) -> tuple[T, list[str]]:
    """Return the result of `work`, with its warnings: those of a forked process reach nobody."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        return work(), [str(one.message) for one in found]


def _said_here(result: tuple[T, list[str]] | None) -> T | None:
    if result is None:
        return None
    for text in result[1]:
        warnings.warn(text, stacklevel=1)
    return result[0]


def _last(events: Path, end: int) -> float | None:
    """Return the time of the last step, None if there is none near the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these lines are read once more
        steps = [line for line in lines(events, (max(end - _END_BYTES, 0), end)) if line.get("event") == "step"]
    return next((t for line in reversed(steps) if (t := number(line.get("t"))) is not None), None)
