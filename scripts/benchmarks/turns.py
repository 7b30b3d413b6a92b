"""Several ways to do the same, measured in alternation: a machine that slows down affects all of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from figures import SURE_ROUNDS, each


def numbered(rounds: int, until: float, first: int = 0) -> Iterator[int]:
    """Yield the number of each round. When the monotonic clock is past `until`, only those that a verdict needs
    (SURE_ROUNDS) still come."""
    for number in range(first, rounds):
        if number >= SURE_ROUNDS and time.monotonic() > until:
            return
        yield number


def share(until: float, of: int) -> float:
    """Return when the first of so many equal shares of the time until then is over."""
    now = time.monotonic()
    return now + (until - now) / of


def in_turn(
    ways: Mapping[str, Callable[[], float]], rounds: int, warm_ups: int = 1, until: float = inf
) -> dict[str, tuple[float, ...]]:
    """Measure each way once per round, every other round in reverse order, and print its values, which are all that is
    left of what is cut short. Warm-ups come first and are discarded. `until`: as for numbered()."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in numbered(rounds, until, -warm_ups):
        values = {name: measure() for name, measure in list(ways.items())[:: -1 if turn % 2 else 1]}
        if turn >= 0:
            for name, value in values.items():
                taken[name].append(value)
            print(f"    round {turn + 1}: {'; '.join(f'{name} {each(values[name])}' for name in ways)}", flush=True)
    return {name: tuple(values) for name, values in taken.items()}


def seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Run a process to its end and return the seconds it took. Raise SystemExit if it fails."""
    began = time.perf_counter()
    run(command, environment)
    return time.perf_counter() - began


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bytes:
    """Run a process to its end and return its stdout. Raise SystemExit if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{list(command)} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-800:]}")
    return done.stdout
