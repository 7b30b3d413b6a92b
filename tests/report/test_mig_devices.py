"""A MIG device is called by its card and its place there, as --gpus takes it: 1:0 is not the card 0."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from made_runs import STARTED
from made_summaries import summary

from ngcdl.cli.live import _line, rows_of
from ngcdl.cli.shown import _summary
from ngcdl.record import GpuSummary, Run
from ngcdl.report.measured.bottleneck import diagnose
from ngcdl.report.measured.naming import place
from ngcdl.report.measured.now import now
from ngcdl.report.measured.observed import observed
from ngcdl.report.measured.told import Told
from ngcdl.report.measured.words import written
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.difference import difference
from ngcdl.report.shown.page import page
from ngcdl.storing.store import Store

CARDS = [
    {"index": 0, "uuid": "MIG-a", "name": "A100 MIG 1g", "memory_used_bytes": 1 << 30, "sm_mhz": 1400, "card_index": 1},
    {"index": 0, "uuid": "MIG-b", "name": "A100 MIG 1g", "memory_used_bytes": 1 << 30, "sm_mhz": 1400, "card_index": 2},
]
SAMPLES = [{"t": STARTED + t, "host_cpu_percent": 20.0, "gpus": CARDS} for t in range(60)]
RUN = Run("x", "finished", STARTED, STARTED + 60, exit_code=0, spec={"command": ["python"]}, gpus=("MIG-a", "MIG-b"))
USED = replace(RUN, summary=summary([], SAMPLES, is_command=True))


@pytest.mark.parametrize(("index", "card_index", "named"), [
    (3, None, "3"), (3.0, None, "3"), (0, 1, "1:0"), (2.0, 0.0, "0:2"), (None, None, None), (None, 1, None),
])  # fmt: skip
def test_a_card_is_named_as_gpus_takes_it(index: float | None, card_index: float | None, named: str | None) -> None:
    assert place(index, card_index) == named


def test_a_record_has_the_card_of_a_mig_device() -> None:
    assert [(gpu.card_index, gpu.index) for gpu in USED.summary.gpus] == [(1, 0), (2, 0)]
    assert Run.from_json(USED.as_json()) == USED
    whole = [{**card, "card_index": None} for card in CARDS]
    assert [gpu.card_index for gpu in summary([], [{"t": 1.0, "gpus": whole}]).gpus] == [None, None]


def test_it_is_called_so_on_the_screen_and_on_the_page(store: Store) -> None:
    store.create(USED)
    shown = _summary(store, USED, io.StringIO())
    assert re.findall(r"^GPU \d\S*", shown, re.MULTILINE) == ["GPU 1:0", "GPU 2:0"]
    text = page([read_story(USED, [], SAMPLES)])
    assert "GPU 1:0 ranges from" in text
    assert "GPU 2:0 ranges from" in text
    assert observed(USED)[0].startswith("GPU 1:0: n/a busy, at most 1.0 GiB; GPU 2:0: ")


def test_it_is_called_so_while_the_run_goes_on() -> None:
    read = now([], [{**SAMPLES[0], "t": 99.0}], 100.0)
    assert [name for name, _ in rows_of(RUN, read, 100.0) if name.startswith("GPU")] == ["GPU 1:0", "GPU 2:0"]
    assert "   GPU 1:0 " in _line(RUN, read, 100.0)


def test_it_is_called_so_in_a_difference_and_in_what_held_the_run_back() -> None:
    names = [written(name) for name in difference(USED, USED).figures]
    assert "GPU 2:0 peak memory" in [name for name, _ in filter(None, names)]
    assert not [name for name, _ in filter(None, names) if "index" in name]
    one = GpuSummary("MIG-a", "A100 MIG 1g", 97.0, index=0, card_index=1)
    cards = (one, replace(one, uuid="MIG-b", gpu_percent_mean=1.0, card_index=2))
    whole = replace(USED.summary, training_samples=20, steps=9, gpus=cards)
    said = [found.text for found in diagnose(replace(RUN, device="gpu", summary=whole), Told([]))]
    assert any("1 of its 2 GPUs did nothing (2:0)" in text for text in said)
