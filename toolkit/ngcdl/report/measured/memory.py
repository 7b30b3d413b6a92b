"""Whether memory limited a training: a batch that did not fit, a limit reached, time lost to waiting."""

from __future__ import annotations

from collections.abc import Iterator

from ngcdl.record import Finding
from ngcdl.report.measured.case import Case, finding, shares_memory
from ngcdl.report.measured.lines import number

# Memory in use leaves out the file cache (but, for a process, not the files that it maps), so the next batch can only
# have the rest.
FULL_MEMORY = 0.9
# The share of the time lost waiting for memory, in percent.
PRESSURE_PERCENT = 10.0


def out_of_memory(case: Case) -> Iterator[Finding]:
    """Report that a run ran out of memory, according to the trainer, the engine or the log, or which batch is the
    largest that fits, according to the last `oom` event of a search."""
    told, failed = case.told.oom, case.told.out_of_memory
    killed = case.run.oom_killed and case.run.status == "failed" and case.run.workload
    name = case.run.diagnosis.name if case.run.diagnosis else None
    known = name == "gpu-out-of-memory"
    has_ended = bool(failed or killed or known or name == "host-out-of-memory")
    if not (told or has_ended):
        return
    if has_ended and case.start:
        told = {}  # the batch that the search found did not fit after all
    batch = number(told.get("batch")) if told else case.asked("batch")
    fits = number(told.get("fits"))
    on_card = not (case.on_cpu or case.run.device == "cpu")
    # the kernel kills for the container's or the machine's memory; a card's is reported by the framework or the log
    is_hosts = not on_card or name == "host-out-of-memory" or bool(killed and not failed and not known)
    is_shared = on_card and shares_memory(case.run)
    of_gpu = "the GPU's memory" + (", which is the machine's" if is_shared else "")
    where = _hosts_memory(case) if is_hosts else of_gpu
    what = f"{'The batch' if batch is None else f'A batch of {batch:.0f}'} does not fit into {where}"
    if fits is not None and case.start:
        taken = number(case.start.get("batch"))
        is_less = taken is not None and taken < fits
        text = f"{what}: {fits:.0f} is the largest that does{'' if is_less else ', and was used'}."
        text += f" {taken:.0f} was used, which leaves an eighth free." if is_less else ""
        yield finding("largest-batch", text, None, batch=batch, fits=fits)
        return
    if case.is_command:  # it may have no batch, or other options for it
        yield finding("out-of-memory", f"It ran out of {where}.", None)
        return
    does = f"; {fits:.0f} does" if fits is not None else ""
    smaller = fits if fits is not None else None if batch is None or batch < 2 else batch // 2
    advice = [] if smaller is None else [f"    ngcdl run ... --batch {smaller:.0f}"]
    # with a card, the search probes the card's memory, which may be the machine's
    advice += [] if told or (on_card and is_hosts and not is_shared) else ["    ngcdl run ... --batch largest"]
    yield finding("out-of-memory", f"{what}{does}.", "\n".join(advice) or None, batch=batch, fits=fits)


def _hosts_memory(case: Case) -> str:
    """Name the memory that limits a process without a card."""
    limit, whole = case.summary.memory_limit_bytes, case.run.machine.memory_bytes
    is_held = limit is not None and whole is not None and limit < whole
    return _limit_of(case) if is_held else "the machine's memory"


def _limit_of(case: Case) -> str:
    return f"{'the container' if case.run.kind.has_containers else 'its control group'}'s memory limit"


def pressed(case: Case) -> Iterator[Finding]:
    summary = case.summary
    most, limit = summary.memory_bytes_max, summary.memory_limit_bytes
    used = most / limit if most is not None and limit else None
    pressure, kills = summary.memory_pressure_percent, summary.memory_oom_kills
    of = "the machine's memory" if limit == case.run.machine.memory_bytes else _limit_of(case)
    said = [f"the kernel OOM-killed {kills} of the run's processes"] if kills and not _was_search(case) else []
    said += [f"it used {100 * used:.0f} % of {of}"] if used is not None and used >= FULL_MEMORY else []
    said += _beside_gpu(case)
    if pressure is not None and pressure >= PRESSURE_PERCENT:
        said.append(f"it waited for memory up to {pressure:.0f} % of the time")
    if said:
        text = "; ".join(said)
        advice = "Give it more memory, or make it use less: fewer workers, a smaller queue or batch."
        yield finding(
            "memory-pressure", f"{text[0].upper()}{text[1:]}.", advice,
            memory_used_share=used, memory_pressure_percent=pressure, memory_oom_kills=kills,
        )  # fmt: skip


def _beside_gpu(case: Case) -> list[str]:
    """Say how full a memory was that a GPU uses too, if hardly any was left: the run's own figure leaves that out."""
    on_gpu, own = case.summary.gpu_memory_bytes_max, case.summary.memory_bytes_max
    whole = case.run.machine.memory_bytes
    if not (shares_memory(case.run) and whole) or on_gpu is None or on_gpu + (own or 0) < FULL_MEMORY * whole:
        return []
    more = "" if own is None else f", the run itself beside that up to {100 * own / whole:.0f} %"
    return [f"the programs on the GPU took up to {100 * on_gpu / whole:.0f} % of the machine's memory{more}"]


def _was_search(case: Case) -> bool:
    """Return whether the killed process may have been a trial: the run tried batches, or ways to compute of which one
    failed."""
    return bool(case.told.oom) or case.told.has_failed_trials
