"""compose.yaml makes the same request to Docker as `ngcdl run`, and `docker compose up` leaves a record for ngcdl.

The pure tests read the file as Compose does (`filled`). Those marked `lab` run it: the framework sees no GPU there, as
the lab only has a stand-in for NVML, so NGCDL_DEVICE is cpu; the reservation still takes the same path as a real one,
and the samples show the stand-in's card. The last test runs what `ngcdl export compose` makes of a run.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_file import (
    ROOT,
    SERVICES,
    STEPS,
    TAGS,
    USER,
    as_body,
    asked_spec,
    ngcdl_body,
    ngcdl_spec,
    service,
    with_allowed_differences,
)
from docker_client import Docker

from ngcdl.catalog import releases
from ngcdl.spec import NVCR, GpuRequest, ImageRef, RunSpec


@pytest.mark.parametrize("data", [None, Path("/data/cifar-10")], ids=["synthetic", "data"])
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_asks_for_what_ngcdl_sends(name: str, data: Path | None) -> None:
    runs = Path("/state/ngcdl/runs")
    given = {"NGCDL_DATA": str(data)} if data else {}
    made = as_body(service(name, NGCDL_USER=USER, XDG_STATE_HOME="/state", HOME="/root", **given))
    made["Env"]["NGCDL_SPEC"] = json.dumps(asked_spec(made))  # normalizes the JSON
    sent = ngcdl_body(name, made["Image"], runs, data)
    assert made == with_allowed_differences(sent, runs, asked_spec(made), data)


@pytest.mark.parametrize("name", SERVICES)
def test_the_record_is_told_what_ngcdl_would_tell_it_of_docker(name: str) -> None:
    made = as_body(service(name, NGCDL_USER=USER, HOME="/root"))
    spec = ngcdl_spec(name, made["Image"]).as_json()
    wanted = {key: spec[key] for key in ("gpus", "user", "shm_bytes", "ulimits")}
    assert asked_spec(made) == {**wanted, "workload": {"data": "synthetic"}}


def test_the_images_are_of_the_catalogue_and_the_same_in_the_dockerfiles() -> None:
    image = service("tensorflow", NGCDL_USER=USER)["image"]
    assert service("cpu", NGCDL_USER=USER)["image"] == image
    assert releases.find("tensorflow", str(ImageRef.parse(image, NVCR).tag))
    assert f"ARG BASE={image}\n" in (ROOT / "containers/tensorflow/Dockerfile").read_text()
    pytorch = service("pytorch", NGCDL_USER=USER)["image"]
    assert f"ARG BASE={pytorch}\n" in (ROOT / "containers/pytorch/Dockerfile").read_text()


def test_what_the_example_tells_to_replace_in_the_file_is_there() -> None:
    file, example = ((ROOT / name).read_text() for name in ("compose.yaml", ".env.example"))
    told = re.findall(r"write\n#   (.+)\n# instead of\n#   (.+)\n", example)
    assert [(new, file.count(old) > 0) for new, old in told] == [('device_ids: ["1"]', True), ("runtime: nvidia", True)]
    (cards, count), _ = told
    (device,) = yaml.safe_load(file.replace(count, cards))["x-gpus"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "device_ids": ["1"], "capabilities": ["gpu"]}


def test_the_example_names_a_release_for_cards_that_the_default_has_no_code_for() -> None:
    for framework, suffix in (("tensorflow", "-tf2-py3"), ("pytorch", "-py3")):
        usual, newer = (releases.find(framework, f"{release}{suffix}") for release in ("24.05", "25.02"))
        assert usual is not None
        assert newer is not None
        assert "12.0" not in usual.sass["amd64"]
        assert {"10.0", "12.0"} <= {*newer.sass["amd64"]} & {*newer.sass["arm64"]}
        assert (newer.min_capability, newer.driver) == ("7.5", "570.86.10")
    first = min(
        (row for row in releases.releases("pytorch") if "11.0" in row.sass.get("arm64", ())),
        key=lambda row: row.release,
    )
    example = (ROOT / ".env.example").read_text()
    assert "#   25.02   " in example
    assert f"on a Thor PyTorch from {first.release}-py3 on" in example


def test_no_page_says_that_it_computes_on_all_gpus() -> None:
    assert "--replicas" not in service("tensorflow", NGCDL_USER=USER)["command"]
    for name in ("compose.yaml", "README.md"):
        assert "on the GPUs" not in (ROOT / name).read_text(), name


def test_registry_tags_and_numbers_come_from_the_environment() -> None:
    given = {"NGCDL_REGISTRY": "127.0.0.1:5443", "NGCDL_PYTORCH_TAG": "26.07-py3", "NGCDL_STEPS": "7"}
    more = {"NGCDL_BATCH": "64", "NGCDL_SEED": "3", "NGCDL_GPUS": "2", "NGCDL_MEMLOCK": "65536"}
    made = as_body(service("pytorch", NGCDL_USER=USER, HOME="/h", NGCDL_RUNS="/runs", **given, **more))
    assert made["Image"] == "127.0.0.1:5443/nvidia/pytorch:26.07-py3"
    assert " ".join(made["Cmd"]).endswith("--device gpu --steps 7 --batch 64 --seed 3")
    assert made["HostConfig"]["DeviceRequests"][0]["Count"] == 2
    assert made["HostConfig"]["Ulimits"][0] == {"Name": "memlock", "Soft": 65536, "Hard": 65536}
    assert made["HostConfig"]["Mounts"][-1]["Source"] == "/runs"


def test_without_a_user_it_says_what_to_type_and_the_example_says_the_same() -> None:
    with pytest.raises(KeyError) as caught:
        service("tensorflow")
    line = caught.value.args[0].removeprefix("type once:  ")
    assert line.startswith("cp .env.example .env && mkdir -p ")
    assert "echo NGCDL_USER=$(id -u):$(id -g); echo COMPOSE_PROJECT_NAME=ngcdl-$(id -u)) >> .env" in line
    for name in ("compose.yaml", ".env.example", "README.md"):
        assert line in re.sub(r" \\\n#? +", " ", (ROOT / name).read_text()), name


def test_the_example_explains_every_variable_and_holds_the_defaults() -> None:
    read = set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text())) - {"HOME", "XDG_STATE_HOME"}
    lines = (ROOT / ".env.example").read_text().splitlines()
    told = dict(line.removeprefix("#").split("=", 1) for line in lines if re.match(r"#?[A-Z_]+=", line))
    assert (told.pop("COMPOSE_PROFILES"), told.pop("COMPOSE_PROJECT_NAME")) == ("tensorflow", "ngcdl")
    assert set(told) == read
    for name in ("NGCDL_RUNS", "NGCDL_DATA", "NGCDL_USER"):
        told.pop(name)  # they have no default, or one inside the reader's home
    for each in SERVICES:
        assert service(each, NGCDL_USER=USER, HOME="/h", **told) == service(each, NGCDL_USER=USER, HOME="/h")


# -- the file, run ----------------------------------------------------------------------------------------------------


class Compose:
    """`docker compose` of one project with a HOME, a login and an .env of its own."""

    def __init__(self, lab: dict[str, Any], home: Path) -> None:
        self.lab, self.home, self.docker = lab, home, Docker(lab, home / "docker")
        self.project = f"ngcdl-test-{os.getpid()}-{home.name.replace('_', '-').lower()[-24:]}"
        self.runs = home / ".local/state/ngcdl/runs"
        self.user = USER if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
        self.values = {
            "COMPOSE_PROFILES": "tensorflow",
            "NGCDL_USER": self.user,
            "NGCDL_REGISTRY": lab["registry"]["host"],
            "NGCDL_TENSORFLOW_TAG": TAGS["tensorflow"],
            "NGCDL_PYTORCH_TAG": TAGS["pytorch"],
            "NGCDL_DEVICE": "cpu",  # frameworks can't use the lab's card
            "NGCDL_STEPS": str(STEPS),
            "NGCDL_FLAGS": "--no-eval",
        }
        if not memlock_allowed():
            self.values["NGCDL_MEMLOCK"] = "65536"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NGCDL_", "COMPOSE_", "XDG"))}
        own = {"HOME": str(self.home), "DOCKER_CONFIG": str(self.home / "docker")}
        return {**kept, **own, "DOCKER_HOST": self.lab["engine"]["host"], **more}

    def __call__(self, *words: str, code: int = 0, **more: str) -> str:
        return self._run(self.command(*words), code, **more)

    def command(self, *words: str) -> list[str]:
        (self.home / "env").write_text("".join(f"{name}={value}\n" for name, value in self.values.items()))
        files = ["--env-file", str(self.home / "env"), "-p", self.project, "-f", str(ROOT / "compose.yaml")]
        return [self.lab["docker_cli"], "compose", *files, *words]

    def ngcdl(self, *words: str) -> Any:
        return json.loads(self._run([sys.executable, "-m", "ngcdl", *words, "--json"], 0))

    def _run(self, command: list[str], code: int, **more: str) -> str:
        done = subprocess.run(
            command, env=self.environment(**more), cwd=ROOT, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if command[0] == sys.executable else done.stdout + done.stderr

    def give(self, folder: Path) -> None:
        """Give `folder` to the user that the training runs as."""
        if os.getuid() == 0:
            self._run(["chown", "-R", USER, str(folder)], 0)

    def inspected(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.docker("inspect", f"{self.project}-{name}-1"))[0]
        return found


def memlock_allowed() -> bool:
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY


@pytest.fixture
def compose(lab: dict[str, Any], tmp_path: Path) -> Iterator[Compose]:
    made = Compose(lab, tmp_path)
    made.runs.mkdir(parents=True)
    made.give(tmp_path)
    made.docker.login(lab["registry"]["key"])
    yield made
    made("--profile", "*", "down", "--timeout", "0", "--remove-orphans")


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    """A CIFAR-10 as ngcdl stores it, of black aeroplanes: six hard links to one sparse file."""
    folder = tmp_path / "cache/ngcdl/cifar-10/cifar-10-batches-bin"
    folder.mkdir(parents=True)
    first = folder / "test_batch.bin"
    with first.open("wb") as file:
        file.truncate(10_000 * 3073)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").hardlink_to(first)
    return folder.parent


@pytest.mark.lab
def test_compose_itself_makes_of_the_file_what_is_compared_above(compose: Compose, cifar10: Path) -> None:
    compose.values = {"NGCDL_USER": USER, "NGCDL_DATA": str(cifar10), "NGCDL_TENSORFLOW_TAG": TAGS["tensorflow"]}
    compose.values["NGCDL_REGISTRY"] = compose.lab["registry"]["host"]
    for name in ("tensorflow", "cpu"):
        compose("--profile", name, "create", "--no-build")
        found = compose.inspected(name)
        sent = ngcdl_body(name, found["Config"]["Image"], compose.runs, cifar10)
        given = dict(variable.split("=", 1) for variable in found["Config"]["Env"])
        wanted = with_allowed_differences(sent, compose.runs, json.loads(given["NGCDL_SPEC"]), cifar10)
        wanted["Env"]["NGCDL_SPEC"] = given["NGCDL_SPEC"]
        assert {key: given[key] for key in wanted["Env"]} == wanted.pop("Env")
        assert wanted.pop("Labels").items() <= found["Config"]["Labels"].items()
        host, made = wanted.pop("HostConfig"), found["HostConfig"]
        for mount in made["Mounts"]:
            mount["ReadOnly"] = mount.pop("ReadOnly", False)  # the engine omits false values
            mount.pop("BindOptions", None)
        for device in made["DeviceRequests"] or []:
            assert not device.pop("DeviceIDs")
            assert not device.pop("Options")
        for key in ("Ulimits", "Mounts"):
            made[key].sort(key=str)
            host[key].sort(key=lambda entry: str({name: entry[name] for name in made[key][0]}))
        host.setdefault("DeviceRequests", None)
        assert {key: made[key] for key in host} == host
        assert {key: found["Config"][key] for key in wanted} == wanted
        assert found["Path"] == "/usr/local/bin/nvidia_entrypoint.sh"  # the image's own


@pytest.mark.lab
def test_up_trains_in_tensorflow_through_the_gpu_reservation_and_records(compose: Compose, cifar10: Path) -> None:
    registry = compose.lab["registry"]
    compose.values["NGCDL_DATA"] = str(cifar10)
    shown = compose("up", "--pull", "always")
    assert "== TensorFlow ==" in shown  # the image's own entrypoint
    assert "step 10, loss = " in shown
    assert "Training on 50000 images of /ngcdl/data" in shown
    run = compose.ngcdl("show", "last")
    assert (run["status"], run["exit_code"], run["engine"]) == ("finished", 0, "compose")
    assert run["image"]["reference"] == f"{registry['host']}/nvidia/tensorflow:{TAGS['tensorflow']}"
    assert (run["dataset"], run["device"]) == ("cifar10", "cpu")
    assert run["spec"]["workload"]["steps"] == run["summary"]["steps"] == STEPS
    assert run["spec"]["workload"]["data"] == str(cifar10)
    assert RunSpec.from_json(run["spec"]).gpus == GpuRequest("all")
    assert run["machine"]["driver"] == "535.104.05"
    assert run["machine"]["memory_bytes"] > 0
    for figure in ("examples_per_second", "seconds_per_batch", "loss_first", "loss_last", "cpu_percent_mean"):
        assert run["summary"][figure] > 0, figure
    assert "GTX 1050 Ti" in run["summary"]["gpus"][0]["name"]
    assert run["summary"]["gpu_memory_bytes_max"] > 0
    (listed,) = compose.ngcdl("runs")
    assert listed["summary"] == run["summary"]
    owner, group = map(int, compose.user.split(":"))
    made = [*compose.runs.rglob("*"), compose.runs]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(owner, group)}


@pytest.mark.lab
def test_the_profile_pytorch_runs_pytorch_instead_and_synthetic_images_are_said(compose: Compose) -> None:
    shown = compose("--profile", "pytorch", "up")
    assert "on 20000 SYNTHETIC images, not on CIFAR-10" in shown
    assert "UserWarning" not in shown
    assert compose("ps", "--all", "--services").split() == ["pytorch"]
    run = compose.ngcdl("show", "last")
    assert (run["status"], run["dataset"], run["summary"]["steps"]) == ("finished", "synthetic", STEPS)
    assert run["image"]["reference"].endswith("/nvidia/pytorch:26.07-py3")
    assert "GTX 1050 Ti" in run["summary"]["gpus"][0]["name"]


@pytest.mark.lab
def test_the_profile_cpu_asks_for_no_gpu_and_a_failure_is_recorded(compose: Compose) -> None:
    (compose.home / "empty").mkdir()
    compose.values["NGCDL_DATA"] = str(compose.home / "empty")
    shown = compose("--profile", "cpu", "run", "--rm", "cpu", code=1)
    assert "data: Failed to find file: /ngcdl/data/cifar-10-batches-bin/data_batch_1.bin" in shown
    (run,) = compose.ngcdl("runs")
    assert (run["status"], run["exit_code"]) == ("failed", 1)
    assert run["reason"].startswith("Failed to find file")
    assert run["machine"]["gpus"] is None  # without a card the container sees no driver
    assert run["spec"]["gpus"] == "none"


@pytest.mark.lab
def test_a_stop_saves_a_checkpoint_and_the_record_says_interrupted(compose: Compose) -> None:
    """Like Ctrl-C; but compose 2.26 sometimes takes one Ctrl-C for two, and the second one kills."""
    compose.values["NGCDL_STEPS"] = "1000000"
    with subprocess.Popen(
        compose.command("--profile", "cpu", "up"),
        env=compose.environment(),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout
        assert any("step 0, loss" in line for line in process.stdout)
        compose("--profile", "cpu", "stop")
        process.stdout.read()
    run = compose.ngcdl("show", "last")
    assert (run["status"], run["exit_code"]) == ("interrupted", 143)
    assert run["summary"]["steps"] >= 1
    assert list((compose.runs / run["id"] / "checkpoints").glob("step-*.npz"))


@pytest.mark.lab
def test_a_folder_that_is_somebody_elses_is_named(compose: Compose) -> None:
    compose.values["NGCDL_USER"] = "54321:54321"
    compose.runs.chmod(0o755)
    shown = compose("--profile", "cpu", "run", "--rm", "cpu", code=1)
    assert re.search(r"crash: /ngcdl/runs/\S+: Permission denied", shown)


@pytest.mark.lab
def test_where_docker_knows_no_gpu_it_says_so_and_nothing_runs(compose: Compose) -> None:
    if not compose.lab.get("bare"):
        pytest.skip("no bare engine: scripts/lab up --without-gpu")
    image = f"{compose.lab['registry']['host']}/nvidia/busybox:1"  # the only image that this engine has
    (compose.home / "bare.yaml").write_text(
        f"services: {{tensorflow: {{image: '{image}', network_mode: none, command: 'true'}}}}\n"
    )
    engine = {"DOCKER_HOST": compose.lab["bare"]["host"]}
    shown = compose("-f", str(compose.home / "bare.yaml"), "up", code=1, **engine)
    assert 'could not select device driver "nvidia" with capabilities: [[gpu]]' in shown
    assert 'could not select device driver "nvidia" with capabilities: [[gpu]]' in (ROOT / ".env.example").read_text()
    compose("-f", str(compose.home / "bare.yaml"), "down", **engine)
    assert list(compose.runs.iterdir()) == []


@pytest.mark.lab
def test_a_missing_folder_for_the_records_is_an_error_and_is_not_made(compose: Compose) -> None:
    compose.runs.rmdir()
    shown = compose("up", code=1)
    assert f"bind source path does not exist: {compose.runs}" in shown
    assert not compose.runs.exists()


@pytest.mark.lab
@pytest.mark.skipif(memlock_allowed(), reason="this host allows memlock=-1")
def test_a_host_that_forbids_memlock_says_what_the_example_quotes(compose: Compose) -> None:
    del compose.values["NGCDL_MEMLOCK"]
    shown = compose("up", code=1)
    text = "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted"
    assert text in shown
    assert text in (ROOT / ".env.example").read_text()


@pytest.mark.lab
def test_without_an_env_file_compose_says_in_one_line_what_to_type(compose: Compose) -> None:
    compose.values = {}
    shown = compose("up", code=15)
    assert shown.strip().count("\n") == 0
    assert "type once:  cp .env.example .env && mkdir -p ~/.local/state/ngcdl/runs && (echo NGCDL_USER=$(id" in shown
    compose.values = {"NGCDL_USER": USER}  # for the clean-up


# -- a run, exported --------------------------------------------------------------------------------------------------


@pytest.mark.lab
def test_what_is_exported_runs_with_the_same_image_words_and_folders_and_keeps_what_it_writes(
    compose: Compose, tmp_path: Path
) -> None:
    words = ["sh", "-c", 'echo "$A at $PWD" > "$NGCDL_RUN/said"; echo "$TOKEN" | wc -c']
    image, project = f"{compose.lab['registry']['host']}/nvidia/pytorch", tmp_path / "project $1"
    project.mkdir()
    own = ["-v", f"{project}:/data", "-e", "A=$1", "-e", "TOKEN", "--gpus", "none"]
    ngcdl, token = [sys.executable, "-m", "ngcdl"], {"TOKEN": "nvapi-CANARY-0123456789"}
    assert "\n24\n" in compose._run([*ngcdl, "run", f"{image}:{TAGS['pytorch']}", *own, "--", *words], 0, **token)
    file = tmp_path / "exported.yaml"
    file.write_text(compose._run([*ngcdl, "export", "compose", "last"], 0))
    assert "CANARY" not in file.read_text()
    (tmp_path / "run").mkdir()
    limit = {} if memlock_allowed() else {"NGCDL_MEMLOCK": "65536"}
    up = [compose.lab["docker_cli"], "compose", "-p", compose.project, "-f", str(file), "up", "--no-log-prefix"]
    assert "24\nrun-1 exited with code 0\n" in compose._run(up, 0, **token, **limit)
    assert (tmp_path / "run/said").read_text() == "$1 at /work\n"
    found = compose.inspected("run")
    assert {one["Destination"]: one["Source"] for one in found["Mounts"]}["/data"] == str(project)
    assert found["Config"]["Image"] == f"{image}@{compose.ngcdl('show', 'last')['image']['digest']}"
    assert found["Config"]["Labels"].get("ngcdl.run") is None
