"""What is measured once a second while the trainer works: one JSON object per line of samples.jsonl.

    t                       seconds since the epoch          seconds    since the sampler's start, monotonic
    host_cpu_percent        0..100, of all cores             container_cpu_percent   of one core: above 100 on several
    cpu_percents            [0..100] of each core            threads_running  on the machine now, or runnable
    memory_bytes            of the container                 host_memory_bytes       in use on the machine
    memory_limit_bytes      the most the container can get   memory_oom_kills        of its processes, so far
    memory_pressure_percent share of the last 10 s in which threads of the container waited for memory
    gpus                    [{index, uuid, name, gpu_percent, memory_percent (how long its memory was read or written),
                            memory_used_bytes, memory_total_bytes, watts, energy_joules (a counter), celsius, sm_mhz,
                            memory_mhz, throttle_reasons [text], sm_active_percent, sm_occupancy_percent,
                            tensor_active_percent, dram_bandwidth_percent (of what the card has, since the previous
                            sample), error}]; [] without a driver
    gap                     null, or why a sample is missing, or something in this one
CPU figures are means since the previous sample. Whatever can't be read is null.
"""
from __future__ import absolute_import, division, print_function

import threading
import time
from contextlib import closing

from . import host, nvml
from .events import Appended, clock, line

SECONDS = 1.0
MISSED = "ticks before this one were missed"


class Sampler(object):
    """A thread that samples between start() and stop(). If the disk is full, sampling stops; the training goes on."""

    def __init__(self, path, seconds=SECONDS):
        self.path, self.seconds = path, seconds
        self.ended, self.thread, self.failure = threading.Event(), None, None

    def start(self):
        self.thread = threading.Thread(target=self.work)
        self.thread.daemon = True
        self.thread.start()

    def stop(self):
        self.ended.set()
        if self.thread:
            self.thread.join(5)  # NVML can hang with a broken card
            self.thread = None

    def work(self):
        try:
            with nvml.opened() as library, closing(Appended(self.path)) as file:
                self.sample(file, library)
        except Exception as error:  # the thread ends here; the record's notes say why
            self.failure = "sampling stopped: %s: %s" % (type(error).__name__, error)

    def sample(self, file, library):
        began, ticks, meter = clock(), 1, Meter()
        while not self.ended.wait(max(began + ticks * self.seconds - clock(), 0)):
            missed = int((clock() - began) / self.seconds) - ticks
            values = meter.read()
            values.update(t=time.time(), seconds=clock() - began, gpus=library.readings() if library else [])
            gaps = ["%d %s" % (missed, MISSED)] if missed > 0 else []
            gaps += ["GPU %s: %s" % (card["index"] if card["uuid"] is None else card["uuid"], card["error"])
                     for card in values["gpus"] if card["error"]]
            file.write(line(dict(values, gap="; ".join(gaps) or None)))
            ticks += 1 + max(missed, 0)  # samples stay on whole seconds


class Meter(object):
    """Measures CPU use since the previous reading, and current memory use."""

    def __init__(self):
        self.container = host.Container()
        self.limit = self.container.memory_limit_bytes()
        self.time, self.jiffies, self.cpu = clock(), host.jiffies()[0], self.container.cpu_seconds()

    def read(self):
        now, (jiffies, running), cpu = clock(), host.jiffies(), self.container.cpu_seconds()
        own = None
        if cpu is not None and self.cpu is not None and now > self.time:
            own = 100 * (cpu - self.cpu) / (now - self.time)
        shares = [percent(*pair) for pair in zip(self.jiffies, jiffies)]
        cores = shares[1:] if len(jiffies) == len(self.jiffies) and None not in shares else None
        self.time, self.jiffies, self.cpu = now, jiffies, cpu
        return {"host_cpu_percent": shares[0] if shares else None, "cpu_percents": cores or None,
                "threads_running": running, "container_cpu_percent": own, "host_memory_bytes": host.memory_used(),
                "memory_bytes": self.container.memory_bytes(), "memory_limit_bytes": self.limit,
                "memory_pressure_percent": self.container.memory_pressure_percent(),
                "memory_oom_kills": self.container.memory_oom_kills()}


def percent(before, now):
    """Return the busy share, 0..100, between two (busy, all); None if no time has passed."""
    busy, whole = now[0] - before[0], now[1] - before[1]
    return round(min(max(100.0 * busy / whole, 0), 100), 1) if whole > 0 else None
