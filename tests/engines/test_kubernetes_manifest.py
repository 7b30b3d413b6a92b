"""The objects that an order becomes, checked against golden text, Kubernetes' own schemas and rules they miss.

To accept an intended change: NGCDL_WRITE_GOLDEN=1 pytest tests/engines/test_kubernetes_manifest.py, and read the
diff. A real API server (1.36) accepted manifests of this shape, and placed, replaced and ended their pods.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml as parsed
from house import House
from hypothesis import example, given
from hypothesis import strategies as some
from stand_ins import refuses

from ngcdl.engines import yaml
from ngcdl.engines.kubernetes import KubernetesEngine, nodes
from ngcdl.engines.kubernetes.bundle import LIMIT_BYTES, packed
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.limits import name
from ngcdl.engines.kubernetes.manifest import objects, secret
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption, TrainerTooLarge
from ngcdl.spec import GpuRequest, ImageRef, Mount, Placement, RunSpec, Workload
from ngcdl.trainings import containers_folder

GOLDEN = Path(__file__).parents[1] / "golden"
IMAGE = ImageRef.parse("pytorch:25.03-py3")
RUN = "20261121-192252-cifar10-beefca"
TRAINER = Mount(str(containers_folder() / "trainer"), "/ngcdl/trainer")
TRAINING = RunSpec(
    image=IMAGE,
    command=("python", "-m", "trainer", "cifar10", "--out", "/ngcdl/run", "--data", "/ngcdl/data", "--replicas", "8"),
    gpus=GpuRequest("count", count=8),
    mounts=(TRAINER, Mount("cifar", "/ngcdl/data")),
    environment=(("PYTHONUNBUFFERED", "1"),),
    user="1000:1000",
    workdir="/ngcdl",
    workload=Workload("cifar10"),
    placement=Placement(nodes=2, namespace="vision", data_pvc="cifar", pull_secret="ngc"),
)
COMMAND = RunSpec(
    image=IMAGE,
    command=("python", "-c", "print('$(HOME) is no variable of mine')"),
    gpus=GpuRequest("none"),
    mounts=(Mount("models", "/models", writable=True),),
    environment=(("HF_TOKEN", "hush"), ("GREETING", "it's $(me)")),
    shm_bytes=64 << 20,
    cpu_limit=0.5,
    memory_bytes=2 << 30,
    placement=Placement(namespace="default"),
)
SPECS = {"training-two-nodes": TRAINING, "command-no-gpu": COMMAND}
# Before 1.29 the schema requires an empty onPodConditions, the server did not; 1.37 is the newest available.
VERSIONS = ("1.29", "1.37")


def order(spec: RunSpec, run_id: str = RUN) -> Order:
    return Order(
        spec, run_id, Path("/home/me/runs/x"), IMAGE.pinned("sha256:" + "0123456789abcdef" * 4), "device-plugin"
    )


def job(spec: RunSpec, run_id: str = RUN) -> dict[str, Any]:
    (found,) = [one for one in objects(order(spec, run_id)) if one["kind"] == "Job"]
    return found


def pod(spec: RunSpec) -> dict[str, Any]:
    made: dict[str, Any] = job(spec)["spec"]["template"]["spec"]
    return made


@pytest.mark.parametrize("which", SPECS)
def test_the_manifest_is_the_golden_one(which: str) -> None:
    text = yaml.documents(objects(order(SPECS[which])))
    text = re.sub(r"(trainer\.tar\.gz: )\S+", r"\1(the packed trainer)", text)
    path = GOLDEN / f"kubernetes-{which}.yaml"
    if os.environ.get("NGCDL_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("which", SPECS)
def test_kubernetes_own_schemas_take_every_object_and_know_every_field(which: str, version: str) -> None:
    for made in [*objects(order(SPECS[which])), secret(order(SPECS[which]))]:
        if made:
            kubernetes_validate.validate(made, version, strict=True)


def test_a_field_that_does_not_exist_is_what_the_schemas_are_asked_for() -> None:
    made = job(TRAINING)
    made["spec"]["backoffLimt"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(made, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("which", SPECS)
def test_what_a_real_server_refuses_and_the_schemas_do_not_is_kept(which: str) -> None:
    made, inside = job(SPECS[which])["spec"], pod(SPECS[which])
    (container,) = inside["containers"]
    assert inside["restartPolicy"] == "Never", "a Job takes Never or OnFailure, podFailurePolicy only Never"
    assert made["completions"] == made["parallelism"]
    assert made["completionMode"] == "Indexed"
    limits = dict(container.get("resources", {}).get("limits", {}))
    assert re.fullmatch(r"[1-9]\d*", limits.pop("nvidia.com/gpu", "1")), "whole cards"
    assert container.get("resources", {}).get("requests", {}) == limits, "cards by their limit alone, the rest equally"
    volumes = {volume["name"] for volume in inside["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    claims = [one["persistentVolumeClaim"]["claimName"] for one in inside["volumes"] if "persistentVolumeClaim" in one]
    assert len(set(claims)) == len(claims), "a pod with two volumes of one claim does not start on every cluster"
    policy = [rule["onExitCodes"] for rule in made["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert all(rule["containerName"] == container["name"] and 0 not in rule["values"] for rule in policy)
    assert policy[0]["values"] == sorted(set(policy[0]["values"]))


@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        (TRAINING, [143]),
        (replace(TRAINING, workload=None), []),
        (replace(TRAINING, placement=Placement(namespace="default")), []),
    ],
)
def test_nodes_of_a_training_that_end_with_an_evicted_one_are_no_failures(spec: RunSpec, codes: list[int]) -> None:
    rules = job(spec)["spec"]["podFailurePolicy"]["rules"]
    ignored = [rule for rule in rules if rule["action"] == "Ignore" and "onExitCodes" in rule]
    assert [code for rule in ignored for code in rule["onExitCodes"]["values"]] == codes


def test_each_node_has_its_gpus_by_limits_and_pods_stand_apart_and_find_the_first() -> None:
    inside = pod(TRAINING)
    (container,) = inside["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    service = next(one for one in objects(order(TRAINING)) if one["kind"] == "Service")
    called = job(TRAINING)["metadata"]["name"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert (variables["NGCDL_NODES"], variables["MASTER_ADDR"]) == ("2", f"{called}-0.{called}")
    assert inside["subdomain"] == service["metadata"]["name"] == called
    labels = job(TRAINING)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (apart,) = inside["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(("counts", "said"), [
    (("8", "8"), None),
    (("8",), "of 2 nodes with 8 GPUs the cluster has 1; unless it grows, the run can't begin."),
    ((), "of 2 nodes with 8 GPUs the cluster has 0; unless it grows or hands GPUs out by DRA (kubectl get "
         "deviceclasses), the run can't begin."),
])  # fmt: skip
def test_a_cluster_that_counts_no_gpus_may_hand_them_out_in_the_newer_way(
    counts: tuple[str, ...], said: str | None, tmp_path: Path
) -> None:
    engine = KubernetesEngine(Kubectl(), tmp_path)
    there: list[dict[str, Any]] = [{"metadata": {"name": "cpu"}}]
    for number, count in enumerate(counts):
        there.append({"metadata": {"name": f"n{number}"}, "status": {"capacity": {"nvidia.com/gpu": count}}})
    engine.__dict__["_seen"] = nodes.Seen(tuple(there), has_runtime=False)
    assert engine.fits(order(TRAINING)) == said


def test_cpus_and_memory_are_requested_beside_the_cards_and_no_pod_gets_more_than_it_requests() -> None:
    (container,) = pod(replace(TRAINING, cpu_limit=8, memory_bytes=32 << 30))["containers"]
    own = {"cpu": "8", "memory": str(32 << 30)}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8", **own}, "requests": own}
    (container,) = pod(replace(TRAINING, cpu_limit=0.5))["containers"]
    assert container["resources"]["requests"] == {"cpu": "0.5"}
    (container,) = pod(replace(COMMAND, cpu_limit=None, memory_bytes=None))["containers"]
    assert "resources" not in container, "a namespace's own defaults (LimitRange) count"


def test_a_mesh_stays_out_of_the_pods_and_an_autoscaler_leaves_them_where_they_are() -> None:
    template = job(TRAINING)["spec"]["template"]["metadata"]
    out = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
    assert out.items() <= template["labels"].items()
    stays = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert {**stays, "linkerd.io/inject": "disabled"}.items() <= template["annotations"].items()


def test_one_node_alone_has_no_service_and_no_second_try() -> None:
    single = replace(TRAINING, placement=Placement(namespace="vision"), mounts=(TRAINER,))
    assert [one["kind"] for one in objects(order(single))] == ["ConfigMap", "Job"]
    assert job(single)["spec"]["backoffLimit"] == 0


@given(some.from_regex(r"[A-Za-z0-9_.-]{1,120}", fullmatch=True), some.integers(1, 100_000))
def test_a_name_and_the_host_name_of_the_last_pod_are_labels(run_id: str, nodes: int) -> None:
    label = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
    assert re.fullmatch(label, name(run_id, nodes))
    assert re.fullmatch(label, f"{name(run_id, nodes)}-{nodes - 1}")


def test_two_long_runs_that_differ_at_their_end_have_two_names() -> None:
    long = "20261121-192252-" + "a" * 80
    assert name(f"{long}-beefca") != name(f"{long}-c0ffee")


def test_what_looks_like_a_secret_is_in_a_secret_of_its_own_and_in_no_manifest() -> None:
    assert "hush" not in json.dumps(objects(order(COMMAND)))
    made = secret(order(COMMAND))
    assert made is not None
    assert made["stringData"] == {"HF_TOKEN": "hush"}
    (wanted,) = [one for one in pod(COMMAND)["containers"][0]["env"] if one["name"] == "HF_TOKEN"]
    assert wanted["valueFrom"]["secretKeyRef"] == {"name": made["metadata"]["name"], "key": "HF_TOKEN"}
    assert secret(order(TRAINING)) is None


def test_a_word_that_looks_like_a_secret_is_refused_with_a_variable_as_the_way() -> None:
    with pytest.raises(BadOption, match="looks like a secret"):
        objects(order(replace(COMMAND, command=("train", "--api-key", "hush"))))


def test_words_that_kubernetes_would_put_variables_in_are_left_as_they_are() -> None:
    (container,) = pod(COMMAND)["containers"]
    assert container["args"][-1] == "print('$$(HOME) is no variable of mine')"
    assert {"name": "GREETING", "value": "it's $$(me)"} in container["env"]


def expanded(word: str) -> str:
    """Expand a word of args, or a value of env, as a node does; every variable has the value VALUE.

    https://github.com/kubernetes/kubernetes/blob/master/third_party/forked/golang/expansion/expand.go"""
    given, at, made = word.encode(), 0, b""
    while at < len(given):
        begin, after = given[at : at + 1], given[at + 1 : at + 2]
        end = given.find(b")", at)
        if begin != b"$" or not after:
            made, at = made + begin, at + 1
        elif after == b"(" and end > 0:
            made, at = made + b"VALUE", end + 1
        elif after == b"$":
            made, at = made + b"$", at + 2
        else:  # Go's string(byte) is the character of that number
            made, at = made + b"$" + chr(after[0]).encode(), at + 2
    return made.decode(errors="replace")


@example("echo $$ >pid")
@example("$$(x)")
@example("$$a")
@example("$$$")
@example("$(x")
@example("5 $é")
@given(some.text("$()aé", max_size=12))
def test_no_word_and_no_value_is_changed_on_its_way_through_kubernetes(word: str) -> None:
    (container,) = pod(replace(COMMAND, command=("echo", word), environment=(("WORD", word),)))["containers"]
    (variable,) = [one for one in container["env"] if one["name"] == "WORD"]
    assert expanded(container["args"][-1]) == word
    assert expanded(variable["value"]) == word


def test_a_pod_without_gpus_asks_for_none_of_its_node_where_nvidia_s_runtime_is_the_default() -> None:
    """NGC images set NVIDIA_VISIBLE_DEVICES=all, which is enough there."""

    def visible(spec: RunSpec) -> list[str]:
        (container,) = pod(spec)["containers"]
        return [one["value"] for one in container["env"] if one["name"] == "NVIDIA_VISIBLE_DEVICES"]

    assert visible(COMMAND) == ["void"]
    assert visible(TRAINING) == [], "the device plugin sets it"
    assert visible(replace(COMMAND, environment=(("NVIDIA_VISIBLE_DEVICES", "all"),))) == ["all"], "as it was typed"


def test_a_claim_with_millions_of_files_is_given_to_the_group_once() -> None:
    assert pod(TRAINING)["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert "fsGroupChangePolicy" not in pod(COMMAND)["securityContext"], "it goes with fsGroup alone"


def test_the_image_starts_by_its_own_entrypoint() -> None:
    assert "command" not in pod(TRAINING)["containers"][0]


def test_a_claim_that_is_mounted_several_times_is_one_volume_and_each_mount_has_its_own_folder_and_rights() -> None:
    mounts = (Mount("models", "/in"), Mount("models", "/out", writable=True), Mount("cifar", "/ngcdl/data"))
    inside = pod(replace(TRAINING, mounts=mounts))
    claims = {one["name"]: one["persistentVolumeClaim"] for one in inside["volumes"] if "persistentVolumeClaim" in one}
    assert claims == {"claim-0": {"claimName": "cifar"}, "claim-1": {"claimName": "models"}}
    assert [one for one in inside["containers"][0]["volumeMounts"] if one["name"] in claims] == [
        {"name": "claim-0", "mountPath": "/ngcdl-claim"},
        {"name": "claim-1", "mountPath": "/in", "readOnly": True},
        {"name": "claim-1", "mountPath": "/out", "readOnly": False},
        {"name": "claim-0", "mountPath": "/ngcdl/data", "readOnly": True},
    ]


def test_a_run_goes_on_from_one_that_is_kept_on_the_same_claim() -> None:
    resumed = replace(
        TRAINING,
        mounts=(*TRAINING.mounts, Mount("/home/me/runs/before", "/ngcdl/resume")),
        workload=Workload("cifar10", resume="before"),
    )
    (container,) = pod(resumed)["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    runs = "/ngcdl-claim/ngcdl-runs"
    assert (variables["NGCDL_KEPT"], variables["NGCDL_BEFORE"]) == (f"{runs}/{RUN}", f"{runs}/before")
    assert "subPath" not in str(container), "a node would make a missing folder as root"
    with pytest.raises(BadOption, match="checkpoint"):
        objects(order(replace(resumed, placement=Placement())))


@pytest.mark.parametrize("inside", ["/data", "/work"])
def test_a_folder_of_this_machine_is_refused_with_a_claim_as_the_way(tmp_path: Path, inside: str) -> None:
    with pytest.raises(BadOption, match="no folder of this machine") as refused:
        KubernetesEngine(Kubectl(), tmp_path).request(order(replace(COMMAND, mounts=(Mount("/srv/data", inside),))))
    assert f"-v CLAIM:{inside}" in refused.value.hint


CLAIM = Mount("models", "/work", writable=True)


@pytest.mark.parametrize(
    ("mounts", "typed", "where"),
    [((), None, None), ((), "/mine", "/mine"), ((CLAIM,), None, "/work"), ((CLAIM,), "/mine", "/mine")],
)
def test_a_command_works_in_the_image_s_own_folder_where_no_other_was_typed_and_no_claim_stands_in(
    mounts: tuple[Mount, ...], typed: str | None, where: str | None
) -> None:
    (container,) = pod(replace(COMMAND, mounts=mounts, workdir=typed))["containers"]
    assert container.get("workingDir") == where


@pytest.mark.parametrize(
    ("options", "where"), [((), None), (("-w", "/mine"), "/mine"), (("-v", "models:/work"), "/work")]
)
def test_the_folder_that_a_command_is_typed_in_is_not_asked_of_a_cluster(
    tmp_path: Path, options: tuple[str, ...], where: str | None
) -> None:
    asked = ("run", "pytorch:25.03-py3", "--engine", "k8s", "--gpus", "1", "--dry-run")  # as kubectl users say
    refuses(tmp_path, "kubectl", "no cluster")
    env = {"NGCDL_REGISTRY": "127.0.0.1:1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = House(tmp_path).run(*asked, *options, "--", "nvidia-smi", "-L", env=env)
    assert done.returncode == 0, done.stderr
    *_, made = parsed.safe_load_all(done.stdout)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert (container["args"][2:], container.get("workingDir")) == (["nvidia-smi", "-L"], where)
    claims = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "claim-0"]
    assert claims == (["/work"] if "-v" in options else [])


@pytest.mark.parametrize("typed", [None, "/mine"])
def test_the_caller_s_folder_of_a_run_that_was_recorded_elsewhere_is_left_out_and_that_is_said(
    tmp_path: Path, typed: str | None
) -> None:
    mounts = (Mount("/home/me/x", "/work", writable=True), *COMMAND.mounts)
    recorded = order(replace(COMMAND, mounts=mounts, workdir=typed or "/work"))
    text = KubernetesEngine(Kubectl(), tmp_path).request(recorded)["script"]
    first, second, manifest = text.split("\n", 2)
    assert first.startswith("# Left out '/home/me/x', its working directory at /work:")
    assert "-v CLAIM:/work" in second
    assert manifest == yaml.documents(objects(order(replace(COMMAND, workdir=typed))))


def test_a_trainer_that_no_config_map_can_hold_is_refused_with_what_makes_it_so_large(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/large.py").write_text(f"x = '{os.urandom(LIMIT_BYTES).hex()}'")
    (tmp_path / "small.py").write_text("x = 1")
    with pytest.raises(TrainerTooLarge, match="1 MiB") as caught:
        packed(str(tmp_path))
    assert str(tmp_path) in caught.value.message
    assert "env/large.py" in caught.value.hint
    (tmp_path / "env/large.py").unlink()
    assert packed(str(tmp_path))


def test_the_packed_trainer_fits_into_a_config_map_many_times_and_is_the_same_each_time() -> None:
    text = packed(TRAINER.host)
    assert text == packed(TRAINER.host)
    assert len(text) < LIMIT_BYTES / 4
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(base64.b64decode(text)))) as archive:
        names = archive.getnames()
    assert {"trainer/__main__.py", "trainer/workloads/cifar10.py"} <= set(names)
    assert not any("__pycache__" in one for one in names)


def test_every_file_of_the_trainer_is_in_its_bundle() -> None:
    root = Path(TRAINER.host)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(base64.b64decode(packed(TRAINER.host))))) as archive:
        kept = set(archive.getnames())
    files = {path.relative_to(root.parent) for path in root.rglob("*") if path.is_file()}
    assert {str(path) for path in files if "__pycache__" not in path.parts} == kept
