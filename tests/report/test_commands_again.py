"""The command that repeats a run or goes on from it, and the conditions beside its figures."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from made_runs import DIGEST, STARTED, UUID, Made

from ngcdl.cli.typed import _patch
from ngcdl.record import Image, Run
from ngcdl.report.measured import retyped
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.tables import conditions
from ngcdl.spec import KINDS, ImageRef, Placement, Port, RunSpec, Workload

GPU = Made(steps=300)


def test_the_command_that_repeats_a_training_names_the_image_by_digest_and_all_that_was_asked() -> None:
    words = shlex.split(retyped.command(replace(GPU, seed=3).run("x")) or "")
    assert words[:3] == ["ngcdl", "run", f"nvcr.io/nvidia/tensorflow@{DIGEST}"]
    assert words[3:] == [
        "--train", "cifar10", "--steps", "300", "--batch", "128", "--seed", "3", "--device", "gpu", "--gpus", UUID,
    ]  # fmt: skip
    run = replace(GPU, seed=3).run("x")
    run = replace(run, spec={**(run.spec or {}), "gpus": f"all:{UUID}"})
    assert (retyped.command(run) or "").endswith("--gpus all"), "which came to this card"


@pytest.mark.parametrize(("asked", "words"), [
    ({"channels_last": True, "compile": True}, "--compile --channels-last"),
    ({"channels_last": False, "precision": "amp"}, "--precision amp --channels-first"),
    ({"seconds": 30.0, "teacher": "kept"}, "--seconds 30.0 --teacher kept"),
    ({"feed": "plain", "epochs": 2}, "--feed plain --epochs 2"),
    ({"times": 20, "clip": 2.5, "trace": 9}, "--times 20 --clip 2.5 --trace 9"),
    ({"feed": "ahead", "autotune": True}, "--feed ahead --autotune"), ({"feed": None, "autotune": True}, "--autotune"),
])  # fmt: skip
def test_the_command_repeats_how_it_computed_was_fed_and_how_long(asked: dict[str, Any], words: str) -> None:
    spec = RunSpec(None, workload=Workload("cifar10", None, **asked)).as_json()
    run = Run("x", "finished", STARTED, engine="local", spec=spec)
    assert retyped.command(run) == f"ngcdl run --train cifar10 --batch 128 --seed 0 {words} --engine local"
    run = replace(run, spec=RunSpec(None, workload=Workload("cifar10", 9, largest_batch=True)).as_json())
    assert retyped.command(run) == "ngcdl run --train cifar10 --steps 9 --batch largest --seed 0 --engine local"


@pytest.mark.parametrize("engine", [*KINDS, "compose", None])
def test_the_command_names_the_engine_that_would_not_be_taken_by_itself(engine: str | None) -> None:
    words = shlex.split(retyped.command(replace(GPU.run("x"), engine=engine)) or "")
    assert ("--engine" in words) == (engine in KINDS and engine != "docker")
    assert words[-2:] == ["--engine", engine] or "--engine" not in words


WAY = {"feed": "resident", "precision": "bfloat16", "compiled": True, "channels_last": False, "teacher": "kept"}


def test_the_conditions_say_what_was_computed_in_and_how_far_it_was_to_train() -> None:
    run = GPU.run("x")
    timed = replace(
        run, spec={**(run.spec or {}), "workload": {"name": "distill", "steps": None, "seconds": 30.0, "clip": 5}}
    )
    start = {"event": "start", "t": STARTED, "steps": None, "batch": 32, **WAY}
    rows = dict(conditions(read_story(timed, [start], [])))
    assert rows["compute settings"] == "bfloat16, compiled, channels first, fed resident, teacher kept, clipped at 5"
    assert (rows["requested"], rows["batch"]) == ("30 s", "32")
    assert dict(conditions(read_story(run, [], [])))["requested"] == "300 steps"
    assert dict(conditions(read_story(run, [], [])))["compute settings"] == "n/a", (
        "an old record does not tell it of a GPU"
    )
    start["clip"] = 10**400
    rows = dict(conditions(read_story(timed, [start], [])))
    assert rows["compute settings"] == "bfloat16, compiled, channels first, fed resident, teacher kept"


def test_the_command_of_a_run_of_ones_own_has_its_mounts_its_variables_and_no_secret() -> None:
    spec = {
        "command": ["python", "a b.py"], "gpus": "none", "workload": None,
        "mounts": ["/data:/data:ro", "/home/me:/work"],
        "environment": {"EPOCHS": "3", "API_KEY": "***"},
    }  # fmt: skip
    run = Run("x", "finished", STARTED, image=Image("nvcr.io/nvidia/pytorch:24.05-py3", DIGEST), spec=spec)
    assert retyped.command(run) == (
        f"ngcdl run nvcr.io/nvidia/pytorch@{DIGEST} --gpus none -v /data:/data:ro -e EPOCHS=3 -e API_KEY "
        "-- python 'a b.py'"
    )
    cached = replace(run, spec={**spec, "mounts": ["/opt/trainer:/ngcdl/trainer:ro", "/big:/ngcdl/cache"]})
    assert "none -v /big:/ngcdl/cache -e" in (retyped.command(cached) or "")
    in_a_pod = replace(run, spec={**spec, "mounts": ["a-claim:/work"]})
    assert "-v a-claim:/work" in (retyped.command(in_a_pod) or "")


def test_the_command_has_what_was_typed_for_the_container_and_nothing_that_was_not() -> None:
    typed = RunSpec(
        ImageRef.parse("pytorch:24.05-py3"), ("nvidia-smi",), ports=(Port.parse("8888:8888"),), shm_bytes=8 << 30,
        ulimits=(("memlock", -1), ("nofile", 4096)), workdir="/data", stdin=True, user=None, cpu_limit=1.5,
        memory_bytes=32 << 30, packages=("--no-index", "einops>=1"), sample_seconds=0.1,
    )  # fmt: skip
    run = Run("x", "finished", STARTED, image=Image("nvcr.io/nvidia/pytorch:24.05-py3", DIGEST), spec=typed.as_json())
    assert (retyped.command(run) or "").partition("@")[2].removeprefix(DIGEST) == (
        " --sample-every 0.1 -p 8888:8888 --shm-size 8589934592 --ulimit stack=host --ulimit nofile=4096"
        " --pip=--no-index --pip 'einops>=1' --cpus 1.5 --memory 34359738368 -w /data -i --root -- nvidia-smi"
    )
    plain_spec = replace(typed, ports=(), shm_bytes=1 << 30, ulimits=RunSpec(None).ulimits, workdir="/work", user="1:1")
    plain_spec = replace(plain_spec, cpu_limit=None, memory_bytes=None, packages=(), sample_seconds=1.0)
    by_itself = replace(run, spec=replace(plain_spec, stdin=False).as_json())
    assert (retyped.command(by_itself) or "").endswith(f"@{DIGEST} -- nvidia-smi")


def test_the_command_of_a_training_has_every_mount_that_was_typed_wherever_it_is() -> None:
    run = GPU.run("x")
    run = replace(run, spec={**(run.spec or {}), "mounts": ["/data:/work:ro", "/opt/trainer:/ngcdl/trainer:ro"]})
    assert (retyped.command(run) or "").endswith(f"--gpus {UUID} -v /data:/work:ro")


def test_the_command_has_the_patches_themselves_as_their_files_may_have_changed() -> None:
    patches = ("metadata:\n  labels: {a: b}\n", '{"spec": {}}')
    run = GPU.run("x")
    placement = Placement(patches=patches, avoid=("a=b",)).as_json()
    run = replace(run, engine="kubernetes", spec={**(run.spec or {}), "placement": placement})
    words = shlex.split(retyped.command(run) or "")
    assert [word.removeprefix("--job-patch=") for word in words if "--job-patch" in word] == list(patches)
    assert tuple(map(_patch, patches)) == patches, "as they are typed"


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_the_command_leaves_out_where_ngcdl_itself_placed_the_run(engine: str) -> None:
    place = Placement(nodes=2, gpu_type="h100", avoid=("node7",), images="/shared" if engine == "slurm" else None)
    run = GPU.run("x")
    run = replace(run, engine=engine, spec={**(run.spec or {}), "placement": place.as_json()})
    assert (retyped.command(run) or "").endswith(f"--engine {engine} --nodes 2")


def test_a_record_without_a_spec_has_no_command() -> None:
    run = Run("x", "finished", STARTED, engine="compose")
    assert retyped.command(run) is None
    told_rows = dict(conditions(read_story(run, [], [])))
    assert told_rows["repeat with"] == "n/a: ngcdl did not start it"
    assert told_rows["image digest"] == "n/a"
    composed = replace(GPU, digest=None).story(engine="compose")
    assert dict(conditions(composed))["repeat with"] == "n/a: the digest of its image was not recorded"
