"""Time two commands as whole processes, turn and turn about, and say how they compare.

    pair.py [--runs N] [--limit SECONDS] [--limit-difference SECONDS] NAME // COMMAND... // PEER...

The order within a pair alternates, one warm-up pair is thrown away. Told are median (least..most) of each, of the
differences within the pairs, and of the ratios: a machine that slows down slows both. Exits with 1 where a limit is
missed by the median.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from statistics import median


def main() -> int:
    ours, peer, asked = _arguments(sys.argv[1:])
    pairs = []
    for turn in range(asked.runs + 1):
        first, second = (ours, peer) if turn % 2 else (peer, ours)
        times = {id(command): _seconds(command) for command in (first, second)}
        if turn:
            pairs.append((times[id(ours)], times[id(peer)]))
    return _report(asked, pairs)


def _arguments(argv: list[str]) -> tuple[list[str], list[str], argparse.Namespace]:
    head, ours, peer = _split(argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--limit", type=float, help="seconds that COMMAND may take")
    parser.add_argument("--limit-difference", type=float, help="seconds that COMMAND may take more than PEER")
    return ours, peer, parser.parse_args(head)


def _split(argv: list[str]) -> tuple[list[str], list[str], list[str]]:
    parts: list[list[str]] = [[]]
    for word in argv:
        if word == "//":
            parts.append([])
        else:
            parts[-1].append(word)
    head, ours, peer = (*parts, [], [])[:3]
    return head, ours, peer


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return seconds


def _spread(values: list[float], unit: str) -> str:
    return f"{median(values):.3f} ({min(values):.3f}..{max(values):.3f}) {unit}"


def _report(asked: argparse.Namespace, pairs: list[tuple[float, float]]) -> int:
    ours, peer = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    differences = [a - b for a, b in pairs]
    load = os.getloadavg()[0]
    host = f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}"
    print(f"{asked.name}: {len(pairs)} pairs, {host}")
    print(f"    ngcdl       {_spread(ours, 's')}")
    print(f"    peer        {_spread(peer, 's')}")
    print(f"    difference  {_spread(differences, 's')}")
    print(f"    ratio       {_spread([a / b for a, b in pairs], 'x')}")
    missed = []
    if asked.limit is not None and median(ours) > asked.limit:
        missed.append(f"{median(ours):.3f} s is over the limit of {asked.limit:g} s")
    if asked.limit_difference is not None and median(differences) > asked.limit_difference:
        missed.append(f"{median(differences):.3f} s more than the peer, the limit is {asked.limit_difference:g} s")
    for line in missed:
        print(f"    MISSED: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
