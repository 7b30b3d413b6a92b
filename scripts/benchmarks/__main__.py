"""Measure ngcdl beside its peers, turn and turn about, and say what it reached of its goals.

What is told is median (least..most) of the rounds. Exits with 1 where a goal is missed; with --check instead where a
figure is worse than the committed one by more than the spread.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import conditions
import page
from figures import Figure, Missing, fell, keep, load

# Each is a file here whose `measure(rounds)` (None: as many as it likes) gives Figures, or raises Missing.
BENCHMARKS = (
    *("start_up", "launch", "pull", "sampling", "report", "replicas", "train_cpu", "train_cpu_tutorial"),
    *("gpu", "gpu_networks", "gpu_starts"),
)

ROOT = Path(__file__).resolve().parents[2]
SEEN = ("toolkit", "tests", "scripts")  # by benchmarks: ngcdl, made_runs, lab_parts


def main() -> int:
    asked = _arguments()
    if asked.write:
        return _write()
    sys.path += [str(ROOT / name) for name in SEEN]
    committed = {one.key: one for one in load()}
    found, worse = [], []
    for one in _measured(asked.names or list(BENCHMARKS), asked.rounds):
        found.append(one)
        print(said(one), flush=True)
        if one.key in committed and (text := fell(committed[one.key], one)):
            worse.append(f"{one.benchmark}: {one.what}{beside(one)}: {text}")
    if asked.keep:
        keep(found)
        _write()
    for line in worse:
        print(f"WORSE than committed: {line}")
    missed = [one for one in found if not one.is_met]
    return 1 if (worse if asked.check else missed) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="of each; at least 3, or nothing can be said of the spread")
    parser.add_argument("--check", action="store_true", help="fail by the committed figures, not by the goals")
    parser.add_argument("--keep", action="store_true", help="keep it in figures.json and docs/performance.md")
    parser.add_argument("--write", action="store_true", help="only write the table of docs/performance.md anew")
    asked = parser.parse_args()
    if strange := set(asked.names) - set(BENCHMARKS):
        parser.error(f"there is no {', '.join(sorted(strange))}; there is {', '.join(BENCHMARKS)}")
    return asked


def _measured(names: list[str], rounds: int | None) -> Iterator[Figure]:
    for name in names:
        here = conditions.here()
        print(f"{name}: {', '.join(here.values())}", flush=True)
        try:
            for one in importlib.import_module(name).measure(rounds):
                yield replace(one, benchmark=name, conditions=here | one.conditions)
        except Missing as missing:
            print(f"    not measured here: {missing}")


def _write() -> int:
    page.DOCUMENT.write_text(page.written(page.DOCUMENT.read_text(encoding="utf-8"), load()), encoding="utf-8")
    return 0


def beside(one: Figure) -> str:
    return f" against {one.against}" if one.against else ""


def said(one: Figure) -> str:
    """Give what is printed of a figure: three lines at most."""
    lines = [f"    {one.what}{beside(one)}{f' ({one.note})' if one.note else ''}"]
    lines.append(f"        ours {one.spread('ours').told(one.unit)}")
    if one.theirs:
        lines[-1] += f", difference {one.spread('difference').told(one.unit)}, ratio {one.spread('ratio').told('x')}"
    if one.goal:
        lines[-1] += f"; {'reached' if one.is_met else 'MISSED'}: {one.goal.told(one.unit)}"
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
