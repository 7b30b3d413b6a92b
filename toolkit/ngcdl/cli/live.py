"""`ngcdl show RUN --watch SECONDS`: shows what a run does now, again and again until it ends."""

from __future__ import annotations

import json as json_format
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ngcdl import console
from ngcdl.cli import lookup
from ngcdl.cli.gpu import watched_seconds
from ngcdl.cli.shown import how_it_ended, show_summary
from ngcdl.figures import NOT_AVAILABLE, activity, measured, number, size
from ngcdl.folder import EVENTS, last_lines, lines
from ngcdl.record import Run
from ngcdl.report.measured.lines import number as figure
from ngcdl.report.measured.naming import place
from ngcdl.report.measured.now import CardNow, Now, now
from ngcdl.report.measured.words import duration
from ngcdl.running import silence
from ngcdl.running.reconcile import Obstacles, standing
from ngcdl.storing.nodesamples import samples
from ngcdl.storing.store import Store
from ngcdl.terminal_text import plain

# How much is read from the end of each file for a reading: the steps of some minutes; a sample of a large machine has
# some KiB.
_EVENTS_BYTES, _SAMPLES_BYTES = 32 << 10, 64 << 10
_MOST_CARDS = 8  # cards that have a line of their own


def watch(store: Store, run_id: str, seconds: float, as_json: bool) -> None:
    """Redraw on a terminal; elsewhere append a line for each reading, with its time, or as JSON. Return when the run
    has ended, or at Ctrl-C. Raise BadOption or RecordBroken; what keeps ngcdl from knowing how the run goes on is
    told."""
    seconds = watched_seconds(seconds)
    with suppress(KeyboardInterrupt):
        if as_json or not console.on_terminal(sys.stdout):
            _append(store, run_id, seconds, as_json)
        else:
            _redraw(store, run_id, seconds)


def _append(store: Store, run_id: str, seconds: float, as_json: bool) -> None:
    told = ""
    for run, read, t, unheard in _readings(store, run_id, seconds):
        if unheard and unheard != told:
            console.say(unheard)
        told = unheard
        console.result(_json(run, read, t) if as_json else _line(run, read, t))


def _redraw(store: Store, run_id: str, seconds: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console.out(), auto_refresh=False) as live:
        for run, read, t, unheard in _readings(store, run_id, seconds):
            silent = silence.silent_seconds(run, store.folder(run.id))
            words = "" if silent is None else silence.in_words(silent)
            rows = rows_of(run, read, t, words, live.console.height, unheard)
            width = max(len(name) for name, _ in rows)
            shown = "\n".join(plain(f"{name:<{width}}  {said}") for name, said in rows)
            live.update(Text(shown, no_wrap=True, overflow="ellipsis"), refresh=True)
        live.transient = True  # the summary that follows replaces it; at Ctrl-C it stays
    show_summary(store, run)


def _readings(store: Store, run_id: str, seconds: float) -> Iterator[tuple[Run, Now, float, str]]:
    """Yield the run, what it does now, the time (s since the epoch), and why it may have ended without ngcdl knowing
    ("" if it is known to run), every `seconds` until it has ended."""
    folder, obstacles = store.folder(run_id), Obstacles()
    for run in standing(store, run_id, sleep=lambda _: time.sleep(seconds), obstacles=obstacles):
        t = time.time()
        yield run, read(run, folder, t), t, next(map(lookup.unheard, obstacles.engines.values()), "")
        if run.status != "running":
            return


def read(run: Run, folder: Path, t: float) -> Now:
    """Return what a run does at `t` (s since the epoch), by what it last wrote into its folder."""
    last = last_lines(folder / EVENTS, _EVENTS_BYTES), samples(folder, _SAMPLES_BYTES)
    return now(*last, t, run.sample_seconds, _steps(run, folder))


def _steps(run: Run, folder: Path) -> float | None:
    """Return how many steps a training will have, as its record or its first event says; None if a time ends it, or if
    it begins anew several times."""
    if run.workload.get("seconds") is not None or run.workload.get("times", 1) != 1:
        return None
    asked = figure(run.workload.get("steps"))
    return asked or next((figure(event.get("steps")) for event in lines(folder / EVENTS, (0, 1))), None)


def rows_of(
    run: Run, read: Now, t: float, silent: str = "", height: int | None = None, unheard: str = ""
) -> list[tuple[str, str]]:
    """Return what is known of a run at `t` as rows of name and text. What its program does not report has no row. If
    there are more than `height` rows, what is known of the GPUs is told in fewer. `unheard` is as in _readings."""
    rows = [("run", f"{run.id}  ({_standing(run, t)})")]
    if unheard:
        rows.append(("unheard", unheard))
    if run.is_waiting:
        rows.append(("waits", str(run.reason)))
    if read.step is not None:
        rows.append(("step", ", ".join(_reached(read)) + _ago(read, t)))
        rows.append(("loss", measured(read.loss, 2)))
        batch = "" if read.seconds_per_batch is None else f"   {measured(read.seconds_per_batch, 4)} s/batch"
        rows.append(("speed", f"{measured(read.examples_per_second, unit=' examples/s')}{batch}"))
    if read.waited_share is not None:
        rows.append(("waits", f"{100 * read.waited_share:.0f} % of the time for its next batch"))
    if silent:
        rows.append(("waits", silent))
    whole = "" if read.memory_limit_bytes is None else f" of {size(read.memory_limit_bytes)}"
    below = [
        ("CPU", f"{number(read.cores)} cores; all cores {number(read.host_cpu_percent, 0, ' %')} busy"),
        ("memory", size(read.memory_bytes) + whole),
    ]
    return [*rows, *_cards(read.gpus, None if height is None else height - len(rows) - len(below)), *below]


def _cards(cards: Sequence[CardNow], most: int | None) -> list[tuple[str, str]]:
    """Return the rows of the cards, at most `most` of them: first without how much of each worked, then of fewer."""
    shown = cards[:_MOST_CARDS]
    named = [(_called(card), _card(card)) for card in shown]
    more = [("", f"{len(cards) - len(shown)} more: --json has all GPUs")] if len(cards) > len(shown) else []
    rows = []
    for row, card in zip(named, shown, strict=True):
        rows += [row, *([("", worked)] if (worked := activity(vars(card))) else [])]
    if most is None or len(rows) + len(more) <= most:
        return rows + more
    if len(named) + len(more) <= most:
        return named + more
    fit = max(most - 1, 0)
    return [*named[:fit], ("", f"{len(cards) - fit} more: --json has all GPUs")]


def _standing(run: Run, t: float) -> str:
    if run.status != "running":
        return how_it_ended(run)
    return f"{'waiting' if run.is_waiting else 'running'}, {duration(max(t - run.started, 0.0))}"


def _reached(read: Now) -> list[str]:
    """Say which step was reached, of how many, and how long the others will take."""
    seconds = read.left_seconds
    share = "" if read.percent is None else f" of {read.steps:,} ({read.percent} %)"
    left = [] if seconds is None else [f"about {duration(seconds) if seconds >= 10 else f'{seconds:.0f} s'} left"]
    return [f"{read.step:,}{share}", *left]


def _ago(read: Now, t: float) -> str:
    """Say how long ago the last step was reported, if that is long."""
    seconds = 0.0 if read.step_t is None else t - read.step_t
    return f"   ({duration(seconds)} ago)" if seconds >= 10 else ""


def _called(card: CardNow) -> str:
    return f"GPU {place(card.index, card.card_index) or NOT_AVAILABLE}"


def _card(card: CardNow) -> str:
    if card.error and card.gpu_percent is None:
        return card.error
    whole = "" if card.memory_total_bytes is None else f" of {size(card.memory_total_bytes)}"
    memory = f"{size(card.memory_used_bytes)}{whole}"
    node = f"   on {card.node}" if card.node else ""
    return f"{number(card.gpu_percent, 0, ' %')} busy   memory {memory}   {number(card.watts, 0, ' W')}{node}"


def _line(run: Run, read: Now, t: float) -> str:
    said = [time.strftime("%F %T", time.localtime(t)), _standing(run, t)]
    if read.step is not None:
        said += [
            f"step {'   '.join(_reached(read))}",
            f"loss {measured(read.loss, 2)}",
            measured(read.examples_per_second, unit=" examples/s"),
        ]
    said += [f"waits {100 * read.waited_share:.0f} %"] if read.waited_share is not None else []
    for card in read.gpus:
        said.append(f"{_called(card)} {_card(card)}")
        said += [worked] if (worked := activity(vars(card))) else []
    said += [f"CPU {number(read.cores)} cores", f"memory {size(read.memory_bytes)}"]
    return plain("   ".join(said)).replace("\n", " ")


def _json(run: Run, read: Now, t: float) -> str:
    return json_format.dumps({"t": round(t, 3), "id": run.id, "status": run.status, **asdict(read)})
