"""Figures that others measured and published, with their hardware: theirs.csv, and table7.csv from one of the sources.

Other machines, other versions, often another way of timing: nothing here is ever divided by our figures.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from ngcdl.frozen import dataclass
from ngcdl.report.compared.arm import counted

SOURCES = {
    "A": 'the article "GPU accelerated deep learning" (2018-02): TensorFlow 1.4 of tensorflow:18.01-py2, driver '
    "390.12, batch 128, 5,000 images in the queue where the tutorial has 20,000",
    "B": "Table 7 of Shi et al., Benchmarking State-of-the-Art Deep Learning Software Tools (2016), as quoted by "
    "F. Fleuret, AMMI 2018, 6.6: https://fleuret.org/ammi-2018/",
    "C": 'the questions and answers under "Why do we need GPU for Deep Learning?" (2017)',
    "D": 'the article "Quick (and free) experiment for CPU vs GPU for Deep Learning": Keras, batch 32, 10 epochs',
    "E": 'the slides "Graphical Processing Units For Deep Learning" by S. Agrawal (2020): Keras, 20,000 images',
}
# By workload: where a source's text differs from the figures it prints, and what is known to be wrong with a row.
NOTES = {
    "cifar10": 'Its text says "about 8 times as fast"; the figures it prints give 7.8. It puts the CPU\'s load at '
    '"about 1/4"; the figures it prints give 0.32 of the user time.',
    "cifar10-keras": 'Its text says "84 % after 10 epochs"; what it prints is in this table. The test was printed '
    "once, after the training on the CPU.",
    "inference": "Both without batching; the Titan X's factor is a vendor's, quoted in the same place.",
}
# Workloads whose rows also answer another question than CPU against GPU -> what is varied in it.
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
    """Return what others measured for `workload`; None if nothing was published."""
    rows = read("theirs.csv", workload)
    if not rows:
        return table7(workload)
    cells = {(row["figure"], row["device"]): row["value"] for row in rows}
    sources = "; ".join(SOURCES[key] for key in dict.fromkeys(row["source"] for row in rows))
    return _table(cells, sources, (NOTES.get(workload),))


def beside(workload: str, vary: str) -> Table | None:
    """Return what others measured for `workload` if it answers the question posed by varying `vary`; else None."""
    if vary == "threads":
        return table7(workload)
    return published(workload) if vary == "device" or vary in _ASKED.get(workload, ()) else None


def table7(workload: str) -> Table | None:
    """Return a network's five rows of Table 7: a row for each tool, a column for each device and number of threads."""
    cells = {(row["tool"], _column(row)): row["seconds"] for row in read("table7.csv", workload)}
    return _table(cells, SOURCES["B"], (_BENCH, _TABLE7_NOTES.get(workload))) if cells else None


def _table(cells: Mapping[tuple[str, str], str], source: str, notes: Sequence[str | None]) -> Table:
    """Lay out `cells`, by row and column."""
    columns = tuple(dict.fromkeys(column for _, column in cells))
    names = dict.fromkeys(name for name, _ in cells)
    rows = tuple((name, tuple(cells.get((name, column), "") for column in columns)) for name in names)
    return Table(columns, rows, source, tuple(filter(None, notes)))


def _column(row: Mapping[str, str]) -> str:
    return row["device"] + (f", {counted(row['threads'], 'thread')}" if row["threads"] else "")


def read(name: str, workload: str | None) -> list[dict[str, str]]:
    """Return the rows about `workload` in the CSV file `name`."""
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["workload"] == workload]
