"""What the GPUs are and do, read from the driver's own library through ctypes: images have no Python binding for it.

A value that the card or the driver does not report is None. With MIG on, power and energy are None, because the driver
gives the whole card's (https://github.com/NVIDIA/dcgm-exporter/issues/257), as is how much of the card worked, and the
memory is that of the program's MIG device; the rest is the card's. "error" names each call that failed, with its return
code (https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html: 15 is "GPU is lost").
Without a driver the list of GPUs is empty.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import ctypes
import os

from . import gpm

LIBRARY = "libnvidia-ml.so.1"
TEMPERATURE_GPU = 0
CLOCK_SM, CLOCK_MEMORY = 1, 2
NO_SUCH_FUNCTION = -1
# Not failures: the card or this driver does not offer the value (3: not supported, 13: no such function, 25 and 26: not
# in this form). With MIG on, 2 and 4 mean the same: some values of the whole card are for root only, or not available.
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html ("In MIG mode, if device handle is provided")
NOT_OFFERED, NOT_OFFERED_WITH_MIG = (NO_SUCH_FUNCTION, 3, 13, 25, 26), (2, 4)

# Why clocks are reduced, by bit: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = ("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
           "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
           "board_limit", "reliability")

# Which of the driver's cards CUDA shows this program. The variable is read at import, because the trainer changes it
# later to keep a framework on the CPU. CUDA numbers cards as NVML does only in the order of the PCI bus, which Slurm
# uses too: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES")
HAS_NUMBERS = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or "SLURM_JOB_ID" in os.environ
MOST_PARTS = 7  # MIG devices of a card
MOST_PROCESSES, NOT_TOLD = 256, 2 ** 64 - 1
# Above what any card has: larger values are NVML's "no value" (0xFFFFFFFF, 2**64 - 1), or garbage.
BYTES, MILLIWATTS, MILLIJOULES, MHZ, CELSIUS, PERCENT = 2 ** 50, 10 ** 8, 2 ** 60, 10 ** 5, 150, 100
# Jetsons, Thor and GB10 (DGX Spark), which use the machine's memory: https://developer.nvidia.com/cuda-gpus
ON_ARM_CHIPS = "5.3", "6.2", "7.2", "8.7", "11.0", "12.1"


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class MemoryToday(ctypes.Structure):
    """The structure since driver 510: "used" excludes what the driver reserves, as in nvidia-smi and in ngcdl on the
    host."""
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("taken", ctypes.c_ulonglong), ("parts", ctypes.c_uint * 2)]


class Library(object):
    """The library, between open() and close(); open() returns None if it is missing or does not work."""

    @classmethod
    def open(cls):
        try:
            library = cls()
        except (OSError, AttributeError):
            return None
        return None if library.call("nvmlInit_v2") else library

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)
        self.shown = None
        self.counters, self.told = {}, {}

    def close(self):
        for counters in self.counters.values():
            counters.close()
        self.call("nvmlShutdown")

    def call(self, name, *arguments):
        """Return the return code, 0 for success; -1 if this version of the library has no such function."""
        function = getattr(self.library, name, None)
        return function(*arguments) if function else NO_SUCH_FUNCTION

    def handles(self):
        """Return [(index, handle, code)] of the cards that visible() chooses; a lost card has a code other than 0, and
        no handle."""
        count = ctypes.c_uint()
        if self.call("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return []
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            found.append((index, handle, code))
        if self.shown is None:  # asked only once: the UUID of a card that is lost later can't be read
            self.shown = self.visible(found)
        return [card for card in found if card[0] in self.shown]

    def visible(self, cards):
        """Return the indices of the cards that CUDA_VISIBLE_DEVICES names; of all cards if the variable is not set, or
        if an entry does not name exactly one card here (in a container, the index may be the host's). As in CUDA, the
        list ends at the first entry that is neither an index nor a UUID: "", -1 and void hide all cards."""
        if VISIBLE is None:
            return set(index for index, _, _ in cards)
        names = {index: [] if code else self.names(handle) for index, handle, code in cards}
        kept = set()
        for word in [one.strip() for one in VISIBLE.split(",")]:
            if not word.isdigit() and word[:4] not in ("GPU-", "MIG-"):
                break
            named = [index for index in names if (HAS_NUMBERS and word == str(index)) or (
                word[:4] in ("GPU-", "MIG-") and any(name.startswith(word) for name in names[index]))]
            if len(named) != 1:
                return set(names)
            kept.update(named)
        return kept

    def names(self, handle):
        """Return the UUIDs of a card and of its MIG devices."""
        uuids = [self.uuid(each) for each in [handle] + self.parts(handle)]
        return [uuid for uuid in uuids if uuid]

    def uuid(self, handle):
        return Reading(self, handle, 0).text("nvmlDeviceGetUUID")

    def parts(self, handle):
        """Return the handles of a card's MIG devices."""
        handles = []
        for at in range(MOST_PARTS):
            part = ctypes.c_void_p()
            if not self.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(at), ctypes.byref(part)):
                handles.append(part)
        return handles

    def only_part(self, handle):
        """Return the handle of the one MIG device that this program computes on; None if that is not known."""
        parts = self.parts(handle)
        if len(parts) > 1:
            words = [word.strip() for word in (VISIBLE or "").split(",")]
            parts = [part for part in parts if any(
                word[:4] == "MIG-" and (self.uuid(part) or "").startswith(word) for word in words)]
        return parts[0] if len(parts) == 1 else None

    def driver(self):
        text = ctypes.create_string_buffer(96)
        return None if self.call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(96)) else decoded(text)

    def readings(self):
        """Return what the cards do now, one dict each, and since the previous call how much of them worked. A card that
        is lost keeps its UUID and its name: it is no other card."""
        found = [Reading(self, handle, code).now(index) for index, handle, code in self.handles()]
        for card in found:
            told = self.told.setdefault(card["index"], {})
            for name in "uuid", "name":
                card[name] = told[name] = told.get(name) if card[name] is None else card[name]
        return found

    def worked(self, index, handle):
        if index not in self.counters:
            self.counters[index] = gpm.Counters(self.call, handle)
        return self.counters[index].read()

    def cards(self):
        """Return what the cards are, one dict each."""
        return [Reading(self, handle, code).card(index) for index, handle, code in self.handles()]


class Reading(object):
    """One card, and the calls that failed on it."""

    def __init__(self, library, handle, code):
        self.library, self.handle = library, handle
        self.errors = ["nvmlDeviceGetHandleByIndex_v2 %d" % code] if code else []
        self.lost = bool(code)

    def succeeds(self, function, *arguments):
        """Call function(handle, *arguments), keep the code of a failure, and return whether the call succeeded."""
        if self.lost:
            return False
        code = self.library.call(function, self.handle, *arguments)
        if code and code not in NOT_OFFERED and not (code in NOT_OFFERED_WITH_MIG and self.has_mig_on()):
            self.errors.append("%s %d" % (function, code))
        return not code

    def has_mig_on(self):
        if self.lost:
            return False
        now, later = ctypes.c_uint(), ctypes.c_uint()
        code = self.library.call("nvmlDeviceGetMigMode", self.handle, ctypes.byref(now), ctypes.byref(later))
        return code == 0 and now.value == 1

    def ask(self, function, answer, *before):
        """Call function(handle, *before, &answer); return the answer or None."""
        return answer if self.succeeds(function, *(before + (ctypes.byref(answer),))) else None

    def number(self, function, *before):
        answer = self.ask(function, ctypes.c_uint(), *before)
        return None if answer is None else answer.value

    def large(self, function):
        answer = self.ask(function, ctypes.c_ulonglong())
        return None if answer is None else answer.value

    def memory(self, has_parts):
        """Return the memory of the card or, if it `has_parts`, that of the program's MIG device, or None."""
        if has_parts:
            part = self.library.only_part(self.handle)
            return part and Reading(self.library, part, 0).memory(False)
        answer = MemoryToday(version=ctypes.sizeof(MemoryToday) | 2 << 24)
        if not self.lost and not self.library.call("nvmlDeviceGetMemoryInfo_v2", self.handle, ctypes.byref(answer)):
            return answer
        return self.ask("nvmlDeviceGetMemoryInfo", Memory())  # under WSL, version 2 may fail although it exists

    def taken(self):
        """Return the memory that processes take of a card that uses the machine's, of which NVML tells no more; None if
        it is not told, or no process is. In a container the driver may list its own alone:
        https://github.com/NVIDIA/open-gpu-kernel-modules/pull/614"""
        if self.lost or self.capability() not in ON_ARM_CHIPS:
            return None
        found = {}
        for name in "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3":
            count, listed = ctypes.c_uint(MOST_PROCESSES), (Process * MOST_PROCESSES)()
            if not self.library.call(name, self.handle, ctypes.byref(count), listed):
                found.update((one.pid, one.taken) for one in listed[:count.value])
        is_told = found and NOT_TOLD not in found.values()
        return sum(found.values()) if is_told else None

    def capability(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        told = self.succeeds("nvmlDeviceGetCudaComputeCapability", ctypes.byref(major), ctypes.byref(minor))
        return "%d.%d" % (major.value, minor.value) if told else None

    def reasons(self):
        """Return why the clocks are reduced; [] if they are not. Older drivers have only the second function."""
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
        has_parts = self.has_mig_on()
        memory = self.memory(has_parts)
        milliwatts = millijoules = None
        if not has_parts:
            milliwatts = self.number("nvmlDeviceGetPowerUsage")
            millijoules = self.large("nvmlDeviceGetTotalEnergyConsumption")  # Volta and newer have the counter
        total = memory and within(memory.total, BYTES)
        values = {
            "index": index, "uuid": self.text("nvmlDeviceGetUUID"), "name": self.text("nvmlDeviceGetName"),
            "gpu_percent": within(busy and busy.gpu, PERCENT), "memory_percent": within(busy and busy.memory, PERCENT),
            "memory_used_bytes": within(memory.used, total or BYTES) if memory else self.taken(),
            "memory_total_bytes": total or None,
            "watts": thousandths(within(milliwatts, MILLIWATTS)),
            "celsius": within(self.number("nvmlDeviceGetTemperature", ctypes.c_uint(TEMPERATURE_GPU)), CELSIUS),
            "sm_mhz": within(self.number("nvmlDeviceGetClockInfo", ctypes.c_uint(CLOCK_SM)), MHZ),
            "memory_mhz": within(self.number("nvmlDeviceGetClockInfo", ctypes.c_uint(CLOCK_MEMORY)), MHZ),
            "energy_joules": thousandths(within(millijoules, MILLIJOULES)),
            "throttle_reasons": self.reasons(),
        }
        worked = gpm.UNKNOWN if self.lost or has_parts else self.library.worked(index, self.handle)
        return dict(values, error=", ".join(self.errors) or None, **worked)

    def card(self, index):
        memory = self.memory(self.has_mig_on())
        return {"index": index, "name": self.text("nvmlDeviceGetName"), "uuid": self.text("nvmlDeviceGetUUID"),
                "memory_bytes": (memory and within(memory.total, BYTES)) or None,
                "compute_capability": self.capability()}


def within(value, most):
    """Return the value if it is known, and in 0..most; else None."""
    return value if value is not None and 0 <= value <= most else None


def thousandths(value):
    return None if value is None else value / 1000


def decoded(buffer):
    return buffer.value.decode("utf-8", "replace")


@contextlib.contextmanager
def opened():
    """Yield the library, or None, and close it at the end of the context."""
    library = Library.open()
    try:
        yield library
    finally:
        if library:
            library.close()


def read():
    """Return the current readings."""
    with opened() as library:
        return library.readings() if library else []


def compute_capability():
    """Return the first card's compute capability, such as (8, 0); None if there is no card or nothing reports it."""
    with opened() as library:
        cards = library.cards() if library else []
    told = cards[0]["compute_capability"] if cards else None
    return tuple(int(part) for part in told.split(".")) if told else None
