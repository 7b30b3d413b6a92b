"""Signals outside of a run: one whose exception Python ignores comes again, and one that it wraps is known."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# An import ends with such a callback, for which Python only prints "Exception ignored".
IN_A_CALLBACK = """
import signal, time, weakref
from ngcdl.running.signals import Interrupted, raise_on_signals, signal_of
signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest may have been started with it ignored
raise_on_signals()
class Lock: pass
lock = Lock()
kept = weakref.ref(lock, lambda _: signal.raise_signal({number}))
try:
    del lock
    while True: time.sleep(0.05)
except (Interrupted, KeyboardInterrupt) as error:
    print(type(error).__name__, signal_of(error))
"""


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, "KeyboardInterrupt 2"), (signal.SIGTERM, "Interrupted 15")]
)
def test_a_signal_that_python_would_ignore_comes_again(number: signal.Signals, raised: str) -> None:
    code = IN_A_CALLBACK.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert (done.stdout, done.stderr) == (f"{raised}\n", "")


def test_a_terminal_that_is_closed_does_not_interrupt_the_clean_up_and_ctrl_c_does() -> None:
    code = """
import signal
from ngcdl.running.signals import Interrupted, raise_on_signals
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # pytest may have been started with them ignored
    signal.signal(number, signal.default_int_handler)
raise_on_signals()
try:
    signal.raise_signal(signal.SIGHUP)
except Interrupted as error:
    for number in (signal.SIGHUP, signal.SIGTERM): signal.raise_signal(number)
    print("cleaned up after", error.number)
    try: signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt: print("not all of it")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.stdout, done.stderr) == ("cleaned up after 1\nnot all of it\n", "")


def test_a_signal_after_the_result_has_no_traceback_and_changes_nothing() -> None:
    code = """
import signal, sys
from types import SimpleNamespace
from ngcdl import __main__
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pytest may have been started with it ignored
sys.modules["ngcdl.telemetry.gpu"] = SimpleNamespace(end_begun=lambda: signal.raise_signal(signal.SIGTERM))
sys.argv[1:] = ["runs", "--help"]
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr, done.stdout != "") == (0, "", True)


def test_another_exception_that_python_ignores_is_shown_as_ever() -> None:
    code = IN_A_CALLBACK.replace("signal.raise_signal({number})", "1 / 0").replace("while True", "if False")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert (done.stdout, "Exception ignored" in done.stderr, "ZeroDivisionError" in done.stderr) == ("", True, True)


def test_ctrl_c_during_the_first_imports_has_no_traceback() -> None:
    code = """
import signal, sys
from ngcdl import __main__
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, *_):
        if name == "ngcdl.console": signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_module_makes_its_classes_has_no_traceback(number: signal.Signals) -> None:
    code = f"""
import signal, sys
from ngcdl import __main__
signal.signal(signal.{number.name}, signal.SIG_DFL)  # pytest may have been started with it ignored
class Interrupting:
    def find_spec(self, name, *_):
        if name == "ngcdl.cli":
            class Made: field = self
    def __set_name__(self, *_): signal.raise_signal(signal.{number.name})
sys.meta_path.insert(0, Interrupting())
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (128 + number, "ngcdl: interrupted\n")
