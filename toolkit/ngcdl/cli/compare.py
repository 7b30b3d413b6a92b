"""`ngcdl compare`: turns what was typed into arms, runs all rounds, and prints the result."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ngcdl import choice, console, settings, trainings
from ngcdl.cli import lookup, project, typed_container
from ngcdl.cli.advice import advised
from ngcdl.cli.comparison_screen import ComparisonScreen
from ngcdl.cli.run import no_open_record, reconcile_last
from ngcdl.cli.typed import Typed, again, image_of, parsed
from ngcdl.cli.varied import AXES, FORM, OTHERS, arms, check_images, example, named, scaling_of, with_chosen_tag
from ngcdl.comparing import compare as comparing
from ngcdl.comparing import mounted
from ngcdl.comparing.rounds import Comparing
from ngcdl.errors import BadOption, NgcdlError, signal_exit_code
from ngcdl.frozen import dataclass
from ngcdl.planning import validation
from ngcdl.planning.asked import Asked
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import Comparison
from ngcdl.running.context import Context
from ngcdl.running.signals import Interrupted, signal_of
from ngcdl.spec import KINDS, Mount, Workload, kind_of
from ngcdl.spec.inside import WORK
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison
from ngcdl.storing.store import Store
from ngcdl.terminal_text import plain

REFUSED = 1
# Operations of one run without --steps: two minutes of a desktop's CPU at 250 GFLOP/s.
RUN_FLOPS = 30e12
STEPS_LEAST, STEPS_MOST = 31, 200
# If a network is so small that 200 steps are too short to time, a run has enough steps for this many operations, up to
# 2,000 steps.
MOMENT_FLOPS, STEPS_TINY = 1e12, 2000
# The trainer reports a figure every ten steps, and none for the first.
STEPS_FEWEST = 11
ROUNDS = 3


def compare(typed: Typed, others: Sequence[str], rounds: Rounds) -> int:
    """Run the comparison that was typed, print it and return the exit code. `others` are further images."""
    if not typed.train and not typed.command:
        config, images = settings.load(), [name for name in (typed.image, *others) if name]
        for name in images:
            image_of(name, config, "compare")
        vary, said = rounds.vary, "Nothing to compare: name a training with --train, or a command after --."
        if vary is not None and vary.partition("=")[0] not in (*AXES, *OTHERS):
            said += f" --vary {vary}: {FORM}"
        own = ("--", "python" if images else "python3", "train.py")
        raise BadOption(
            said,
            example((named(vary, tuple(AXES) + OTHERS) or vary).partition("=")[0])
            if vary
            else "\n".join(again(["compare", *images, *what]) for what in (("--train", "cifar10"), own)),
        )
    _check_gpus(typed, others, rounds)
    kept, number = carried_out(typed, others, rounds)
    if typed.detach and not number:
        return _left(kept, typed.json)
    code = show(kept.id, typed.json, is_new=True)
    return signal_exit_code(number) if number else code


@dataclass(frozen=True)
class Rounds:
    """What is varied, and how often. `vary` None: what the workload's file says, else CPU against GPU. `repeat` None:
    ROUNDS, or once if only one side can be measured. At `until` (s since the epoch) the current run is stopped, and no
    other begins. `tells_gpu`: say at once if there is no GPU. `scaling` is as typed.
    """

    vary: str | None
    repeat: int | None
    until: float | None = None
    tells_gpu: bool = True
    scaling: str | None = None


def carried_out(typed: Typed, others: Sequence[str], rounds: Rounds) -> tuple[StoredComparison, int | None]:
    """Run a comparison. Return the stored comparison, and the signal that ended it, or None if no signal did. Raise
    NgcdlError before the first run."""
    config = settings.load()
    store = Store(config.runs)
    plan = _planned(typed, others, rounds, config, store)
    typed, asked, repeat = plan.typed, plan.asked, plan.repeat
    reconcile_last(store)
    screen = ComparisonScreen(kind_of(typed.engine).is_cluster)
    with screen, advised(typed, asked), contextlib.ExitStack() as choosing:
        ready, remarks = choosing.enter_context(comparing.settled(plan.variants, Context(config, store, screen)))
        if len(ready) == 1 and rounds.repeat is None:
            repeat = 1  # nothing to compare it with, so no spread is needed
        for remark in remarks if rounds.tells_gpu else ():
            screen.say(f"{remark}. {_alone(typed, repeat)}")
        if plan.name == "image":
            got = [settled.picked.image for _, settled in ready if settled.picked.image]
            check_images(asked, got)  # a name without a tag may mean the release that another names
            ready = [(with_chosen_tag(variant, settled.picked.image), settled) for variant, settled in ready]
        edited, unwatched = _code(asked)  # after the pull: code edited during the pull has not been run
        remarks += unwatched
        shown = tuple((variant.name, variant.device) for variant, _ in ready)
        new_id = comparisons.new_id(typed.name, store)
        kept = StoredComparison(new_id, plan.name, repeat, shown, time.time(), remarks=remarks, scaling=plan.scaling)
        settled = {variant.name: settled for variant, settled in ready}
        going = Comparing(settled, kept, store, screen, rounds.until, edited=edited, held=choosing.close)
        often = f"{repeat} rounds" if repeat > 1 else "1 round"
        look = "ngcdl runs" if kind_of(typed.engine).has_queue else "ngcdl logs -f last"
        screen.say(f"{kept.id}: {often} of {', '.join(going.arms)}; watch with: {look}")
        number = _run(going, store, screen, is_left=typed.detach)
    return going.kept, number


@dataclass(frozen=True)
class _Plan:
    """A comparison as typed: `name` is what is varied. `typed` has what was left to the project and to the training."""

    typed: Typed
    asked: Asked
    name: str
    variants: Sequence[comparing.Variant]
    repeat: int
    scaling: str | None


def _planned(typed: Typed, others: Sequence[str], rounds: Rounds, config: settings.Settings, store: Store) -> _Plan:
    """Turn what was typed into arms, and check them. Raise UsageError."""
    known = _known(typed)
    if not (known or typed.image) and (rounds.vary or "").startswith("image="):
        typed = replace(typed, image=(rounds.vary or "").removeprefix("image=").partition(",")[0] or None)
    typed = project.filled(typed_container.with_files(typed))
    _check(typed, rounds, known)
    repeat, vary = ROUNDS if rounds.repeat is None else rounds.repeat, _vary(known, others, rounds)
    if known and typed.steps is None and typed.epochs is None and typed.seconds is None:
        typed = replace(typed, steps=steps_of(known, vary, typed.batch))
    scaling = scaling_of((vary or "").partition("=")[0], rounds.scaling, is_command=known is None)
    images = [image_of(name, config, "compare") for name in (typed.image, *others) if name]
    asked = _of_compare(parsed(typed, config, store))
    name, variants = arms(asked, vary, images, config.registry, scaling)
    if repeat * len(variants) > comparisons.MOST_RUNS:
        raise BadOption(
            f"--repeat {repeat}: a comparison has at most {comparisons.MOST_RUNS:,} runs.", "Repeat it less."
        )
    # The arm with the most replicas is checked first, so that a refusal names a batch that suffices for all arms.
    for one in sorted((variant.asked for variant in variants if known), key=_replicas, reverse=True):
        validation.check_workload(one.workload or Workload(""), one.nodes, one.gpus)
        image = one.image or choice.named_default(config.registry)
        device = one.device or ("cpu" if one.gpus.kind == "none" else "auto")
        validation.check_place(one.workload or Workload(""), image, device)
    return _Plan(typed, asked, name, variants, repeat, scaling)


def _run(going: Comparing, store: Store, screen: ComparisonScreen, *, is_left: bool) -> int | None:
    """Run the rounds, or leave them to the queue. Return the signal that ended them; None if no signal did."""
    try:
        with no_open_record(store):
            going.leave() if is_left else going.go()
    except (KeyboardInterrupt, Interrupted) as error:
        number = signal_of(error)
        screen.say(f"stopped by {signal.Signals(number).name}; what is complete:")
        return number
    except NgcdlError:
        if comparisons.has(going.kept.id, store):
            screen.say(f"it ended early; what is complete: ngcdl compare --show {going.kept.id}")
        raise
    return None


def _known(typed: Typed) -> trainings.Bundled | None:
    """Return the training that was typed; None for a command of the user's own. Raise BadOption."""
    return None if typed.command and not typed.train else trainings.bundled(typed.train or "")


def _vary(known: trainings.Bundled | None, others: Sequence[str], rounds: Rounds) -> str | None:
    return rounds.vary or (None if others or not known else known.vary)


def _alone(typed: Typed, repeat: int) -> str:
    """Say that only the CPU is measured, and what can be compared without a GPU."""
    image = f"{typed.image} " if typed.image else ""
    other = f"    ngcdl compare {image}--train {typed.train} --gpus none --vary threads=1,2"
    often = "once" if repeat == 1 else f"{repeat} times"
    return f"So only the CPU is measured, {often}. To compare something here:\n{other}"


def _replicas(asked: Asked) -> int:
    return asked.nodes * trainings.replicas(asked.workload or Workload(""), asked.gpus)


def _check_gpus(typed: Typed, others: Sequence[str], rounds: Rounds) -> None:
    """Raise BadOption if --gpus was typed where the number of cards is what is varied."""
    known = _known(typed)
    vary = _vary(known, others, rounds) or ""
    if typed.gpus == "auto" or not vary.startswith("gpus="):
        return
    what = f"{known.name}, which varies {vary}," if known and not rounds.vary else f"--vary {vary}"
    hint = "Leave it out."
    if known and typed.gpus.strip() == "none":
        other = f"    ngcdl compare --train {known.name} --gpus none --vary threads=1,2"
        hint = f"Leave it out, or compare something else:\n{other}"
    raise BadOption(f"--gpus {typed.gpus}: {what} requests the cards itself.", hint)


def _of_compare(asked: Asked) -> Asked:
    """Return `asked` as it is for a comparison's runs: without a terminal or stdin, and without the --name, which is
    the comparison's."""
    own = replace(asked.own, tty=False, stdin=False) if asked.own else None
    return replace(asked, command="compare", name=None, own=own)


def _code(asked: Asked) -> tuple[Callable[[], object], tuple[str, ...]]:
    """Return a function that names a source file of the command that was edited after this call, or None; and a remark
    on code that is not watched."""
    if asked.own is None:
        return lambda: None, ()
    unwatched = "whether the code stays the same is not checked"
    if kind_of(asked.engine).is_cluster:
        return lambda: None, (f"{unwatched}: the runs begin when the cluster lets them",)
    here = () if asked.image else (Mount(asked.own.workdir or "/", WORK),)  # without an image nothing is mounted
    found = mounted.sources((*here, *asked.own.mounts, *(asked.extra.mounts if asked.extra else ())))
    return found.edited, (f"{unwatched} in {', '.join(found.unwatched)}",) if found.unwatched else ()


def _check(typed: Typed, rounds: Rounds, known: trainings.Bundled | None) -> None:
    """Raise BadOption if a typed option or value is not possible in a comparison."""
    check_counts(rounds.repeat, typed.steps)
    if typed.batch == "largest":
        alone = again(["run", *([typed.image] if typed.image else ()), "--train", typed.train or "cifar10"])
        raise BadOption("--batch largest: all arms of a comparison have the same batch.", f"{alone} --batch largest")
    if known and not known.parameters:
        raise BadOption(f"{known.name} is a check without a speed to compare.", f"    ngcdl run --train {known.name}")
    if typed.detach and not kind_of(typed.engine).has_queue:
        queues = [f"--engine {name}" for name, one in KINDS.items() if one.has_queue]
        raise BadOption(
            f"--detach: only {' or '.join(queues)} has a queue that would keep the order of the runs.",
            "Leave it out: ngcdl starts each run when the one before has ended.",
        )


def check_counts(repeat: int | None, steps: int | None) -> None:
    """Raise BadOption if there are too few rounds, or steps, to compare."""
    if repeat is not None and repeat < 1:
        raise BadOption("--repeat must be a whole number, 1 or more.")
    if steps is not None and steps < STEPS_FEWEST:
        raise BadOption(f"--steps {steps}: fewer than {STEPS_FEWEST} give no figure to compare.", "Leave it out.")


def steps_of(known: trainings.Bundled, vary: str | None, batch: str | None = None) -> int:
    """Return the number of steps that make RUN_FLOPS with the largest batch of all arms, within bounds: for a big
    network few enough for a CPU, but enough for a median; for a tiny one, enough to be timed."""
    usual = int(batch) if batch and batch.isdecimal() else known.batch  # anything but a number is refused later
    largest = max([usual, *batches_of(vary)])
    flops = max(known.flops_per_example * largest, 1)
    return int(max(min(max(RUN_FLOPS / flops, STEPS_LEAST), STEPS_MOST), min(MOMENT_FLOPS / flops, STEPS_TINY)))


def batches_of(vary: str | None) -> list[int]:
    """Return the batches that are varied; anything but a number is refused later."""
    name, _, values = (vary or "").partition("=")
    return [int(value) for value in values.split(",") if value.strip().isdecimal()] if name == "batch" else []


def _left(kept: StoredComparison, as_json: bool) -> int:
    if as_json:
        console.result_json(kept.as_json())
    else:
        console.result(kept.id)
        console.say(f"detached; see it with: ngcdl compare --show {kept.id}, stop it with: ngcdl stop {kept.id}")
    return 0


def stop(name: str) -> None:
    """Stop a comparison and say how its runs ended. Raise NoSuchComparison, or as stopping.stopped does."""
    from ngcdl.cli.shown import how_it_ended
    from ngcdl.running import stopping

    store = lookup.open_store()
    kept = lookup.comparison(store, name)
    if stopping.is_over(store, kept):
        console.say(f"{kept.id}: it has ended; see it with: ngcdl compare --show {kept.id}")
        return
    is_silent = True
    for run in stopping.comparison(store, kept):
        console.say(f"{run.id}: {how_it_ended(run)}")
        is_silent = False
    if is_silent:
        console.say(f"{kept.id}: nothing was running, and no further run starts; ngcdl compare --show {kept.id}")


def show(name: str, as_json: bool, *, is_new: bool = False) -> int:
    """Print a comparison from its records, again unless it `is_new`. Raise NoSuchComparison or RecordBroken."""
    store = lookup.open_store()
    kept = lookup.comparison(store, name)
    code = _print(kept, store, as_json)
    if not as_json:
        once_more = f"to print it again: ngcdl compare --show {kept.id}; " if is_new else ""
        console.say(f"{once_more}as a page: ngcdl report {kept.id}")
    return code


def _print(kept: StoredComparison, store: Store, as_json: bool) -> int:
    found = comparing.compared(kept, store)
    if as_json:
        about = {"id": kept.id, "repeat": kept.repeat, "started": kept.started, "finished": kept.finished}
        trials = [vars(trial) for trial in kept.trials]
        console.result_json({**about, "verdict": in_words.verdict(found), **found.as_json(), "trials": trials})
        return exit_code(found)
    for line in in_words.lines(found, console.columns(sys.stdout)):
        console.result(console.wrapped(plain(line), sys.stdout))
    return exit_code(found)


def exit_code(found: Comparison) -> int:
    """Return 1 if no run of some arm counts, or runs were refused and some arm has no ratio to the baseline; else 0."""
    empty = [arm for arm in found.arms if not arm.counted]
    has_all = all(any(ratio.arm == arm.name for ratio in found.ratios) for arm in found.arms[1:])
    return REFUSED if empty or (found.refused and not has_all) else 0
