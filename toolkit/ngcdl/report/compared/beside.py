"""What runs alongside a training, and what it costs: the input pipeline, and a teacher.

Rules with their thresholds, pure. questions.py says what is reported and what is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ngcdl.report.compared.arm import Figures, compared, faster, longer
from ngcdl.report.measured.spread import Spread, by_round, duration, percent, times

# Speed of the pipeline alone relative to the network alone: below the first bound the pipeline sets the pace, above
# the second the network does.
INPUT_BOUND, COMPUTE_BOUND = 0.9, 1.5
# If both together reach at least this share of the slower one's speed, they overlap.
OVERLAPPED = 0.9
# If a step with a teacher takes less than this times as long as one without, the teacher costs next to nothing.
FREE_TEACHER = 1.05
# A round may exceed an upper bound by a twentieth by chance. Beyond that the figures contradict each other, as in
# disturbed rounds, and nothing is concluded from them.
MOST_OF_A_BOUND = 1.05


# -- feed -----------------------------------------------------------------------------------------------------------


def feed(arms: Sequence[Figures]) -> Iterator[str]:
    by_value = {arm.value: arm for arm in arms}
    pipeline, network, plain, ahead = (by_value.get(name) for name in ("input", "constant", "plain", "ahead"))
    resident = by_value.get("resident")
    real = ahead or plain
    if pipeline and network and real:
        yield from _pace(pipeline, network, real)
    if resident and plain:
        made = "making and copying each batch on demand"
        yield from _than("holding the data on the device", resident, plain, made)
        if ahead:
            yield from _than("making batches ahead", ahead, plain, "that")
    if resident and network:
        share = faster(resident, network)
        if share and is_possible(share):
            bound_to = "the upper bound, the same batch on the device at every step"
            yield f"Holding the data on the device reaches {percent(share)} of {bound_to}."


def is_possible(share: Spread) -> bool:
    """Return whether `share`, reached of an upper bound, is within what chance explains, in every round."""
    return share.max <= MOST_OF_A_BOUND


def _than(subject: str, one: Figures, other: Figures, named: str) -> Iterator[str]:
    ratio = faster(one, other)
    if ratio:
        yield f"{compared(subject, ratio, named)}."


def bound(ratio: float) -> str:
    """Say what sets the pace if the pipeline alone does `ratio` times as many examples as the network alone."""
    return "input-bound" if ratio < INPUT_BOUND else "compute-bound" if ratio > COMPUTE_BOUND else "balanced"


def _pace(pipeline: Figures, network: Figures, real: Figures) -> Iterator[str]:
    ratio = faster(pipeline, network)
    if not ratio:
        return
    alone = f"the pipeline alone makes {times(ratio)} as many examples per second as the network alone trains on"
    if bound(ratio.min) == bound(ratio.max):
        yield f"This training is {bound(ratio.median)}: {alone}."
    else:
        yield f"The rounds disagree on whether this training is {bound(ratio.min)} or {bound(ratio.max)}: {alone}."
    reached = by_round(lambda both, made, trained: both / min(made, trained), real.rates, pipeline.rates, network.rates)
    if reached and is_possible(reached):
        waits = "on a CPU they share its cores" if real.device == "cpu" else "they wait for each other"
        why = f"; {waits}" if reached.max < OVERLAPPED else ""
        yield f"Together they reach {percent(reached)} of the slower of the two{why}."


# -- teacher --------------------------------------------------------------------------------------------------------


def teacher(arms: Sequence[Figures]) -> Iterator[str]:
    by_value = {arm.value: arm for arm in arms}
    alone, before, ahead = (by_value.get(name) for name in ("none", "before", "ahead"))
    if alone and ahead:
        cost = longer(ahead, alone)
        if cost:
            yield _teachers_price(cost)
    if alone and before and ahead:
        yield from _side_by_side(alone, before, ahead)
    for name, how in (
        ("together", "the teacher on the student's own device, in turn"),
        ("kept", "the teacher's answers computed beforehand"),
    ):
        other = by_value.get(name)
        cost = longer(other, alone) if other and alone else None
        if cost and cost.is_told:
            yield f"With {how}, a step takes {times(cost)} as long as without a teacher."
        elif cost:
            yield f"No measurable difference between a step with {how}, and one without a teacher: {times(cost)}."


def _teachers_price(cost: Spread) -> str:
    if cost.max < FREE_TEACHER:
        return f"A teacher on the CPU, ahead of the student, costs next to nothing: a step takes {times(cost)} as long."
    if not cost.is_told:
        return f"Whether a teacher on the CPU slows its student can't be told: a step takes {times(cost)} as long."
    return f"With a teacher on the CPU, ahead of the student, a step takes {times(cost)} as long."


def _side_by_side(alone: Figures, before: Figures, ahead: Figures) -> Iterator[str]:
    """overlap = (t_T + t_S - t_C) / min(t_T, t_S); 1 is perfect overlap, 0 is one after the other."""
    teacher = by_round(lambda both, student: both - student, before.seconds, alone.seconds)
    if not teacher or teacher.min <= 0:
        return
    student = by_round(lambda seconds, _: seconds, alone.seconds, before.seconds)
    overlap = by_round(
        lambda both, student, beside: (both - beside) / min(both - student, student),
        before.seconds,
        alone.seconds,
        ahead.seconds,
    )
    if student and overlap:
        fits = "whether the teacher keeps up can't be told"
        if teacher.max < student.min:
            fits = "the teacher keeps up"
        elif teacher.min > student.max:
            fits = "the teacher can't keep up"
        hidden = f"; {percent(overlap)} of the shorter of the two is hidden behind the longer"
        yield (
            f"The teacher takes {duration(teacher)} per batch, the student {duration(student)}: {fits}"
            f"{hidden if is_possible(overlap) else ''}."
        )
