"""How often a run and its machine are sampled."""

from __future__ import annotations

from math import ceil

from ngcdl.errors import BadOption

USUAL_SAMPLE_SECONDS = 1.0
# A card's counter of energy is trusted over pauses of a minute (report/measured/energy.py), in which one sample may be
# missing.
SHORTEST_SAMPLE_SECONDS, LONGEST_SAMPLE_SECONDS = 0.1, 30.0
# /proc/stat counts in hundredths of a second: over 0.1 s a processor's use has a resolution of 10 percentage points,
# over 0.5 s of 2. https://man7.org/linux/man-pages/man5/proc_stat.5.html
FULL_SECONDS = 0.5
RUN_UNREAD = "run: its processes can't be read (any more)"  # a gap, often the last, as the run has ended
MISSED = "ticks before this one were missed"  # ends one reason of a gap, after their number


def parse_sample_seconds(seconds: float) -> float:
    """Return the time between two samples. Raise BadOption if it is too short or too long."""
    if not SHORTEST_SAMPLE_SECONDS <= seconds <= LONGEST_SAMPLE_SECONDS:
        can = f"a number of seconds from {SHORTEST_SAMPLE_SECONDS:g} to {LONGEST_SAMPLE_SECONDS:g}"
        raise BadOption(f"--sample-every {seconds:g}: must be {can}.")
    return seconds


def samples_to_full(sample_seconds: float) -> int:
    """Return how many samples make one full sample, which tells everything: the others tell the GPUs' use and power
    alone."""
    return ceil(FULL_SECONDS / sample_seconds)
