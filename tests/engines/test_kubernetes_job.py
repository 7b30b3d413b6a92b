"""Submitted, stopped, lost and found again by Debian's kubectl, over real HTTP to a stand-in for the API."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes_api import Api
from kubernetes_jobs import NAME, RUN, Followed, order, record, started

from ngcdl.engines.kubernetes import KubernetesEngine
from ngcdl.errors import ClusterForbidden, ClusterHangs, ClusterLost, EngineError, StateNotWritable
from ngcdl.spec import Placement

pytestmark = pytest.mark.lab
LOOK = "GET /apis/batch/v1/namespaces/vision/jobs"
REFUSALS = (  # a server that changes its leader, one that is busy, and an expired token
    (500, "InternalError", "etcdserver: leader changed"),
    (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    (401, "Unauthorized", "Unauthorized"),
)


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
    stopping.join(120)
    assert not stopping.is_alive()
    assert (tmp_path / "runs" / RUN / "log.txt").read_text() == f"ngcdl: pod {pod}\nstep 0\nsaved\n"
    ended = job.wait()
    assert (ended.code, ended.finished, ended.reason) == (143, 5.5, "its Job is gone from the cluster")
    (tmp_path / "runs" / RUN / "exit.json").write_text('{"code": 0, "t": 5.5}')  # it ended well; then others tidied up
    assert (job.wait().code, job.wait().reason) == (0, None)


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
    told = [line for line in again.text("stderr").splitlines() if line.startswith("the cluster can't be asked: ")]
    assert len(told) == len(REFUSALS), "each reason once"
    assert all(line.endswith(" Trying again for 60 s.") for line in told)
    assert "leader changed" in told[0]


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


@pytest.mark.parametrize(
    ("removal", "error"), [((504, "Timeout", "context deadline exceeded"), ClusterLost), (None, ClusterHangs)]
)
def test_a_creation_without_an_answer_may_have_left_a_job_unless_it_could_be_removed(
    engine: KubernetesEngine, api: Api, tmp_path: Path, removal: tuple[int, str, str] | None, error: type[EngineError]
) -> None:
    api.refusals["POST", "jobs"] = (504, "Timeout", "context deadline exceeded")
    if removal:
        api.refusals["GET", "jobs"] = removal
    with pytest.raises(error) as caught:
        engine.start(order(engine, tmp_path))
    assert "gave no answer" in caught.value.message
    assert ("ngcdl show" in caught.value.hint) == (error is ClusterLost)


def test_a_manifest_that_can_t_be_written_is_an_error_and_nothing_is_made(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    made = order(engine, tmp_path)
    (made.folder / "job.yaml").mkdir()
    with pytest.raises(StateNotWritable, match=r"job\.yaml"):
        engine.start(made)
    assert api.objects == {}


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
