"""Benchmark ngcdl against its peers, in alternating runs, and report which goals it meets.

Results are median (least..most) over the rounds. The exit code is 1 if a goal is missed, with --check instead if a
figure is worse than the committed one by more than the spread of both, and if nothing could be measured or a benchmark
failed; the others are still run.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import conditions
import cut
import page
from figures import SURE_ROUNDS, Figure, Missing, each, fell, is_comparable, keep, load
from turns import share

# Each is a file here whose `measure(rounds, until)` yields Figures or raises Missing. rounds: None is its own default;
# until: when its time is up, by the monotonic clock; then only rounds that a verdict needs still begin.
BENCHMARKS = (
    *("start_up", "launch", "pull", "sampling", "report", "replicas", "train_cpu", "train_cpu_tutorial"),
    *("gpu", "gpu_networks", "gpu_starts"),
)

ROOT = Path(__file__).resolve().parents[2]
SEEN = ("toolkit", "tests/support", "scripts")  # imported by benchmarks: ngcdl, made_runs, lab_parts


def main() -> int:
    asked = _arguments()
    if asked.write:
        return _write()
    sys.path += [str(ROOT / name) for name in SEEN]
    committed = {one.key: one for one in load()}
    found: dict[tuple[str, str, str], Figure] = {}  # by key: a benchmark may yield a figure again, and then means that
    failed: list[str] = []
    cut.by_term()
    until = time.monotonic() + asked.seconds if asked.seconds else inf
    for one in _measured(asked.names or list(BENCHMARKS), asked.rounds, until, failed):
        found[one.key] = one
        print(said(one), flush=True)
        if asked.keep:  # at once: what is killed later has measured this
            keep([one])
            _write()
    is_worse = _is_worse(list(found.values()), committed)
    is_missed = any(one.is_sure and not one.is_met for one in found.values())
    return 1 if (is_worse if asked.check else is_missed) or failed or not found else 0


def _is_worse(found: list[Figure], committed: dict[tuple[str, str, str], Figure]) -> bool:
    """Compare the new figures with the committed ones; print which are worse and how many could be compared. Return
    whether any is worse."""
    pairs = [(committed[one.key], one) for one in found if one.key in committed]
    pairs = [(kept, new) for kept, new in pairs if is_comparable(kept, new)]
    worse = [(new, text) for kept, new in pairs if (text := fell(kept, new))]
    for one, text in worse:
        where = "" if one.compared == "ratio" else ", on a machine whose processor has the same name"
        print(f"WORSE than committed: {one.benchmark}: {one.what}{beside(one)}: {text}{where}")
    if found:
        print(f"{len(pairs)} of {len(found)} figures could be compared with committed ones, {len(worse)} of them worse")
    return bool(worse)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help=f"of each benchmark; no verdict from fewer than {SURE_ROUNDS}")
    shares = "each has an equal share of what is left; later it begins only the rounds that a verdict needs"
    parser.add_argument("--seconds", type=float, help=f"for all of them together: {shares}")
    parser.add_argument("--check", action="store_true", help="judge by the committed figures, not by the goals")
    parser.add_argument("--keep", action="store_true", help="save to figures.json and docs/performance.md")
    parser.add_argument("--write", action="store_true", help="only regenerate the table of docs/performance.md")
    asked = parser.parse_intermixed_args()  # parse_args() of most Pythons refuses names that follow an option's value
    if strange := set(asked.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(strange))}; choose from {', '.join(BENCHMARKS)}")
    least = SURE_ROUNDS if asked.check or asked.keep else 1
    if asked.rounds is not None and asked.rounds < least:
        parser.error(f"--rounds {asked.rounds} is too few: use --rounds {least}")
    if asked.seconds is not None and not 0 < asked.seconds < inf:
        parser.error(f"--seconds {asked.seconds:g} is no time: use --seconds 600, or another number above 0")
    return asked


def _measured(names: list[str], rounds: int | None, until: float, failed: list[str]) -> Iterator[Figure]:
    """Yield what the benchmarks measure. Print why one fails, add its name to `failed`, and go on."""
    for number, name in enumerate(names):
        here = conditions.here()
        print(f"{name}: {conditions.told(here)}", flush=True)
        try:
            if time.monotonic() > until:
                raise Missing("the time is up")
            for one in importlib.import_module(name).measure(rounds, share(until, len(names) - number)):
                yield replace(one, benchmark=name, conditions=here | one.conditions)
        except Missing as missing:
            print(f"    not measured here: {missing}")
        except (Exception, SystemExit) as error:
            failed.append(name)
            print(f"    {name} failed:", flush=True)
            if isinstance(error, SystemExit):  # such as turns.seconds(), which says what a command said
                print(error, file=sys.stderr, flush=True)
            else:
                traceback.print_exc()


def _write() -> int:
    page.DOCUMENT.write_text(page.written(page.DOCUMENT.read_text(encoding="utf-8"), load()), encoding="utf-8")
    return 0


def beside(one: Figure) -> str:
    return f" against {one.against}" if one.against else ""


def said(one: Figure) -> str:
    """Return a figure as printable lines; the last has the values of all rounds."""
    card = conditions.told({name: one.conditions[name] for name in ("card", "pytorch") if name in one.conditions})
    under = "; ".join(filter(None, [one.note, card]))
    lines = [f"    {one.what}{beside(one)}{f' ({under})' if under else ''}"]
    lines.append(f"        ours {one.spread('ours').told(one.unit)}")
    if one.theirs:
        lines[-1] += f", difference {one.spread('difference').told(one.unit)}, ratio {one.spread('ratio').told('x')}"
    if one.goal and one.is_sure:
        lines[-1] += f"; {'met' if one.is_met else 'MISSED'}: {one.goal.told(one.unit)}"
    lines.append(f"        each round: ours {', '.join(map(each, one.ours))}")
    if one.theirs:
        lines[-1] += f"; theirs {', '.join(map(each, one.theirs))}"
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
