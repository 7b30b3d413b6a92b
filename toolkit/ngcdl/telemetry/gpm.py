"""How much of a card worked, by the counters of NVML's GPU Performance Monitoring (GPM): Hopper and newer cards.

`utilization.gpu` says only for how much of the time some kernel ran, however small. A GPM sample holds the hardware's
counters, and two samples give means over the time between them:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
A percentage that is not given is None, never 0. A card is asked once whether it has GPM; what fails later costs the
percentages of that reading only, and is no error of the card.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any

from ngcdl.telemetry import bounds, calls

Percents = Mapping[str, float | None]

# GpuReading's fields, with the numbers of NVML's metrics SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL and DRAM_BW_UTIL:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html
METRICS = {"sm_active_percent": 2, "sm_occupancy_percent": 3, "tensor_active_percent": 5, "dram_bandwidth_percent": 10}
UNKNOWN: Percents = dict.fromkeys(METRICS)
# The driver renews its counters every 100 ms (nvmlGpmSampleGet, at the address above): samples that are closer may say
# nothing.
SHORTEST_SECONDS = 0.2
# Values are rounded to a tenth, so that a hair above 100 is not lost.
_MOST = bounds.PERCENT + 0.05
_SUCCESS = 0
# Parts of NVML's record, because ctypes takes several times as long for its single fields: after version and count the
# two samples; of each metric, after its number, its own code, its value, and three pointers to texts.
_SAMPLES, _ANSWERS = Struct("PP"), Struct("24x" + "4xId24x" * len(METRICS))


@dataclass
class _Samples:
    """A card's last sample, taken at `at` (None: not yet), and the memory for the next one."""

    last: ctypes.c_void_p
    spare: ctypes.c_void_p
    percents: Percents
    at: float | None = None


class Gpm:
    """Reads cards; the memory of their samples is freed by close()."""

    def __init__(self, binding: Any, now: Callable[[], float] = time.monotonic) -> None:
        self._n, self._now = binding, now
        names = ("QueryDeviceSupport", "SampleAlloc", "SampleFree", "SampleGet", "MetricsGet")
        self._supports, self._alloc, self._free, self._take, self._compute = (
            calls.function(binding, f"Gpm{name}") for name in names
        )
        version = binding.NVML_GPM_METRICS_GET_VERSION
        asked = binding.c_nvmlGpmMetricsGet_t(version=version, numMetrics=len(METRICS))
        for place, number in enumerate(METRICS.values()):
            asked.metrics[place].metricId = number
        self._asked = ctypes.byref(asked)
        self._ask, self._answers = partial(_SAMPLES.pack_into, asked, 8), partial(_ANSWERS.unpack_from, asked)
        self._cards: dict[int | str, _Samples | None] = {}

    def read(self, which: int | str, card: Any) -> Percents:
        """Return means since the previous call for the card `which`, whose handle is `card`; at the first call UNKNOWN.

        A call within SHORTEST_SECONDS gets the same answer again."""
        if which not in self._cards:
            self._cards[which] = self._begun(card)
        samples, now = self._cards[which], self._now()
        if samples is None:
            return UNKNOWN
        if samples.at is None or now - samples.at >= SHORTEST_SECONDS:
            samples.percents = self._next(samples, card, now)
        return samples.percents

    def close(self) -> None:
        """Free the samples. Those of a process that ends without this end with it."""
        for samples in self._cards.values():
            for one in (samples.last, samples.spare) if samples else ():
                self._free(one)
        self._cards.clear()

    def _begun(self, card: Any) -> _Samples | None:
        support = self._n.c_nvmlGpmSupport_t(version=self._n.NVML_GPM_SUPPORT_VERSION)
        if self._supports(card, ctypes.byref(support)) != _SUCCESS or not support.isSupportedDevice:
            return None
        made = [one for one in (ctypes.c_void_p() for _ in "12") if not self._alloc(ctypes.byref(one))]
        if len(made) == 2:
            return _Samples(made[0], made[1], UNKNOWN)
        for one in made:
            self._free(one)
        return None

    def _next(self, samples: _Samples, card: Any, now: float) -> Percents:
        if self._take(card, samples.spare) != _SUCCESS:
            return UNKNOWN  # the next reading is over the time since the last sample that was taken
        samples.last, samples.spare = samples.spare, samples.last
        is_first, samples.at = samples.at is None, now
        if is_first:
            return UNKNOWN
        self._ask(samples.spare.value, samples.last.value)
        if self._compute(self._asked) != _SUCCESS:
            return UNKNOWN
        answers = self._answers()
        return {
            name: round(value, 1) if code == _SUCCESS and 0 <= value < _MOST else None  # NaN is in no range
            for name, code, value in zip(METRICS, answers[::2], answers[1::2], strict=True)
        }
