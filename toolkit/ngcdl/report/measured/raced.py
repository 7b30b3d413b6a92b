"""The results of consecutive trainings from scratch: the events of cifar10-94. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.report.measured.lines import Line, mean, number, numbers
from ngcdl.report.measured.spread import Spread, duration

EVENTS = ("raced", "certified")


def in_words(events: Sequence[Line]) -> str | None:
    """Report the median time, the mean accuracy and how certain that is; None if there were no such trainings."""
    raced = [event for event in events if event.get("event") == "raced"]
    seconds, right = Spread.of(numbers(raced, "seconds")), numbers(raced, "precision_at_1")
    accuracy = mean(right)
    if not seconds or accuracy is None:
        return None
    text = f"tested after {duration(seconds)}: precision @ 1 = {accuracy:.4f}"
    if len(raced) == 1:
        return text
    text = f"{len(raced)} times, {text} on average ({min(right):.4f}..{max(right):.4f})"
    sure = next((event for event in events if event.get("event") == "certified"), {})
    bound, chance = number(sure.get("bound")), number(sure.get("chance"))
    return text if bound is None or chance is None else f"{text}; above {bound:g}: p = {chance:.2g} (t-test)"
