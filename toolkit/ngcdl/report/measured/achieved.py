"""How many FLOP/s a training achieved, and what share of its cards' peak that is. Pure.

Only the operations of convolutions and matrix products count, as the workload states them for one example; a card's
peak is a row of catalog/peaks.py. The peak holds at the rated boost clock and is scaled up if the measured clock was
higher. A CPU's peak is not known here.
"""

from __future__ import annotations

from dataclasses import replace

from ngcdl.catalog.peaks import Peak, peak
from ngcdl.record import Summary
from ngcdl.report.measured.lines import Line, number, text, texts_in

# Winograd's algorithm for 3 x 3 convolutions needs 2.25 times fewer multiplications than are counted:
# https://arxiv.org/abs/1509.09308
WINOGRAD = 2.25


def with_peak(summed: Summary, start: Line) -> Summary:
    """Return `summed` with what it achieved; `start` is the trainer's last start event."""
    each, rate = number(start.get("flops_per_example")), summed.examples_per_second
    if each is None or rate is None:
        return summed
    flops, at_most = each * rate, _peak(summed, start)
    summed = replace(summed, flops_per_second=number(flops))
    if at_most is None:
        return summed
    cards = number(start.get("replicas")) or 1.0  # one card for each replica
    faster = max((summed.sm_mhz_mean or 0.0) / at_most.boost_mhz, 1.0)  # than the rated boost clock
    share = flops / (cards * at_most.flops * faster)
    return replace(summed, peak_share=number(share), peak_source=at_most.source, peak_recalled=at_most.recalled)


def _peak(summed: Summary, start: Line) -> Peak | None:
    if start.get("device") != "gpu" or any((gpu.uuid or "").startswith("MIG-") for gpu in summed.gpus):
        return None  # a MIG device is part of a card, though TensorFlow 1 reports the card's name
    # "/physical_device:GPU:0" is TensorFlow's own name and does not identify a card
    told = [name for name in texts_in(start.get("devices")) or () if "device:GPU:" not in name]
    names = told or [gpu.name for gpu in summed.gpus if gpu.name]
    precision = text(start.get("precision")) or "float32"
    return next((at_most for name in names if (at_most := peak(name, precision))), None)


def allowed(start: Line) -> float:
    """Return the share of the peak that a training can reach: more than 1 if it is mostly 3 x 3 convolutions."""
    small = number(start.get("share_of_3x3"))
    return WINOGRAD if small is not None and small > 0.5 else 1.0
