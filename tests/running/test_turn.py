"""The line of runs that wait for cards, and what counts as free for them."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from telemetry.stand_in import ROOT, Host

from ngcdl import processes
from ngcdl.record import Run
from ngcdl.running import gpu_claims, turn
from ngcdl.running.owner import this_process
from ngcdl.spec import RunSpec, Workload
from ngcdl.storing.store import Store

FIRST, SECOND = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"
WANTED = ([FIRST], [FIRST, SECOND], ["another"], [SECOND, FIRST])  # by four that came one after the other
BUSY = f"{os.getpid()}:1000"
# Waits for `count` of `cards`. Between two looks the state's lines change as in the next element of `steps`, in which
# "leaves" means the one who is ahead.
WAIT = """
import contextlib, json, os, re, sys
from pathlib import Path
from ngcdl.given_cards import Need
from ngcdl.running import turn
from ngcdl.storing.store import Store

root, count, cards, steps = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(), json.loads(sys.argv[4])
state, looks, said = Path(os.environ["NGCDL_NVML_STATE"]), 1, []
store, ahead = Store(Path(root)), contextlib.ExitStack()
if "AHEAD" in os.environ:
    ahead.enter_context(turn._in_line(store, cards))

def say(text):
    said.append(text)
    print(text, file=sys.stderr, flush=True)

def sleep(seconds):
    global looks
    assert seconds == turn.PAUSE_SECONDS
    looks += 1
    for name, value in (steps.pop(0) if steps else {}).items():
        if name == "leaves":
            ahead.close()
        state.write_text(re.sub(f"(?m)^{name}=.*", f"{name}={value}", state.read_text()))

with turn.awaited(Need(count, {one: one for one in cards}), store, say, sleep=sleep) as taken:
    print(json.dumps({"cards": taken, "looks": looks, "said": said}))
"""

LOOK = """
import json, sys
from ngcdl.telemetry import free_cards
look = free_cards.look(sys.argv[1:2], {sys.argv[1]: sys.argv[2]})
print(json.dumps([look.free, look.users]))
"""


@pytest.fixture
def busy(card: Host) -> Host:
    """A host on both of whose cards this process computes."""
    card.set(gpu0__processes=BUSY, gpu1__processes=BUSY)
    return card


def waited(host: Host, store: Store, count: int, cards: tuple[str, ...], *steps: dict[str, str]) -> Any:
    store.ensure_writable()
    return host.ask(WAIT, str(store.root), str(count), " ".join(cards), json.dumps(steps))


def holding(store: Store, *cards: str) -> Run:
    """Record a running training on `cards`."""
    spec = RunSpec(None, workload=Workload("cifar10")).as_json()
    run = Run(store.new_id("cifar10"), "running", 1.0, gpus=cards, spec=spec, owner=this_process())
    store.create(run)
    return run


def test_a_card_that_is_free_for_a_moment_is_not_taken(busy: Host, store: Store) -> None:
    free, again = {"gpu1.processes": ""}, {"gpu1.processes": BUSY}
    it = waited(busy, store, 1, (FIRST, SECOND), free, again, free)
    assert (it["cards"], it["looks"]) == ([SECOND], 5)
    (said,) = it["said"]
    assert said.startswith("waiting for 1 free GPU; GPU 0 (NVIDIA GeForce GTX 1050 Ti): ")
    name, user = Path("/proc/self/comm").read_text().strip(), processes.user(os.getpid())
    assert f"GPU 1 (NVIDIA A100-SXM4-40GB): {name} of {user};" in said
    assert said.endswith("; Ctrl-C cancels")


def test_a_process_is_its_user_s_by_name_or_by_number_if_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(KeyError):  # these tests may run as somebody without a name
        assert processes.user(os.getpid()) == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert processes.user(os.getpid()) == str(os.geteuid())
    assert processes.user(2**30) is None


def test_cards_that_are_free_are_taken_without_a_word_the_strongest_first(card: Host, store: Store) -> None:
    card.set(gpu0__utilization=0)
    it = waited(card, store, 1, (FIRST, SECOND))
    assert (it["cards"], it["looks"], it["said"]) == ([SECOND], 2, [])
    assert waited(card, store, 2, (FIRST, SECOND))["cards"] == [FIRST, SECOND], "as they were named"
    assert not list(store.root.glob(".*turn*")), "it has left the line"


def test_a_card_that_another_run_holds_is_waited_for_even_if_nothing_computes_there(card: Host, store: Store) -> None:
    card.set(gpu0__processes=BUSY)
    run = holding(store, SECOND)
    it = waited(card, store, 1, (FIRST, SECOND), {"gpu0.processes": ""})
    assert it["cards"] == [FIRST]
    assert f"; GPU 1 (NVIDIA A100-SXM4-40GB): {run.id};" in it["said"][0]


def test_a_card_that_is_lost_or_busy_without_a_program_is_said_to_be_so(card: Host, store: Store) -> None:
    desktop = {"gpu0__graphics_processes": f"{os.getpid()}:5"}
    card.set(**desktop, gpu1__processes=None, fail__gpu1__DeviceGetHandleByIndex=15)
    it = waited(card, store, 1, (FIRST, SECOND), {"gpu0.utilization": "5"})
    assert (it["cards"], it["looks"]) == ([FIRST], 3)
    assert it["said"] == [
        f"waiting for 1 free GPU; GPU 0 (NVIDIA GeForce GTX 1050 Ti): a desktop, 87 % busy; {SECOND}: out of order; "
        "Ctrl-C cancels"
    ]


def test_a_mig_device_that_its_user_may_not_see_is_free_unless_a_run_holds_it(card: Host, store: Store) -> None:
    assert waited(card, store, 1, ("MIG-unseen",))["said"] == []
    look = card.ask(LOOK, "MIG-unseen", "a-run")
    assert look == [[], "MIG-unseen: a-run"]


def test_a_card_that_another_run_took_after_the_last_look_is_waited_for_again(card: Host, store: Store) -> None:
    """It is recorded while the waiting run's card is chosen: the two locks are tried in this order."""
    card.set(gpu0__utilization=0)
    store.ensure_writable()
    words = [str(store.root), "2", f"{FIRST} {SECOND}", "[]"]
    code = f"from ngcdl.telemetry import container; container.pids_are_the_hosts = lambda: True\n{WAIT}"
    with gpu_claims.choosing_lock(store, lambda _: None):
        child = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=card.environment(),
        )  # fmt: skip
        assert child.stderr is not None
        assert child.stderr.readline() == "waiting for another ngcdl to choose its GPUs\n"
        run = holding(store, SECOND)
    assert child.stderr.readline() == "another run took the GPU meanwhile: waiting again\n"
    assert child.stderr.readline().startswith(f"waiting for 2 free GPUs; GPU 1 (NVIDIA A100-SXM4-40GB): {run.id}; ")
    store.save(run.closed("finished", 0, None, 2.0))
    out, _ = child.communicate(timeout=240)
    assert json.loads(out)["cards"] == [FIRST, SECOND]


def test_a_reload_of_the_driver_does_not_end_the_wait_and_a_card_must_be_free_twice_after_it(
    card: Host, store: Store
) -> None:
    card.set(fail__Init=0, gpu0__processes=BUSY)
    it = waited(card, store, 1, (FIRST, SECOND), {"fail.Init": "9"}, {}, {"fail.Init": "0"})
    assert (it["cards"], it["looks"]) == ([SECOND], 5)
    assert it["said"] == [
        "The NVIDIA driver is installed but not loaded. Looking again, for 5 min",
        "waiting for 1 free GPU; the driver gives no answer; Ctrl-C cancels",
    ]


def test_those_who_want_the_same_cards_stand_in_line_as_they_came(store: Store) -> None:
    store.ensure_writable()
    with contextlib.ExitStack() as stack:
        line = [stack.enter_context(turn._in_line(store, wanted)) for wanted in WANTED]
        assert [ahead() for ahead in line] == [0, 1, 0, 2]
    assert not list(store.root.iterdir())


def test_one_who_left_or_was_killed_is_ahead_of_nobody(store: Store) -> None:
    store.ensure_writable()
    code = (
        "import sys, pathlib; from ngcdl.running import turn; from ngcdl.storing.store import Store\n"
        "with turn._in_line(Store(pathlib.Path(sys.argv[1])), ['one']): print('there', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "toolkit")},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        with turn._in_line(store, ["one"]) as ahead:
            assert ahead() == 1
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert len(list(store.root.iterdir())) == 2
            assert ahead() == 0
            assert len(list(store.root.iterdir())) == 1, "its ticket is gone, too"
            with turn._in_line(store, ["one"]) as later:
                assert later() == 1
            assert ahead() == 0


def test_who_waits_on_another_host_that_shares_the_home_is_ahead_of_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ensure_writable()
    with monkeypatch.context() as there:
        there.setattr("ngcdl.processes.boot_id", lambda: "0-of-another-host")
        other = turn._in_line(store, ["one"])
        other.__enter__()
    with turn._in_line(store, ["one"]) as ahead:
        assert ahead() == 0
    assert len(list(store.root.iterdir())) == 1, "it still waits there"
    other.__exit__(None, None, None)


@pytest.mark.parametrize("name", [".turn-0-of-another-host-00000000000000000001", ".new.turn-killed-meanwhile-1"])
def test_a_ticket_of_another_host_stays_though_its_lock_is_not_seen_here_until_nobody_touches_it_for_long(
    store: Store, name: str
) -> None:
    """As on NFS with local_lock, or Lustre with localflock."""
    store.ensure_writable()
    there = store.root / name
    there.write_text("one")
    with turn._in_line(store, ["one"]) as ahead:
        assert (ahead(), there.exists()) == (0, True)
        os.utime(there, (time.time() - 6 * 86400,) * 2)
        assert (ahead(), there.exists()) == (0, True)
        os.utime(there, (time.time() - 8 * 86400,) * 2)
        assert (ahead(), there.exists()) == (0, False)


def test_a_pipe_or_a_link_in_the_place_of_a_ticket_is_ahead_of_nobody(store: Store, tmp_path: Path) -> None:
    store.ensure_writable()
    (tmp_path / "thesis.tex").write_text("thesis")
    os.utime(tmp_path / "thesis.tex", (1, 1))
    os.mkfifo(store.root / f".turn-{processes.boot_id()}-{1:020}")
    with turn._in_line(store, ["one"]) as ahead:
        (ticket,) = (one for one in store.root.iterdir() if one.is_file())
        assert ahead() == 0
        ticket.unlink()
        ticket.symlink_to(tmp_path / "thesis.tex")
        assert ahead() == 0
    assert ((tmp_path / "thesis.tex").read_text(), (tmp_path / "thesis.tex").stat().st_mtime) == ("thesis", 1)


def test_who_waits_for_long_touches_their_ticket(store: Store) -> None:
    store.ensure_writable()
    with turn._in_line(store, ["one"]) as ahead:
        (ticket,) = store.root.iterdir()
        os.utime(ticket, (1, 1))
        assert ahead() == 0
        assert ticket.stat().st_mtime > time.time() - 600


def test_where_no_ticket_can_be_written_the_cards_alone_decide(card: Host, tmp_path: Path) -> None:
    it = card.ask(WAIT, str(tmp_path / "missing"), "1", SECOND, "[]")
    assert it["cards"] == [SECOND]


def test_who_is_ahead_is_waited_for_even_if_the_card_is_free(
    card: Host, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AHEAD", "yes")
    it = waited(card, store, 1, (SECOND,), {}, {}, {}, {"leaves": ""})
    assert (it["cards"], it["looks"]) == ([SECOND], 5)
    assert it["said"] == ["waiting for 1 free GPU; place 2 in line; Ctrl-C cancels"]
