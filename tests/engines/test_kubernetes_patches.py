"""What a site needs and no option says is merged into the Job by kubectl (--job-patch), or refused early."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml as parsed
from house import House
from kubernetes_api import Api
from kubernetes_jobs import NAME, RUN, order

from ngcdl.engines.kubernetes import KubernetesEngine, patches
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.manifest import objects
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption, KubectlMissing
from ngcdl.spec import Placement

pytestmark = pytest.mark.lab
(DOCUMENTED,) = re.findall(
    r"^```yaml\n(.*?)^```$", (Path(__file__).parents[2] / "docs/scale.md").read_text(), re.DOTALL | re.MULTILINE
)
QUEUE = '{"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "research"}}}'
PODS = """\
spec:
  template:
    spec:  # what the nodes of this cluster need
      priorityClassName: low
      nodeSelector: {pool: a100}
      tolerations:
        - {key: gpu-pool, operator: Exists, effect: NoSchedule}
      containers:
        - name: run
          resources: {limits: {nvidia.com/gpu: null, nvidia.com/mig-1g.10gb: 1}}
"""


def with_patches(engine: KubernetesEngine, tmp_path: Path, *texts: str) -> Order:
    made = order(engine, tmp_path)
    return replace(made, spec=replace(made.spec, placement=Placement(namespace="vision", patches=texts)))


def job(manifest: str) -> dict[str, Any]:
    (found,) = [one for one in parsed.safe_load_all(manifest) if one["kind"] == "Job"]
    return dict(found)


def test_the_documented_patch_adds_queue_priority_node_toleration_and_mig_device_and_the_rest_stays(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    made = with_patches(engine, tmp_path, DOCUMENTED)
    running = engine.start(made)
    kept = job((tmp_path / "runs" / RUN / "job.yaml").read_text())
    plain = job(engine.request(with_patches(engine, tmp_path))["script"])
    sent = api.only("jobs")
    assert sent["spec"] == kept["spec"] == job(engine.request(made)["script"])["spec"], "as exported and recorded, too"
    assert kept["metadata"]["labels"] == {**plain["metadata"]["labels"], "kueue.x-k8s.io/queue-name": "research"}
    pod, before = kept["spec"]["template"]["spec"], plain["spec"]["template"]["spec"]
    assert (pod["priorityClassName"], pod["nodeSelector"]["pool"]) == ("low", "a100")
    assert pod["nodeSelector"].items() > before["nodeSelector"].items()
    assert [one["key"] for one in pod["tolerations"]] == ["gpu-pool", "nvidia.com/gpu"]
    (container,), (other,) = pod["containers"], before["containers"]
    assert container.pop("resources") == {"limits": {"nvidia.com/mig-1g.10gb": 1}}
    assert container == {key: value for key, value in other.items() if key != "resources"}
    kubernetes_validate.validate(kept, "1.29", strict=True)
    found = engine.find(RUN)
    assert found
    assert found.identity == running.identity == f"kubernetes:vision/{NAME}"


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("a: [b\nc", "kubectl can't merge it into the Job: error"),
        ('{"spec": {"completions": 3}}', "it changes spec.completions"),
        ('{"metadata": {"name": "mine"}}', "it changes metadata.name"),
        ('{"metadata": {"labels": {"ngcdl.run": null}}}', "it changes metadata.labels.ngcdl.run"),
        ('{"spec": {"ttlSecondsAfterFinished": 60}}', "it changes spec.ttlSecondsAfterFinished"),
        ('{"spec": null}', "it changes spec.template"),
        (
            '{"spec": {"template": {"spec": {"containers": [{"name": "run", "image": "x"}]}}}}',
            "it changes spec.template.spec.containers.run.image",
        ),
        (
            "spec:\n template:\n  spec:\n   containers:\n   - {name: a, env: [{name: HF_TOKEN, value: hush}]}\n",
            "the value of HF_TOKEN looks like a secret",
        ),
    ],
)
def test_a_patch_with_which_a_run_can_t_be_followed_or_that_is_none_is_refused_while_nothing_has_begun(
    engine: KubernetesEngine, api: Api, patch: str, said: str
) -> None:
    with pytest.raises(BadOption, match=re.escape(f"--job-patch: {said}")):
        engine.placed(Placement(namespace="vision", patches=(patch,)))
    assert api.objects == {}


def test_a_variable_from_a_secret_is_merged_be_it_the_run_s_own_or_the_patch_s_and_one_with_its_value_is_refused(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    own, theirs = (
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for key, secret in (("HF_TOKEN", NAME), ("WANDB_API_KEY", "team"))
    )
    env = '{"spec": {"template": {"spec": {"containers": [{"name": "run", "env": [%s]}]}}}}'
    asked = with_patches(engine, tmp_path, QUEUE, env % json.dumps(theirs))
    engine.placed(asked.spec.placement)
    engine.start(replace(asked, spec=replace(asked.spec, environment=(("HF_TOKEN", "hush"),))))
    (container,) = api.only("jobs")["spec"]["template"]["spec"]["containers"]
    assert [one for one in container["env"] if one in (own, theirs)] == [theirs, own]
    with pytest.raises(BadOption, match="the value of HF_TOKEN looks like a secret"):
        engine.placed(Placement(patches=(env % '{"name": "HF_TOKEN", "value": "hush"}',)))


def test_without_kubectl_nothing_can_be_merged(tmp_path: Path) -> None:
    lacking = KubernetesEngine(Kubectl(program="no-such-kubectl"), tmp_path)
    with pytest.raises(KubectlMissing):
        lacking.placed(Placement(namespace="vision", patches=(QUEUE,)))


def test_nodes_are_judged_by_the_labels_that_a_patch_asks_for_and_not_at_all_where_it_asks_for_other_gpus(
    engine: KubernetesEngine, api: Api, tmp_path: Path
) -> None:
    for name, pool in (("n1", "a100"), ("n2", "v100")):
        labels = {"kubernetes.io/hostname": name, "pool": pool}
        api.put(
            "nodes", {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {"nvidia.com/gpu": "1"}}}
        )
    chosen = '{"spec": {"template": {"spec": {"nodeSelector": {"pool": "v100"}}}}}'
    assert [node.name for node in engine.nodes(Placement(patches=(QUEUE,)), 1)] == ["n1", "n2"]
    assert [node.name for node in engine.nodes(Placement(patches=(QUEUE, chosen)), 1)] == ["n2"]
    assert engine.nodes(Placement(patches=(PODS,)), 1) == ()
    assert [node.name for node in engine.nodes(Placement(patches=(PODS,)), 0)] == ["n1"]
    assert engine.fits(with_patches(engine, tmp_path, chosen)) is None
    assert engine.fits(with_patches(engine, tmp_path, PODS)) is None, "nobody knows"
    missing = chosen.replace("v100", "h100")
    assert "the cluster has 0" in (engine.fits(with_patches(engine, tmp_path, missing)) or "")


def test_a_merged_job_has_its_fields_in_the_order_of_the_unpatched_one(
    engine: KubernetesEngine, kubectl: Path, tmp_path: Path
) -> None:
    (before,) = [one for one in objects(with_patches(engine, tmp_path)) if one["kind"] == "Job"]
    after = patches.patched(Kubectl(program=str(kubectl)), before, ["spec: {suspend: true}\n"])
    assert after.keys() == before.keys()
    assert list(after["spec"]) == [*before["spec"], "suspend"]
    assert list(after["spec"]["template"]["spec"]["containers"][0]) == list(
        before["spec"]["template"]["spec"]["containers"][0]
    )


def test_what_is_typed_is_the_name_of_a_file_or_the_patch_itself(kubectl: Path, tmp_path: Path) -> None:
    house = House(tmp_path)
    (tmp_path / "pods.yaml").write_text(PODS)
    typed = ("--job-patch", QUEUE, "--job-patch", str(tmp_path / "pods.yaml"))
    words = ("run", "pytorch:25.03-py3", "--engine", "k8s", "--gpus", "1", "--dry-run")
    env = {"NGCDL_REGISTRY": "127.0.0.1:1", "PATH": f"{kubectl.parent}:/usr/bin:/bin"}
    done = house.run(*words, *typed, "--", "nvidia-smi", "-L", env=env)
    assert done.returncode == 0, done.stderr
    made = job(done.stdout)
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert made["spec"]["template"]["spec"]["priorityClassName"] == "low"
    done = house.run(*words, "--job-patch", "nowhere.yaml", "--", "nvidia-smi", "-L", env=env)
    assert done.returncode == 2
    assert "--job-patch nowhere.yaml: it can't be read (No such file or directory)." in done.stderr
