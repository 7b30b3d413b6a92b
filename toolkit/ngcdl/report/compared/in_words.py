"""A comparison as text: the table of its arms, the ratios with their spread, what was refused, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ngcdl import terminal_text
from ngcdl.figures import NOT_AVAILABLE, measured, number
from ngcdl.report.compared import theirs
from ngcdl.report.compared.arm import counted
from ngcdl.report.compared.comparison import ONE_PAIR, Comparison, Ratio, Reached
from ngcdl.report.compared.pairs import Published
from ngcdl.report.compared.scaling import UNITS
from ngcdl.report.compared.unlike import Refusal, written
from ngcdl.report.measured.case import IDLE_PERCENT
from ngcdl.report.measured.spread import figure, times


def lines(it: Comparison, width: int | None = None) -> Iterator[str]:
    """Yield all lines to print, the verdict last; the table fits `width` columns if that is given."""
    yield from terminal_text.table(_rows(it), width)
    yield ""
    if it.synthetic:
        yield f"SYNTHETIC data, nothing real ({it.synthetic})"
    yield from ratios(it)
    yield from it.diagnosis
    if it.published:
        yield from _theirs(it.published)
    elif it.is_training and not theirs.table7(it.workload or ""):  # that table would fill a page
        yield from _also(theirs.beside(it.workload or "", it.vary))
    yield verdict(it)


def ratios(it: Comparison) -> Iterator[str]:
    """Yield each ratio with its spread, then what was refused."""
    for ratio in it.ratios:
        yield f"{ratio.arm} / {ratio.against}: {times(ratio.times)}, {ratio.times.rounds} rounds"
    for refusal in it.refused:
        yield _refused(refusal)


def table(it: Comparison) -> tuple[tuple[str, ...], list[tuple[str, tuple[str, ...]]]]:
    """Return the table's head, and a named row for each arm."""
    head, *rows = _rows(it)
    return head, [(row[0], row[1:]) for row in rows]


def verdict(it: Comparison) -> str:
    """State the result in a few sentences: the answer to the question asked, or the ratios; any doubt first."""
    told = [answer.text for answer in it.answers]
    if any(answer.is_whole for answer in it.answers):
        return " ".join([*_doubt(it), *told, *_left_out(it)])
    if it.ratios:
        return " ".join([*_doubt(it), *(_sentence(it, ratio) for ratio in it.ratios), *told, *_without(it)])
    of_command = it.is_command and it.vary == "device"  # its use of the GPU is known even without a ratio
    uses = [f"{arm.use}." for arm in it.arms if of_command and arm.counted and arm.use]
    return " ".join([_no_ratio(it), *uses, *told])


def _no_ratio(it: Comparison) -> str:
    known = [(arm.name, told) for arm in it.arms if (told := _speed(it, arm))]
    if len(it.arms) == 1 and known:
        return f"Only {_phrase(it, it.arms[0].name)} was measured: {known[0][1]}."
    return f"No ratio is given ({_why(it)}): {', '.join(map(' '.join, known)) or 'nothing was measured'}."


def _speed(it: Comparison, arm: Reached) -> str | None:
    """Return 599.9 (590.1..605.0) examples/s, or 35.2 (34.9..35.5) s; None if neither was measured."""
    if it.by_duration:
        return f"{figure(arm.run_seconds)} s" if arm.run_seconds else None
    return f"{figure(arm.examples_per_second)} examples/s" if arm.examples_per_second else None


def _without(it: Comparison) -> Iterator[str]:
    """Explain each arm that has no ratio while others have one."""
    given = {ratio.arm for ratio in it.ratios}
    for arm in it.arms[1:]:
        if arm.name not in given:
            yield f"No ratio is given for {_phrase(it, arm.name)} ({_why(it, arm.name)})."


def _left_out(it: Comparison) -> Iterator[str]:
    """Name the arms that the answers leave out: they have no two rounds in common with the others."""
    given = {name for ratio in it.ratios for name in (ratio.arm, ratio.against)}
    left = [arm for arm in it.arms if (arm.name not in given if given else arm.counted < 2)]
    if left:
        reasons = [why for arm in left if not arm.counted for why in _refusals(it, [arm.name])]
        reasons += [f"{_phrase(it, arm.name)} ({_why(it, arm.name)})" for arm in left if arm.counted]
        yield f"Left out: {'; '.join(dict.fromkeys(reasons)) or 'nothing was run'}."


def _why(it: Comparison, arm: str | None = None) -> str:
    """Explain why `arm`, by default the last arm, has no ratio."""
    wanted = arm or (it.arms[-1].name if it.arms else "")
    reasons = "; ".join(_refusals(it, [it.arms[0].name, wanted] if it.arms else []))
    if it.why_no_ratio(arm) == ONE_PAIR:  # if runs were refused, more rounds were requested: --repeat is no advice
        return f"{ONE_PAIR}: {reasons or 'use --repeat 2 or more'}"
    return reasons or "no round is complete"


def _refusals(it: Comparison, arms: Sequence[str]) -> list[str]:
    """Describe what was refused of `arms`."""
    named = {run: arm.name for arm in it.arms for run in arm.runs}
    found = []
    for refusal in it.refused:
        whose = [name for name in dict.fromkeys(named.get(run, "") for run in refusal.runs) if name in arms]
        if whose:
            found.append(f"{' and '.join(whose)} {_happened(refusal)}")
    return found


def _happened(refusal: Refusal) -> str:
    if refusal.kind == "differ":
        return f"had {'' if refusal.name.endswith(('s', 'S')) else 'a '}different {refusal.name}"
    if refusal.kind == "happened":
        return f"can't be counted: {refusal.text}"
    status = next(iter(refusal.values.values()), None)
    if status == "running":  # a cluster's job may not have begun
        return f"is waiting: {refusal.why}" if refusal.why else "is still running"
    verb = {"interrupted": "was interrupted", "lost": "was lost"}.get(str(status), "failed")
    return f"{verb}: {refusal.why}" if refusal.why else verb


def _doubt(it: Comparison) -> Iterator[str]:
    """Warn about disturbed rounds and very short runs, whose ratio must not be quoted without the warning."""
    if any(arm.is_tiny for arm in it.arms):
        yield "Whole runs of a few seconds differ by start-up and chance: take longer ones."
        return
    apart = [arm for arm in it.arms if arm.apart_percent is not None]
    names = _listed([arm.name for arm in apart])
    if any(arm.is_short for arm in apart):
        yield f"The rounds of {names} are far apart, and short: take longer runs."
    elif apart:
        yield f"Something disturbed the rounds of {names}: measure again."


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _sentence(it: Comparison, ratio: Ratio) -> str:
    arm = next(arm for arm in it.arms if arm.name == ratio.arm)
    is_of_command = it.is_command and it.vary == "device"
    slower = ": the CPU is faster here" if ratio.times.max < 1 else ""
    if not ratio.times.is_told:
        even = f"No measurable difference between {_phrase(it, ratio.arm)} and {_phrase(it, ratio.against)}: "
        return f"{even}{times(ratio.times)}." + (f" {arm.use}." if is_of_command else "")
    if is_of_command:
        if it.by_duration:
            gain = f"with it the whole run, start-up included, is {times(ratio.times)} as fast"
        else:
            gain = f"with it the command does {times(ratio.times)} the CPU's work"
        return f"{arm.use}; {gain}{slower}."
    if it.vary == "device":
        percent = measured(arm.gpu_percent, 0, " % busy")
        if arm.gpu_percent is not None and arm.gpu_percent < IDLE_PERCENT:  # NVML rarely sees bursts of work
            used = f"The GPU is used (by the framework's account; {percent} by NVML's)"
        else:
            used = f"The GPU is used{f' ({percent})' if arm.gpu_percent is not None else ''}"
        return f"{used} and does {times(ratio.times)} the CPU's work{slower}."
    subject = _phrase(it, ratio.arm)
    if it.by_duration:
        against = _phrase(it, ratio.against)
        return f"With {subject} the whole run, start-up included, is {times(ratio.times)} as fast as with {against}."
    do = "do" if subject.endswith(("threads", "GPUs", "nodes")) else "does"
    if it.vary not in ("image", "framework"):  # a name keeps its first letter
        subject = subject[0].upper() + subject[1:]
    return f"{subject} {do} {times(ratio.times)} the work of {_phrase(it, ratio.against)}."


def _phrase(it: Comparison, arm: str) -> str:
    """Return what to call an arm in a sentence: 2 threads, a batch of 64, 1 GPU, compile on, or its plain name."""
    value = arm.partition("=")[2] or arm
    if it.vary == "threads":
        return counted(value, "thread")
    if it.vary in UNITS and value.isdecimal():
        return counted(value, UNITS[it.vary])
    if it.vary in ("feed", "teacher", "compile", "channels"):
        return f"{it.vary} {value}"
    named = {"batch": f"a batch of {value}", "device": f"the {value.upper()}", "seed": f"seed {value}"}
    return named.get(it.vary, value)


def _rows(it: Comparison) -> list[tuple[str, ...]]:
    arms = it.arms
    columns = [("ARM", [arm.name for arm in arms]), ("RUNS", [_counted(arm) for arm in arms])]
    if it.by_duration:
        columns.append(("SECONDS", [figure(arm.run_seconds) for arm in arms]))
    else:
        columns.append(("EXAMPLES/S", [figure(arm.examples_per_second) for arm in arms]))
        columns.append(("S/BATCH", [figure(arm.seconds_per_batch, 4) for arm in arms]))
    columns.append(("CPU", [number(arm.cpu_percent, 0, "%") for arm in arms]))
    columns.append(("GPU", [_busy(arm) for arm in arms]))
    if any(arm.examples_per_joule for arm in arms) and not it.by_duration:
        columns.append(("EXAMPLES/J", [measured(arm.examples_per_joule, 2) for arm in arms]))
    # what a command computed on is rarely known, but what it was given is
    columns.append(("DEVICES" if it.is_command else "ON", [_on(arm) for arm in arms]))
    return list(zip(*((head, *cells) for head, cells in columns), strict=True))


def _counted(arm: Reached) -> str:
    return str(arm.counted) if arm.counted == len(arm.runs) else f"{arm.counted} of {len(arm.runs)}"


def _busy(arm: Reached) -> str:
    """Return how busy the arm's cards were, on average; the sentence on a command names the busiest."""
    is_mean = arm.use and (arm.use.cards or 0) > 1 and arm.gpu_percent is not None
    return f"{number(arm.gpu_percent, 0, '%')}{' (mean)' if is_mean else ''}"


def _on(arm: Reached) -> str:
    device = arm.given or arm.device
    return f"{device.upper() if device else NOT_AVAILABLE}{f': {arm.on}' if arm.on else ''}"


def _refused(refusal: Refusal) -> str:
    found = (f"{place}: {written(value)}" for place, value in refusal.values.items())
    # nothing was refused of a run that did not end well
    what = "not counted" if refusal.field == "status" else f"refused, {refusal.name}"
    return f"{what}: {refusal.text} ({', '.join(found)})"


def _also(it: theirs.Table | None) -> Iterator[str]:
    if it:
        for figure_of, cells in it.rows:
            told = [f"{cell} on {device}" for cell, device in zip(cells, it.columns, strict=True) if cell]
            yield f"published: {figure_of}: {'; '.join(told)}"
        yield f"  by {it.source}"


def _theirs(it: Published) -> Iterator[str]:
    """Quote the published figures, and say that they have no spread."""
    yield (
        f"published: {it.cpu_examples_per_second:,.1f} examples/s on {it.cpu}, {it.gpu_examples_per_second:,.1f} on "
        f"{it.gpu}: {it.ratio:.2f} times; one figure each, no spread ({it.how})"
    )
    yield f"  by {it.source}"
