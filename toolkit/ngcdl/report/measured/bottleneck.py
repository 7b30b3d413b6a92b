"""What limited a training's speed, by rules with their thresholds. Pure.

The decisive finding comes first. With too few samples during training nothing is reported rather than guessed, except
running out of memory, and a loss that is no number. A rule does not apply if a figure that it needs is unknown. If a
user's own command reports no steps, only findings that hold for the run as a whole are reported: its samples include
its start-up, and the command may be no training at all.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from math import ceil

from ngcdl.record import Finding, GpuSummary, Run
from ngcdl.report.measured import achieved, memory, naming, throttling
from ngcdl.report.measured.case import (
    FULL_CPU_PERCENT,
    IDLE_PERCENT,
    OTHERS_SHARE,
    WAITED_SHARE,
    Case,
    can_judge,
    computed_on,
    finding,
    is_idle,
)
from ngcdl.report.measured.told import Told

# A mean over fewer samples is chance: one of four may be a checkpoint, or the first step.
FEWEST_SAMPLES = 5
# Below this the card waits so much that the cause is worth finding.
WAITING_PERCENT = 70.0
# The use of a run's cards differs by more than this many percentage points if one of them waits for another.
UNEVEN_PERCENT = 20.0
# A thread that never waits reads 95 to 100: the kernel moves it between cores within a sample.
FULL_CORE_PERCENT = 90.0
# Feeds that make no batches on the CPU while a card computes (containers/trainer/feed.py).
UNFED = ("resident", "constant", "input")
# "A value less than 0.5 likely indicates ineffective GPU usage", of the SMs' activity (read in copies of this page):
# https://docs.nvidia.com/datacenter/dcgm/latest/learn/modules/profiling.html
UNFILLED_SHARE = 0.5
# A run with one computing thread keeps up to so many cores busy, with what the system does besides.
ONE_THREAD_CORES, FEWEST_CORES_TO_SPLIT = 1.5, 4
_FASTER = (
    "use more threads or processes (num_workers, num_parallel_calls), do less to each image on the CPU, or keep the "
    "data on the GPU."
)
_LARGER = "A larger batch gives the card more to do in each step."
# Threads that want to run, for each core: while one thread has the core, another one waits for it.
OVERSUBSCRIBED = 2.0
# A shorter step is over before the next has been launched: each of its few hundred kernels takes microseconds to
# launch.
TINY_STEP_SECONDS, TINY_BATCH, TINY_GPU_PERCENT = 0.005, 32, 50.0


def diagnose(run: Run, told: Told) -> tuple[Finding, ...]:
    """Return what limited `run`, the decisive finding first; () if nothing can be said."""
    case = Case(run, told)
    if case.is_command and run.summary.steps is None:
        rules = _OF_A_COMMAND if can_judge(run) else (memory.out_of_memory,)
        return tuple(one for rule in rules for one in rule(case))
    diverged = tuple(_diverged(case))
    if (run.summary.training_samples or 0) < FEWEST_SAMPLES:
        return (*diverged, *memory.out_of_memory(case))
    found = tuple(one for rule in _RULES for one in rule(case))
    return (*diverged, *(found or _nothing_stands_out(case)))


def _diverged(case: Case) -> Iterator[Finding]:
    if (step := case.told.diverged) is not None:
        text = f"The loss is not a finite number from step {step:,} on."
        yield finding("diverged", text, "A smaller learning rate, or float32, may keep it finite.", step=step)


def _impossible(case: Case) -> Iterator[Finding]:
    share, flops = case.summary.peak_share, case.summary.flops_per_second
    most = achieved.allowed(case.start)
    if share is not None and flops is not None and share > most:
        times = f" (3x3 convolutions can reach up to {most:g} times)" if most > 1 else ""
        text = f"{flops / 1e12:.1f} TFLOP/s is {share:.1f} times what the card can do{times}: the timing or the amount "
        text += "of work is wrong."
        text += " Or the card's peak is: it is from memory, not from a source." if case.summary.peak_recalled else ""
        advice = "Check that each step is waited for, the whole network is computed, and the batch is as stated."
        yield finding("above-peak", text, advice, peak_share=share, allowed=most, flops_per_second=flops)


def _gpu_unused(case: Case) -> Iterator[Finding]:
    if case.on_cpu or not case.summary.gpus:
        return
    image = case.run.image.reference
    suits = "this image suits the card, and that its framework" if image else "the framework"
    advice = f"{'If it was to use it, c' if case.is_command else 'C'}heck that {suits} sees it:\n"
    advice += f"    ngcdl check {image}\n    ngcdl doctor" if image else "    ngcdl doctor"
    if case.run.device == "cpu":
        text = "The run had a GPU, but its framework computed on the CPU."
        yield finding("gpu-idle", text, advice, gpu_percent=case.summary.gpu_percent_mean)
    elif case.busy is not None and case.busy < IDLE_PERCENT:
        doubt = "" if case.run.device == "gpu" else " Did it compute on the CPU?"
        text = f"GPU {case.busy:.0f} % busy: the {case.what} hardly used it.{doubt}"
        yield finding("gpu-idle", text, advice if doubt else None, gpu_percent=case.busy)


def _throttled(is_damage: bool) -> Callable[[Case], Iterator[Finding]]:
    def rule(case: Case) -> Iterator[Finding]:
        found = throttling.strongest(case.summary.throttled_share or {}, is_damage)
        if found and case.busy is not None and case.busy >= IDLE_PERCENT:
            reason, share = found
            clock = case.summary.sm_mhz_mean
            at = f", {clock:,.0f} MHz on average" if clock is not None else ""
            text = f"GPU clocks held down for {100 * share:.0f} % of the time{at}: {reason.meaning} ({reason.name})."
            held = [one for one in case.computing if (one.throttled_share or {}).get(reason.name, 0.0) > 0]
            uuid = (held[0].uuid or "") if len(held) == 1 else ""
            advice = reason.advice.replace("INDEX", uuid) if uuid.startswith("GPU-") else reason.advice
            yield finding("throttled", text, advice, share=share, sm_mhz=clock)

    return rule


def _shared_gpu(case: Case) -> Iterator[Finding]:
    if case.summary.shared_gpu and not case.on_cpu and case.run.device != "cpu":
        text = "Other processes computed on the same GPU: its figures are not the run's alone."
        yield finding(
            "shared-gpu", text, "See who uses it, and take a free card:\n    ngcdl gpu\n    ngcdl run ... --gpus 1"
        )


def _tiny_batch(case: Case) -> Iterator[Finding]:
    batch, seconds, busy = case.asked("batch"), case.summary.seconds_per_batch, case.busy
    if batch is None or seconds is None or not case.waits(TINY_GPU_PERCENT):
        return
    if batch <= TINY_BATCH and seconds < TINY_STEP_SECONDS:
        text = f"GPU {busy:.0f} % busy with steps of {1000 * seconds:.1f} ms at batch {batch:.0f}: "
        makes = "making batches and " if case.waited else ""
        text += f"most of the time goes into {makes}launching work, not into computing."
        yield finding(
            "tiny-batch", text, _LARGER if case.is_command else f"    ngcdl run ... --batch {4 * batch:.0f}",
            gpu_percent=busy, batch=batch, seconds_per_batch=seconds,
        )  # fmt: skip


def _input_bound(case: Case) -> Iterator[Finding]:
    busy, share, core = case.busy, case.waited_share, case.summary.cpu_busiest_core_percent_mean
    if share is None or share < WAITED_SHARE or not case.waits(WAITING_PERCENT) or any(_tiny_batch(case)):
        return
    full = f", one CPU core at {core:.0f} %" if core is not None and core >= FULL_CORE_PERCENT else ""
    text = f"GPU {busy:.0f} % busy{full}: {100 * share:.0f} % of the time the {case.what} waited for its next batch. "
    text += "The input pipeline holds it back."
    figures = {"gpu_percent": busy, "waited_percent": 100 * share, "cpu_busiest_core_percent": core}
    yield finding("input-bound", text, f"To make batches faster, {_FASTER}", **figures)


def _full_core(case: Case) -> Iterator[Finding]:
    """Report a full core. What it does is not measured: CUDA fills one by waiting, too (cudaDeviceScheduleAuto spins).
    https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__DEVICE.html"""
    busy, share, core = case.busy, case.waited_share, case.summary.cpu_busiest_core_percent_mean
    own = case.summary.container_cpu_percent_mean
    if core is None or core < FULL_CORE_PERCENT or not case.waits(WAITING_PERCENT):
        return
    is_others = own is not None and own < FULL_CORE_PERCENT
    if is_others or case.feed in UNFED or any(_input_bound(case)) or any(_tiny_batch(case)):
        return  # the last two rules explain it better
    text = f"GPU {busy:.0f} % busy, one CPU core at {core:.0f} %: "
    if share is None:
        works = "prepares data" if case.is_command else "makes batches"
        text += f"it {works}, launches work, or waits for the card."
        advice = f"If it {works}, {_FASTER}"
    else:
        text += f"it launches work, or waits for the card; it waited for batches {100 * share:.0f} % of the time."
        advice = _LARGER if case.is_command else _LARGER.replace("batch", "--batch")
    yield finding("full-core", text, advice, gpu_percent=busy, cpu_busiest_core_percent=core, own_cpu_percent=own)


def _oversubscribed(case: Case) -> Iterator[Finding]:
    """Judge by the threads requested, or by those seen if they can only be the run's own."""
    allowed, threads, percent = case.run.allowed_cores, case.asked("threads"), case.summary.cpu_percent_mean
    cores = case.run.machine.cores if allowed is None else ceil(allowed)
    running, others = case.summary.threads_running_mean, case.others_cores
    if not cores or case.sets_the_pace:
        return
    # if others have cores of their own, their threads can't be told from the run's
    is_alone = allowed is None and (others is None or others < OTHERS_SHARE * cores)
    advice = _threads(case, cores)
    if threads is not None and threads > cores:
        on = f"{cores} cores" if allowed is None else _those(allowed)
        text = f"{threads:.0f} threads compute on {on}: they take turns, which costs time."
        yield finding("oversubscribed", text, advice, threads=threads, cores=cores if allowed is None else allowed)
    elif is_alone and (running or 0.0) >= OVERSUBSCRIBED * cores and (percent or 0.0) >= FULL_CPU_PERCENT:
        text = f"{running:.0f} threads want to run on {cores} cores: they take turns, which costs time."
        yield finding("oversubscribed", text, advice, threads_running=running, cores=cores)


def _compute_bound(case: Case) -> Iterator[Finding]:
    """Report cards that set the pace, unless others used them, too: the utilization is not the run's alone then."""
    if not case.summary.shared_gpu and case.sets_the_pace and not any(_unfilled(case)):
        text = f"GPU {case.busy:.0f} % busy: it sets the pace, and is fed fast enough."
        yield finding(
            "compute-bound", text, "Mixed precision or a faster card would speed it up.", gpu_percent=case.busy
        )


def _unfilled(case: Case) -> Iterator[Finding]:
    """Report cards on which some kernel nearly always ran, but most SMs had no part in it. Why is not measured."""
    busy, share, cards = case.busy, case.active_share, len(case.computing)
    if busy is None or busy < WAITING_PERCENT or share is None or share >= UNFILLED_SHARE or case.summary.shared_gpu:
        return
    if any(_uneven_cards(case)):
        return  # a card that waits for another is busy with a small kernel
    of = f"GPU {busy:.0f} % busy, but its SMs" if cards == 1 else f"GPUs up to {busy:.0f} % busy, but the SMs of each"
    most = "" if cards == 1 else "at most "
    text = f"{of} were active for {most}{100 * share:.0f} % of that time on average: some kernel ran, and left most of "
    text += "the card idle."
    advice = f"Kernels too small for the card do this. Try {_fuller(case)}."
    advice += "" if cards == 1 else " A card that waits for another in NCCL counts as busy, too."
    yield finding("unfilled-gpu", text, advice, gpu_percent=busy, sm_active_share=share)


def _uneven_cards(case: Case) -> Iterator[Finding]:
    """Report several cards of which one waits for another: in NCCL a card that waits counts as busy, so the least busy
    one may be the one that the others wait for."""
    cards, busy, share = case.computing, case.busy, case.waited_share
    if len(cards) < 2 or busy is None or busy < WAITING_PERCENT or case.summary.shared_gpu:
        return
    low = cards[-1].gpu_percent_mean or 0.0
    figures = {"gpu_percent": busy, "least_gpu_percent": low, "waited_percent": None if share is None else 100 * share}
    waited = f"{100 * (share or 0.0):.0f} % of the time the {case.what} waited for its next batch"
    faster = f"To make batches faster, {_FASTER}"
    if busy - low > UNEVEN_PERCENT:
        numbers = [_number(gpu) for gpu in cards]
        is_named = None not in numbers and len({*numbers}) == len(cards)
        names = (f"GPU {numbers[0]}", f"GPU {numbers[-1]}") if is_named else ("One GPU", "another")
        text = f"{names[0]} {busy:.0f} %, {names[1]} {low:.0f} % busy: cards wait for the slowest replica."
        text += f" {waited}." if case.waited else ""
        advice = (
            "A card that waits for another in NCCL counts as busy. See how they differ: model, clocks, other users:"
        )
        yield finding("uneven-cards", text, faster if case.waited else f"{advice}\n    ngcdl gpu", **figures)
    elif case.waited:
        text = f"GPUs up to {busy:.0f} % busy, but {waited}: a card that waits for another counts as busy."
        yield finding("input-bound", text, faster, **figures)


def _number(gpu: GpuSummary) -> str | None:
    """Return a card's index, with its node if the run has several."""
    place = naming.place(gpu.index, gpu.card_index)
    return place if place is None or not gpu.node else f"{place} of {gpu.node}"


def _fuller(case: Case) -> str:
    """Say what gives a card more to do at a time, without what the training already has."""
    if case.is_command:
        return "a larger batch, or fewer and larger kernels (torch.compile, XLA, CUDA graphs)"
    more = [] if case.start.get("compiled", case.run.workload.get("compile")) else ["--compile"]
    more += [] if case.feed in UNFED else ["--feed resident"]
    return "a larger --batch" + (f", or {' or '.join(more)} where this training has it" if more else "")


def _busy_machine(case: Case) -> Iterator[Finding]:
    cores, others = case.run.machine.cores, case.others_cores
    if case.is_crowded and others is not None:
        has_speed = (case.summary.examples_per_second, case.summary.seconds_per_batch) != (None, None)
        slower = "the figures are too low" if has_speed else f"the {case.what} took longer"
        text = f"Other programs kept {others:.1f} of {cores} cores busy meanwhile: {slower}."
        yield finding("busy-machine", text, "Measure again on an idle machine.", others_cores=others, cores=cores)


def _cpu_bound(case: Case) -> Iterator[Finding]:
    """Judge a run that was meant to compute on the CPU, if others did not keep the cores busy.

    As many busy threads as physical cores also fill the CPU: a second one on each core adds little to arithmetic. A run
    that may not use all cores is judged by those that it may use."""
    percent, busy, machine = case.summary.cpu_percent_mean, case.summary.cores_busy, case.run.machine
    cores, physical, own = machine.cores, machine.physical_cores, case.summary.container_cpu_percent_mean
    if not case.on_cpu or case.is_crowded or percent is None or not cores:
        return
    used, allowed = busy if own is None else own / 100, case.run.allowed_cores
    if allowed is not None:
        if own is None or own < FULL_CPU_PERCENT * allowed:
            return
        text = f"It kept {_those(allowed)} {own / allowed:.0f} % busy: they set the pace."
    elif percent >= FULL_CPU_PERCENT:
        text = f"All {cores} cores {percent:.0f} % busy: the CPU sets the pace."
    elif used is not None and physical and 100 * used >= FULL_CPU_PERCENT * physical:
        text = f"{used:.1f} of {cores} logical processors busy, on {physical} physical cores: the CPU sets the pace."
    else:
        return
    has_other = machine.gpus and not case.is_command
    line = shlex.join([*filter(None, [case.run.image.reference]), "--train", str(case.run.workload.get("name"))])
    advice = f"See whether the GPU is faster:\n    ngcdl compare {line}" if has_other else None
    yield finding("cpu-bound", text, advice, cpu_percent=percent, cores=cores, physical_cores=physical)


def _one_thread(case: Case) -> Iterator[Finding]:
    cores, busy, core = case.run.machine.cores, case.summary.cores_busy, case.summary.cpu_busiest_core_percent_mean
    own, allowed = case.summary.container_cpu_percent_mean, case.run.allowed_cores
    if not case.on_cpu or core is None or core < FULL_CORE_PERCENT or (own is not None and own < FULL_CORE_PERCENT):
        return
    if allowed is not None:  # the other cores may be busy for others
        busy = None if own is None else own / 100
    if busy is None or busy > ONE_THREAD_CORES or (allowed or cores or 0) < FEWEST_CORES_TO_SPLIT:
        return
    if allowed is None:
        text = f"One core at {core:.0f} %, the other {(cores or 0) - 1} nearly idle: one thread does all the work."
    else:
        text = f"It kept {busy:.1f} of {_those(allowed)} busy, as one thread does."
    advice = _threads(case, ceil(allowed or cores or 0))
    yield finding("one-thread", text, advice, cpu_busiest_core_percent=core, cores_busy=busy)


def _idle_cards(case: Case) -> Iterator[Finding]:
    if case.busy is None or case.busy < IDLE_PERCENT:
        return
    if idle := [*filter(is_idle, case.summary.gpus)]:
        which = ", ".join(_number(gpu) or "?" for gpu in idle)
        few = "programs" if case.is_command else "trainings"
        text = f"{len(idle)} of its {len(case.summary.gpus)} GPUs did nothing ({which}): few {few} use several."
        is_told = case.summary.energy_joules is not None or case.summary.sm_mhz_mean is not None
        if is_told and computed_on(case.summary.gpus, case.start):
            text += " Energy and clocks are those of the cards it computed on."
        yield finding("idle-card", text, "    ngcdl run ... --gpus 1", idle=len(idle), gpus=len(case.summary.gpus))


def _threads(case: Case, cores: int) -> str | None:
    """Return the option for as many threads as `cores`; None for a user's own command, whose options are unknown."""
    return None if case.is_command else f"    ngcdl run ... --threads {cores}"


def _those(allowed: float) -> str:
    """Name the processors that the run was allowed to use."""
    some = "the one core" if allowed == 1 else f"the {allowed:g} cores" if allowed > 1 else f"the {allowed:g} of a core"
    return f"{some} that it may use"


def _nothing_stands_out(case: Case) -> Iterator[Finding]:
    """Report what was measured, if no rule applies."""
    core, cores, busy = case.summary.cpu_busiest_core_percent_mean, case.summary.cores_busy, case.busy
    beside = f", the busiest CPU core {core:.0f} %" if core is not None else ""
    if busy is not None:
        text = f"GPU {busy:.0f} % busy{beside}: "
        if busy >= WAITING_PERCENT:
            text += "it rarely waits."
        elif core is not None and core < FULL_CORE_PERCENT:
            text += "it waits for something else: the disk, the network, or each step for the previous one."
        else:
            text += "it waits for something that was not measured."
        yield finding("balanced", text, None, gpu_percent=busy, cpu_busiest_core_percent=core)
    elif case.on_cpu and (allowed := case.run.allowed_cores) is not None:
        if (own := case.summary.container_cpu_percent_mean) is not None:
            text = f"It kept {_those(allowed)} {own / allowed:.0f} % busy: not all of their time is used."
            yield finding("balanced", text, None, own_cpu_percent=own, cores=allowed)
    elif case.on_cpu and cores is not None:
        text = f"{cores:.1f} of {case.run.machine.cores} cores busy{beside}: not all of the CPU is used."
        yield finding("balanced", text, None, cores_busy=cores, cpu_busiest_core_percent=core)


_RULES = (
    memory.out_of_memory,
    _impossible,
    _gpu_unused,
    memory.pressed,
    _throttled(is_damage=True),
    _shared_gpu,
    _tiny_batch,
    _input_bound,
    _full_core,
    _busy_machine,
    _uneven_cards,
    _unfilled,
    _oversubscribed,
    _compute_bound,
    _cpu_bound,
    _one_thread,
    _throttled(is_damage=False),
    _idle_cards,
)

# Without steps the figures are means over the whole run, which do not show what the run waited for between steps, or
# which card waited for which.
_OF_A_COMMAND = tuple(
    rule for rule in _RULES if rule not in (_impossible, _tiny_batch, _input_bound, _uneven_cards, _one_thread)
)
