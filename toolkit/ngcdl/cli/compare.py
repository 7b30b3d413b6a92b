"""`ngcdl compare`: what was typed becomes arms; then all rounds, and what came out."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ngcdl import choice, comparisons, console, plan, settings, trainings
from ngcdl import compare as comparing
from ngcdl.cli import kept as reconciled
from ngcdl.cli.run import no_open_record, reconcile_last
from ngcdl.cli.screen import Screen
from ngcdl.cli.typed import Typed, parsed
from ngcdl.cli.varied import AXES, EXAMPLE, FORM, OTHERS, arms, scaling_of
from ngcdl.comparisons import Kept
from ngcdl.engines.base import Chunk
from ngcdl.errors import BadOption, NoSuchRun, RecordBroken, signal_exit_code
from ngcdl.interrupt import Interrupted
from ngcdl.report import compared
from ngcdl.report.comparison import Comparison
from ngcdl.rounds import Comparing
from ngcdl.spec import QUEUES, USED_BY, GpuRequest, ImageRef, Workload
from ngcdl.store import Store

REFUSED = 1
# What one run computes where no --steps were given: two minutes of a desktop's CPU at 250 GFLOP/s.
RUN_FLOPS = 30e12
STEPS_LEAST, STEPS_MOST = 31, 200
# A network so small that 200 steps are over before a clock has seen them gets as many as make this, up to 2,000.
MOMENT_FLOPS, STEPS_TINY = 1e12, 2000
# The trainer tells a figure every ten steps, and none of the first.
STEPS_FEWEST = 11


class _Hushed(Screen):
    """What the runs write is in their log.txt; here it would bury their results. Not what a cluster lets them wait for,
    which is all that comes on stderr from there."""

    def __init__(self, is_cluster: bool) -> None:
        super().__init__(output_to_stderr=True)
        self._is_cluster = is_cluster

    def chunk(self, chunk: Chunk) -> None:
        if self._is_cluster and chunk.stream == "stderr":
            self.say(chunk.data.decode(errors="replace").rstrip())


def compare(typed: Typed, others: Sequence[str], rounds: Rounds) -> int:
    """Run the comparison that was typed, print it and give the exit code. `others` are further images."""
    if not typed.train:
        vary = rounds.vary
        form = f"--train with {', '.join(trainings.names())}"
        if vary is not None and vary.partition("=")[0] not in (*AXES, *OTHERS):
            form += f"; --vary {vary}: {FORM.rstrip('.')}"
        raise BadOption(
            f"compare runs a bundled training: {form}.", EXAMPLE if vary else "    ngcdl compare --train cifar10"
        )
    kept, number = carried_out(typed, others, rounds)
    if typed.detach and not number:
        return _left(kept, typed.json)
    code = show(kept.id, typed.json)
    return signal_exit_code(number) if number else code


@dataclass(frozen=True)
class Rounds:
    """What is varied, None: what the workload's file says, else CPU against GPU; and how often. When `until` (s since
    the epoch) has come, the run under way is stopped, and no other begins. `tells_gpu`: say at once that there is none.
    `scaling` is as it was typed.
    """

    vary: str | None
    repeat: int
    until: float | None = None
    tells_gpu: bool = True
    scaling: str | None = None


def carried_out(typed: Typed, others: Sequence[str], rounds: Rounds) -> tuple[Kept, int | None]:
    """Run a comparison and give what is kept of it, and the signal that ended it. Raises NgcdlError before its runs."""
    config = settings.load()
    shelf = Store(config.runs)
    known = trainings.bundled(typed.train or "")
    _check(typed, rounds, known)
    repeat, vary = rounds.repeat, rounds.vary or (None if others else known.vary)
    if typed.steps is None and typed.epochs is None and typed.seconds is None:
        typed = replace(typed, steps=steps_of(known, vary, typed.batch))
    scaling = scaling_of((vary or "").partition("=")[0], rounds.scaling)
    images = [ImageRef.parse(name, config.registry) for name in (typed.image, *others) if name]
    asked = replace(parsed(typed, config, shelf), command="compare")
    name, variants = arms(asked, vary, images, config.registry, scaling)
    for one in (variant.asked for variant in variants):
        plan.check_workload(one.workload or Workload(""), one.nodes, one.gpus)
        image = one.image or choice.named_default(config.registry)
        plan.check_place(one.workload or Workload(""), image, one.device or _device(one.gpus))
    reconcile_last(shelf)
    screen, number = _Hushed(typed.engine in USED_BY), None
    with screen:
        ready, remarks = comparing.settle(variants, config, shelf, screen)
        for remark in remarks if rounds.tells_gpu else ():
            screen.say(f"{remark}; the rest is")
        shown = tuple((variant.name, variant.device) for variant, _ in ready)
        kept = Kept(shelf.new_id(comparisons.KIND), name, repeat, shown, time.time(), remarks=remarks, scaling=scaling)
        going = Comparing({variant.name: settled for variant, settled in ready}, kept, shelf, screen, rounds.until)
        often = f"{repeat} rounds" if repeat > 1 else "1 round"
        look = "ngcdl runs" if typed.engine in QUEUES else "ngcdl logs -f last"
        screen.say(f"{kept.id}: {often} of {', '.join(going.arms)}; watch with: {look}")
        try:
            with no_open_record(shelf):
                going.leave() if typed.detach else going.go()
        except (KeyboardInterrupt, Interrupted) as error:
            number = error.number if isinstance(error, Interrupted) else signal.SIGINT
            screen.say(f"stopped by {signal.Signals(number).name}; what is whole:")
    return going.kept, number


def _check(typed: Typed, rounds: Rounds, known: trainings.Bundled) -> None:
    """Raises BadOption where something was typed that no comparison has."""
    if rounds.repeat < 1:
        raise BadOption("--repeat is a whole number from 1 on.")
    if typed.batch == "largest":
        raise BadOption("--batch largest: what is compared has the same batch.", "    ngcdl run ... --batch largest")
    if not known.parameters:
        raise BadOption(f"{known.name} is a check without a speed to compare.", f"    ngcdl run --train {known.name}")
    if typed.steps is not None and typed.steps < STEPS_FEWEST:
        raise BadOption(f"--steps {typed.steps}: less than {STEPS_FEWEST} give no figure to compare.", "Leave it out.")
    if typed.detach and typed.engine not in QUEUES:
        raise BadOption(
            f"--detach: {typed.engine} has no queue that would keep the order of the runs; {' and '.join(QUEUES)} has.",
            "Leave it out: ngcdl begins one run when the other has ended.",
        )


def _device(gpus: GpuRequest) -> str:
    return "cpu" if gpus.kind == "none" else "auto"


def steps_of(known: trainings.Bundled, vary: str | None = None, batch: int | str | None = None) -> int:
    """Give as many steps as make RUN_FLOPS, in bounds: a big network's are few on a CPU, and enough for a median; those
    of a tiny one are many, until they take a moment. Of several batches the largest counts."""
    typed = str(batch or "")  # what is no number is refused later
    largest = max([int(typed) if typed.isdecimal() else known.batch, *batches_of(vary)])
    flops = max(known.flops_per_example * largest, 1)
    return int(max(min(max(RUN_FLOPS / flops, STEPS_LEAST), STEPS_MOST), min(MOMENT_FLOPS / flops, STEPS_TINY)))


def batches_of(vary: str | None) -> list[int]:
    """Give the batches that are varied; what is none is refused later."""
    name, _, values = (vary or "").partition("=")
    return [int(value) for value in values.split(",") if value.strip().isdecimal()] if name == "batch" else []


def _left(kept: Kept, as_json: bool) -> int:
    if as_json:
        console.result_json(kept.as_json())
    else:
        console.result(kept.id)
        console.say(f"it goes on; look with: ngcdl compare --show {kept.id}, end it with: ngcdl stop {kept.id}")
    return 0


def stop(name: str) -> None:
    """Stop the runs of a comparison that have not ended, the last of a queue first, and begin no other. Raises
    NoSuchComparison."""
    from ngcdl.cli import runs

    shelf = Store(settings.load().runs)
    kept = reconciled.comparison(shelf, name)
    left = [trial.run for trial in reversed(kept.trials) if _is_under_way(trial.run, shelf)]
    if not left and (kept.finished is not None or len(kept.trials) == kept.repeat * len(kept.arms)):
        console.say(f"{kept.id}: it has ended; look with: ngcdl compare --show {kept.id}")
        return
    comparisons.stop(kept, shelf)
    for run in left:
        runs.stop(run)


def _is_under_way(run: str, shelf: Store) -> bool:
    try:
        return shelf.load(run).status == "running"
    except (NoSuchRun, RecordBroken):
        return False


def show(name: str, as_json: bool) -> int:
    """Print a comparison from its records once more. Raises NoSuchComparison or RecordBroken."""
    shelf = Store(settings.load().runs)
    return _print(reconciled.comparison(shelf, name), shelf, as_json)


def _print(kept: Kept, shelf: Store, as_json: bool) -> int:
    found = comparing.compared(kept, shelf)
    if as_json:
        about = {"id": kept.id, "repeat": kept.repeat, "started": kept.started, "finished": kept.finished}
        trials = [vars(trial) for trial in kept.trials]
        console.result_json({**about, **found.as_json(), "trials": trials})
        return exit_code(found)
    for line in compared.lines(found, console.columns(sys.stdout)):
        console.result(console.wrapped(console.plain(line), sys.stdout))
    console.say(f"once more: ngcdl compare --show {kept.id}; as a page: ngcdl report {kept.id}")
    return exit_code(found)


def exit_code(found: Comparison) -> int:
    """Give 1 where an arm that was to be compared was refused altogether, else 0."""
    empty = [arm for arm in found.arms if not arm.counted]
    has_all = all(any(ratio.arm == arm.name for ratio in found.ratios) for arm in found.arms[1:])
    return REFUSED if empty or (found.refused and not has_all) else 0
