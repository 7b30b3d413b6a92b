"""Submitted, followed, stopped and found again by Debian's kubectl, over real HTTP to a stand-in for the API."""

from __future__ import annotations

import base64
import io
import json
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes_api import Api, Log, serving

from ngcdl.engines.base import Chunk, Order
from ngcdl.engines.kubernetes import KubernetesEngine
from ngcdl.engines.kubernetes.job import KubernetesJob
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.told import BEGIN, END
from ngcdl.errors import (
    BadOption,
    ClusterForbidden,
    ClusterHangs,
    ClusterLost,
    ClusterRefused,
    ClusterUnreachable,
    EngineError,
    ImageNotPulled,
    KubectlMissing,
    PodFailed,
)
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from lab_parts import packages
from lab_parts.where import Lab

pytestmark = pytest.mark.lab
RUN = "20261121-192252-cifar10-beefca"
NAME = f"ngcdl-{RUN}"
IMAGE = ImageRef.parse("pytorch:25.03-py3")
LOOK = "GET /apis/batch/v1/namespaces/vision/jobs"
REFUSALS = (  # of a server that changes its leader, one that is busy, and one that a token has expired for
    (500, "InternalError", "etcdserver: leader changed"),
    (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    (401, "Unauthorized", "Unauthorized"),
)


@pytest.fixture(scope="module")
def program(lab: dict[str, Any]) -> str:
    return str(packages.unpacked(Lab(Path(lab["dir"]), Path(lab["cache"])), "kubernetes") / "usr/bin/kubectl")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "config", "vision")))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield api


@pytest.fixture
def engine(api: Api, program: str, tmp_path: Path) -> KubernetesEngine:
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    return KubernetesEngine(Kubectl(program=program), tmp_path / "runs")


def order(engine: KubernetesEngine, tmp_path: Path, nodes: int = 1, **more: Any) -> Order:
    spec = RunSpec(IMAGE, ("true",), GpuRequest("count", count=1), placement=Placement(nodes=nodes), **more)
    placed = replace(spec, placement=engine.placed(spec.placement))
    return Order(placed, RUN, tmp_path / "runs" / RUN, str(IMAGE), engine.gpu_way().name)


def started(engine: KubernetesEngine, tmp_path: Path, nodes: int = 1) -> KubernetesJob:
    job = engine.start(order(engine, tmp_path, nodes))
    assert isinstance(job, KubernetesJob)
    job.poll_seconds = 0.05
    return job


def record(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return BEGIN + base64.encodebytes(made.getvalue()) + END


class Followed:
    """A job's output, read in a thread of its own, as launch reads it while a test plays the cluster."""

    def __init__(self, job: KubernetesJob) -> None:
        self.chunks: list[Chunk] = []
        self.error: EngineError | None = None
        self._job = job
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for chunk in self._job.output():
                with self._more:
                    self.chunks.append(chunk)
                    self._more.notify_all()
        except EngineError as error:
            self.error = error

    def text(self, stream: str = "stdout") -> str:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == stream).decode()

    def until(self, text: str, stream: str = "stdout") -> None:
        with self._more:
            assert self._more.wait_for(lambda: text in self.text(stream), 30), f"{text!r} is not in {self.chunks}"

    def end(self) -> str:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the output has no end"
        return self.text()


def test_what_is_submitted_is_there_and_its_secret_is_in_no_file(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = engine.start(order(engine, tmp_path, nodes=2, environment=(("HF_TOKEN", "hush"),)))
    made = {(kind, name) for kind, _, name in api.objects}
    assert made == {(kind, NAME) for kind in ("secrets", "configmaps", "services", "jobs")}
    assert api.only("secrets")["stringData"] == {"HF_TOKEN": "hush"}
    assert job.identity == f"kubernetes:vision/{NAME}"
    kept = (tmp_path / "runs" / RUN / "job.yaml").read_text()
    assert "hush" not in kept
    assert "kind: Job" in kept
    job.remove()
    assert api.objects == {}


def test_the_output_is_followed_to_its_end_and_the_record_with_it(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path)
    followed = Followed(job)
    pod = api.runs()
    api.writes(pod, b"step 0\n")
    followed.until("step 0\n")
    api.writes(pod, b"step 1\n" + record(events__jsonl=b"{}\n", exit__json=b'{"code": 0, "t": 5}'))
    api.ends()
    api.job_ends()
    assert followed.end() == "step 0\nstep 1\n"
    assert job.wait().code == 0
    folder = tmp_path / "runs" / RUN
    assert (folder / "log.txt").read_text() == f"ngcdl: pod {pod}\nstep 0\nstep 1\n"
    assert (folder / "events.jsonl").read_text() == "{}\n"


def test_a_connection_that_is_cut_loses_and_doubles_nothing(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    job = started(engine, tmp_path)
    followed = Followed(job)
    pod = api.runs()
    api.writes(pod, b"step 0\n")
    followed.until("step 0\n")
    with api.changed:
        api.logs[pod].cut = 1
        api.changed.notify_all()
    api.until(lambda: api.logs[pod].cut == 0, "the connection was not cut")
    api.writes(pod, b"step 1\n")
    followed.until("step 1\n")
    with api.changed:  # and its node begins a new file: what was written before is gone there
        followed_log, api.logs[pod] = api.logs[pod], Log(b"step 2\n")
        followed_log.cut = 1
        api.changed.notify_all()
    followed.until("step 2\n")
    api.ends()
    api.job_ends()
    assert followed.end() == "step 0\nstep 1\nstep 2\n"
    title = f"ngcdl: pod {pod}\n"
    assert (tmp_path / "runs" / RUN / "log.txt").read_text() == f"{title}step 0\nstep 1\n{title}step 2\n"


def test_a_pod_in_the_place_of_a_lost_one_is_followed_too(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    job = started(engine, tmp_path)
    followed = Followed(job)
    first = api.runs()
    api.writes(first, b"step 0\n")
    followed.until("step 0\n")
    api.ends(code=137)
    second = api.runs(suffix="bbbbb", made="2026-01-01T00:05:00Z")
    api.writes(second, b"step 1\n")
    followed.until("step 1\n")
    api.ends(suffix="bbbbb")
    api.put("pods", {**api.objects["pods", "vision", second], "metadata": {
        **api.objects["pods", "vision", second]["metadata"], "creationTimestamp": "2026-01-01T00:05:00Z"}})  # fmt: skip
    api.job_ends()
    assert followed.end() == "step 0\nstep 1\n"
    log = (tmp_path / "runs" / RUN / "log.txt").read_text()
    assert log == f"ngcdl: pod {first}\nstep 0\nngcdl: pod {second}\nstep 1\n"


def test_another_nodes_record_is_fetched_and_its_last_words_where_it_failed(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path, nodes=2)
    for index, words in enumerate((b"step 0\n", b"NCCL WARN: no network\n" + record(**{"samples-n2__jsonl": b"1\n"}))):
        api.writes(api.runs(index), words)
        api.ends(index, code=1)
    api.job_ends("Failed", "BackoffLimitExceeded")
    said = Followed(job).end()
    assert said == "step 0\nthe end of what node 1 wrote:\nNCCL WARN: no network\n"
    assert (tmp_path / "runs" / RUN / "samples-n2.jsonl").read_text() == "1\n"
    assert job.wait().code == 1


def test_what_it_waits_for_is_said_once(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    job = started(engine, tmp_path)
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    api.pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": said}])
    followed = Followed(job)
    followed.until(said, "stderr")
    looks = len(api.asked)
    api.until(lambda: len(api.asked) > looks + 6, "nobody looks any more")
    api.ends()
    api.job_ends()
    followed.end()
    assert followed.text("stderr").count("it waits") == 1


def test_a_start_that_fails_is_waited_out_and_an_image_that_no_node_may_pull_ends_the_following_with_the_remedy(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    def waits(reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        api.pod(phase="Pending", containerStatuses=[{"name": "run", "state": state}])

    job = started(engine, tmp_path)
    waits("CreateContainerError", "context deadline exceeded")
    followed = Followed(job)
    followed.until("it waits: its container, which could not be started yet", "stderr")
    waits("ErrImagePull", "401 Unauthorized")
    followed.end()
    assert isinstance(followed.error, ImageNotPulled)
    assert "--pull-secret" in followed.error.hint
    waits("CreateContainerError", "context deadline exceeded")
    job.lost_seconds = 0
    followed = Followed(job)
    followed.end()
    assert isinstance(followed.error, PodFailed), "it was waited for long enough"


def test_a_log_that_ended_before_its_pod_did_or_that_can_t_be_read_is_asked_for_again_after_a_pause(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path)
    job.poll_seconds = 0.7
    pod = api.runs()
    api.logs[pod].closed = True
    asked = f"GET /api/v1/namespaces/vision/pods/{pod}/log"
    followed = Followed(job)
    api.until(lambda: asked in api.asked, "nobody reads its log")
    begun = time.monotonic()
    api.until(lambda: api.asked.count(asked) == 2, "nobody reads its log again")
    assert time.monotonic() - begun > 0.45
    api.writes(pod, b"step 0\n" + record(events__jsonl=b"{}\n"))
    api.refusals["GET", "log"] = (500, "InternalError", "proxy error: no answer of the node")
    job.poll_seconds = 0.05
    api.ends(finished=datetime.now(UTC).isoformat())
    api.job_ends()
    later = engine.find(RUN)
    assert later
    with pytest.raises(ClusterHangs, match="read the log"):
        later.ended()
    del api.refusals["GET", "log"]
    assert followed.end() == "step 0\n"
    assert (tmp_path / "runs" / RUN / "events.jsonl").exists(), "the record, which the job is deleted with"


def test_a_stop_deletes_the_job_and_keeps_what_the_pod_says_until_it_is_gone(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path)
    pod = api.runs()
    api.writes(pod, b"step 0\n")
    stopping = threading.Thread(target=job.stop, args=(20,), daemon=True)
    stopping.start()
    api.until(
        lambda: any("deletionTimestamp" in one["metadata"] for one in api.objects.values()),
        "the pod was not asked to end",
    )
    api.until(lambda: any(asked.endswith("/log") for asked in api.asked), "nobody reads what it says")
    api.goes(pod, b"saved\n" + record(exit__json=b'{"code": 143, "t": 5.5}'))
    stopping.join(30)
    assert not stopping.is_alive()
    assert (tmp_path / "runs" / RUN / "log.txt").read_text() == f"ngcdl: pod {pod}\nstep 0\nsaved\n"
    ended = job.wait()
    assert (ended.code, ended.finished) == (143, 5.5)


def test_a_kill_leaves_nothing(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    job = started(engine, tmp_path)
    api.runs()
    job.kill()
    job.kill()
    job.remove()
    assert api.objects == {}


def test_a_run_that_nobody_followed_is_found_again_with_log_and_record(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    started(engine, tmp_path)
    pod = api.runs()
    api.writes(pod, b"step 0\n")
    found = engine.find(RUN)
    assert found is not None
    assert found.ended() is None
    log = tmp_path / "runs" / RUN / "log.txt"
    assert log.read_text().endswith("step 0\n")
    api.writes(pod, b"step 1\n" + record(events__jsonl=b"{}\n"))
    api.ends(code=3)
    api.job_ends("Failed", "BackoffLimitExceeded")
    later = engine.find(RUN)
    ended = later.ended() if later else None
    assert ended
    assert ended.code == 3
    assert log.read_text() == f"ngcdl: pod {pod}\nstep 0\nstep 1\n"
    assert (tmp_path / "runs" / RUN / "events.jsonl").exists()
    assert engine.find("another") is None


def test_a_cluster_that_stays_away_loses_the_run_and_one_that_comes_back_does_not(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path)
    api.runs()
    assert job.waiting() is None
    api.refusals["GET", "jobs"] = (504, "Timeout", "context deadline exceeded")
    job.lost_seconds = 0
    followed = Followed(job)
    followed.end()
    assert isinstance(followed.error, ClusterLost)
    assert "gave no answer" in followed.error.message
    job.lost_seconds = 60
    again = Followed(job)
    for refusal in REFUSALS:
        api.refusals["GET", "jobs"] = refusal
        looks = api.asked.count(LOOK)
        api.until(lambda at=looks: api.asked.count(LOOK) > at + 1, "nobody looks any more")
    del api.refusals["GET", "jobs"]
    api.ends()
    api.job_ends()
    again.end()
    assert again.error is None


def test_who_may_not_look_at_jobs_is_told_at_once(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    job = started(engine, tmp_path)
    api.refusals["GET", "jobs"] = (403, "Forbidden", 'jobs.batch is forbidden: User "me" cannot list resource "jobs"')
    with pytest.raises(ClusterForbidden, match="cannot list"):
        job.wait()


def test_what_may_not_be_made_is_an_error_and_leaves_nothing(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    said = 'jobs.batch is forbidden: User "me" cannot create resource "jobs"'
    api.refusals["POST", "jobs"] = (403, "Forbidden", said)
    with pytest.raises(ClusterForbidden, match="cannot create") as refused:
        engine.start(order(engine, tmp_path))
    assert "kubectl auth can-i" in refused.value.hint
    assert api.objects == {}


def test_a_pull_secret_is_made_through_kubectls_stdin_and_takes_the_place_of_an_older_one(
    engine: KubernetesEngine, api: Api
) -> None:
    for key in ("nvapi-old", "nvapi-new"):
        assert engine.keep_pull_secret("ngc", None, "nvcr.io", "$oauthtoken", key) == "vision"
    made = api.only("secrets")
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    login = json.loads(made["stringData"][".dockerconfigjson"])["auths"]["nvcr.io"]
    assert (login["username"], login["password"]) == ("$oauthtoken", "nvapi-new")
    assert base64.b64decode(login["auth"]) == b"$oauthtoken:nvapi-new"
    assert "annotations" not in made["metadata"]
    assert not [line for line in api.asked if line.startswith("DELETE")]


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_pull_secret_that_can_t_be_replaced_stays_as_it_is(engine: KubernetesEngine, api: Api, method: str) -> None:
    engine.keep_pull_secret("ngc", None, "nvcr.io", "$oauthtoken", "nvapi-old")
    api.refusals[method, "secrets"] = (403, "Forbidden", "secrets is forbidden")
    with pytest.raises(ClusterForbidden):
        engine.keep_pull_secret("ngc", None, "nvcr.io", "$oauthtoken", "nvapi-new")
    assert "nvapi-old" in api.only("secrets")["stringData"][".dockerconfigjson"]


@pytest.mark.parametrize("kind", ["kubernetes.io/tls", "Opaque"])
def test_a_secret_of_another_kind_is_no_pull_secret_s_to_take_the_place_of(
    engine: KubernetesEngine, api: Api, kind: str
) -> None:
    kept = api.put("secrets", {"metadata": {"name": "web", "namespace": "vision"}, "type": kind, "data": {}})
    with pytest.raises(BadOption, match=f"web is there already in vision, of the type {kind}"):
        engine.keep_pull_secret("web", None, "nvcr.io", "$oauthtoken", "nvapi-new")
    assert api.only("secrets") == kept


def test_the_cluster_tells_what_it_is(engine: KubernetesEngine) -> None:
    place = engine.placed(Placement(nodes=2))
    assert place == Placement(nodes=2, namespace="vision")
    assert (engine.version, engine.identity) == ("v1.32.3", "stub")
    assert engine.placed(Placement(namespace="mine")) == Placement(namespace="mine")


def test_a_job_is_asked_for_where_it_was_made_whatever_context_another_shell_chooses(
    engine: KubernetesEngine, tmp_path: Path
) -> None:
    made = order(engine, tmp_path)
    engine.start(replace(made, spec=replace(made.spec, placement=Placement(namespace="2024-ml"))))
    job = engine.find(RUN)
    assert job
    assert job.identity == f"kubernetes:2024-ml/{NAME}", "YAML has it in quotes"
    kubeconfig = tmp_path / "config"
    said = json.loads(kubeconfig.read_text())
    said["clusters"].append({"name": "away", "cluster": {"server": "http://127.0.0.1:1"}})
    said["contexts"].append({"name": "away", "context": {"cluster": "away", "user": "me"}})
    kubeconfig.write_text(json.dumps({**said, "current-context": "away"}))
    assert job.ended() is None
    assert engine.identity == "stub"
    assert KubernetesEngine(engine._as_given, tmp_path).identity == "away"


def test_no_kubectl_no_cluster_and_no_context_are_told_apart(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(KubectlMissing, match="no-such-kubectl"):
        _ = KubernetesEngine(Kubectl(program="no-such-kubectl"), tmp_path).version
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "gone"}
    (tmp_path / "gone").write_text(json.dumps(config))
    with serving() as api:
        closed = api.kubeconfig(tmp_path / "closed")
    for kubeconfig, kind in ((tmp_path / "gone", ClusterUnreachable), (closed, ClusterUnreachable)):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        with pytest.raises(kind) as refused:
            _ = KubernetesEngine(Kubectl(program=program), tmp_path).version
        assert "kubectl config get-contexts" in refused.value.hint
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    assert KubernetesEngine(Kubectl(program=program), tmp_path).identity is None


def test_kubectl_that_prints_no_json_is_told(tmp_path: Path) -> None:
    odd = tmp_path / "kubectl"
    odd.write_text("#!/bin/sh\necho hello\n")
    odd.chmod(0o755)
    with pytest.raises(ClusterRefused, match="no JSON"):
        Kubectl(program=str(odd)).json("version")
