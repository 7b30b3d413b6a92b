"""--trace: which thread did what and when in the first steps, as a file that Chrome (chrome://tracing) and
https://ui.perfetto.dev display: trace.json in the run's folder, in the Trace Event Format.

All times are of the host's clock. For a GPU the trace shows when work was submitted and when a thread waited for its
end, not what the card did meanwhile.
"""
from __future__ import absolute_import, division, print_function

import os
import threading

from .events import clock, line, stopped_by
from .files import write_whole

NAME = "trace.json"
LOOP = "training"  # the name of the thread that trains

_kept = None  # [(name, step, thread, began, ended)] while tracing


class Slice(object):
    """A stretch of time: `with Slice("crop"):`. It costs next to nothing if nothing is traced."""

    def __init__(self, name, step=None):
        self.name, self.step = name, step

    def __enter__(self):
        self.kept, self.began = _kept, clock() if _kept is not None else None

    def __exit__(self, *error):
        if self.kept is not None:  # no lock: list.append is atomic
            self.kept.append((self.name, self.step, threading.current_thread().ident, self.began, clock()))


class Source(object):
    """A batch source whose calls are slices; all else is the source's own."""

    def __init__(self, source):
        self.source = source

    def __call__(self, step):
        with Slice("make a batch", step):
            return self.source(step)

    def __getattr__(self, name):
        return getattr(self.source, name)


def begin():
    global _kept
    _kept = []


def first(batches, steps, path, about, begin=0):
    """Yield the batches; trace this many steps from `begin` on, and write the trace when they are over. A step lasts
    until the next batch is requested."""
    began, rest = clock(), iter(batches)
    try:
        for step in range(begin, begin + steps):
            with Slice("wait for a batch", step):
                batch = next(rest, None)
            if batch is None:
                return
            with Slice("step", step):
                yield batch
        end(path, began, about)
        for batch in rest:
            yield batch
    finally:
        end(path, began, about)
        getattr(batches, "close", int)()


def end(path, began, about):
    """Write the trace, once."""
    global _kept
    kept, _kept = _kept and list(_kept), None  # a copy: other threads may still append to the list
    if kept is not None:
        try:
            write_whole(path, line(told(kept, began, about)))
        except EnvironmentError as error:
            raise stopped_by(error, path)


def told(kept, began, about):
    """Return the trace as JSON values: microseconds since the first batch was requested, threads in order of
    appearance; the calling thread, which trains, is the first."""
    numbers = {threading.current_thread().ident: 0}
    slices = [{"ph": "X", "pid": os.getpid(), "tid": numbers.setdefault(thread, len(numbers)), "name": name,
               "ts": 1e6 * (start - began), "dur": 1e6 * (stop - start), "args": {} if step is None else {"step": step}}
              for name, step, thread, start, stop in sorted(kept, key=lambda one: one[3])]
    names = [{"ph": "M", "pid": os.getpid(), "tid": number, "name": "thread_name",
              "args": {"name": "batches %d" % number if number else LOOP}} for number in sorted(numbers.values())]
    return {"traceEvents": names + slices, "displayTimeUnit": "ms", "otherData": about}
