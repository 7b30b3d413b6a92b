"""What is asked as a record keeps it: both ways, without secrets."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from ngcdl.errors import BadOption
from ngcdl.spec import (
    REDACTED,
    GpuRequest,
    ImageRef,
    Mount,
    Placement,
    Port,
    RunSpec,
    Workload,
    redacted,
    redacted_words,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "name", ["TOKEN", "hf_token", "NGC_API_KEY", "DB_PASSWORD", "DB_PASS", "AWS_SECRET", "MY_AUTH"]
)
def test_a_variable_whose_name_says_secret_is_hidden(name: str) -> None:
    assert redacted(name, "x") == REDACTED


def test_a_key_is_hidden_under_any_name_and_the_rest_is_shown() -> None:
    assert redacted("X", "Bearer nvapi-abc") == REDACTED
    assert redacted("EPOCHS", "3") == "3"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("echo", "nvapi-a_b-C9 x"), ("echo", "*** x")),
        (("sh", "-c", "a nvapi-1; b 'nvapi-2'"), ("sh", "-c", "a ***; b '***'")),
        (("x", "--api-key=hush=hush", "y"), ("x", "--api-key=***", "y")),
        (("x", "--hf-Token", "hush", "y"), ("x", "--hf-Token", "***", "y")),
        (("x", "--use-password", "--secret", "hush"), ("x", "--use-password", "--secret", "***")),
        (("python", "key.py", "--steps", "3", "-k", "v"), ("python", "key.py", "--steps", "3", "-k", "v")),
    ],
)
def test_words_that_are_secrets_stand_in_no_record_and_no_dry_run(
    words: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert redacted_words(words) == shown
    spec = RunSpec(None, words)
    assert (spec.without_secrets().command, tuple(spec.as_json()["command"])) == (shown, shown)
    assert tuple(spec.as_json(secrets=True)["command"]) == words


FULL = RunSpec(
    image=ImageRef.parse(f"tensorflow:18.01-py2@{DIGEST}"),
    command=("python", "a b", "", "--x=é"),
    gpus=GpuRequest("devices", devices=("0",)),
    mounts=(Mount("/data", "/data"), Mount("volume", "/v", True), Mount("/a:b/c:d", "/e", True), Mount("/x:ro", "/y")),
    environment=(("B", "2"), ("A", "=1"), ("HF_TOKEN", "hush")),
    ports=(Port(53, 53, protocol="udp"), Port(None, 80, "::1")),
    shm_bytes=5,
    ulimits=(("nofile", 9),),
    user="1:2",
    workdir="/w",
    tty=True,
    stdin=True,
    workload=Workload("cifar10", 7, 8, 9, "synthetic", "cpu", False, "older"),
    placement=Placement(2, "gpu", time_limit="1:00:00", container="pyxis", options=("--exclusive",)),
)


@pytest.mark.parametrize("spec", [RunSpec(None), FULL, replace(FULL, image=None, workload=None)])
def test_a_spec_and_its_json_are_each_other_s_inverse(spec: RunSpec) -> None:
    assert RunSpec.from_json(json.loads(json.dumps(spec.as_json(secrets=True)))) == spec


def test_a_record_from_before_there_were_clusters_was_placed_nowhere() -> None:
    old = {name: value for name, value in FULL.as_json().items() if name != "placement"}
    assert RunSpec.from_json(old).placement is None
    assert RunSpec.from_json({**old, "placement": {"nodes": 2, "of_a_later_ngcdl": 1}}).placement == Placement(2)


@pytest.mark.parametrize(
    ("placement", "engine", "named"),
    [
        (Placement(nodes=2), "docker", "--nodes"),
        (Placement(partition="a"), "kubernetes", "--partition: engine kubernetes has no use for it; slurm has"),
        (Placement(namespace="a"), "slurm", "--namespace"),
        (Placement(options=("-x",)), "local", "--sbatch"),
        (Placement(nodes=0), "slurm", "--nodes 0"),
        (Placement(container="lxc"), "slurm", "pyxis, docker, podman or apptainer"),
        (Placement(time_limit="soon"), "slurm", "--time soon"),
        (Placement(partition="a b"), "slurm", "one word"),
        (Placement(account="-x"), "slurm", "one word"),
    ],
)
def test_a_placement_that_can_t_be_meant_is_refused(placement: Placement, engine: str, named: str) -> None:
    with pytest.raises(BadOption, match=re.escape(named)):
        placement.check(engine)


@pytest.mark.parametrize("time", ["30", "30:00", "1:00:00", "2-12", "2-12:30", "2-12:30:00"])
def test_slurm_s_ways_to_write_a_time_are_taken(time: str) -> None:
    Placement(time_limit=time, nodes=8, qos="high", account="a@b").check("slurm")


def test_a_record_of_a_spec_has_no_secret() -> None:
    assert FULL.as_json()["environment"] == {"B": "2", "A": "=1", "HF_TOKEN": REDACTED}
    assert "hush" not in json.dumps(FULL.as_json())


def test_the_defaults_are_nvidia_s_documented_flags() -> None:
    spec = RunSpec(None)
    assert (spec.shm_bytes, dict(spec.ulimits)) == (1 << 30, {"memlock": -1, "stack": 67108864})
