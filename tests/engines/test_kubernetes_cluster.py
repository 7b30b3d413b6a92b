"""Which cluster kubectl talks to, what it says about itself, and the secret it pulls images with."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from kubernetes_api import Api
from ports import silent_port
from stand_ins import stand_in

from ngcdl.engines.kubernetes import KubernetesEngine
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.errors import BadOption, ClusterForbidden, ClusterRefused, ClusterUnreachable, KubectlMissing
from ngcdl.spec import Placement

pytestmark = pytest.mark.lab


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
    with pytest.raises(BadOption, match=f"web already exists in vision, of the type {kind}"):
        engine.keep_pull_secret("web", None, "nvcr.io", "$oauthtoken", "nvapi-new")
    assert api.only("secrets") == kept


def test_the_cluster_tells_what_it_is(engine: KubernetesEngine) -> None:
    place = engine.placed(Placement(nodes=2))
    assert place == Placement(nodes=2, namespace="vision")
    assert (engine.version, engine.identity) == ("v1.32.3", "stub")
    assert engine.placed(Placement(namespace="mine")) == Placement(namespace="mine")


def test_no_kubectl_no_cluster_and_no_context_are_told_apart(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(KubectlMissing, match="no-such-kubectl"):
        _ = KubernetesEngine(Kubectl(program="no-such-kubectl"), tmp_path).version
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "gone"}
    (tmp_path / "gone").write_text(json.dumps(config))
    with silent_port() as port:
        closed = Api(address=f"http://127.0.0.1:{port}").kubeconfig(tmp_path / "closed")
        for kubeconfig, kind in ((tmp_path / "gone", ClusterUnreachable), (closed, ClusterUnreachable)):
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            with pytest.raises(kind) as refused:
                _ = KubernetesEngine(Kubectl(program=str(kubectl)), tmp_path).version
            assert "kubectl config get-contexts" in refused.value.hint
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    assert KubernetesEngine(Kubectl(program=str(kubectl)), tmp_path).identity is None


def test_kubectl_that_prints_no_json_is_told(tmp_path: Path) -> None:
    odd = stand_in(tmp_path, "kubectl", "echo hello")
    with pytest.raises(ClusterRefused, match="no JSON"):
        Kubectl(program=str(odd)).json("version")
