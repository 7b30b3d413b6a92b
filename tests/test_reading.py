"""A run read by two processes equals one read by one, whatever becomes of the second."""

from __future__ import annotations

import json
import os
import pickle
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import STARTED, Made

from ngcdl.folder import EVENTS, lines
from ngcdl.reading import LEAST_BYTES, in_two, story_of
from ngcdl.record import Run
from ngcdl.report.shown.columns import MOST_SELDOM, InTwo, TooManyKinds, read_story, rest_of, told_in_two
from ngcdl.report.shown.page import page
from ngcdl.report.shown.story import Story
from ngcdl.storing.nodesamples import samples
from ngcdl.storing.store import Store
from ngcdl.telemetry.processors import processors

pytestmark = pytest.mark.usefixtures("own_threads")

RUN = Run("x", "finished", STARTED, STARTED + 100)
TIMES = st.one_of(st.integers(0, 60).map(lambda t: STARTED + t), st.sampled_from([None, "5"]))
STEPS = st.builds(
    lambda t, step, loss: {"event": "step", "t": t, "step": step, "loss": loss, "examples_per_second": 5.0},
    TIMES, st.integers(0, 50), st.one_of(st.floats(0, 9), st.none()),
)  # fmt: skip
OTHERS = st.one_of(
    st.builds(lambda step: {"event": "start", "resumed_from_step": step}, st.one_of(st.none(), st.integers(0, 50))),
    st.builds(lambda step, loss: {"event": "epoch", "step": step, "loss": loss}, st.integers(0, 50), st.floats(0, 9)),
    st.builds(lambda step: {"event": "eval", "step": step, "precision_at_1": 0.5}, st.integers(0, 50)),
    st.sampled_from([{"event": "raced", "seconds": 3.0}, {"event": ["odd"]}, {"event": "error", "kind": "x"}, {}]),
)
EVENTS_OF_A_RUN = st.lists(st.one_of(STEPS, STEPS, STEPS, OTHERS), max_size=150)
SAMPLED = [{"t": STARTED + t, "cpu_percents": [t, 100 - t / 3], "host_cpu_percent": t / 7} for t in range(100)]


@given(EVENTS_OF_A_RUN, st.integers(0, 150), st.one_of(st.none(), st.integers(0, 60).map(lambda t: STARTED + t)))
def test_events_read_in_two_parts_are_the_same_wherever_they_are_parted(
    events: list[Any], place: int, last: float | None
) -> None:
    rest = pickle.dumps(rest_of(STARTED, events[place:]))
    whole = repr(read_story(RUN, events, SAMPLED))  # NaN != NaN, but the reprs match
    found = InTwo(events[:place], [], lambda: pickle.loads(rest), last)
    assert repr(told_in_two(RUN, found, lambda: SAMPLED)) == whole
    left_to_us = InTwo(events[:place], events[place:], lambda: None, last)
    assert repr(told_in_two(RUN, left_to_us, lambda: SAMPLED)) == whole


def test_a_rest_of_other_lines_than_steps_is_not_kept() -> None:
    with pytest.raises(TooManyKinds):
        rest_of(STARTED, [{"event": "mine"}] * (MOST_SELDOM + 1))


def parted(folder: Path, share: float) -> Story:
    end = (folder / EVENTS).stat().st_size
    return in_two(RUN, folder, int(share * end), end)


def whole(folder: Path) -> Story:
    return read_story(RUN, lines(folder / EVENTS), samples(folder))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return Made(steps=5000, held=True).keep(Store(tmp_path), "made")


def children() -> str:
    """Return the processes that this thread has started and not waited for: another test may have left some."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.999, 1.0])
def test_two_processes_read_what_one_reads_and_none_is_left(kept: Path, share: float) -> None:
    before = children()
    with (kept / EVENTS).open("a") as file:
        file.write('{"event":"start","resumed_from_step":3000}\n{"event":"step","t":17000')  # torn
    assert repr(parted(kept, share)) == repr(whole(kept))
    assert page([parted(kept, share)]) == page([whole(kept)])
    assert children() == before


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_line_that_can_t_be_read_is_told_whichever_process_reads_it(kept: Path, share: float) -> None:
    text = (kept / EVENTS).read_text().splitlines(keepends=True)
    (kept / EVENTS).write_text("".join([*text[: len(text) // 2], "torn\n", *text[len(text) // 2 :]]))
    with pytest.warns(UserWarning, match="one line can't be read"):
        parted(kept, share)


def test_what_is_written_meanwhile_is_left_for_the_next_time(kept: Path) -> None:
    end, before = (kept / EVENTS).stat().st_size, repr(whole(kept))
    with (kept / EVENTS).open("a") as file:
        file.write(json.dumps({"event": "step", "t": STARTED + 999.0, "step": 5000, "loss": 1.0}) + "\n")
    assert repr(in_two(RUN, kept, end // 3, end)) == before


def test_other_lines_than_steps_without_end_are_read_by_one(kept: Path) -> None:
    with (kept / EVENTS).open("a") as file:
        file.write('{"event":"mine"}\n' * (MOST_SELDOM + 1))
    assert repr(parted(kept, 0.2)) == repr(whole(kept))


def children_faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def test_a_short_run_and_one_processor_have_no_second_process(kept: Path) -> None:
    before = children_faults()
    assert repr(story_of(RUN, kept)) == repr(whole(kept))
    text = (kept / EVENTS).read_text()
    (kept / EVENTS).write_text(text * (2 * LEAST_BYTES // len(text)))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        alone = repr(story_of(RUN, kept))
        assert children_faults() == before
    finally:
        os.sched_setaffinity(0, allowed)
    assert repr(story_of(RUN, kept)) == alone
    assert (children_faults() > before) == (processors() >= 2)
