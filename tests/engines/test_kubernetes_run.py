"""A whole run on Kubernetes: followed and closed by launch, or left and closed by the next command.

The API is a stand-in, kubectl is Debian's, and the pod's own script is run here in its place."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes import FakeShow
from kubernetes_api import Api
from kubernetes_jobs import IMAGE, RUN

from ngcdl.engines.kubernetes import KubernetesEngine, bundle
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.values import Order
from ngcdl.record import Run
from ngcdl.running import launch, reconcile
from ngcdl.running.prepare import Ready
from ngcdl.spec import GpuRequest, Placement, RunSpec, Workload
from ngcdl.storing.store import Store

pytestmark = pytest.mark.lab
EVENTS = (
    '{"event":"start","t":1,"device":"gpu","batch":8,"steps":2,"workload":"cifar10"}',
    '{"event":"step","t":2,"step":0,"loss":4.5,"examples_per_second":null,"seconds_per_batch":null}',
    '{"event":"checkpoint","t":2.5,"step":2,"path":"checkpoints/step-2.npz","seconds":0.1}',
    '{"event":"finish","t":3,"step":2,"seconds":2}',
)


@pytest.fixture
def api(api: Api, kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The API that a typed ngcdl talks to."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=":")
    return api


def ready(store: Store, engine: KubernetesEngine, claim: str | None = None) -> Ready:
    place = engine.placed(Placement(data_pvc=claim))
    spec = RunSpec(IMAGE, ("true",), GpuRequest("count", count=1), workload=Workload("cifar10"), placement=place)
    run = Run(RUN, "running", 1.0, engine="kubernetes", engine_id=engine.identity, spec=spec.as_json())
    folder = store.create(run)
    return Ready(engine, Order(spec, RUN, folder, str(IMAGE), "device-plugin"), run)


def play(api: Api, folder: Path, code: int = 0) -> None:
    """Play the cluster: place the pod, run the manifest's script, and end the Job."""
    api.until(lambda: any(kind == "jobs" for kind, _, _ in api.objects), "no Job was made")
    (folder / "brought").mkdir(parents=True)
    script = api.only("configmaps")["data"][bundle.SCRIPT]
    (folder / "brought" / bundle.SCRIPT).write_text(script)
    lines = "\n".join(EVENTS)
    trainer = f"echo step 0; printf '%s\\n' '{lines}' >{folder}/run/events.jsonl; exit {code}"
    pod = api.runs()
    with subprocess.Popen(
        ["sh", str(folder / "brought" / bundle.SCRIPT), "sh", "-c", trainer], stdout=subprocess.PIPE, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "NGCDL_RUN": str(folder / "run")},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            api.writes(pod, line)
    api.ends(code=process.returncode)
    api.job_ends("Failed" if process.returncode else "Complete", "BackoffLimitExceeded")


@pytest.mark.parametrize(("code", "status"), [(0, "finished"), (3, "failed")])
def test_a_run_is_followed_to_its_end_and_nothing_of_it_is_left_in_the_cluster(
    api: Api, tmp_path: Path, code: int, status: str
) -> None:
    store, show = Store(tmp_path / "ngcdl" / "runs"), FakeShow()
    cluster = threading.Thread(target=play, args=(api, tmp_path / "pod", code), daemon=True)
    cluster.start()
    done = launch.follow(ready(store, KubernetesEngine(Kubectl(), store.root)), store, show)
    cluster.join(120)
    assert (done.status, done.exit_code, done.container) == (status, code, f"kubernetes:vision/ngcdl-{RUN}")
    assert (done.summary.loss_first, done.owner) == (4.5, None)
    assert done.reason is None, "its record was read, and its exit code says it all"
    assert show.shown == b"step 0\n"
    assert (store.folder(RUN) / "log.txt").read_text().splitlines()[1:] == ["step 0"]
    assert api.objects.keys() == {("pods", "vision", f"ngcdl-{RUN}-0-aaaaa")}, "a real cluster takes it with its Job"


def test_a_command_that_is_typed_runs_to_its_end_in_the_image_s_own_folder(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGCDL_REGISTRY", "127.0.0.1:1")  # no one listens there
    words = ("run", "pytorch:25.03-py3", "--engine", "kubernetes", "--gpus", "none", "--", "nvidia-smi", "-L")
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ngcdl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        api.until(lambda: any(kind == "jobs" for kind, _, _ in api.objects), "no Job was made")
        (container,) = api.only("jobs")["spec"]["template"]["spec"]["containers"]
        play(api, tmp_path / "pod")
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "step 0\n"), err
    assert "ngcdl: Kubernetes accepted it as the Job vision/ngcdl-" in err
    assert (container["args"][2:], "workingDir" in container) == (["nvidia-smi", "-L"], False)


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_container_that_could_not_be_started_leaves_the_words_of_its_runtime_and_their_remedy(
    api: Api, tmp_path: Path, is_followed: bool
) -> None:
    said = "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"

    def play_it() -> None:
        api.until(lambda: any(kind == "jobs" for kind, _, _ in api.objects), "no Job was made")
        api.refusals["GET", "log"] = (400, "BadRequest", "unable to retrieve container logs")
        api.ends(code=128, reason="StartError", message=said, finished=datetime.now(UTC).isoformat())
        api.job_ends("Failed", "BackoffLimitExceeded")

    store, show = Store(tmp_path / "ngcdl" / "runs"), FakeShow()
    engine = KubernetesEngine(Kubectl(), store.root)
    if is_followed:
        cluster = threading.Thread(target=play_it, daemon=True)
        cluster.start()
        done = launch.follow(ready(store, engine), store, show)
        cluster.join(120)
        assert show.shown == f"{said}\n".encode()
    else:
        launch.follow(ready(store, engine), store, show, leave=True)
        play_it()
        done = reconcile.reconcile(store, store.load(RUN))
    assert (done.status, done.exit_code, done.reason) == ("failed", 128, said)
    assert (store.folder(RUN) / "log.txt").read_text().splitlines()[1:] == [said]
    assert done.diagnosis
    assert done.diagnosis.name == "driver-mismatch"


def test_a_run_that_was_left_is_closed_with_log_and_figures_by_whoever_comes_next(api: Api, tmp_path: Path) -> None:
    store = Store(tmp_path / "ngcdl" / "runs")
    engine = KubernetesEngine(Kubectl(), store.root)
    left = launch.follow(ready(store, engine), store, FakeShow(), leave=True)
    assert left.status == "running"
    assert reconcile.reconcile(store, store.load(RUN)).status == "running"
    play(api, tmp_path / "pod")
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "ngcdl", "logs", "-f", RUN],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert shown.stdout.splitlines()[1:] == ["step 0"]
    closed = store.load(RUN)
    assert (closed.status, closed.exit_code, closed.summary.loss_first) == ("finished", 0, 4.5)


def test_logs_f_says_once_what_a_run_that_was_left_waits_for_and_waits_for_it(api: Api, tmp_path: Path) -> None:
    store = Store(tmp_path / "ngcdl" / "runs")
    launch.follow(ready(store, KubernetesEngine(Kubectl(), store.root)), store, FakeShow(), leave=True)
    words = [sys.executable, "-P", "-m", "ngcdl", "logs", "-f", RUN]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr
        for said in ("try 1: i/o timeout", "try 2: 401 Unauthorized"):  # the second may pass, too: somebody adds a key
            state = {"waiting": {"reason": "ErrImagePull", "message": said}}
            api.pod(phase="Pending", containerStatuses=[{"name": "run", "state": state}])
            enough = len(api.asked) + 5
            api.until(lambda enough=enough: len(api.asked) >= enough, "nobody looks any more")  # type: ignore[misc]
        play(api, tmp_path / "pod")
        out, told = follower.communicate(timeout=120)
    assert (follower.returncode, out.splitlines()[1:]) == (0, ["step 0"])
    assert told == "ngcdl: waiting: the image could not be pulled yet: try 1: i/o timeout\n"


@pytest.mark.parametrize(
    ("claim", "where"),
    [
        (None, "without --data-pvc nothing else keeps it"),
        (
            "cifar",
            f"what it recorded is on the claim cifar, in ngcdl-runs/{RUN}; ngcdl show reads the *.jsonl of it once "
            "they are copied into the record's folder",
        ),
    ],
)
def test_a_run_whose_pod_was_gone_before_anyone_looked_says_where_its_figures_are(
    api: Api, tmp_path: Path, claim: str | None, where: str
) -> None:
    store = Store(tmp_path / "ngcdl" / "runs")
    engine = KubernetesEngine(Kubectl(), store.root)
    launch.follow(ready(store, engine, claim), store, FakeShow(), leave=True)
    api.job_ends()
    closed = reconcile.reconcile(store, store.load(RUN))
    said = f"its pod was gone before its log, with the record, was read to its end; {where}"
    assert (closed.status, closed.exit_code, closed.reason) == ("finished", 0, said)


def test_a_training_goes_on_in_a_second_run_from_the_checkpoint_that_the_first_left_on_the_claim(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGCDL_REGISTRY", "127.0.0.1:1")  # no one listens there
    words = (
        "run",
        "pytorch:25.03-py3",
        "--engine",
        "kubernetes",
        "--gpus",
        "none",
        "--train",
        "cifar10",
        "--batch",
        "8",
    )
    resume = ("--data-pvc", "cifar", "--resume", "last")
    containers = []
    for number, more in enumerate((("--data-pvc", "cifar"), resume)):
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "ngcdl", *words, *more], stderr=subprocess.PIPE, text=True
        ) as process:
            api.until(lambda: any(kind == "jobs" for kind, _, _ in api.objects), "no Job was made")
            containers += api.only("jobs")["spec"]["template"]["spec"]["containers"]
            play(api, tmp_path / f"pod{number}")
            _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    second, first = Store(tmp_path / "ngcdl" / "runs").ids()
    kept = {one["name"]: one["value"] for one in containers[1]["env"] if "ngcdl-runs" in one.get("value", "")}
    runs = "/ngcdl-claim/ngcdl-runs"
    assert kept == {"NGCDL_KEPT": f"{runs}/{second}", "NGCDL_BEFORE": f"{runs}/{first}"}
    assert [" --resume /ngcdl/resume " in " ".join(one["args"]) for one in containers] == [False, True]


def test_nodes_are_compared_by_one_job_when_the_other_has_ended(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGCDL_REGISTRY", "127.0.0.1:1")  # no one listens there
    words = ("compare", "pytorch:25.03-py3", "--train", "cifar10", "--engine", "kubernetes", "--vary", "nodes=1,2")
    api.put("nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {"nvidia.com/gpu": "1"}}})
    nodes = []
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ngcdl", *words, "--repeat", "1", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        for number in (1, 2):
            api.until(lambda: any(kind == "jobs" for kind, _, _ in api.objects), "no Job was made")
            job = api.only("jobs")
            nodes.append(job["spec"]["completions"])
            play(api, tmp_path / f"pod{number}")
            # this one: the next may be there before a busy machine has looked
            api.until(lambda name=job["metadata"]["name"]: api.has_no("jobs", name), "the Job was left")
        out, err = process.communicate(timeout=120)
    said = "WARNING: nodes=2: of 2 nodes with 1 GPU the cluster has 1; unless it grows, the run can't begin."
    assert err.count(said) == 1
    assert err.count("The registry can't be asked for the digest") == err.count("data: SYNTHETIC") == 1, "for both arms"
    found = json.loads(out)
    assert (nodes, [trial["arm"] for trial in found["trials"]]) == ([1, 2], ["nodes=1", "nodes=2"])
    assert [refusal["field"] for refusal in found["refused"]] == ["examples_per_second"], "a pod of two steps"
