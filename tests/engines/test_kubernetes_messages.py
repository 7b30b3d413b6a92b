"""What kubectl says is an error of ngcdl's own, with its remedy, or a rule of the cluster's."""

from __future__ import annotations

import pytest

from ngcdl.engines.kubernetes.messages import translated
from ngcdl.errors import ClusterForbidden, ClusterHangs, ClusterRefused, ClusterUnreachable

CREATING = 'error when creating "STDIN"'
UNCALLED = (
    f"Error from server (InternalError): {CREATING}: Internal error occurred: failed calling webhook "
    '"mjob.kb.io": failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate?timeout=10s"'
)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("The connection to the server localhost:8080 was refused - did you specify the right host or port?", 0),
        ("Unable to connect to the server: getting credentials: exec: executable gke-gcloud-auth-plugin not found", 0),
        ('error: context "nowhere" does not exist', 0),
        ("Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded)", 1),
        ('Error from server (Forbidden): jobs.batch is forbidden: User "me" cannot create resource "jobs"', 2),
        ("error: You must be logged in to the server (Unauthorized)", 2),
        ('Error from server (Forbidden): pods "x" is forbidden: exceeded quota: gpus', 3),
        ("Error from server (AlreadyExists): configmaps already exists", 3),
        (f"{UNCALLED}: context deadline exceeded", 3),
        (f"{UNCALLED}: tls: failed to verify certificate: x509: certificate signed by unknown authority", 3),
        (f'Error from server (Forbidden): {CREATING}: admission webhook "x.gatekeeper.sh" denied the request: y', 3),
        (f"{CREATING}: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: is forbidden: z", 3),
    ],
)
def test_what_kubectl_says_becomes_the_error_it_means(said: str, kind: int) -> None:
    kinds = (ClusterUnreachable, ClusterHangs, ClusterForbidden, ClusterRefused)
    assert type(translated(said)) is kinds[kind]


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (f"{UNCALLED}: context deadline exceeded", "may pass"),
        (f'{CREATING}: admission webhook "x.gatekeeper.sh" denied the request: labels: {{"team"}}', "--dry-run"),
    ],
)
def test_what_a_webhook_refuses_keeps_its_words_and_is_told_as_the_cluster_s_own_rule(said: str, step: str) -> None:
    error = translated(said)
    assert said in error.message
    assert step in error.hint
    assert "rule of this cluster" in error.hint or "webhook" in error.hint


def test_kubectls_own_log_lines_and_repetitions_are_left_away() -> None:
    noise = "E1121 19:27:05.123456   99 memcache.go:265] couldn't get current server API group list"
    said = "Error from server (Conflict): the job was changed"
    assert translated(f"{noise}\n{noise}\n{said}\n{said}").message == f"Kubernetes said: {said}."
