"""Figures that others measured and published, with their hardware: theirs.csv, and table7.csv from one of the sources.

Other machines, other versions, often another way of timing: nothing here is ever divided by our figures.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = {
    "A": 'the article "GPU accelerated deep learning" (2018-02): TensorFlow 1.4 of tensorflow:18.01-py2, driver '
    "390.12, batch 128, 5,000 images in the queue where the tutorial has 20,000",
    "B": "Table 7 of Shi et al., Benchmarking State-of-the-Art Deep Learning Software Tools (2016), as quoted by "
    "F. Fleuret, AMMI 2018, 6.6: https://fleuret.org/ammi-2018/",
    "C": 'the questions and answers under "Why do we need GPU for Deep Learning?" (2017)',
    "D": 'the article "Quick (and free) experiment for CPU vs GPU for Deep Learning": Keras, batch 32, 10 epochs',
    "E": 'the slides "Graphical Processing Units For Deep Learning" by S. Agrawal (2020): Keras, 20,000 images',
}
# Where their text differs from what they printed, and what is known to be wrong with a row.
NOTES = {
    "cifar10": 'Its text says "about 8 times as fast"; the figures it prints give 7.8. It puts the CPU\'s load at '
    '"about 1/4"; the figures it prints give 0.32 of the user time.',
    "cifar10-keras": 'Its text says "84 % after 10 epochs"; what it prints is in this table. The test was printed '
    "once, after the training on the CPU.",
    "inference": "Both without batching; the Titan X's factor is a vendor's, quoted in the same place.",
}
# The workloads with rows that answer another question than CPU against GPU: what is varied.
_ASKED = {"batch-sweep": ("batch",), "inference": ("batch",)}
_BENCH = (
    "Seconds for a step at this network's mini-batch. Desktop CPU: Core i7-3820, 4 cores; server CPU: Xeon E5-2630 v3, "
    "or v4 in 2017; K80: one GPU of the card; CUDA 8.0, cuDNN 5.1."
)
_TABLE7_NOTES = {
    "lstm": "CNTK's row can't be compared: it would exceed what its processor can do; most likely it is for 128 tokens "
    "where the others took 128 x 32 (inferred).",
    "alexnet-s": "MXNet's row can't be compared: its script left out four layers.",
    "fcn-s": "Caffe's 15.444 s at 8 threads on 4 cores is as printed: oversubscribed, or a misprint.",
}


@dataclass(frozen=True)
class Table:
    """Each row is a name and a cell for each of `columns`, "" where nothing was published."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    source: str
    notes: tuple[str, ...] = ()


def published(workload: str) -> Table | None:
    """Return what others measured for `workload`; None if they did not."""
    return _pivot(workload) or table7(workload)


def beside(workload: str | None, vary: str) -> Table | None:
    """Return what others measured for `workload` if it answers the question posed by varying `vary`; else None."""
    if vary == "threads":
        return table7(workload or "")
    return published(workload or "") if vary == "device" or vary in _ASKED.get(workload or "", ()) else None


def _pivot(workload: str) -> Table | None:
    rows = [row for row in _read("theirs.csv") if row["workload"] == workload]
    if not rows:
        return None
    devices = tuple(dict.fromkeys(row["device"] for row in rows))
    cells = {(row["figure"], row["device"]): row["value"] for row in rows}
    figures = dict.fromkeys(row["figure"] for row in rows)
    table = tuple((figure, tuple(cells.get((figure, device), "") for device in devices)) for figure in figures)
    sources = "; ".join(SOURCES[key] for key in dict.fromkeys(row["source"] for row in rows))
    return Table(devices, table, sources, tuple(note for note in (NOTES.get(workload),) if note))


def table7(workload: str) -> Table | None:
    """Return a network's five rows of Table 7: a row for each tool, a column for each device and number of threads."""
    rows = [row for row in _read("table7.csv") if row["workload"] == workload]
    if not rows:
        return None
    columns = tuple(dict.fromkeys(_column(row) for row in rows))
    cells = {(row["tool"], _column(row)): row["seconds"] for row in rows}
    tools = dict.fromkeys(row["tool"] for row in rows)
    table = tuple((tool, tuple(cells.get((tool, column), "") for column in columns)) for tool in tools)
    notes = (_BENCH, *(note for note in (_TABLE7_NOTES.get(workload),) if note))
    return Table(columns, table, SOURCES["B"], notes)


def _column(row: Mapping[str, str]) -> str:
    threads = f", {row['threads']} thread{'s' if row['threads'] != '1' else ''}" if row["threads"] else ""
    return row["device"] + threads


def _read(name: str) -> Iterator[dict[str, str]]:
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
