"""A job's state as read from what Kubernetes says, in its own words and with advice."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from ngcdl.engines.kubernetes.messages import remedy, translated
from ngcdl.engines.kubernetes.state import State
from ngcdl.errors import ClusterRefused, ImageNotPulled, PodFailed

JOB = {"kind": "Job", "metadata": {"name": "j"}}
IMAGE = "nvcr.io/nvidia/pytorch:25.03-py3"
DENIED = f"registry.local/denied@sha256:ab401c{'5' * 58}"  # in a name: not an answer
UNSCHEDULABLE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def pod(index: int = 0, made: str = "2026-01-01T00:00:00Z", image: str = IMAGE, **status: Any) -> dict[str, Any]:
    notes = {"batch.kubernetes.io/job-completion-index": str(index)}
    containers = [{"name": "run", "image": image}]
    meta = {"name": f"j-{index}-{made[-3:-1]}", "annotations": notes, "creationTimestamp": made}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": containers}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "run", "state": state}]}


def ended(code: int, reason: str = "Error", at: str = "2026-01-01T00:10:00Z") -> dict[str, Any]:
    over = {"exitCode": code, "reason": reason, "message": "not about a start", "finishedAt": at}
    return {**container(terminated=over), "phase": "Failed" if code else "Succeeded"}


def job(kind: str, **said: str) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:10:05Z", **said}
    return {**JOB, "status": {"conditions": [condition]}}


def waiting(reason: str, message: str) -> dict[str, Any]:
    return container(waiting={"reason": reason, "message": message})


def test_of_a_run_with_a_claim_it_is_known_where_its_record_is_and_how_it_is_read() -> None:
    env = [{"name": "NGCDL_CLAIM", "value": "cifar"}, {"name": "NGCDL_KEPT", "value": "/ngcdl-claim/ngcdl-runs/r"}]
    spec = {"template": {"spec": {"containers": [{"name": "run", "env": env}]}}}
    kept = State.read([{**JOB, "spec": spec}]).kept or ""
    assert kept.startswith("on the claim cifar, in ngcdl-runs/r; ngcdl show reads the *.jsonl ")
    assert State.read([JOB]).kept is None


def test_a_job_without_an_end_goes_on_and_a_complete_one_has_code_0() -> None:
    assert State.read([JOB, pod(**container(running={}))]).exit is None
    done = State.read([job("Complete"), pod(**ended(0))]).exit
    assert done
    assert (done.code, done.finished) == (0, 1767226205.0)


LOST, TOLD = ended(1, at="2026-01-01T00:10:05Z"), ended(143, at="2026-01-01T00:10:05Z")
GONE = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}


@pytest.mark.parametrize(
    ("pods", "code"),
    [
        ([pod(1, **ended(1)), pod(0, **ended(3))], 3),  # at once: the lowest node
        ([pod(0, **LOST), pod(1, **ended(137, "OOMKilled"))], 137),
        ([pod(0, **ended(1)), pod(1, **ended(137, "OOMKilled", at="2026-01-01T00:10:09Z"))], 137),
        ([pod(0, **TOLD), pod(1, **ended(2))], 2),
        ([pod(0, **ended(143)), pod(1, **LOST)], 1),
        ([pod(0, **LOST), pod(1, **ended(7))], 7),
        ([pod(0, **GONE), pod(1, **LOST)], 1),
        ([pod(0, **TOLD), pod(1, **GONE)], None),
        ([pod(0, **ended(0)), pod(1, **TOLD)], 143),
        ([pod(0, **ended(9)), pod(0, "2026-01-01T00:01:00Z", **LOST)], 1),  # a first try is no end
    ],
)
def test_a_failed_job_ended_as_the_pod_did_that_brought_down_the_others(pods: list[dict[str, Any]], code: int) -> None:
    failed = State.read([job("Failed", reason="BackoffLimitExceeded"), *pods]).exit
    assert failed
    assert (failed.code, bool(failed.oom_killed)) == (code, code == 137)
    assert code is None or "Backoff" not in (failed.reason or "")


@pytest.mark.parametrize(
    ("evicted", "said"),
    [
        (0, None),
        (1, "one of its pods was replaced: Evicted: low on memory"),
        (3, "3 of its pods were replaced: Evicted: low on memory"),
    ],
)
@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_pods_that_were_evicted_and_replaced_are_told_of_at_the_end(evicted: int, said: str | None, end: str) -> None:
    before = [pod(0, f"2026-01-01T00:0{minute}:00Z", **GONE) for minute in range(evicted)]
    last = pod(0, "2026-01-01T00:09:00Z", **ended(0 if end == "Complete" else 1))
    found = State.read([job(end, reason="X", message="y"), *before, last]).exit
    assert found
    assert found.reason == ("; ".join(filter(None, ["X: y" if end == "Failed" else None, said])) or None)


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_container_that_could_not_be_started_has_its_reason_and_its_last_words(reason: str) -> None:
    said = "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"
    over = {"exitCode": 128, "reason": reason, "message": said, "finishedAt": "2026-01-01T00:10:00Z"}
    state = State.read([job("Failed"), pod(**{**container(terminated=over), "phase": "Failed"})])
    assert state.exit
    assert (state.exit.code, state.exit.reason) == (128, said)
    assert state.pods[0].last_words == f"{said}\n".encode()
    assert State.read([job("Failed"), pod(**ended(1))]).pods[0].last_words == b""


def test_what_the_kernel_killed_for_its_memory_says_so() -> None:
    failed = State.read([job("Failed"), pod(**ended(137, "OOMKilled"))]).exit
    assert failed
    assert failed.oom_killed
    assert "memory" in (failed.reason or "")


def test_a_pod_whose_node_went_has_no_code_and_the_reason_of_kubernetes() -> None:
    evicted = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    failed = State.read([job("Failed", reason="BackoffLimitExceeded"), evicted]).exit
    assert failed
    assert failed.code is None
    assert failed.reason == "Evicted: The node was low on resource: memory."


def test_a_job_that_was_deleted_is_over_once_its_pods_are_gone() -> None:
    assert State.read([pod(**container(running={}))]).exit is None
    gone = State.read([])
    assert gone.is_over
    assert gone.exit
    assert gone.exit.code is None


def test_the_newest_pod_of_a_node_counts() -> None:
    state = State.read(
        [JOB, pod(0, "2026-01-01T00:00:00Z", **ended(1)), pod(0, "2026-01-01T00:05:09Z", phase="Pending")]
    )
    first = state.of(0)
    assert first
    assert first.made == "2026-01-01T00:05:09Z"
    assert (first.began, first.ended) == (False, None)


def test_what_waits_for_cards_says_so_in_kubernetes_words_with_the_remedy() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": UNSCHEDULABLE}
    state = State.read([JOB, pod(phase="Pending", conditions=[condition])])
    assert state.trouble is None
    assert state.waits_for
    assert state.waits_for.startswith(UNSCHEDULABLE)
    (command,) = [line for line in state.waits_for.splitlines() if "kubectl get nodes" in line]
    columns = r"custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\.com/gpu"
    assert shlex.split(command) == ["kubectl", "get", "nodes", "-o", columns], "as a shell hands it over"


def test_what_waits_for_gpus_that_dra_hands_out_says_where_these_are_listed() -> None:
    said = "0/2 nodes are available: 2 cannot allocate all claims."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    waits_for = State.read([JOB, pod(phase="Pending", conditions=[condition])]).waits_for
    assert waits_for == f"{said}\nIt starts when GPUs become free. Which there are:\n    kubectl get resourceslices"


@pytest.mark.parametrize("what", ["cpu", "memory"])
def test_what_waits_for_cpus_or_memory_says_how_to_request_less(what: str) -> None:
    said = f"0/3 nodes are available: 3 Insufficient {what}."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    waits_for = State.read([JOB, pod(phase="Pending", conditions=[condition])]).waits_for
    assert (
        waits_for == f"{said}\nIt starts when that becomes free. If no node has as much, request less: --cpus, --memory"
    )


@pytest.mark.parametrize(
    ("reason", "message", "is_final"),
    [
        ("ErrImagePull", "failed to authorize: 401 Unauthorized", True),
        ("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found', True),
        ("InvalidImageName", "couldn't parse image name: invalid reference format", True),
        ("ErrImagePull", 'rpc error: code = Unknown desc = failed to resolve "x": status: 403 Forbidden', True),
        ("ErrImagePull", "reading manifest 25.03-py3 in nvcr.io/nvidia/pytorch: manifest unknown", True),
        ("ErrImagePull", "dial tcp: i/o timeout", False),
        ("ErrImagePull", f'rpc error: code = Unknown desc = failed to do "{DENIED}": connection reset', False),
        ("ErrImagePull", f"failed to pull {DENIED}: read udp 10.1.2.3:40312->10.96.0.10:53: connection refused", False),
        ("ErrImagePull", "invalid status code from registry 503 (Service Unavailable)", False),
        ("ImagePullBackOff", f"ErrImagePull: 401 Unauthorized, {DENIED}: token: context deadline exceeded", False),
        ("ImagePullBackOff", 'Back-off pulling image "x"', False),
    ],
)
def test_a_pull_that_no_waiting_mends_is_an_error_and_another_is_waited_for(
    reason: str, message: str, is_final: bool
) -> None:
    state = State.read([JOB, pod(image=DENIED, **waiting(reason, message))])
    assert isinstance(state.trouble, ImageNotPulled) == is_final
    said = message.removeprefix('Back-off pulling image "x": ErrImagePull: ')
    assert said in (state.trouble.message if state.trouble else state.waits_for or "")


def test_a_pod_that_cannot_be_made_ready_is_an_error_with_where_to_look() -> None:
    state = State.read([JOB, pod(**waiting("CreateContainerConfigError", 'secret "x" not found'))])
    assert isinstance(state.trouble, PodFailed)
    assert "kubectl describe pod j-0" in state.trouble.hint


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("CreateContainerError", "context deadline exceeded"),
        ("CreateContainerError", 'failed to reserve container name "run_j-0": name "run_j-0" is reserved for "5c1"'),
        ("CreateContainerError", "failed to get sandbox container task: no running task found: task 5c1 not found"),
        ("CreateContainerConfigError", "failed to sync configmap cache: timed out waiting for the condition"),
    ],
)
def test_a_start_that_a_node_tries_again_is_said_and_no_error_yet(reason: str, message: str) -> None:
    state = State.read([JOB, pod(**waiting(reason, message))])
    assert state.trouble is None
    assert isinstance(state.stumble, PodFailed)
    assert state.waits_for == f"the container could not be started yet: {message}"


def test_a_container_that_a_mesh_put_beside_ours_says_nothing_of_the_run() -> None:
    mesh = {"name": "istio-proxy", "state": {"running": {}}}  # the API sorts them by name
    refused, done = pod(**waiting("ErrImagePull", "401 Unauthorized")), pod(**ended(0))
    for one in (refused, done):
        one["status"]["containerStatuses"].insert(0, mesh)
    waits = State.read([JOB, refused])
    assert isinstance(waits.trouble, ImageNotPulled)
    assert not waits.pods[0].began
    over = State.read([JOB, done]).pods[0].ended
    assert over
    assert over.code == 0


def test_a_quota_is_waited_for_and_so_is_a_server_that_fails_and_a_policy_is_an_error() -> None:
    quota = [{"reason": "FailedCreate", "message": 'pods "j-0" is forbidden: exceeded quota: gpus'}]
    policy = [{"reason": "FailedCreate", "message": 'pods "j-0" is forbidden: violates PodSecurity "restricted"'}]
    waits = State.read([JOB], quota)
    assert waits.trouble is None
    assert "kubectl describe quota" in (waits.waits_for or "")
    assert isinstance(State.read([JOB], policy).trouble, ClusterRefused)
    hangs = "Internal error occurred: failed calling webhook: context deadline exceeded"
    passes = State.read([JOB], [{"reason": "FailedCreate", "message": hangs}])
    assert (passes.trouble, passes.waits_for) == (None, f"{hangs}\n{remedy(hangs)}")


QUOTA = 'pods "j-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: 8, limited: 8'
TWO = {**JOB, "spec": {"completions": 2}}
RUNNING = container(running={})


def refusal(at: str | None) -> dict[str, Any]:
    return {"reason": "FailedCreate", "message": QUOTA, "lastTimestamp": at}


@pytest.mark.parametrize(
    ("pods", "at", "is_said"),
    [
        ([pod(0, **RUNNING)], "2026-01-01T00:00:00Z", True),
        ([pod(0, **RUNNING)], None, True),
        ([pod(0, **RUNNING), pod(1, **RUNNING)], "2026-01-01T00:00:00Z", False),
        ([pod(0, **RUNNING), pod(1, **ended(0))], "2026-01-01T00:00:00Z", False),
        ([pod(0, **RUNNING), pod(1, **ended(1))], "2026-01-01T00:20:00Z", True),
        ([pod(0, **RUNNING), pod(1, "2026-01-01T00:05:00Z", **ended(1))], "2026-01-01T00:04:00Z", False),
        ([pod(0, **ended(1)), pod(0, "2026-01-01T00:05:00Z", **RUNNING)], "2026-01-01T00:06:00Z", True),
    ],
)
def test_why_some_nodes_have_no_pod_is_said_beside_those_that_have(
    pods: list[dict[str, Any]], at: str | None, is_said: bool
) -> None:
    state = State.read([TWO, *pods], [refusal(at)])
    assert state.trouble is None
    assert state.waits_for == (f"{QUOTA}\n{remedy(QUOTA)}" if is_said else None)
    assert not State.read([{**TWO, **job("Failed")}, *pods], [refusal(at)]).lacks_pods, "it is over"


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("failed quota: compute: must specify limits.cpu for: run; limits.memory for: run", "kubectl describe quota"),
        ("failed quota: compute: must specify limits.cpu for: run", "    ngcdl run ... --cpus 8 --memory 32g\n"),
        ("failed quota: disks: must specify requests.ephemeral-storage for: run", "--job-patch FILE can request"),
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', "leave --root out"),
        ('violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)', "what a --job-patch adds of it"),
        ("unable to validate against any security context constraint: [provider restricted-v2: x]", "nonroot-v2"),
        ("exceeded quota: gpus, requested: requests.nvidia.com/gpu=8", "kubectl describe quota"),
    ],
)
def test_a_refusal_of_a_pod_has_its_remedy_whether_it_is_met_in_an_event_or_said_by_kubectl(
    said: str, step: str
) -> None:
    said = f'Error creating: pods "j-0-x" is forbidden: {said}'
    state = State.read([JOB], [{"reason": "FailedCreate", "message": said}])
    assert step in (state.trouble.hint if state.trouble else state.waits_for or "")
    assert step in translated(f"Error from server (Forbidden): {said}").hint


@pytest.mark.parametrize("field", ["lastTimestamp", "eventTime"])
def test_the_last_refusal_is_said_in_whatever_order_events_are_listed(field: str) -> None:
    other = "lastTimestamp" if field == "eventTime" else "eventTime"
    events = [
        {"reason": "FailedCreate", "message": f"exceeded quota: {at}", field: f"2026-01-01T00:0{at}:00Z", other: None}
        for at in (1, 3, 2)
    ]
    assert (State.read([JOB], events).waits_for or "").startswith("exceeded quota: 3\n")


PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
AT_0 = 1767225600.0
UNMOUNTED = "Multi-Attach error for volume pvc-1: already exclusively attached to one node"


def about(name: str, reason: str, message: str, minute: int, kind: str = "Warning") -> dict[str, Any]:
    at = f"2026-01-01T00:{minute:02}:00Z"
    subject = {"involvedObject": {"name": name}}
    return {**subject, "type": kind, "reason": reason, "message": message, "lastTimestamp": at}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([about("j-0-00", "Scheduled", "assigned", 0, "Normal")], ". To see why:\n    kubectl describe pod j-0-00"),
        ([about("j-0-00", "FailedAttachVolume", UNMOUNTED, 1)], f": {UNMOUNTED}"),
        (
            [
                about("j-0-00", "Pulling", 'Pulling image "x"', 2, "Normal"),
                about("j-0-00", "FailedMount", "timed out", 1),
                about("another", "FailedMount", "not ours", 3),
            ],
            ': Pulling image "x"',
        ),
    ],
)
@pytest.mark.parametrize("status", [waiting("ContainerCreating", ""), {"phase": "Pending"}])
def test_what_keeps_a_pod_from_starting_on_its_node_is_said_after_half_a_minute(
    status: dict[str, Any], events: list[dict[str, Any]], said: str
) -> None:
    made = pod(**status, conditions=[PLACED])
    made["spec"]["nodeName"] = "n7"
    early = State.read([JOB, made], events, AT_0 + 20)
    assert (early.waits_for, early.unexplained) == (None, [])
    late = State.read([JOB, made], events, AT_0 + 31)
    assert (late.waits_for, late.trouble) == (f"n7 has not started the pod j-0-00 yet{said}", None)
    assert late.unexplained == ["j-0-00"], "the pod that the events are to be about"
    running = pod(**RUNNING, conditions=[PLACED])
    assert State.read([JOB, running], events, AT_0 + 31).waits_for is None


def test_a_suspended_job_says_so_until_it_is_resumed() -> None:
    held = {**JOB, **job("Suspended", reason="JobSuspended", message="Job suspended")}
    assert (State.read([held]).waits_for or "").startswith("the Job is suspended")
    assert "--job-patch" in (State.read([held]).waits_for or "")
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    queued = {**held, "metadata": {**held["metadata"], "labels": labels}}
    assert "--job-patch" not in (State.read([queued]).waits_for or "")
    assert not State.read([held]).is_over
    held["status"]["conditions"][0]["status"] = "False"
    assert State.read([held]).waits_for is None


def test_a_policy_that_refuses_another_pod_while_one_runs_ends_nothing() -> None:
    policy = {"reason": "FailedCreate", "message": 'admission webhook "x" denied the request'}
    state = State.read([TWO, pod(0, **RUNNING)], [policy])
    assert (state.trouble, state.waits_for) == (None, f"{policy['message']}\n{remedy(policy['message'])}")


@pytest.mark.parametrize(
    ("status", "seconds", "is_said"),
    [(RUNNING, 31, True), (RUNNING, 20, False), (ended(0), 3600, False), (RUNNING, None, False)],
)
def test_a_pod_that_outlives_its_own_end_tells_of_a_node_that_does_not_answer(
    status: dict[str, Any], seconds: float | None, is_said: bool
) -> None:
    lost = pod(0, **status)
    lost["spec"]["nodeName"] = "n7"
    if seconds is not None:  # Kubernetes adds the grace itself
        lost["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    said = State.read([JOB, lost], now=1767226200.0 + (seconds or 0)).waits_for
    assert (said is not None) == is_said
    if said:
        assert "n7 does not answer" in said
        assert "kubectl taint nodes n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in said
