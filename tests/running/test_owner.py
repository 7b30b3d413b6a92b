"""A process is told apart from a later process with the same PID."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from ngcdl.record import Owner
from ngcdl.running.owner import is_alive, is_out_of_sight, this_process


def test_this_process_is_alive_and_nobody_is_not() -> None:
    assert is_alive(this_process())
    assert not is_alive(None)


def test_the_same_number_with_another_start_or_boot_is_another_process() -> None:
    me = this_process()
    assert me.ticks is not None
    assert not is_alive(replace(me, ticks=me.ticks + 1))
    assert not is_alive(replace(me, boot="another"))
    assert not is_alive(Owner(me.pid))


def test_a_process_of_another_pid_namespace_can_t_be_seen() -> None:
    me = this_process()
    assert str(me.namespace).startswith("pid:[")
    there = replace(me, namespace="pid:[1]")
    assert not is_alive(there), "the same PID and start are another process there"
    assert [is_out_of_sight(one) for one in (there, me, replace(me, namespace=None), None)] == [True, *[False] * 3]
    assert not is_out_of_sight(replace(there, boot="another")), "its boot is over, or another host's"


def test_a_process_that_has_ended_is_not_alive() -> None:
    code = "from ngcdl.running.owner import *; me = this_process(); print(me.pid, me.ticks, me.boot)"
    pid, ticks, boot = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not is_alive(Owner(int(pid), int(ticks), boot))


def test_a_name_with_blanks_and_brackets_does_not_confuse_it() -> None:
    code = """
from pathlib import Path
Path("/proc/self/comm").write_text(") R 1 (")
from ngcdl.running.owner import this_process, is_alive
print(is_alive(this_process()), this_process().ticks > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_a_process_that_has_ended_and_waits_for_its_parent_is_not_alive() -> None:
    code = "from ngcdl.running.owner import *; me = this_process(); print(me.pid, me.ticks, me.boot, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, ticks, boot = process.stdout.read().split()  # to EOF: the process has closed stdout
        from house import until

        owner = Owner(int(pid), int(ticks), boot)
        until(lambda: not is_alive(owner), "its end")
