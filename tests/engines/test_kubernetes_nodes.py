"""What Kubernetes reports of its nodes through NVIDIA's labels, and which labels keep a run off some of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from house import House
from kubernetes_api import Api
from kubernetes_jobs import started
from stand_ins import says, stand_in

from ngcdl.engines.kubernetes import KubernetesEngine, nodes
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.values import Node
from ngcdl.errors import ClusterForbidden

A100 = Node("n1", "amd64", "535.104.05", "NVIDIA-A100-SXM4-80GB", "8.0", 8)
V100 = Node("n2", "amd64", "535.104.05", "Tesla-V100-SXM2-32GB", "7.0", 8)


def node(name: str, gpus: str = "8", arch: str = "amd64", **labels: str) -> dict[str, Any]:
    """A node as the API has it; in a label's name `__` is a dot and `_` a dash."""
    own = {f"nvidia.com/{key.replace('__', '.').replace('_', '-')}": value for key, value in labels.items()}
    about = {"kubernetes.io/hostname": name, "kubernetes.io/arch": arch, **own}
    return {"metadata": {"name": f"{name}.example", "labels": about}, "status": {"capacity": {"nvidia.com/gpu": gpus}}}


def labelled(name: str, product: str, capability: str, gpus: str = "8", **more: str) -> dict[str, Any]:
    major, minor = capability.split(".")
    return node(
        name, gpus, gpu__product=product, gpu__compute__major=major, gpu__compute__minor=minor,
        **{"gpu__count": gpus, "gpu__replicas": "1", "cuda__driver_version__full": "535.104.05", **more},
    )  # fmt: skip


def told(folder: Path, *items: dict[str, Any], gpus: int = 1) -> tuple[Node, ...]:
    program = says(folder, "kubectl", json.dumps({"kind": "NodeList", "items": items}))
    return nodes.with_gpus(nodes.seen(Kubectl(program=str(program))), gpus)


def test_cards_and_driver_are_those_of_the_labels(tmp_path: Path) -> None:
    items = labelled("n1", A100.card or "", "8.0"), labelled("n2", V100.card or "", "7.0")
    assert told(tmp_path, *items) == (A100, V100)
    assert told(tmp_path, *items, gpus=9) == ()
    assert told(tmp_path, *items, gpus=0) == (Node("n1", "amd64"), Node("n2", "amd64"))


def test_an_older_release_s_names_of_the_driver_are_read_too(tmp_path: Path) -> None:
    old = {"cuda__driver_version__full": "", "cuda__driver__major": "455", "cuda__driver__minor": "06"}
    (two,) = told(tmp_path, labelled("n1", "T4", "7.5", **old, cuda__driver__rev=""))
    (three,) = told(tmp_path, labelled("n1", "T4", "7.5", **old, cuda__driver__rev="02"))
    assert (two.driver, three.driver) == ("455.06", "455.06.02")


def test_what_no_label_tells_is_unknown(tmp_path: Path) -> None:
    bare = {"metadata": {"name": "n1"}, "status": {"capacity": {"nvidia.com/gpu": "1"}}}
    cpu = {"metadata": {"name": "n2", "labels": {"kubernetes.io/arch": "arm64"}}}
    assert told(tmp_path, bare, cpu) == (Node("n1", gpus=1),)
    assert told(tmp_path, bare, cpu, gpus=0) == (Node("n1"), Node("n2", "arm64"))


def test_a_windows_node_is_none_that_a_run_could_be_placed_on(tmp_path: Path) -> None:
    linux, windows = node("n1"), node("n2")
    windows["metadata"]["labels"]["kubernetes.io/os"] = "windows"
    linux["metadata"]["labels"]["kubernetes.io/os"] = "linux"
    assert told(tmp_path, linux, windows, gpus=0) == (Node("n1", "amd64"),)
    assert [one.name for one in told(tmp_path, linux, windows)] == ["n1"]


def test_a_node_with_more_cards_than_its_labels_count_has_others_too(tmp_path: Path) -> None:
    (mixed,) = told(tmp_path, labelled("n1", "Tesla-T4", "7.5", "4", gpu__count="2"))
    assert (mixed.card, mixed.capability, mixed.driver) == (None, None, "535.104.05")
    (shared,) = told(tmp_path, labelled("n1", "Tesla-T4-SHARED", "7.5", "4", gpu__count="2", gpu__replicas="2"))
    assert shared.capability == "7.5"


def test_bad_nodes_are_told_from_good_ones_by_as_few_labels_as_can_be() -> None:
    card, name = "nvidia.com/gpu.product", "kubernetes.io/hostname"
    assert nodes.labels_of([V100, Node("n3", card=V100.card)], [A100]) == (f"{card}={V100.card}",)
    assert nodes.labels_of([A100], [Node("n4", "amd64", card=A100.card)]) == (f"{name}=n1",), "of another driver"
    arm = Node("n5", "arm64", card=A100.card)
    assert nodes.labels_of([arm, V100], [A100]) == ("kubernetes.io/arch=arm64", f"{card}={V100.card}")


NVIDIA = {"kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
OTHER = {"kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"}


@pytest.mark.parametrize(("classes", "has"), [((), False), ((OTHER,), False), ((OTHER, NVIDIA), True)])
def test_the_runtime_class_is_told_with_the_nodes(tmp_path: Path, classes: tuple[Any, ...], has: bool) -> None:
    program = says(tmp_path, "kubectl", json.dumps({"kind": "List", "items": [node("n1"), *classes]}))
    found = nodes.seen(Kubectl(program=str(program)))
    assert (found.has_runtime, len(nodes.with_gpus(found, 1))) == (has, 1)


@pytest.mark.parametrize(("listed", "hidden", "has"), [
    ((node("n1"),), "runtimeclasses.node.k8s.io", False), ((NVIDIA,), "nodes", True), ((), "nodes", False),
])  # fmt: skip
def test_of_nodes_and_runtime_classes_what_may_be_listed_is_known(
    tmp_path: Path, listed: tuple[Any, ...], hidden: str, has: bool
) -> None:
    refusal = f"Error from server (Forbidden): {hidden} is forbidden"
    said = json.dumps({"kind": "List", "items": listed})
    program = stand_in(tmp_path, "kubectl", f"echo '{said}'; echo '{refusal}' >&2; exit 1")
    found = nodes.seen(Kubectl(program=str(program)))
    assert found.has_runtime == has
    if hidden != "nodes":
        assert len(nodes.with_gpus(found, 1)) == 1
    else:
        with pytest.raises(ClusterForbidden, match="nodes is forbidden"):
            nodes.with_gpus(found, 1)


class Someone(House):
    def dry_run(self, kubectl: Path, gpus: str = "1") -> tuple[int, str, str]:
        path = f"{kubectl.parent}:{self.environment()['PATH']}"
        done = self.run(
            "run", "pytorch:26.07-py3", "--train", "cifar10", "--engine", "kubernetes", "--gpus", gpus, "--dry-run",
            env={"KUBECONFIG": str(self.home / "config"), "PATH": path, "NGCDL_REGISTRY": "127.0.0.1:1"},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.mark.lab
def test_a_dry_run_shows_how_the_run_is_kept_off_nodes_that_can_t_run_its_image(
    api: Api, kubectl: Path, tmp_path: Path
) -> None:
    someone = Someone(tmp_path)
    api.put("nodes", labelled("n2", V100.card or "", "7.0"))
    code, _, err = someone.dry_run(kubectl)
    assert (code, "can't run on the cluster's nodes: n2 (Tesla-V100-SXM2-32GB): " in err) == (125, True)
    api.put("nodes", labelled("n1", A100.card or "", "8.0", cuda__driver_version__full="615.61"))
    code, out, err = someone.dry_run(kubectl)
    assert code == 0
    assert "the run is kept off them" in err
    assert "nodeAffinity:" in out
    assert "nvidia.com/gpu.product" in out
    assert V100.card in out  # type: ignore[operator]  # it has a name


@pytest.mark.lab
def test_where_nodes_may_not_be_listed_the_run_goes_on_with_a_line(api: Api, kubectl: Path, tmp_path: Path) -> None:
    said = 'nodes is forbidden: User "me" cannot list resource "nodes" in API group "" at the cluster scope'
    api.refusals["GET", "nodes"] = (403, "Forbidden", said)
    api.put("runtimeclasses", NVIDIA)
    code, out, err = Someone(tmp_path).dry_run(kubectl)
    assert code == 0
    assert f": Kubernetes said: Error from server (Forbidden): {said}." in err
    assert "nodeAffinity" not in out
    assert "runtimeClassName: nvidia" in out, "which may be listed"


@pytest.mark.lab
def test_where_nvidia_s_runtime_is_a_class_pods_with_gpus_name_it(api: Api, kubectl: Path, tmp_path: Path) -> None:
    someone, named = Someone(tmp_path), "\n      runtimeClassName: nvidia\n"
    api.put("nodes", labelled("n1", A100.card or "", "8.0", cuda__driver_version__full="615.61"))
    assert "runtimeClassName" not in someone.dry_run(kubectl)[1]
    api.put("runtimeclasses", NVIDIA)
    api.asked.clear()
    code, out, err = someone.dry_run(kubectl)
    assert (code, named in out, err.count("it is not known")) == (0, True, 0)
    assert [line for line in api.asked if "nodes" in line] == ["GET /api/v1/nodes"], "asked once"
    assert "runtimeClassName" not in someone.dry_run(kubectl, "none")[1]
    api.refusals["GET", "runtimeclasses"] = (403, "Forbidden", "runtimeclasses.node.k8s.io is forbidden")
    code, out, err = someone.dry_run(kubectl)
    assert (code, "runtimeClassName" in out, "forbidden" in err) == (0, False, False)


@pytest.mark.lab
def test_a_run_s_pods_name_the_runtime_that_its_dry_run_shows(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    api.put("runtimeclasses", NVIDIA)
    started(engine, tmp_path)
    assert api.only("jobs")["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
