"""Cards held by an open run are not free, even if nothing computes on them yet."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving
from fakes import IMAGE
from house import until
from telemetry.stand_in import Host
from unwatched import ENDED, quiet

from ngcdl.errors import EngineHangs, NgcdlError
from ngcdl.record import Owner, Run
from ngcdl.running import gpu_claims
from ngcdl.running.owner import this_process
from ngcdl.running.reconcile import Obstacles
from ngcdl.spec import GpuRequest, ImageRef, RunSpec, Workload
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison
from ngcdl.storing.store import Store

CARDS = ("GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100")
DIGEST = "sha256:" + "5" * 64
TRAINING = Workload("cifar10")


@pytest.fixture(autouse=True)
def _no_engine_is_known_to_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_claims, "_AWAY", gpu_claims._Away())


# Chooses cards and records a run; while this program reports its choice, it may also record other runs on that card.
PREPARE = """
import json, os, sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
from fakes import IMAGE, FakeShow
from ngcdl import settings
from ngcdl.running import gpu_claims, prepare, turn
from ngcdl.running.context import Context
from ngcdl.planning.asked import Asked
from ngcdl.errors import NgcdlError
from ngcdl.spec import GpuRequest, ImageRef, RunSpec, Workload
from ngcdl.storing.store import Store

config = settings.load({"HOME": os.environ["HOME"]})
store = Store(config.runs)
image = ImageRef.parse(os.environ.get("IMAGE") or str(IMAGE))
asked = Asked("docker", image, GpuRequest.parse(sys.argv[2]), Workload("cifar10", data="synthetic"), force=True)
own = replace(asked, workload=None, own=RunSpec(image, ("python",))) if "COMMAND" in os.environ else asked
quietly = Context(config, store, FakeShow())
others = [prepare.settle(replace(asked, gpus=GpuRequest.parse(text)), quietly) for text in sys.argv[3:]]

class Show(FakeShow):
    def say(self, text):
        super().say(text)
        if "GPUs: " in text and others:
            prepare.begin(others.pop(), store)

show = Show()
turn.PAUSE_SECONDS = 0.01
try:
    asked = replace(own, always_pull="IMAGE" in os.environ, waits="WAITS" in os.environ)
    run = prepare.prepare(asked, Context(config, store, show)).run
    print(json.dumps({"gpus": run.gpus, "said": show.said, "held": gpu_claims.claimed(store), "id": run.id}))
except NgcdlError as error:
    print(json.dumps({"error": type(error).__name__, "message": error.message, "ids": store.ids()}))
"""

# The same for a comparison of CPU and GPU, which shows what is held before its first run.
COMPARE = (
    PREPARE.partition("turn.PAUSE")[0]
    + """
from ngcdl.comparing import compare
from ngcdl.comparing.rounds import Comparing
from ngcdl.storing.comparisons import StoredComparison

arms = [compare.Variant(device, replace(asked, device=device), device) for device in ("cpu", "gpu")]
def held():
    choosing.__exit__(None, None, None)
    print(json.dumps({"gpus": gpus, "said": show.said, "held": gpu_claims.claimed(store), "id": kept.id}), flush=True)
    os._exit(0)

show = Show()
choosing = compare.settled(arms, Context(config, store, show))
ready, _ = choosing.__enter__()
gpus = ready[1][1].picked.uuids
kept = StoredComparison(store.new_id("compare"), "device", 1, (("cpu", "cpu"), ("gpu", "gpu")), 1.0)
Comparing({one.name: settled for one, settled in ready}, kept, store, show, held=held).go()
"""
)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A Docker that has the image."""
    one = Daemon(tmp_path / "d.sock")
    one.info |= {"Runtimes": {"runc": {}, "nvidia": {}}}
    has(one, IMAGE)
    with serving(one):
        monkeypatch.setenv("DOCKER_HOST", one.host)
        yield one


def has(daemon: Daemon, image: ImageRef) -> None:
    digest = f"{image.name}@{DIGEST}"
    daemon.images[str(image)] = daemon.images[digest] = {"Id": "sha256:" + "1" * 64, "RepoDigests": [digest]}


@pytest.fixture
def host(library: Path, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host with two idle cards."""
    one = Host(library, tmp_path / "nvml.state")
    one.set()
    monkeypatch.setenv("HOME", str(tmp_path))
    return one


def prepared(host: Host, gpus: str, *others: str, program: str = PREPARE) -> Any:
    code = f"import warnings; warnings.simplefilter('ignore', ResourceWarning)\n{program}"
    return host.ask(code, str(Path(__file__).parents[1] / "support"), gpus, *others)


def recorded(store: Store, gpus: str, workload: Workload | None = None, **more: Any) -> str:
    spec = RunSpec(IMAGE, ("python",), GpuRequest.parse(gpus), workload=workload)
    run = Run(store.new_id("it"), "running", 1.0, gpus=CARDS[:1], spec=spec.as_json(), owner=this_process())
    store.create(replace(run, **more))
    return run.id


@pytest.mark.parametrize(("gpus", "workload"), [
    (f"auto:{CARDS[0]}", TRAINING), ("all", TRAINING), (CARDS[0], None), ("0,", None),
])  # fmt: skip
def test_a_training_and_a_command_with_certain_cards_hold_them(
    store: Store, gpus: str, workload: Workload | None
) -> None:
    run_id = recorded(store, gpus, workload)
    assert gpu_claims.claimed(store) == {CARDS[0]: run_id}


def test_a_record_whose_request_for_gpus_can_t_be_read_holds_the_cards_that_it_names(store: Store) -> None:
    """The run itself can write there, and must not keep others from running."""
    run_id = recorded(store, "0,", spec={"gpus": "../../etc"})
    assert gpu_claims.claimed(store) == {CARDS[0]: run_id}


@pytest.mark.parametrize(("gpus", "workload"), [
    ("all", None), ("auto", None), ("none", None), ("auto", replace(TRAINING, device="cpu")),
    (f"auto:{CARDS[0]}", None), (f"all:{CARDS[0]}", None),
])  # fmt: skip
def test_a_command_that_sees_every_card_and_a_training_on_the_cpu_hold_none(
    store: Store, gpus: str, workload: Workload | None
) -> None:
    recorded(store, gpus, workload)
    assert gpu_claims.claimed(store) == {}


def test_the_dead_the_ended_and_those_of_another_host_hold_none(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        dead = Owner(child.pid, 1, this_process().boot)
    for more in (
        {"owner": None}, {"engine": "local", "owner": dead}, {"owner": replace(dead, boot="another host's")},
        {"status": "finished"}, {"status": "lost", "owner": None},
        {"status": "lost", "owner": replace(dead, boot="before the power cut")},
    ):  # fmt: skip
        recorded(store, "all", TRAINING, **more)
    quiet(store, store.load(recorded(store, "all", TRAINING, engine="local", owner=dead)))  # a dev container is gone
    broken = recorded(store, "all", TRAINING)
    (store.folder(broken) / "run.json").write_text("{")
    assert gpu_claims.claimed(store) == {}


def test_the_oldest_of_a_long_queue_holds_the_card_that_it_has_just_got(store: Store) -> None:
    spec = RunSpec(IMAGE, ("python",), GpuRequest("count", count=1))
    queue = [Run(f"20261126-{at:06}-it-beef", "running", 1.0, spec=spec.as_json(), owner=this_process())
             for at in range(120)]  # fmt: skip
    for run in queue:
        store.create(run)
    with_card = replace(spec, gpus=GpuRequest.parse(CARDS[1])).as_json()
    store.save(replace(queue[0], gpus=CARDS[1:], spec=with_card))
    assert gpu_claims.claimed(store) == {CARDS[1]: queue[0].id}


@pytest.mark.parametrize("status", ["running", "lost"])
def test_a_run_that_lost_its_ngcdl_or_engine_holds_its_cards_until_it_is_known_to_have_ended(
    store: Store, daemon: Daemon, status: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        gone = Owner(child.pid, 1, this_process().boot)
    run_id = recorded(store, "all", TRAINING, status=status, owner=gone, engine="docker", engine_id="its")
    for engine_id, state, held in (
        ("another", None, {CARDS[0]: run_id}), ("its", {"Running": True}, {CARDS[0]: run_id}), ("its", ENDED, {}),
    ):  # fmt: skip
        daemon.info["ID"], daemon.state = engine_id, state
        assert gpu_claims.claimed(store) == held
    assert store.load(run_id).status == "failed"


def test_an_engine_that_does_not_answer_is_not_waited_for_at_each_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(store: Store, run: Run, obstacles: Obstacles) -> Run:
        known.append(dict(obstacles.engines))
        obstacles.engines["docker"] = EngineHangs("unix:///there", 60)
        return run

    known: list[dict[str, NgcdlError]] = []
    monkeypatch.setattr(gpu_claims, "reconcile", asked)
    recorded(store, "all", TRAINING)
    for _ in range(2):
        assert list(gpu_claims.claimed(store)) == [CARDS[0]]
    monkeypatch.setattr(gpu_claims, "AWAY_SECONDS", 0.0)
    gpu_claims._AWAY._until = 0.0
    gpu_claims.claimed(store)
    assert [list(one) for one in known] == [[], ["docker"], []]


def test_a_card_that_another_run_took_meanwhile_is_left_to_it(host: Host) -> None:
    it = prepared(host, "1", "1")
    (other,) = set(CARDS) - set(it["gpus"])
    assert it["held"][it["gpus"][0]] == it["id"]
    assert it["held"][other] != it["id"]
    assert "another run took the GPU meanwhile: choosing again" in it["said"]


def test_a_comparison_chooses_again_too_and_holds_its_card_also_while_the_cpu_is_measured(host: Host) -> None:
    it = prepared(host, "1", "1", program=COMPARE)
    (other,) = set(CARDS) - set(it["gpus"])
    assert it["held"][it["gpus"][0]] == it["id"]
    assert it["held"][other] != it["id"]
    assert "another run took the GPU meanwhile: choosing again" in it["said"]


def test_the_card_of_a_comparison_is_free_once_nobody_runs_it(store: Store) -> None:
    kept = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0, gpus=CARDS[:1])
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        dead = Owner(child.pid, 1, this_process().boot)
    for owner, held in ((this_process(), {CARDS[0]: kept.id}), (dead, {}), (None, {})):
        comparisons.save(replace(kept, owner=owner), store)
        assert gpu_claims.claimed(store) == held


def test_one_that_waits_chooses_its_card_after_its_image_is_there(
    host: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run takes the card that it would have got before."""
    image = ImageRef.parse("127.0.0.1:1/tensorflow:18.01-py2")
    has(daemon, image)
    daemon.pulled = json.dumps({"status": f"Digest: {DIGEST}"}).encode() + b"\n"
    monkeypatch.setenv("IMAGE", str(image))
    monkeypatch.setenv("WAITS", "yes")
    it = prepared(host, "1", "1")
    (other,) = set(CARDS) - set(it["gpus"])
    assert (it["held"][it["gpus"][0]], it["held"][other] != it["id"]) == (it["id"], True)
    assert len([path for path in daemon.asked if "/images/create?" in path]) == 1
    assert it["said"][0].endswith("; GPUs: 1 free GPU, by runtime (the runtime nvidia is there)")
    assert it["said"][-1].startswith("GPUs: 0 (NVIDIA GeForce GTX 1050 Ti), by runtime")


def test_a_command_that_gets_all_cards_that_may_compute_did_not_choose_free_ones(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMAND", "yes")
    host.set(gpu1__compute_mode=2)
    it = prepared(host, "auto", "1")
    assert (it["gpus"], it["held"][CARDS[0]] != it["id"]) == ([CARDS[0]], True)
    assert "another run took the GPU meanwhile: choosing again" not in it["said"]


def test_cards_of_one_name_are_named_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMAND", "yes")
    host.set(gpu1__name="NVIDIA GeForce GTX 1050 Ti")
    assert "GPUs: 0, 1 (NVIDIA GeForce GTX 1050 Ti)" in prepared(host, "auto")["said"][0]


def test_an_image_that_is_always_pulled_is_not_pulled_once_more_for_another_card(
    host: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other runs wait until the card is chosen, and a pull may take an hour."""
    image = ImageRef.parse("127.0.0.1:1/tensorflow:18.01-py2")  # no registry answers there: the engine pulls
    has(daemon, image)
    daemon.pulled = json.dumps({"status": f"Digest: {DIGEST}"}).encode() + b"\n"
    monkeypatch.setenv("IMAGE", str(image))
    it = prepared(host, "1", "1")
    assert "another run took the GPU meanwhile: choosing again" in it["said"]
    assert len([path for path in daemon.asked if "/images/create?" in path]) == 1


def test_who_must_wait_for_another_s_choice_says_so(store: Store) -> None:
    store.ensure_writable()
    said: list[str] = []

    def choose() -> None:
        with gpu_claims.choosing_lock(store, said.append):
            said.append("chosen")

    other = threading.Thread(target=choose)
    with gpu_claims.choosing_lock(store, said.append):
        other.start()
        until(lambda: said, "what it waits for")
        assert said == ["waiting for another ngcdl to choose its GPUs"]
    other.join(240)
    assert said[1:] == ["chosen"]


@pytest.mark.parametrize("gpus", ["all", "0,1"])
def test_a_demand_for_certain_cards_does_not_ask_who_holds_them(host: Host, gpus: str) -> None:
    it = prepared(host, gpus, "1")
    assert it["gpus"] == list(CARDS)
    assert not [line for line in it["said"] if "meanwhile" in line]


def test_a_free_card_that_is_left_to_nobody_is_refused_with_the_run_that_has_it(host: Host) -> None:
    it = prepared(host, "2", "2")
    assert it["error"] == "NoGpu"
    (holder,) = it["ids"]
    assert it["message"] == (
        f"--gpus 2: 0 of 2 GPUs are free (in use or out of order: GPU 0 by {holder}, 1 by {holder})."
    )


def test_under_auto_a_training_shares_where_all_are_held(host: Host) -> None:
    assert len(prepared(host, "auto", "1")["gpus"]) == 1
    it = prepared(host, "auto", "2")
    assert it["gpus"] == [CARDS[1]], "the card with the most memory"
    assert [line for line in it["said"] if "no card is free (GPU 0: 20" in line and "shares GPU 1" in line]


def test_a_card_that_is_shared_from_the_start_was_taken_by_nobody_meanwhile(host: Host, tmp_path: Path) -> None:
    store = Store(tmp_path / ".local/state/ngcdl/runs")
    taken = recorded(store, "all", TRAINING)
    store.save(replace(store.load(taken), gpus=CARDS))
    it = prepared(host, "auto")
    assert it["gpus"] == [CARDS[1]]
    (loud,) = [line for line in it["said"] if "no card is free" in line]
    assert f"(GPU 0: {taken}; GPU 1: {taken}): this run shares GPU 1, " in loud
    assert not [line for line in it["said"] if "meanwhile" in line]
