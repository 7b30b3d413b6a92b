"""What a run does now is read from the last lines of its files; a figure that they don't have is unknown."""

from __future__ import annotations

from typing import Any

from ngcdl.report.measured.now import FRESH_SECONDS, CardNow, Now, now

STEP: dict[str, Any] = {"event": "step", "t": 95.0, "step": 40, "loss": 2.5, "examples_per_second": 900.0}
CARD: dict[str, Any] = {"index": 0, "gpu_percent": 47, "memory_used_bytes": 7, "memory_total_bytes": 9, "watts": 61.0}
WORKED = {"sm_active_percent": 12.5, "sm_occupancy_percent": 7.0, "tensor_active_percent": 3.0}
SAMPLE: dict[str, Any] = {"t": 99.0, "host_cpu_percent": 95.0, "container_cpu_percent": 190.0, "memory_bytes": 5}


def test_the_last_step_and_the_last_sample_are_now() -> None:
    waiting = {**STEP, "step": 50, "seconds_per_batch": 0.1, "input_seconds_per_batch": 0.06}
    read = now(
        [STEP, waiting, {"event": "eval", "t": 96.0, "step": 55}],
        [{"t": 98.0}, {**SAMPLE, "gpus": [CARD, CARD | WORKED]}],
        100.0,
    )
    assert (read.step, read.step_t, read.loss, read.examples_per_second) == (50, 95.0, 2.5, 900.0)
    assert (read.waited_share, read.cores, read.host_cpu_percent, read.memory_bytes) == (0.6, 1.9, 95.0, 5)
    assert read.gpus == (CardNow(0, 47, 7, 9, 61.0, None), CardNow(0, 47, 7, 9, 61.0, None, 12.5, 7.0, 3.0, None))


def test_the_rest_takes_as_long_as_the_last_steps_did_pauses_included() -> None:
    steps = [{**STEP, "step": at, "t": t} for at, t in ((10, 50.0), (20, 60.0), (30, 90.0))]
    assert now(steps, [], 90.0, steps=100).left_seconds == 140.0
    assert now(steps, [], 110.0, steps=100).left_seconds == 120.0
    assert now(steps, [], 231.0, steps=100).left_seconds is None, "it is overdue"
    assert now(steps[:1], [], 90.0, steps=100).left_seconds is None
    assert now([{**STEP, "t": None}, *steps], [], 90.0, steps=100).left_seconds is None
    assert now(steps, [], 90.0).left_seconds is None
    assert now(steps, [], 90.0, steps=29).left_seconds is None, "it went beyond them"
    assert now([*steps, {**STEP, "step": 31}, {"event": "start"}, steps[2]], [], 90.0, steps=100).left_seconds is None


def test_a_script_may_say_itself_how_many_steps_there_will_be() -> None:
    steps: list[dict[str, Any]] = [{**STEP, "step": at, "t": 80.0 + at, "steps": 50} for at in (10, 20)]
    read = now(steps, [], 100.0, steps=70)
    assert (read.steps, read.percent, read.left_seconds) == (50, 40, 30.0)
    shares = [
        now([{**STEP, "step": at}], [], 100.0, steps=n).percent for at, n in ((0, 50), (51, 50), (1, 0), (1, None))
    ]
    assert shares == [0, None, None, None]
    assert now([{**STEP, "steps": "many"}], [], 100.0).steps is None


def test_an_old_sample_and_what_an_earlier_attempt_reached_are_not_now() -> None:
    assert now([], [SAMPLE], 99.0 + FRESH_SECONDS + 1) == Now()
    assert now([STEP, {"event": "start", "t": 96.0}], [], 100.0) == Now()


def test_between_close_samples_the_last_full_one_is_now_and_far_ones_are_older() -> None:
    brief = {"t": 99.1, "gpus": [{"index": 0, "gpu_percent": 50}]}
    full = {**SAMPLE, "gpus": [CARD]}
    assert now([], [full, brief, brief], 100.0, 0.1) == now([], [full], 100.0)
    assert now([], [full], 99.0 + 70, 30.0).memory_bytes == 5
    assert now([], [full], 99.0 + 80, 30.0) == Now()


def test_lines_that_a_program_wrote_wrong_are_unknown() -> None:
    wrong = {"event": "step", "t": "x", "step": 3, "loss": "nan", "seconds_per_batch": 0, "input_seconds_per_batch": 1}
    assert now([wrong], [{"t": 99.0, "gpus": [1, {"index": "x"}], "memory_bytes": None}], 100.0) == Now(
        step=3, seconds_per_batch=0, gpus=(CardNow(),)
    )
