"""How much of a card worked since the reading before, by the counters of NVML's GPU Performance Monitoring (GPM).

Hopper and newer cards have them: https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
A percentage that is not given is None. A card is asked once whether it has them; what fails later costs the percentages
of that reading only.
"""
from __future__ import absolute_import, division, print_function

import ctypes

# NVML's metrics SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL and DRAM_BW_UTIL:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html
METRICS = (("sm_active_percent", 2), ("sm_occupancy_percent", 3), ("tensor_active_percent", 5),
           ("dram_bandwidth_percent", 10))
UNKNOWN = dict((name, None) for name, _ in METRICS)
ROOM = 1024  # the driver's own structure has room for each metric that it knows, 476 in nvidia-ml-py 13.615


class Support(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("is_supported", ctypes.c_uint)]


class Metric(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint), ("code", ctypes.c_int), ("value", ctypes.c_double),
                ("texts", ctypes.c_void_p * 3)]


class Asked(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("count", ctypes.c_uint), ("before", ctypes.c_void_p),
                ("now", ctypes.c_void_p), ("metrics", Metric * ROOM)]


class Counters(object):
    """One card's. `call`(name, *arguments) calls the driver's library, and returns a code, 0 for success."""

    def __init__(self, call, card):
        self.call, self.card, self.samples, self.is_begun = call, card, [], False
        support = Support(version=1)
        if not call("nvmlGpmQueryDeviceSupport", card, ctypes.byref(support)) and support.is_supported:
            made = [ctypes.c_void_p(), ctypes.c_void_p()]
            self.samples = [one for one in made if not call("nvmlGpmSampleAlloc", ctypes.byref(one))]
        if len(self.samples) < 2:
            self.close()

    def close(self):
        for sample in self.samples:
            self.call("nvmlGpmSampleFree", sample)
        self.samples = []

    def read(self):
        """Return means since the previous reading, 0..100; at the first one UNKNOWN."""
        if not self.samples or self.call("nvmlGpmSampleGet", self.card, self.samples[0]):
            return UNKNOWN
        now, before = self.samples
        self.samples = [before, now]  # the next sample replaces the older one
        was_begun, self.is_begun = self.is_begun, True
        return self.between(before, now) if was_begun else UNKNOWN

    def between(self, before, now):
        asked = Asked(version=1, count=len(METRICS), before=before, now=now)
        for place, (_, number) in enumerate(METRICS):
            asked.metrics[place].number = number
        if self.call("nvmlGpmMetricsGet", ctypes.byref(asked)):
            return UNKNOWN
        return dict((name, percent(asked.metrics[place])) for place, (name, _) in enumerate(METRICS))


def percent(metric):
    """Return a metric's value, rounded so that a hair above 100 is not lost. NaN is in no range."""
    value = round(metric.value, 1)
    return value if metric.code == 0 and 0 <= value <= 100 else None
