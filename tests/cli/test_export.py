"""`ngcdl export` as typed: the manifest of a recorded run, wherever it ran."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import yaml
from house import House
from made_runs import DIGEST, IMAGE, Made
from stand_ins import refuses

from ngcdl.cli import export
from ngcdl.folder import IMPORTED
from ngcdl.record import Gpu, Image

ONE_CARD = {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
GPU, CPU = "20231114-221320-cifar10-gpu001", "20231114-221320-cifar10-cpu001"


@pytest.fixture
def kept(house: House) -> House:
    Made(steps=100, dataset="synthetic").keep(house.store, GPU)
    Made("cpu", steps=100, dataset="synthetic").keep(house.store, CPU)
    return house


def test_a_run_of_this_machine_becomes_a_manifest_with_its_image_its_cards_by_number_and_its_words(kept: House) -> None:
    refuses(kept.home, "kubectl", "no cluster")
    done = kept.run("export", "k8s", GPU, env={"PATH": f"{kept.home}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    *_, job = yaml.safe_load_all(done.stdout)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"nvcr.io/nvidia/tensorflow@{DIGEST}"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert container["args"][container["args"].index("--steps") :][:2] == ["--steps", "100"]


def test_a_manifest_needs_no_kubectl(kept: House) -> None:
    done = kept.run("export", "k8s", GPU, env={"PATH": str(kept.home)})
    assert done.returncode == 0, done.stderr
    assert "can run nvcr.io/nvidia/tensorflow@" in done.stderr
    assert ": kubectl can't be run: No such file or directory.\n" in done.stderr
    *_, job = yaml.safe_load_all(done.stdout)
    assert job["kind"] == "Job"


def test_data_that_was_asked_to_be_synthetic_lacks_no_option_that_export_does_not_have(kept: House) -> None:
    done = kept.run("export", "k8s", GPU)
    assert "data: SYNTHETIC, made up, as requested\n" in done.stderr
    assert "--data-pvc" not in done.stderr


@pytest.mark.parametrize(("form", "line"), [
    ("slurm", f"NGCDL_DATA=FOLDER ngcdl export slurm {CPU}"),
    ("compose", f"NGCDL_DATA=FOLDER ngcdl export compose {CPU}"),
    ("k8s", f"ngcdl run nvcr.io/nvidia/tensorflow@{DIGEST} --engine kubernetes --gpus none --train cifar10 "
            "--data-pvc CLAIM --dry-run"),
])  # fmt: skip
def test_that_the_data_of_a_run_is_not_here_is_told(house: House, form: str, line: str) -> None:
    Made("cpu", steps=100).keep(house.store, CPU)
    told = house.run("export", form, CPU).stderr
    assert f"trained on cifar10; this trains on made-up images. With a copy:\n    {line}\n" in told


def test_a_run_that_had_no_card_asks_for_none(kept: House) -> None:
    *_, job = yaml.safe_load_all(kept.run("export", "k8s", CPU).stdout)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "resources" not in container


def test_a_command_of_this_machine_becomes_a_manifest_without_the_folder_it_was_typed_in(house: House) -> None:
    spec = {
        "image": "nvcr.io/nvidia/tensorflow:18.01-py2", "command": ["nvidia-smi", "-L"], "gpus": "none",
        "mounts": ["/home/me/x:/work"], "workdir": "/work",
    }  # fmt: skip
    Made("cpu").keep(house.store, CPU, spec=spec)
    done = house.run("export", "k8s", CPU)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Left out '/home/me/x', its working directory at /work:")
    *_, job = yaml.safe_load_all(done.stdout)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["args"][2:], "workingDir" in container) == (["nvidia-smi", "-L"], False)


def test_a_stranger_s_run_is_printed_with_a_warning_that_lists_what_it_would_get(kept: House) -> None:
    (kept.store.folder(GPU) / IMPORTED).touch()
    done = kept.run("export", "slurm", GPU)
    assert (done.returncode, done.stdout.startswith("#!")) == (0, True)
    assert "WARNING: it was imported, and nobody here has checked what it would do. It would get:" in done.stderr
    assert "\n    training   cifar10\n" in done.stderr


def test_cpus_and_memory_of_a_run_are_asked_of_the_cluster_too_and_a_part_of_a_cpu_not_of_slurm(house: House) -> None:
    spec = {
        "image": "nvcr.io/nvidia/tensorflow:18.01-py2", "command": ["true"], "gpus": "none", "mounts": [],
        "cpu_limit": 1.5, "memory_bytes": 4 << 30,
    }  # fmt: skip
    Made("cpu").keep(house.store, CPU, spec=spec)
    *_, job = yaml.safe_load_all(house.run("export", "k8s", CPU).stdout)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1.5", "memory": str(4 << 30)}
    refused = house.run("export", "slurm", CPU)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--cpus 1.5: Slurm divides no CPU" in refused.stderr
    Made("cpu").keep(house.store, GPU, spec={**spec, "cpu_limit": 2})
    script = house.run("export", "slurm", GPU).stdout
    assert "#SBATCH --cpus-per-task=2\n#SBATCH --mem=4096M\n" in script


def test_a_form_that_there_is_none_of_is_refused_with_one_that_there_is(kept: House) -> None:
    done = kept.run("export", "nomad", GPU)
    assert done.returncode == 2
    assert "ngcdl export k8s" in done.stderr


def test_a_run_becomes_a_service_for_docker_compose_with_its_cards_as_docker_had_them(house: House) -> None:
    made = Made(steps=100, dataset="synthetic")
    made.keep(house.store, GPU, spec={**(made.run(GPU).spec or {}), "user": "12345:12345"})
    done = house.run("export", "compose", GPU)  # on a machine without Docker
    assert done.returncode == 0, done.stderr
    service = yaml.safe_load(done.stdout)["services"]["cifar10"]
    assert service["image"] == f"nvcr.io/nvidia/tensorflow@{DIGEST}"
    assert service["command"][service["command"].index("--device") :][:4] == ["--device", "gpu", "--steps", "100"]
    assert (service["runtime"], service["environment"]["NVIDIA_VISIBLE_DEVICES"]) == ("nvidia", "all")
    assert service["user"] == f"${{NGCDL_USER:-{os.getuid()}:{os.getgid()}}}"
    assert "ngcdl.run" not in service["labels"]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("device-request", ("deploy", {"resources": {"reservations": {"devices": [ONE_CARD]}}})),
        ("cdi", ("devices", ["nvidia.com/gpu=0"])),
    ],
)
def test_one_card_of_several_becomes_one_card_of_another_machine(
    house: House, way: str, expected: tuple[str, object]
) -> None:
    made = Made(steps=100, dataset="synthetic").run(GPU)
    cards = (*(made.machine.gpus or ()), Gpu(1, "NVIDIA GeForce GTX 1050 Ti", "GPU-2", 4_235_198_464, "6.1"))
    Made(dataset="synthetic").keep(house.store, GPU, gpu_way=way, machine=replace(made.machine, gpus=cards))
    (service,) = yaml.safe_load(house.run("export", "compose", GPU).stdout)["services"].values()
    assert service[expected[0]] == expected[1]


def test_a_run_of_a_rootless_engine_whose_root_is_the_caller_outside_keeps_it(
    house: House, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = Made("cpu", dataset="synthetic")
    made.keep(house.store, CPU, spec={**(made.run(CPU).spec or {}), "user": "0:0"})
    for name, value in house.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    export.export("compose", CPU)
    (service,) = yaml.safe_load(capfd.readouterr().out)["services"].values()
    assert (service["user"], service.get("group_add")) == ("${NGCDL_USER:-0:0}", None)


def test_what_ran_without_an_image_or_with_added_packages_becomes_no_service(house: House) -> None:
    Made("cpu").keep(house.store, CPU, engine="local", spec={"image": None, "command": ["true"], "gpus": "none"})
    done = house.run("export", "compose", CPU)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ran without an image, and docker compose needs one." in done.stderr
    assert "\n      ngcdl run pytorch --gpus none -- true\n" in done.stderr
    spec = {"image": IMAGE, "command": ["true"], "gpus": "none", "packages": ["einops"]}
    Made("cpu").keep(house.store, GPU, spec=spec)
    done = house.run("export", "compose", GPU)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"@sha256:{64 * '5'} -- sh -c 'pip install --user einops && true'\n" in done.stderr


def test_an_image_of_this_engine_s_own_is_pulled_from_nowhere_and_one_that_was_loaded_from_a_file_is(
    house: House,
) -> None:
    spec = {"image": "mine:latest", "command": ["true"], "gpus": "none"}
    Made("cpu").keep(house.store, CPU, spec=spec, image=Image("docker.io/library/mine:latest", None, DIGEST))
    (service,) = yaml.safe_load(house.run("export", "compose", CPU).stdout)["services"].values()
    assert (service["image"], service["pull_policy"]) == ("docker.io/library/mine:latest", "never")
    done = house.run("export", "k8s", CPU)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ngcdl run REGISTRY/mine:latest --engine kubernetes --gpus none --dry-run -- true\n" in done.stderr
    Made("cpu").keep(house.store, GPU, spec=spec | {"image": IMAGE}, image=Image(IMAGE, None, DIGEST))
    (service,) = yaml.safe_load(house.run("export", "compose", GPU).stdout)["services"].values()
    assert (service["image"], "pull_policy" in service) == (IMAGE, False)
    assert f'image: "{IMAGE}"\n' in house.run("export", "k8s", GPU).stdout


def test_a_run_becomes_a_script_of_slurm_that_makes_a_folder_for_each_run_of_its_own(kept: House) -> None:
    done = kept.run("export", "slurm", GPU)  # on a machine without Slurm
    assert done.returncode == 0, done.stderr
    script = done.stdout
    assert "#SBATCH --gres=gpu:1\n" in script
    assert "RUN=${NGCDL_RUN:-$PWD/ngcdl-$SLURM_JOB_ID}\n" in script
    assert f"nvcr.io#nvidia/tensorflow:{DIGEST}" in script
    assert "--steps 100" in script
    assert str(kept.store.root) not in script
