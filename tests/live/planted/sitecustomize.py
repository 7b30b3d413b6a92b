"""Imported by Python before the trainer; plants in it what PLANT names. The rest is the real trainer.

few   2,000 images are made, as with the other two: making all takes seconds
slow  one thread at a time makes a batch, SECONDS each, on the one CPU that the training is pinned to, and saturates it
tiny  a step is over at once, as on a card that is far too fast for its batch: nothing is computed
slow and tiny claim a GPU in the start event: the lab's frameworks have none, and its cards are a text file. Python 2.7
and 3.
"""

import ctypes
import os
import threading
import time

SECONDS = 1.0


def claim_a_gpu(events):
    write = events.Events.write

    def told(self, event, **fields):
        write(self, event, **dict(fields, device="gpu") if event == "start" else fields)

    events.Events.write = told


def make_batches_slowly(workload):
    source, one_at_a_time = workload.source, threading.Lock()

    def slow(*how):
        make = source(*how)

        def made(step):
            with one_at_a_time:
                end = time.time() + SECONDS
                while time.time() < end:
                    pass
                return make(step)

        return made

    workload.source = slow


def hold_to_one_processor():
    """Pin this process to CPU 0, through libc: Python 2.7 has no function for it."""
    ctypes.CDLL(None).sched_setaffinity(0, 8, ctypes.byref(ctypes.c_ulong(1)))


def compute_nothing(network):
    def train(self, batch, turn):
        del self, batch, turn
        return 4.6, None

    network.train = train


def plant(what):
    from trainer import data, events

    data.SYNTHETIC = {"train": (2000, 1), "test": (1000, 2)}
    if what == "few":
        return
    claim_a_gpu(events)
    if what == "slow":
        from trainer.workloads import cifar10

        hold_to_one_processor()
        make_batches_slowly(cifar10)
    else:
        from trainer.frameworks import pytorch

        compute_nothing(pytorch.Network)


plant(os.environ["PLANT"])
