"""The headline sentence of a report: what its runs showed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ngcdl.figures import measured
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import Comparison
from ngcdl.report.measured import naming
from ngcdl.report.measured.use import use
from ngcdl.report.measured.words import duration
from ngcdl.report.shown import likeness
from ngcdl.report.shown.story import Story


def verdict(stories: Sequence[Story], comparison: Comparison | None = None, title: str = "") -> str:
    """Summarize one run, several side by side, or a comparison; only a comparison has rounds, and so a ratio. What the
    `title` above it says is not repeated."""
    if comparison:
        synthetic = " This was on SYNTHETIC data, nothing real." if comparison.synthetic else ""
        return f"{in_words.verdict(comparison)}{synthetic}"
    return _of_one(stories[0], title) if len(stories) == 1 else _of_several(stories)


def _of_one(story: Story, title: str) -> str:
    run = story.run
    head = f"{naming.what(run)} on {naming.on(run)}" if story.is_training or run.device else naming.what(run)
    it = "It" if head == title else head
    if run.is_waiting:
        reason = run.reason or ""  # of a cluster's queue, or: waits since ... for 1 free GPU
        return f"{head} {reason}." if reason.startswith("waits ") else f"{it} is waiting: {reason}."
    if run.status == "running":
        return f"{it} is still running: {_reached(story)}."
    ended = {"failed": "failed", "interrupted": "was interrupted", "lost": "was lost: nobody saw how it ended"}
    if run.status in ended:
        # if somebody ended the run, words in its log are not the reason
        why = (run.diagnosis.cause if run.diagnosis and run.status == "failed" else None) or run.reason
        code = f" with exit code {run.exit_code}" if run.exit_code else ""
        text = f"{it} {ended[run.status]}{code}{f': {why.rstrip(chr(46))}' if why else ''}"
        text += f" (its log: ngcdl logs {run.id})" if run.status == "failed" and not why else ""
        return f"{text}; {_reached(story)}." if run.summary.steps is not None else f"{text}."
    lacking = f" ({run.reason})" if run.reason and run.summary.steps is None else ""
    used = "" if story.is_training or not run.summary.gpus or (found := use([run])).why else f" {found}."
    reached = _reached(story, "It took ") if head == title else f"{head}: {_reached(story)}"
    return f"{reached}{lacking}.{used}"


def _reached(story: Story, took: str = "") -> str:
    """Say what a run reached; `took` comes before its duration if that comes first."""
    run, figures = story.run, story.run.summary
    words = []
    if figures.examples_per_second is not None:
        words.append(f"{rate(figures.examples_per_second)} examples/s (median)")
    if figures.steps is not None:
        seconds = _trained_seconds(story)
        words.append(f"{figures.steps:,} steps{f' in {duration(seconds)}' if seconds is not None else ''}")
    elif run.seconds is not None:
        wait = " including the wait for a node and the pull" if run.kind.is_cluster else ""
        words.append(f"{'' if words else took}{duration(run.seconds)}{wait}")
    if why := naming.without_result(run, story.training.start):
        words.append(why)
    if figures.precision_at_1 is not None:
        words.append(f"precision @ 1 = {figures.precision_at_1:.3f}")
    if run.is_synthetic:
        words.append("on SYNTHETIC data, not real data")
    return ", ".join(words) or f"nothing {'is measured yet' if run.status == 'running' else 'was measured'}"


def _trained_seconds(story: Story) -> float | None:
    """Return how long the run took, in s; on a cluster, where the run may have waited, how long its steps took. None if
    that is unknown, or if the run was resumed: its number of steps then includes those of earlier runs."""
    if story.run.workload.get("resume"):
        return None
    if not story.run.kind.is_cluster:
        return story.run.seconds
    return sum(end - begin for begin, end in story.training.spans) or None


def _of_several(stories: Sequence[Story]) -> str:
    first = stories[0]
    refusals = {story.letter: likeness.refused(first, story) for story in stories[1:]}
    alike = [story for story in stories[1:] if not refusals[story.letter]]
    if not alike:
        return f"These {len(stories)} runs can't be compared: {_whys(refusals)}."
    figures = [
        f"{story.letter}: {rate(story.run.summary.examples_per_second)} examples/s on {naming.on(story.run)}"
        for story in (first, *alike)
    ]
    left = [letter for letter, why in refusals.items() if why]
    text = "; ".join(figures)
    text += f"; {', '.join(left)} can't be compared with {first.letter}" if left else ""
    synthetic = ", on SYNTHETIC data" if any(story.run.is_synthetic for story in (first, *alike)) else ""
    return f"{text}{synthetic}. One run of each has no spread, so no ratio is given; ngcdl compare measures one."


def _whys(refusals: Mapping[str, Sequence[str]]) -> str:
    """Say why runs can't be compared; with several other runs, each reason once, with the runs that it refuses."""
    if len(refusals) == 1:
        return ", ".join(next(iter(refusals.values())))
    kept_out: dict[str, list[str]] = {}
    for letter, reasons in refusals.items():
        for reason in reasons:
            # "A and B: ..." and "A and C: ..." both become "A: ...", so that the reason is told once
            said = reason.removeprefix(f"{letter}: ").replace(f" and {letter}: ", ": ", 1)
            kept_out.setdefault(said.partition(" (")[0], []).append(letter)
    return "; ".join(f"{reason} ({', '.join(letters)})" for reason, letters in kept_out.items())


def rate(value: float | None) -> str:
    """Write a rate: 1453.0 -> 1,453; 30.12 -> 30.1."""
    return measured(value, 0 if value is not None and abs(value) >= 1000 else 1)
