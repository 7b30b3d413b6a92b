"""What is said of a run whose card could not be read for most of the time: no more than its few readings show."""

from __future__ import annotations

from typing import Any

import pytest
from made_summaries import GPU_RUN, filled

from ngcdl.record import Run

START = {"event": "start", "t": 0.0, "device": "gpu", "batch": 100}
STEPS = [
    {"event": "step", "t": float(at), "step": at, "examples_per_second": 1000.0, "seconds_per_batch": 0.1}
    for at in range(1, 61)
]
BUSY = {"index": 0, "uuid": "GPU-1", "gpu_percent": 97, "own_processes": 1, "foreign_processes": 0, "error": None}
# The driver answers, but not about this card; the driver gives no answer, or the sampling process has ended.
SILENT = [[{"index": 0, "uuid": "GPU-1", "gpu_percent": None, "foreign_processes": None, "error": "lost"}], []]


def trained(read: int, otherwise: list[dict[str, Any]]) -> Run:
    """Return a training of a minute, in which the card was read for `read` seconds."""
    samples = [
        {"t": float(at), "host_cpu_percent": 20.0, "gpus": [BUSY] if at <= read else otherwise} for at in range(1, 61)
    ]
    return filled(GPU_RUN, [START, *STEPS], samples)


@pytest.mark.parametrize("otherwise", SILENT)
@pytest.mark.parametrize(("read", "rules"), [(4, []), (5, ["compute-bound"])])
def test_few_readings_of_the_card_are_no_evidence_however_often_the_host_was_read(
    read: int, rules: list[str], otherwise: list[dict[str, Any]]
) -> None:
    run = trained(read, otherwise)
    assert (run.summary.training_samples, run.summary.gpu_percent_mean) == (read, 97)
    assert [found.rule for found in run.findings or ()] == rules


def test_where_no_card_s_use_is_ever_known_the_host_s_readings_count() -> None:
    run = trained(0, SILENT[0])
    assert (run.summary.training_samples, run.summary.gpu_percent_mean) == (60, None)


@pytest.mark.parametrize("otherwise", SILENT)
@pytest.mark.parametrize(("read", "shared"), [(53, None), (54, False)])
def test_that_nobody_shared_the_card_is_known_only_if_nearly_all_samples_tell(
    read: int, shared: bool | None, otherwise: list[dict[str, Any]]
) -> None:
    assert trained(read, otherwise).summary.shared_gpu is shared
