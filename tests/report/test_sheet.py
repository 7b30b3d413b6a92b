"""The CSV of many steps, made a column at a time, has the bytes that csv would write."""

from __future__ import annotations

import csv
import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ngcdl.record import Run
from ngcdl.report.measured.lines import number
from ngcdl.report.shown.sheet import COLUMNS, sheet

ODD = st.sampled_from([None, True, "5", "a,b", 0.0, -0.0, 1e-4, 9.9e-5, 1e16, 1e15, 1e300, 10**16, 10**400, [], {}])
VALUES = st.one_of(st.floats(), st.floats(1e-6, 1e18), st.integers(0, 1000), ODD)
STEPS = st.fixed_dictionaries({"event": st.sampled_from(["step", "eval", "start"]), "t": VALUES, "loss": VALUES})


@given(st.lists(STEPS, max_size=10), st.integers(1, 20), st.sampled_from(["cifar10", 'a,"b"\r\n', "=1", ""]))
def test_steps_are_written_as_csv_writes_them(events: list[Any], many: int, name: str) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    for event in events * many:
        t, loss = number(event["t"]), number(event["loss"])
        if event["event"] != "start":
            seconds = None if t is None else round(t - 5.5, 6)
            named = f"'{name}" if name.startswith("=") else name
            known = {"run": "r", "kind": event["event"], "dataset": named, "loss": loss, "t": t, "seconds": seconds}
            writer.writerow(known)
    assert "".join(sheet(Run("r", "finished", 5.5, dataset=name), events * many, [], head=False)) == text.getvalue()
