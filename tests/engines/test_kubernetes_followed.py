"""The output of a run's pods is followed to its end, whatever breaks on the way, and so is the record."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubernetes_api import Api, Log
from kubernetes_jobs import NAME, RUN, Followed, record, started

from ngcdl.engines.kubernetes import KubernetesEngine
from ngcdl.engines.kubernetes.job import KubernetesJob
from ngcdl.errors import ClusterHangs, ImageNotPulled, PodFailed

pytestmark = pytest.mark.lab


def at_step_0(engine: KubernetesEngine, api: Api, tmp_path: Path) -> tuple[KubernetesJob, Followed, str]:
    """A job, its output and the name of its pod, which has written a first line."""
    job = started(engine, tmp_path)
    followed = Followed(job)
    pod = api.runs()
    api.writes(pod, b"step 0\n")
    followed.until("step 0\n")
    return job, followed, pod


def test_the_output_is_followed_to_its_end_and_the_record_with_it_though_tmp_is_full(
    engine: KubernetesEngine, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    job, followed, pod = at_step_0(engine, api, tmp_path)
    api.writes(pod, b"step 1\n" + record(events__jsonl=b"{}\n", exit__json=b'{"code": 0, "t": 5}'))
    api.ends()
    api.job_ends()
    assert followed.end() == "step 0\nstep 1\n"
    assert job.wait().code == 0
    folder = tmp_path / "runs" / RUN
    assert (folder / "log.txt").read_text() == f"ngcdl: pod {pod}\nstep 0\nstep 1\n"
    assert (folder / "events.jsonl").read_text() == "{}\n"


def test_a_connection_that_is_cut_loses_and_doubles_nothing(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    _, followed, pod = at_step_0(engine, api, tmp_path)
    with api.changed:
        api.logs[pod].cut = 1
        api.changed.notify_all()
    api.until(lambda: api.logs[pod].cut == 0, "the connection was not cut")
    api.writes(pod, b"step 1\n")
    followed.until("step 1\n")
    with api.changed:  # its node rotates the log: earlier output is gone there
        followed_log, api.logs[pod] = api.logs[pod], Log(b"step 2\n")
        followed_log.cut = 1
        api.changed.notify_all()
    followed.until("step 2\n")
    api.ends()
    api.job_ends()
    assert (followed.end(), followed.text("stderr")) == ("step 0\nstep 1\nstep 2\n", "")
    title = f"ngcdl: pod {pod}\n"
    assert (tmp_path / "runs" / RUN / "log.txt").read_text() == f"{title}step 0\nstep 1\n{title}step 2\n"


def test_a_pod_in_the_place_of_a_lost_one_is_followed_too(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    _, followed, first = at_step_0(engine, api, tmp_path)
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


def test_a_pod_that_was_evicted_or_removed_and_replaced_is_told_of_once_with_what_to_do(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job, followed, first = at_step_0(engine, api, tmp_path)
    api.logs[first].closed = True
    said = "The node was low on resource: memory. Container run was using 200Gi, request is 0"
    api.pod(phase="Failed", reason="Evicted", message=said)
    second = api.runs(suffix="bbbbb", made="2026-01-01T00:05:00Z")
    followed.until(f"the pod {first} ended (Evicted: {said}); {second} takes its place\n", "stderr")
    followed.until("--memory 64g", "stderr")
    with api.changed:
        del api.objects["pods", "vision", second]
        api.logs[second].closed = True
        api.changed.notify_all()
    third = api.runs(suffix="ccccc", made="2026-01-01T00:06:00Z")
    followed.until(f"the pod {second} is gone; {third} takes its place\n", "stderr")
    api.ends(suffix="ccccc")
    api.put("pods", {**api.objects["pods", "vision", third], "metadata": {
        **api.objects["pods", "vision", third]["metadata"], "creationTimestamp": "2026-01-01T00:06:00Z"}})  # fmt: skip
    api.job_ends()
    followed.end()
    assert followed.text("stderr").count("takes its place") == 2
    assert f"one of its pods was replaced: Evicted: {said}" in (job.wait().reason or "")


def test_another_nodes_record_is_fetched_and_its_last_words_where_it_failed(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path, nodes=2)
    for index, words in enumerate((b"step 0\n", b"NCCL WARN: no network\n" + record(**{"samples-n2__jsonl": b"1\n"}))):
        api.writes(api.runs(index), words)
        api.ends(index, code=1)
    api.job_ends("Failed", "BackoffLimitExceeded")
    said = Followed(job).end()
    assert said == "step 0\nthe last lines of node 1:\nNCCL WARN: no network\n"
    assert (tmp_path / "runs" / RUN / "samples-n2.jsonl").read_text() == "1\n"
    assert job.wait().code == 1


def test_what_it_waits_for_is_said_once(engine: KubernetesEngine, api: Api, tmp_path: Path) -> None:
    job = started(engine, tmp_path)
    followed = Followed(job)
    # as the kubelet of Kubernetes 1.36 says it, by turns
    for again in range(4):
        said = f"try {time.time_ns():016x}: connection reset by x-0-{'bcdf'[again]}7ffq"
        state = {"waiting": {"reason": "ErrImagePull", "message": said}}
        if again % 2:
            backing_off = f'Back-off pulling image "x": ErrImagePull: {said}'
            state = {"waiting": {"reason": "ImagePullBackOff", "message": backing_off}}
        api.pod(phase="Pending", containerStatuses=[{"name": "run", "state": state}])
        followed.until("connection reset", "stderr")
        enough = len(api.asked) + 7
        api.until(lambda enough=enough: len(api.asked) >= enough, "nobody looks any more")  # type: ignore[misc]
    api.ends()
    api.job_ends()
    followed.end()
    assert followed.text("stderr").count("waiting: ") == 1


def test_what_becomes_of_another_node_is_said_while_the_first_one_s_output_is_followed(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path, nodes=2)
    job.look_seconds = 0.05
    pod, lost = api.runs(), api.runs(1)
    followed = Followed(job)
    api.writes(pod, b"step 0\n")
    followed.until("step 0\n")
    api.refusals["GET", "pods"] = (500, "InternalError", "etcd is away")
    looks = len(api.asked)
    api.until(lambda: len(api.asked) > looks + 6, "nobody looks any more")
    del api.refusals["GET", "pods"]
    api.pod(1, phase="Failed", reason="Preempting", message="more important")
    said = 'pods "x-1" is forbidden: exceeded quota: gpus'
    about = {"metadata": {"name": "e", "namespace": "vision"}, "involvedObject": {"name": NAME}}
    api.put("events", {**about, "reason": "FailedCreate", "message": said, "lastTimestamp": "2026-01-01T00:00:00Z"})
    followed.until(said, "stderr")
    second = api.runs(1, suffix="bbbbb", made="2026-01-01T00:05:00Z")
    followed.until(f"the pod {lost} ended (Preempting: more important); {second} takes its place\n", "stderr")
    api.writes(pod, b"step 1\n")
    followed.until("step 1\n")
    refused = {"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}}
    api.pod(1, "bbbbb", "2026-01-01T00:05:00Z", containerStatuses=[{"name": "run", "state": refused}])
    followed.end()
    assert isinstance(followed.error, ImageNotPulled), "although the first one may wait for it for ever"
    assert followed.text("stderr").count("waiting: ") == 1


def test_other_nodes_are_not_looked_at_more_often_the_more_the_first_one_writes(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path, nodes=2)
    job.look_seconds = 2.0
    pod = api.runs()
    api.runs(1)
    followed, begun, asked = Followed(job), time.monotonic(), "/jobs"
    api.writes(pod, b"first\n")
    followed.until("first\n")

    def looks() -> int:
        return sum(one.startswith("GET ") and asked in one for one in api.asked)

    before = looks()
    api.until(lambda: looks() > before, "nobody looks at the others")
    for number in range(20):
        api.writes(pod, b"%d\n" % number)
        followed.until(f"{number}\n")
    assert looks() - before <= (time.monotonic() - begun) / job.look_seconds + 1
    for index in (0, 1):
        api.ends(index)
    api.job_ends()
    followed.end()


def test_why_a_node_starts_no_container_is_said_in_the_words_of_the_event_about_its_pod(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path)
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    creating = {"name": "run", "state": {"waiting": {"reason": "ContainerCreating"}}}
    pod = api.pod(phase="Pending", conditions=[placed], containerStatuses=[creating])
    followed = Followed(job)
    followed.until(f"kubectl describe pod {pod}", "stderr")
    said = "Unable to attach or mount volumes: timed out"
    about = {"metadata": {"name": "e", "namespace": "vision"}, "involvedObject": {"name": pod}}
    api.put("events", {**about, "type": "Warning", "reason": "FailedMount", "message": said})
    followed.until(said, "stderr")
    assert said in (job.waiting() or ""), "as ngcdl show has it"
    api.runs()
    api.ends()
    api.job_ends()
    followed.end()


def test_a_first_pod_whose_node_died_is_told_of_and_what_takes_its_place_is_followed(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    job = started(engine, tmp_path)
    pod = api.runs()
    api.logs[pod].closed = True
    lost = api.objects["pods", "vision", pod]
    api.put("pods", {**lost, "metadata": {**lost["metadata"], "deletionTimestamp": "2026-01-01T00:10:00Z"}})
    followed = Followed(job)
    followed.until(f"waiting: the pod {pod} should have ended at 2026-01-01T00:10:00Z: its node ", "stderr")
    looks = len(api.asked)
    api.until(lambda: len(api.asked) > looks + 6, "nobody looks any more")
    with api.changed:
        del api.objects["pods", "vision", pod]
    second = api.runs(suffix="bbbbb")
    api.writes(second, b"step 1\n")
    followed.until("step 1\n")
    api.ends(suffix="bbbbb")
    api.job_ends()
    followed.end()
    assert followed.text("stderr").count("waiting: ") == 1


def test_a_start_that_fails_is_waited_out_and_an_image_that_no_node_may_pull_ends_the_following_with_the_remedy(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    def waits(reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        api.pod(phase="Pending", containerStatuses=[{"name": "run", "state": state}])

    job = started(engine, tmp_path)
    waits("CreateContainerError", "context deadline exceeded")
    followed = Followed(job)
    followed.until("waiting: the container could not be started yet", "stderr")
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
    api.until(lambda: api.asked.count(asked) >= 2, "nobody reads its log again")
    api.refusals["GET", "log"] = (403, "Forbidden", "pods/log is forbidden: User me cannot get it")
    followed.until(f"the log of {pod} can't be read: ", "stderr")
    followed.until("User me cannot get it", "stderr")
    job.poll_seconds, looks = 0.05, api.asked.count(asked)
    api.until(lambda: api.asked.count(asked) > looks + 1, "nobody reads its log again")
    del api.refusals["GET", "log"]
    with api.changed:
        first, second, *_ = [at for at, one in zip(api.asked_at, api.asked, strict=True) if one == asked]
    assert second - first >= 0.7
    api.writes(pod, b"step 0\n" + record(events__jsonl=b"{}\n"))
    api.refusals["GET", "log"] = (500, "InternalError", "proxy error: no answer of the node")
    api.ends(finished=datetime.now(UTC).isoformat())
    api.job_ends()
    later = engine.find(RUN)
    assert later
    with pytest.raises(ClusterHangs, match="read the log"):
        later.ended()
    del api.refusals["GET", "log"]
    assert followed.end() == "step 0\n"
    assert (tmp_path / "runs" / RUN / "events.jsonl").exists(), "the record, which the job is deleted with"
    assert followed.text("stderr").count("can't be read") == 1


def test_a_log_that_its_node_does_not_hand_over_keeps_nobody_waiting_and_is_read_later(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    started(engine, tmp_path)
    pod = api.runs()
    api.writes(pod, b"step 0\n" + record(events__jsonl=b"{}\n"))
    api.ends(finished=datetime.now(UTC).isoformat())
    api.job_ends()
    api.logs[pod].stuck = True
    later = engine.find(RUN)
    assert isinstance(later, KubernetesJob)
    later.quiet_seconds = 0.5
    with pytest.raises(ClusterHangs, match="read the log"):
        later.ended()
    with api.changed:
        api.logs[pod].stuck = False
        api.changed.notify_all()
    ended = later.ended()
    assert ended
    assert ended.code == 0
    assert (tmp_path / "runs" / RUN / "log.txt").read_text() == f"ngcdl: pod {pod}\nstep 0\n"
