"""How a training is told to end: by a signal, and never in the middle of a step."""
from __future__ import absolute_import, division, print_function

import contextlib
import os
import signal

from .events import Stop


class Signals(object):
    """Remembers SIGTERM and SIGINT until a step is finished; a second signal ends the process at once."""

    EXIT = {signal.SIGTERM: 143, signal.SIGINT: 130}

    def __init__(self):
        self.received = None

    def install(self):
        for number in self.EXIT:
            signal.signal(number, self.receive)

    def receive(self, number, frame):
        if self.received:
            os._exit(self.EXIT[number])
        self.received = number

    @contextlib.contextmanager
    def fatal(self):
        """Let a signal end the process at once, as by default, while a framework waits for the other replicas: Python
        runs no handler meanwhile, and there is nothing to save yet. The parent reports why the replica ended
        (replicas.lead)."""
        for number in self.EXIT:
            signal.signal(number, signal.SIG_DFL)
        try:
            self.check(None)  # a signal that came before
            yield
        finally:
            self.install()  # also needed because TensorFlow 2's strategy installs a handler of its own for SIGTERM

    def check(self, step):
        """Raise Stop if the process has been told to end."""
        self.obey(self.received, step)

    def obey(self, number, step):
        """Raise Stop if `number` is that of a signal. Replicas pass the number that they agreed on, so that all stop
        after the same step."""
        if number in self.EXIT:
            raise interrupted(number, step)


def interrupted(number, step=None):
    """Return the Stop of a training that was told to end by this signal."""
    return Stop("interrupted", "told to stop", step, Signals.EXIT[number])
