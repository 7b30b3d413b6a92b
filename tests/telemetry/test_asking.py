"""Where a driver is loaded it is asked in a process of its own: one that it holds in the kernel can be left behind."""

from __future__ import annotations

import json
import os
import signal

from .stand_in import Host

LOADED = """
import json, os, sys, threading
from ngcdl.telemetry import driver, free_cards, gpu
driver.has_driver = lambda: True
"""
PROBED = """
there = gpu.probe()
read = free_cards.readings()
used = ["pynvml" in sys.modules]
driver.has_driver = lambda: False
here = gpu.probe()
print(json.dumps([there == here, len(there.cards), len(read), used, "pynvml" in sys.modules]))
"""
BEGUN = """
forks, fork = [], os.fork
os.fork = lambda: forks.append(fork()) or forks[-1]
gpu.begin_to_probe()
before = len(forks)
told = [before, len(gpu.probe().cards), len(forks), len(gpu.probe().cards), len(forks)]
gpu.begin_to_probe()
gpu.end_begun()
print(json.dumps([*told, os.path.exists(f"/proc/{forks[-1]}")]))
"""
REFUSED = """
found = gpu.probe()
print(json.dumps([type(found.error).__name__, found.error.hint, found.error.answered, found.absent]))
"""
STUCK = """
import signal
driver.patience_seconds = lambda: 0.3
pids, fork = [], os.fork
os.fork = lambda: pids.append(fork()) or pids[-1]
os.kill = lambda *_: None  # as if the process were stuck in the kernel, where no signal reaches it
error = gpu.probe().error
print(json.dumps([pids, error.message, threading.active_count()]))
"""
CRASHED = """
import signal
me = os.getpid()
with driver.asking(lambda: "here" if os.getpid() == me else os.kill(os.getpid(), signal.SIGSEGV)) as answer:
    print(json.dumps(answer()))
"""
SHOWN = """
from ngcdl.cli.gpu import gpu as shown
shown()
print("pynvml" in sys.modules)
"""


def test_a_driver_says_the_same_in_a_process_of_its_own_and_is_not_loaded_here(card: Host) -> None:
    assert card.ask(LOADED + PROBED) == [True, 2, 2, [False], True]


def test_what_was_begun_is_the_next_answer_and_a_later_one_is_new(card: Host) -> None:
    assert card.ask(LOADED + BEGUN) == [1, 2, 1, 2, 2, False]


def test_its_error_comes_back_whole(card: Host) -> None:
    card.set(fail__Init=18)
    kind, hint, answered, absent = card.ask(LOADED + REFUSED)
    assert (kind, hint, answered, absent) == ("NvmlUnavailable", "    sudo reboot", True, False)


def test_one_that_is_stuck_in_the_kernel_keeps_no_thread_and_no_output_of_ours(card: Host) -> None:
    card.set(hang__Init=1)
    done = card.python(LOADED + STUCK)
    assert done.returncode == 0, done.stderr
    (stuck,), message, threads = json.loads(done.stdout)
    os.kill(stuck, signal.SIGKILL)
    assert message == "The NVIDIA driver gave no answer within 0.3 s."
    assert threads == 1


def test_the_cards_are_shown_without_the_driver_in_this_process(card: Host) -> None:
    done = card.python(LOADED + SHOWN)
    assert done.returncode == 0, done.stderr
    assert "NVIDIA A100" in done.stdout
    assert done.stdout.endswith("False\n")


def test_a_library_that_crashes_takes_only_its_process_along(card: Host) -> None:
    assert card.ask(LOADED + CRASHED) == "here"
