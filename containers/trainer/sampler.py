"""What is measured once a second while the trainer works; one JSON object a line of samples.jsonl.

    t                       seconds since the epoch          seconds    since the sampler's start, monotonic
    host_cpu_percent        0..100, of all cores             container_cpu_percent   of one core: above 100 on several
    memory_bytes            of the container                 host_memory_bytes       in use on the machine
    gpus                    [{index, uuid, name, gpu_percent, memory_percent (how long its memory was read or written),
                            memory_used_bytes, memory_total_bytes, watts, celsius, sm_mhz, error}]; [] without a driver
    gap                     null, or why no sample stands where one should
CPU figures are means since the sample before. Whatever cannot be read is null.
"""
from __future__ import absolute_import, division, print_function

import threading
import time

from . import host, nvml
from .events import clock, line

SECONDS = 1.0


class Sampler(object):
    """A thread between start() and stop(). A full disk costs the rest of the samples, never the training."""

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
        library = nvml.Library.open()
        try:
            with open(self.path, "ab", 0) as file:
                self.sample(file, library)
        except Exception as error:  # here the thread ends; the record's notes say why
            self.failure = "sampling stopped: %s: %s" % (type(error).__name__, error)
        finally:
            if library:
                library.close()

    def sample(self, file, library):
        began, ticks, meter = clock(), 1, Meter()
        while not self.ended.wait(max(began + ticks * self.seconds - clock(), 0)):
            missed = int((clock() - began) / self.seconds) - ticks
            values = meter.read()
            values.update(t=time.time(), seconds=clock() - began, gpus=library.readings() if library else [],
                          gap="%d samples missed: the sampler could not run" % missed if missed > 0 else None)
            file.write(line(values))
            ticks += 1 + max(missed, 0)  # times stay on the whole seconds


class Meter(object):
    """Gives CPU use since the last reading, and memory use now."""

    def __init__(self):
        self.container = host.Container()
        self.time, self.jiffies, self.cpu = clock(), host.jiffies(), self.container.cpu_seconds()

    def read(self):
        now, jiffies, cpu = clock(), host.jiffies(), self.container.cpu_seconds()
        machine = own = None
        if jiffies and self.jiffies and jiffies[1] > self.jiffies[1]:
            machine = 100 * (jiffies[0] - self.jiffies[0]) / (jiffies[1] - self.jiffies[1])
        if cpu is not None and self.cpu is not None and now > self.time:
            own = 100 * (cpu - self.cpu) / (now - self.time)
        self.time, self.jiffies, self.cpu = now, jiffies, cpu
        return {"host_cpu_percent": machine, "container_cpu_percent": own,
                "memory_bytes": self.container.memory_bytes(), "host_memory_bytes": host.memory_used()}
