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
        """Let a signal end the process at once, as by default, where a framework waits for the other replicas: no
        handler in Python runs meanwhile, and there is nothing to save yet. The parent tells why (replicas.lead)."""
        for number in self.EXIT:
            signal.signal(number, signal.SIG_DFL)
        try:
            self.check(None)  # one that came before
            yield
        finally:
            self.install()  # TensorFlow 2's strategy, too, has taken SIGTERM for itself

    def check(self, step):
        """Raise Stop if the process has been told to end."""
        self.obey(self.received, step)

    def obey(self, number, step):
        """Raise Stop if this is a signal's number: replicas act on what they agreed on, after the same step."""
        if number in self.EXIT:
            raise Stop("interrupted", "ended by signal %d" % number, step, self.EXIT[number])
