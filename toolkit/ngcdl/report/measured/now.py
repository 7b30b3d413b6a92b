"""What a run does now, by the last lines of its events and samples. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ngcdl.frozen import dataclass
from ngcdl.record import ACTIVITY
from ngcdl.report.measured.lines import Line, lines_in, number, text
from ngcdl.spec import USUAL_SAMPLE_SECONDS, samples_to_full

# Older samples say nothing about now: samples are a second apart, or as --sample-every says, so after an older one
# nothing measures the run any more.
FRESH_SECONDS, _FRESH_SAMPLES = 10.0, 2.5
_OF_A_CARD = ("gpu_percent", "memory_used_bytes", "memory_total_bytes", "watts", *ACTIVITY)


@dataclass(frozen=True)
class CardNow:
    """`index` of a MIG device is that on its card, whose own is `card_index`."""

    index: int | None = None
    gpu_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    watts: float | None = None
    error: str | None = None
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_bandwidth_percent: float | None = None
    node: str | None = None
    card_index: int | None = None


@dataclass(frozen=True)
class Now:
    """The step that was reported last, at `step_t` (s since the epoch), with its figures; and the last sample. None is
    unknown. `waited_share` (0..1) is the share of that step in which the run waited for its batch. `cores` is how many
    processors the run itself keeps busy; `host_cpu_percent`, 0..100, is the use of all processors. `steps` is how many
    there will be, and `left_seconds` how long the rest of them takes if they come as the last ones did."""

    step: int | None = None
    step_t: float | None = None
    loss: float | None = None
    examples_per_second: float | None = None
    seconds_per_batch: float | None = None
    waited_share: float | None = None
    cores: float | None = None
    host_cpu_percent: float | None = None
    memory_bytes: float | None = None
    memory_limit_bytes: float | None = None
    gpus: tuple[CardNow, ...] = ()
    steps: int | None = None
    left_seconds: float | None = None

    @property
    def percent(self) -> int | None:
        """Which part of its steps the run has done, 0..100; None if that is unknown."""
        done, steps = self.step, self.steps
        return None if done is None or not steps or not 0 <= done <= steps else 100 * done // steps


def now(
    events: Iterable[Line],
    samples: Iterable[Line],
    clock: float,
    sample_seconds: float = USUAL_SAMPLE_SECONDS,
    steps: float | None = None,
) -> Now:
    """Read the last steps and the last full sample. A sample older than FRESH_SECONDS at `clock` (s since the epoch),
    or than some samples that are `sample_seconds` apart, does not count. `steps`: how many there will be, if the events
    don't say so."""
    recent: list[Line] = []  # the steps of this attempt: what an earlier one reached may be done again
    for event in events:
        if event.get("event") == "step" and number(event.get("step")) is not None:
            recent.append(event)
        elif event.get("event") == "start":
            recent.clear()
    step: Line = recent[-1] if recent else {}
    steps = number(step.get("steps")) or steps
    last = deque(samples, maxlen=samples_to_full(sample_seconds))
    sample = next((one for one in reversed(last) if "host_cpu_percent" in one), last[-1] if last else {})
    taken = number(sample.get("t"))
    if taken is None or clock - taken > max(FRESH_SECONDS, _FRESH_SAMPLES * sample_seconds):
        sample = {}
    count, seconds, waited = (
        number(step.get(name)) for name in ("step", "seconds_per_batch", "input_seconds_per_batch")
    )
    percent = number(sample.get("container_cpu_percent"))
    return Now(
        step=None if count is None else int(count),
        step_t=number(step.get("t")),
        loss=number(step.get("loss")),
        examples_per_second=number(step.get("examples_per_second")),
        seconds_per_batch=seconds,
        waited_share=min(waited / seconds, 1.0) if waited is not None and seconds else None,
        cores=None if percent is None else percent / 100,
        host_cpu_percent=number(sample.get("host_cpu_percent")),
        memory_bytes=number(sample.get("memory_bytes")),
        memory_limit_bytes=number(sample.get("memory_limit_bytes")),
        gpus=tuple(map(_card, lines_in(sample.get("gpus")))),
        steps=None if steps is None else int(steps),
        left_seconds=_left(recent, steps, clock),
    )


def _left(recent: Sequence[Line], steps: float | None, clock: float) -> float | None:
    """Return how many seconds the steps up to `steps` will still take; None where that is unknown, or overdue."""
    told = [(number(one.get("t")), number(one.get("step"))) for one in (recent[0], recent[-1])] if recent else []
    known = [(t, count) for t, count in told if t is not None and count is not None]
    if steps is None or len(known) < 2:
        return None
    (began, first), (t, last) = known
    if t <= began or last <= first or last > steps:
        return None
    left = (steps - last) * (t - began) / (last - first) - max(clock - t, 0.0)
    return left if left > 0 else None


def _card(card: Line) -> CardNow:
    index, card_index = (None if (n := number(card.get(name))) is None else int(n) for name in ("index", "card_index"))
    figures = {name: number(card.get(name)) for name in _OF_A_CARD}
    error, node = text(card.get("error")), text(card.get("node"))
    return CardNow(index, error=error, node=node, card_index=card_index, **figures)
