"""What the GPUs are and do, asked of the driver's own library through ctypes, because an image has no binding to it.

A value that the card or the driver does not tell is None, and "error" keeps which call failed with which code
(https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html: 3 is "not supported", 15 "GPU is lost").
Without a driver there are no GPUs: an empty list.
"""
from __future__ import absolute_import, division, print_function

import ctypes

LIBRARY = "libnvidia-ml.so.1"
TEMPERATURE_GPU = 0
CLOCK_SM, CLOCK_MEMORY = 1, 2
NO_SUCH_FUNCTION, NOT_SUPPORTED = -1, 3

# Why clocks are held down, by bit: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = ("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
           "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
           "board_limit", "reliability")


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Library(object):
    """The library, between open() and close(); open() gives None where there is none or where it refuses to work."""

    @classmethod
    def open(cls):
        try:
            library = cls()
        except (OSError, AttributeError):
            return None
        return None if library.call("nvmlInit_v2") else library

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)

    def close(self):
        self.call("nvmlShutdown")

    def call(self, name, *arguments):
        """Give the return code, 0 for success; -1 if this version of the library has no such function."""
        function = getattr(self.library, name, None)
        return function(*arguments) if function else NO_SUCH_FUNCTION

    def handles(self):
        """Give [(index, handle, code)]; a card that is lost has a code other than 0, and no handle."""
        count = ctypes.c_uint()
        if self.call("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return []
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            found.append((index, handle, code))
        return found

    def driver(self):
        text = ctypes.create_string_buffer(96)
        return None if self.call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(96)) else decoded(text)

    def readings(self):
        """Give what the cards do now, one dict each."""
        return [Reading(self, handle, code).now(index) for index, handle, code in self.handles()]

    def cards(self):
        """Give what the cards are, one dict each."""
        return [Reading(self, handle, code).card(index) for index, handle, code in self.handles()]


class Reading(object):
    """One card, and the calls that failed on it."""

    def __init__(self, library, handle, code):
        self.library, self.handle = library, handle
        self.errors = ["nvmlDeviceGetHandleByIndex_v2 %d" % code] if code else []
        self.lost = bool(code)

    def succeeds(self, function, *arguments, **how):
        """Call function(handle, *arguments) and remember a code other than 0, or than those of `unless`."""
        if self.lost:
            return False
        code = self.library.call(function, self.handle, *arguments)
        if code and code not in how.get("unless", ()):
            self.errors.append("%s %d" % (function, code))
        return not code

    def ask(self, function, answer, *before):
        """Call function(handle, *before, &answer); give the answer or None."""
        return answer if self.succeeds(function, *(before + (ctypes.byref(answer),))) else None

    def number(self, function, *before):
        answer = self.ask(function, ctypes.c_uint(), *before)
        return None if answer is None else answer.value

    def large(self, function):
        """Give a number of 64 bits that not every card and driver has: there it is no error, but unknown."""
        answer = ctypes.c_ulonglong()
        told = self.succeeds(function, ctypes.byref(answer), unless=(NO_SUCH_FUNCTION, NOT_SUPPORTED))
        return answer.value if told else None

    def reasons(self):
        """Say why the clocks are held down; [] is not at all. The second name is that of older drivers."""
        mask = self.large("nvmlDeviceGetCurrentClocksEventReasons")
        mask = self.large("nvmlDeviceGetCurrentClocksThrottleReasons") if mask is None else mask
        if mask is None or mask >> 32:
            return None
        return [REASONS[bit] if bit < len(REASONS) else hex(1 << bit) for bit in range(32) if mask >> bit & 1]

    def text(self, function):
        answer = ctypes.create_string_buffer(96)
        return decoded(answer) if self.succeeds(function, answer, ctypes.c_uint(96)) else None

    def now(self, index):
        busy = self.ask("nvmlDeviceGetUtilizationRates", Utilization())
        memory = self.ask("nvmlDeviceGetMemoryInfo", Memory())
        milliwatts = self.number("nvmlDeviceGetPowerUsage")
        millijoules = self.large("nvmlDeviceGetTotalEnergyConsumption")  # Volta and newer have the counter
        values = {
            "index": index, "uuid": self.text("nvmlDeviceGetUUID"), "name": self.text("nvmlDeviceGetName"),
            "gpu_percent": busy and busy.gpu, "memory_percent": busy and busy.memory,
            "memory_used_bytes": memory and memory.used, "memory_total_bytes": memory and memory.total,
            "watts": None if milliwatts is None else milliwatts / 1000,
            "celsius": self.number("nvmlDeviceGetTemperature", ctypes.c_uint(TEMPERATURE_GPU)),
            "sm_mhz": self.number("nvmlDeviceGetClockInfo", ctypes.c_uint(CLOCK_SM)),
            "memory_mhz": self.number("nvmlDeviceGetClockInfo", ctypes.c_uint(CLOCK_MEMORY)),
            "energy_joules": None if millijoules is None else millijoules / 1000,
            "throttle_reasons": self.reasons(),
        }
        return dict(values, error=", ".join(self.errors) or None)

    def card(self, index):
        memory, major, minor = self.ask("nvmlDeviceGetMemoryInfo", Memory()), ctypes.c_int(), ctypes.c_int()
        told = self.succeeds("nvmlDeviceGetCudaComputeCapability", ctypes.byref(major), ctypes.byref(minor))
        return {"index": index, "name": self.text("nvmlDeviceGetName"), "uuid": self.text("nvmlDeviceGetUUID"),
                "memory_bytes": memory and memory.total,
                "compute_capability": "%d.%d" % (major.value, minor.value) if told else None}


def decoded(buffer):
    return buffer.value.decode("utf-8", "replace")


def read():
    """Give the readings of this moment."""
    library = Library.open()
    if library is None:
        return []
    try:
        return library.readings()
    finally:
        library.close()


def compute_capability():
    """Give the first card's as (8, 0), None where there is none or nothing tells it."""
    library = Library.open()
    if library is None:
        return None
    try:
        cards = library.cards()
    finally:
        library.close()
    told = cards[0]["compute_capability"] if cards else None
    return tuple(int(part) for part in told.split(".")) if told else None
