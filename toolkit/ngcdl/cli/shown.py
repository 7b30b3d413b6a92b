"""Shows one run as a table: what it computed, on what, how fast, what held it back, and where its record is."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngcdl import console
from ngcdl.cli import lookup
from ngcdl.figures import NOT_AVAILABLE, activity, measured, size
from ngcdl.folder import EVENTS, LOG, TRACE, lines, opened
from ngcdl.folder import size as size_of
from ngcdl.record import Run, Summary
from ngcdl.report.measured import naming, raced, tuned
from ngcdl.report.measured.case import is_command, shares_memory
from ngcdl.report.measured.lines import Line
from ngcdl.report.measured.observed import observed
from ngcdl.report.measured.words import HELD_DOWN, called, card_memory, computed, formatted, outcome
from ngcdl.spec import FULL_SECONDS, KINDS, SHORTEST_SAMPLE_SECONDS, redacted_words
from ngcdl.storing.store import Store
from ngcdl.terminal_text import plain

_SELDOM = ("stages", *raced.EVENTS)
_NO_STEPS = re.compile(f'"(start|{"|".join(_SELDOM)})"'.encode())  # there may be a million steps
_LONGEST_REASON, _MOST_REASONS = 60, 4  # characters beside the run's id; lines in a separate row
_MOST_PACKAGES = 8
_LAST_BYTES, _MOST_CHARACTERS = 4096, 300  # of a log's end


def show_summary(store: Store, run: Run) -> None:
    """Print one run as a table: what it achieved, how fast, on what, and where its record is."""
    console.result(_summary(store, run, sys.stdout))


def say_after_command(store: Store, run: Run) -> None:
    """Say on stderr what was measured of a command, whose output is on stdout: a table if the command reported steps,
    else a line or two if the samples suffice for that, else, on a terminal, only that there is a record."""
    if run.summary.steps is not None:
        console.say(f"it reported steps:\n{_summary(store, run, sys.stderr)}")
        return
    if run.reason:
        console.say(f"{run.reason} ({run.id})")
    said = observed(run)
    if not said and console.columns(sys.stderr):  # a script that reads stderr gets nothing more
        said = [f"recorded: ngcdl show {run.id}"]
    for line in said:
        console.say(line)


def _summary(store: Store, run: Run, stream: Any) -> str:
    run = lookup.with_figures(store, run)
    if run.findings or run.diagnosis:
        from ngcdl.cli.changed import as_typed

        run = as_typed(run, sys.argv[1:])
    start, told = _told(lines(store.folder(run.id) / EVENTS, among=_NO_STEPS))
    rows = [("run", f"{run.id}  ({how_it_ended(run)})"), *_error(run), *_diagnosis(run)]
    rows += [*_last_line(store, run), *_what(run, start)]
    rows += [*_reached(run), *_used(run), *_gaps(run.summary), *_stages(start, told), *_raced(told), *_why(run)]
    rows += [("note", note) for note in run.notes]
    rows.append(("record", _path(store.folder(run.id), stream)))
    if (trace := store.folder(run.id) / TRACE).exists():
        rows.append(("timeline", f"{_path(trace, stream)}, for chrome://tracing or https://ui.perfetto.dev"))
    width = max(len(name) for name, _ in rows)
    # a command or a folder's name may have newlines in it; those of a note are meant
    rows = [(name, text if name == "note" else text.replace("\n", "\\n")) for name, text in rows]
    return "\n".join(console.wrapped(plain(text), stream, width + 2, lead=f"{name:<{width}}  ") for name, text in rows)


def _path(path: Path, stream: Any) -> str:
    """Return the path as people write it, from ~; whole if a program reads it."""
    with suppress(RuntimeError):  # nobody's home
        home = Path.home()
        if console.columns(stream) and path.is_relative_to(home):
            return f"~/{path.relative_to(home)}"
    return str(path)


def _told(events: Iterable[Line]) -> tuple[Line, list[Line]]:
    """Return the last start event, and the events on stages and trainings from scratch (_SELDOM) since the last
    start that did not resume from a checkpoint."""
    start: Line = {}
    seldom: list[Line] = []
    for event in events:
        if event.get("event") == "start":
            start = event
            if event.get("resumed_from_step") is None:
                seldom.clear()
        elif event.get("event") in _SELDOM:
            seldom.append(event)
    return start, seldom


def how_it_ended(run: Run) -> str:
    """Say how a run ended in a few words, with the reason if it is short."""
    return outcome(run, None if _is_long(run.reason or "") else run.reason)


def _is_long(reason: str) -> bool:
    return "\n" in reason or len(reason) > _LONGEST_REASON


def _error(run: Run) -> list[tuple[str, str]]:
    """Return a reason too long to fit beside the run's id, cut to its first lines: log.txt has all of them."""
    if not run.reason or not _is_long(run.reason):
        return []
    said = [line for line in run.reason.splitlines() if line.strip()]
    told = [*said[:_MOST_REASONS], *(["..."] if len(said) > _MOST_REASONS else [])]
    return [("" if number else "error", line) for number, line in enumerate(told)]


def _last_line(store: Store, run: Run) -> list[tuple[str, str]]:
    """Return how the log of a run ends that failed for a reason that only its log may tell."""
    if run.status != "failed" or run.reason or run.diagnosis:
        return []
    path = store.folder(run.id) / LOG
    try:
        with opened(path) as file:
            file.seek(max(size_of(path) - _LAST_BYTES, 0))
            said = [line for line in file.read(_LAST_BYTES).decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []
    if not said:
        return []
    own = [line for line in said if not line.startswith("srun: ")]  # Slurm's comes last, and tells the code alone
    (last,) = redacted_words(((own or said)[-1].strip(),))
    return [("log end", last[:_MOST_CHARACTERS]), ("", f"all of it: ngcdl logs {run.id}")]


def _diagnosis(run: Run) -> list[tuple[str, str]]:
    known = run.diagnosis
    if not known:
        return []
    rows = [("recognised", f'"{known.text}" ({known.confidence}: {known.source})'), ("cause", known.cause or "")]
    remedy = (known.remedy or "").splitlines()
    return rows + [("remedy" if number == 0 else "", line) for number, line in enumerate(remedy)]


def _what(run: Run, start: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if run.image.reference:
        name, _, pinned = run.image.reference.partition("@")
        identity = run.image.identity or pinned
        rows.append(("image", f"{name}  {identity[:19]}..." if identity else name))
    if run.packages:
        more = len(run.packages) - _MOST_PACKAGES
        some = ", ".join(run.packages[:_MOST_PACKAGES])
        rows.append(("packages", some + (f" and {more} more (--json lists them)" if more > 0 else "")))
    if command := naming.typed(run):
        rows.append(("command", command))
    if run.program:
        rows.append(("program", run.program))
    if folder := naming.folder(run):
        rows.append(("folder", folder))
    way = f", GPUs by {run.gpu_way}" if run.gpu_way not in (None, "none") else ""
    if not run.kind.has_containers and is_command(run):
        way = " (this host, no container)"
    rows.append(("engine", " ".join(filter(None, (run.engine or NOT_AVAILABLE, run.engine_version))) + way))
    machine, cores = run.machine, run.machine.cores or NOT_AVAILABLE
    if run.placement:
        rows.append(("nodes", f"{run.placement.get('nodes')}, each with GPUs: {(run.spec or {}).get('gpus')}"))
    else:
        rows.append(("machine", f"{machine.cpu or NOT_AVAILABLE}, {cores} cores, {size(machine.memory_bytes)}"))
    if run.device:
        rows.append(("computed on", ", ".join(filter(None, (run.device.upper(), naming.way(run, start))))))
    if text := tuned.in_words(start):
        rows.append(("chosen by trial", text))
    if run.dataset:
        kind = {"cifar10": "CIFAR-10", "pictures": "real images"}.get(run.dataset, run.dataset)
        note = f": {about}" if (about := naming.about_data(run)) else ""
        if run.is_synthetic:
            kind, note = "SYNTHETIC, nothing real", note and f" ({run.dataset_note})"  # which has colons of its own
        rows.append(("data", kind + note))
    return rows


def _reached(run: Run) -> list[tuple[str, str]]:
    """Return what the training achieved, and how fast."""
    figures, rows = run.summary, []
    if figures.steps is not None:
        rows.append(("steps", formatted(figures, "steps")))
        if figures.examples_per_second is None:
            few = "too few steps" if run.workload or not run.spec else "no step reported any"
            why = f" ({few})" if figures.loss_first is not None else ""  # the smoke test has no speed
            rows.append(("speed", f"{NOT_AVAILABLE}{why}"))
        else:
            rows.append(("speed", f"{formatted(figures, 'examples_per_second')} {called('examples_per_second')}"))
        if figures.examples_per_second is not None or figures.seconds_per_batch is not None:
            rows.append(("", f"{formatted(figures, 'seconds_per_batch')} {called('seconds_per_batch')}"))
    if figures.teacher_seconds_per_batch is not None:
        rows.append(("teacher", f"{formatted(figures, 'teacher_seconds_per_batch')} a batch (median)"))
    if figures.latency_p50_seconds is not None:
        p50, p95 = formatted(figures, "latency_p50_seconds"), formatted(figures, "latency_p95_seconds")
        rows.append(("latency", f"p50 {p50}, p95 {p95}, from asking for a batch to having its result"))
    if figures.flops_per_second is not None:
        rows.append(("computed", computed(figures)))
    if figures.loss_first is not None:
        rows.append(("loss", f"{formatted(figures, 'loss_first')} first, {formatted(figures, 'loss_last')} last"))
    if figures.precision_at_1 is not None:
        rows.append((called("precision_at_1"), formatted(figures, "precision_at_1")))
    return rows


def _used(run: Run) -> list[tuple[str, str]]:
    """Return how the processors, the GPUs and the memory were used."""
    figures, rows = run.summary, []
    own = figures.container_cpu_percent_mean
    of_it = f", the run itself {formatted(figures, 'container_cpu_percent_mean')}" if own is not None else ""
    all_cores = " of all cores" if figures.cpu_percent_mean is not None else ""
    rows.append(("CPU", f"{formatted(figures, 'cpu_percent_mean', digits=0)}{all_cores}{of_it}"))
    names = [gpu.name or NOT_AVAILABLE for gpu in figures.gpus]
    for gpu, name, before in zip(figures.gpus, names, ["", *names], strict=False):
        use = [formatted(gpu, "gpu_percent_mean", digits=0), f"{card_memory(run, gpu)} at most"]
        use += [formatted(gpu, "watts_mean", digits=0)]
        use += [formatted(gpu, "sm_mhz_mean")] if gpu.sm_mhz_mean is not None else []
        use += [name] if name != before else []  # a server has eight of one name
        use += [f"on {gpu.node}"] if gpu.node else []
        use += ["not used by this run"] if gpu.is_used is False else []
        rows.append((f"GPU {naming.place(gpu.index, gpu.card_index) or NOT_AVAILABLE}", ", ".join(use)))
        rows += [("", worked)] if (worked := activity(vars(gpu), "_mean")) else []
    if not figures.gpus:
        rows.append(("GPU", "none" if run.gpus == () else "none was read"))
    rows += _energy(figures)
    if figures.throttled_share:
        worst_first = sorted(figures.throttled_share.items(), key=lambda item: -item[1])
        shares = (f"{reason} {measured(100 * share, 0, ' %')}" for reason, share in worst_first)
        rows.append((HELD_DOWN, ", ".join(shares) + " of the time"))
    if figures.shared_gpu or (figures.shared_gpu is None and figures.gpus):
        others = "other processes computed on it at the same time"
        rows.append(("GPU shared", others if figures.shared_gpu else NOT_AVAILABLE))
    nodes = run.placement.get("nodes") or 1
    where = " on a node" if nodes > 1 else ""
    at_most = f" at most{where}" if figures.memory_bytes_max is not None else ""
    limit = f", of {formatted(figures, 'memory_limit_bytes')}" if figures.memory_limit_bytes is not None else ""
    beside = "; the GPU uses the same memory" if figures.gpus and shares_memory(run) else ""
    rows.append(("memory", formatted(figures, "memory_bytes_max") + at_most + limit + beside))
    return rows


def _gaps(figures: Summary) -> list[tuple[str, str]]:
    """Return how many samples lack a reading, and the most frequent reason."""
    if not figures.gaps:
        return []
    text = f"{figures.gaps} of {figures.samples} samples lack a reading or come after missed ones"
    return [("gaps", text if figures.gap_reason is None else f"{text}, most often: {figures.gap_reason}")]


def _stages(start: Line, told: Iterable[Line]) -> list[tuple[str, str]]:
    """Return how fast the input pipeline is up to each of its stages, for a run that only prepared batches."""
    if start.get("feed") != "input":
        return []
    known = (naming.stages(event) for event in told if event.get("event") == "stages")
    return [("stages", f"{text} examples/s, each with those before it") for text in known if text]


def _raced(told: Iterable[Line]) -> list[tuple[str, str]]:
    text = raced.in_words([event for event in told if event.get("event") in raced.EVENTS])
    return [("from nothing", text)] if text else []


def _energy(figures: Summary) -> list[tuple[str, str]]:
    """Return the energy that the GPUs used during the training, how it was measured, and the time without a reading."""
    if figures.energy_joules is None:
        return []
    text = f"{formatted(figures, 'energy_joules')} by the GPUs in {measured(figures.energy_seconds, 0, ' s')}"
    if figures.examples_per_joule is not None:
        text += f", {formatted(figures, 'examples_per_joule')} {called('examples_per_joule')}"
    left_out = figures.energy_gap_seconds
    missing = f"; {measured(left_out, 0, ' s')} without a reading left out" if left_out else ""
    return [("energy", f"{text} ({figures.energy_from}{missing})")]


def _why(run: Run) -> list[tuple[str, str]]:
    """Return what held the training back, the decisive cause first, each followed by what to do about it."""
    from ngcdl.report.measured.bottleneck import FEWEST_SAMPLES

    rows: list[tuple[str, str]] = []
    for found in run.findings or ():
        rows.append(("and" if rows else "why", found.text))
        rows += [("", line) for line in (found.advice or "").splitlines()]
    taken = run.summary.training_samples if run.summary.steps is not None else None
    if not rows and run.status == "finished" and taken is not None and taken < FEWEST_SAMPLES:
        count, more = f"{taken} sample{'' if taken == 1 else 's'}", ""
        if run.summary.gap_reason:  # others were taken, too
            count = f"{count} without a gap"
        elif run.sample_seconds > FULL_SECONDS and run.engine in KINDS and not run.kind.is_cluster:
            more = f"; more come with --sample-every {SHORTEST_SAMPLE_SECONDS:g}"
        rows.append(("why", f"{NOT_AVAILABLE} ({count} while it trained, too few to say{more})"))
    return rows
