"""The bench proves itself: the registry behaves as nvcr.io, the engine launches what it pulls, each GPU way works and
each fault strikes.

Needs `scripts/lab up`, and NGCDL_LAB_JSON from `scripts/lab env`; without it these tests fail, as a bench that is not
there proves nothing.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

MULTIPLY = """
import tensorflow as tf
a = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[2, 3])
b = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[3, 2])
print(tf.__version__)
print(tf.Session().run(tf.matmul(a, b)).tolist())
"""
FIRST_CARD = "GPU 0: NVIDIA GeForce GTX 1050 Ti (UUID: GPU-"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@pytest.fixture(scope="session")
def lab() -> dict[str, Any]:
    path = os.environ.get("NGCDL_LAB_JSON")
    if not path or not Path(path).exists():
        pytest.fail('no lab: type `scripts/lab up` and `eval "$(scripts/lab env)"`')
    report: dict[str, Any] = json.loads(Path(path).read_text())
    return report


@pytest.fixture
def docker(lab: dict[str, Any], tmp_path: Path) -> Docker:
    return Docker(lab, tmp_path / "docker-config")


@pytest.fixture
def front(lab: dict[str, Any], tmp_path: Path) -> Iterator[Front]:
    """A registry front for one test, so that its faults meet nobody else."""
    (tmp_path / "faults.json").write_text("{}")
    command = [
        *lab["registry"]["front"],
        "--faults",
        f"{tmp_path}/faults.json",
        "--log",
        f"{tmp_path}/log.jsonl",
        "--port",
        "0",
        "--cdn-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ports = json.loads(process.stdout.readline())
        yield Front(ports["port"], tmp_path / "faults.json", tmp_path / "log.jsonl", lab["registry"]["key"])
        process.terminate()


class Docker:
    """The docker client against the lab's engine, with a login of its own."""

    def __init__(self, lab: dict[str, Any], config: Path) -> None:
        self.lab = lab
        self.environment = {**os.environ, "DOCKER_HOST": lab["engine"]["host"], "DOCKER_CONFIG": str(config)}

    def __call__(self, *words: str, stdin: str | None = None, fails: bool = False, engine: str = "engine") -> str:
        environment = {**self.environment, "DOCKER_HOST": self.lab[engine]["host"]}
        command = [self.lab["docker_cli"], *words]
        done = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, timeout=240)
        text = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, text
        return text

    def login(self, key: str, host: str | None = None, fails: bool = False) -> str:
        return self(
            "login",
            host or self.lab["registry"]["host"],
            "-u",
            "$oauthtoken",
            "--password-stdin",
            stdin=key,
            fails=fails,
        )

    def run(
        self,
        *options: str,
        command: str | list[str],
        image: str = "busybox:1",
        fails: bool = False,
        engine: str = "engine",
    ) -> str:
        words = command.split() if isinstance(command, str) else command
        name = f"{self.lab['registry']['host']}/nvidia/{image}"
        network = [] if engine == "engine" else ["--network", "none"]
        return self("run", "--rm", "-q", *network, *options, name, *words, fails=fails, engine=engine)


class Front:
    """A registry front over HTTP, with its faults and its log."""

    def __init__(self, port: int, faults: Path, log: Path, key: str) -> None:
        self.port, self.faults, self.log_file, self.key = port, faults, log, key

    def break_down(self, **faults: Any) -> None:
        self.faults.write_text(json.dumps(faults))

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def get(
        self, path: str, token: str | None = None, key: str | None = None, timeout: float = 20, **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if key:
            headers["Authorization"] = "Basic " + base64.b64encode(f"$oauthtoken:{key}".encode()).decode()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def token(self, name: str = "busybox", key: str | None = None) -> str:
        answer = self.get(f"/proxy_auth?scope=repository:nvidia/{name}:pull", key=key)
        assert answer.status == 200, answer
        text: str = json.loads(answer.body)["token"]
        return text

    def blob(self, name: str = "busybox", tag: str = "big") -> str:
        """Return the path of the biggest layer of an image."""
        answer = self.get(f"/v2/nvidia/{name}/manifests/{tag}", token=self.token(name), Accept=MANIFEST)
        layers = json.loads(answer.body)["layers"]
        return f"/v2/nvidia/{name}/blobs/" + str(max(layers, key=lambda one: int(one["size"]))["digest"])


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body


# ---- nvcr.io's protocol ----


def test_the_challenge_names_realm_and_scope_but_no_service(front: Front) -> None:
    answer = front.get("/v2/nvidia/tensorflow/manifests/18.01-py2")
    assert answer.status == 401
    assert (
        answer.headers["Www-Authenticate"]
        == f'Bearer realm="http://127.0.0.1:{front.port}/proxy_auth",scope="repository:nvidia/tensorflow:pull"'
    )
    assert front.get("/v2/").headers["Www-Authenticate"].endswith(',scope=""')


def test_the_token_answer_calls_itself_text(front: Front) -> None:
    answer = front.get("/proxy_auth?scope=repository:nvidia/pytorch:pull", key=front.key)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert set(json.loads(answer.body)) == {"token", "expires_in"}


def test_basic_straight_at_the_registry_is_refused(front: Front) -> None:
    assert front.get("/v2/", key=front.key).status == 401


def test_a_valid_key_logs_in_and_a_revoked_one_does_not(lab: dict[str, Any], docker: Docker) -> None:
    assert "unauthorized: authentication required" in docker.login(lab["registry"]["key_revoked"], fails=True)
    assert "unauthorized" in docker.login("never-issued", fails=True)
    assert "Login Succeeded" in docker.login(lab["registry"]["key"])


def test_a_key_without_rights_logs_in_and_is_denied_at_the_manifest(
    lab: dict[str, Any], docker: Docker, front: Front
) -> None:
    key = lab["registry"]["key_without_rights"]
    docker.login(key)
    assert "denied: Access Denied" in docker(
        "pull", f"{lab['registry']['host']}/nvidia/tensorflow:18.01-py2", fails=True
    )
    answer = front.get("/v2/nvidia/tensorflow/manifests/18.01-py2", token=front.token("tensorflow", key))
    assert (answer.status, answer.body) == (403, b'{"errors":[{"code":"DENIED","message":"Access Denied"}]}')


def test_a_gated_and_a_missing_repository_are_denied_even_with_the_key(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    for name in ("gated:1", "nosuch:1"):
        assert "denied" in docker("pull", f"{lab['registry']['host']}/nvidia/{name}", fails=True)


def test_busybox_pulls_without_login_and_tensorflow_does_not(lab: dict[str, Any], docker: Docker) -> None:
    docker("pull", f"{lab['registry']['host']}/nvidia/busybox:1")
    assert "unauthorized" in docker("pull", f"{lab['registry']['host']}/nvidia/tensorflow:18.01-py2", fails=True)


def test_tags_are_listed_and_a_wrong_tag_is_unknown(lab: dict[str, Any], docker: Docker, front: Front) -> None:
    answer = front.get("/v2/nvidia/busybox/tags/list", token=front.token())
    assert {"1", "entry", "big", "arm64"} <= set(json.loads(answer.body)["tags"])
    assert "manifest unknown" in docker("pull", f"{lab['registry']['host']}/nvidia/busybox:nosuch", fails=True)
    front.break_down(missing_tag_status=403)
    assert front.get("/v2/nvidia/busybox/manifests/nosuch", token=front.token()).status == 403


def test_an_image_for_another_processor_is_refused_by_name(lab: dict[str, Any], docker: Docker) -> None:
    assert "no matching manifest for linux/amd64" in docker(
        "pull", f"{lab['registry']['host']}/nvidia/busybox:arm64", fails=True
    )


def test_only_the_pushing_account_writes(lab: dict[str, Any], docker: Docker) -> None:
    name = f"{lab['registry']['host']}/nvidia/scratch:pushed"
    docker("pull", "-q", f"{lab['registry']['host']}/nvidia/busybox:1")
    docker("tag", f"{lab['registry']['host']}/nvidia/busybox:1", name)
    docker.login(lab["registry"]["key"])
    text = docker("push", name, fails=True)
    assert "denied" in text or "403" in text  # docker asks with HEAD where the repository exists, and HEAD has no body
    push = lab["registry"]["push"]
    docker("login", lab["registry"]["host"], "-u", push["user"], "--password-stdin", stdin=push["password"])
    assert "pushed: digest: sha256:" in docker("push", name)


def test_the_log_says_who_asked_but_never_with_what(lab: dict[str, Any], front: Front) -> None:
    token = front.token("pytorch", front.key)
    front.get("/v2/nvidia/pytorch/tags/list", token=token, Range="bytes=0-1")
    asked, listed = front.log()
    assert (asked["authorization"], asked["query_scope"], asked["status"]) == (
        "basic",
        "repository:nvidia/pytorch:pull",
        200,
    )
    assert (listed["authorization"], listed["scope"], listed["range"]) == (
        "bearer",
        "repository:nvidia/pytorch:pull",
        "bytes=0-1",
    )
    text = front.log_file.read_text()
    assert token not in text
    assert front.key not in text


# ---- faults of the registry ----


def test_a_status_strikes_so_many_times_with_its_own_body(front: Front) -> None:
    front.break_down(
        token={
            "status": 429,
            "body": "<html>busy</html>",
            "content_type": "text/html",
            "headers": {"Retry-After": "2"},
            "times": 1,
        }
    )
    answer = front.get("/proxy_auth?scope=")
    assert (answer.status, answer.body, answer.headers["Retry-After"]) == (429, b"<html>busy</html>", "2")
    assert answer.headers["Content-Type"] == "text/html"
    assert front.get("/proxy_auth?scope=").status == 200
    assert [line["fault"] for line in front.log()] == ["token", None]


@pytest.mark.parametrize("kind", ["manifest", "blob", "tags", "ping"])
def test_every_kind_of_request_can_fail(front: Front, kind: str) -> None:
    paths = {
        "manifest": "/v2/nvidia/busybox/manifests/1",
        "blob": front.blob(),
        "tags": "/v2/nvidia/busybox/tags/list",
        "ping": "/v2/",
    }
    token = front.token()
    front.break_down(**{kind: {"status": 503}})
    assert {k: front.get(path, token=token).status for k, path in paths.items()} == {
        k: 503 if k == kind else 200 for k in paths
    }


def test_a_fault_can_be_late_or_never_or_cut_the_line(front: Front) -> None:
    front.break_down(ping=[{"match": "/v2/", "delay": 0.3, "times": 1}])
    began = time.monotonic()
    front.get("/v2/")
    assert time.monotonic() - began > 0.3
    front.break_down(ping={"hang": True})
    with pytest.raises(TimeoutError):
        front.get("/v2/", timeout=0.5)
    front.break_down(ping={"reset": True})
    with pytest.raises(ConnectionResetError):
        front.get("/v2/")


def test_a_blob_can_be_corrupt_cut_or_slow_and_resumes_by_range(front: Front) -> None:
    path, token = front.blob(), front.token()
    whole = front.get(path, token=token).body
    front.break_down(blob={"corrupt": True, "times": 1})
    assert front.get(path, token=token).body[1:] == whole[1:]
    front.break_down(blob={"cut_after": 1000, "times": 1})
    with pytest.raises(http.client.IncompleteRead) as cut:
        front.get(path, token=token)
    rest = front.get(path, token=token, Range="bytes=1000-")
    assert rest.status == 206
    assert cut.value.partial + rest.body == whole
    front.break_down(blob={"bytes_per_second": 1_000_000, "cut_after": 500_000})
    began = time.monotonic()
    with pytest.raises(http.client.IncompleteRead):
        front.get(path, token=token)
    assert time.monotonic() - began > 0.3
    front.break_down(blob={"stall_after": 1000})
    with pytest.raises(TimeoutError):
        front.get(path, token=token, timeout=0.5)


def test_tokens_end_and_the_realm_can_move(front: Front) -> None:
    front.break_down(token_lifetime=0, realm_moves=True)
    answer = front.get("/v2/nvidia/busybox/tags/list", token=front.token())
    assert answer.status == 401
    assert (
        answer.headers["Www-Authenticate"]
        == f'Bearer realm="http://127.0.0.1:{front.port}/token",service="registry",error="invalid_token"'
    )
    assert front.get("/token?service=registry&scope=repository:nvidia/busybox:pull").status == 401
    front.break_down()
    assert front.get("/v2/nvidia/busybox/tags/list", token="made-up").headers["Www-Authenticate"].count("error=") == 0


def test_a_redirected_blob_needs_no_token_and_the_log_shows_one_that_came(front: Front) -> None:
    front.break_down(redirect_blobs=True)
    token = front.token()
    answer = front.get(front.blob(), token=token)
    assert answer.status == 307
    host, _, path = answer.headers["Location"].removeprefix("http://").partition("/")
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        connection = http.client.HTTPConnection(host)
        connection.request("GET", f"/{path}", headers=headers)
        got = connection.getresponse()
        assert (got.status, len(got.read()) > 29_000_000) == (200, True)
        connection.close()
    assert [line["authorization"] for line in front.log() if line["listener"] == "cdn"] == ["none", "bearer"]


def test_docker_itself_meets_the_faults(lab: dict[str, Any], docker: Docker, front: Front, tmp_path: Path) -> None:
    own = f"{lab['registry']['host']}/nvidia/scratch:cut"  # a layer that no other test leaves in the engine
    (tmp_path / "layer.bin").write_bytes(random.Random(7).randbytes(12_000_000))
    with tarfile.open(tmp_path / "layer.tar", "w") as tar:
        tar.add(tmp_path / "layer.bin", "layer.bin", filter=lambda entry: entry.replace(mtime=0, deep=False))
    docker("import", str(tmp_path / "layer.tar"), own)
    push = lab["registry"]["push"]
    docker("login", lab["registry"]["host"], "-u", push["user"], "--password-stdin", stdin=push["password"])
    docker("push", own)
    docker("rmi", own)
    image = own.replace(lab["registry"]["host"], f"127.0.0.1:{front.port}")
    front.break_down(manifest={"status": 429})
    docker("pull", image, fails=True)
    assert front.log()[-1]["status"] == 429
    front.break_down()
    layer = front.blob("scratch", "cut")
    front.break_down(blob={"cut_after": 5_000_000, "times": 1, "match": layer}, redirect_blobs=True)
    docker("pull", image)
    docker("rmi", image)
    cdn = [line for line in front.log() if line["listener"] == "cdn"]
    assert ("bytes=5000000-", 206) in [(line["range"], line["status"]) for line in cdn], cdn
    assert {line["authorization"] for line in cdn} == {"none"}


# ---- images ----


def test_tensorflow_1_4_multiplies_the_matrices_of_the_first_seed(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    docker("pull", "-q", f"{lab['registry']['host']}/nvidia/tensorflow:18.01-py2")
    (Path(docker.environment["DOCKER_CONFIG"]) / "multiply.py").write_text(MULTIPLY)
    mount = f"{docker.environment['DOCKER_CONFIG']}/multiply.py:/workspace/multiply.py:ro"
    text = docker.run(
        "--shm-size=1g", "--gpus", "all", "-v", mount, command="python multiply.py", image="tensorflow:18.01-py2"
    )
    assert "== TensorFlow ==\n================\n\nNVIDIA Release 18.01 (build 276323)\n" in text
    assert "1.4.0\n[[22.0, 28.0], [49.0, 64.0]]\n" in text
    assert "WARNING" not in text
    assert "NOTE" not in text


def test_the_entrypoint_says_that_driver_and_shared_memory_are_missing(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    text = docker.run(command="python --version", image="tensorflow:18.01-py2")
    assert "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available." in text
    assert "NOTE: The SHMEM allocation limit is set to the default of 64MB." in text
    assert "Python 2.7.18" in text


def test_pytorch_counts(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    docker("pull", "-q", f"{lab['registry']['host']}/nvidia/pytorch:26.07-py3")
    script = "import torch,numpy;print(torch.__version__,(torch.ones(2,3)@torch.ones(3,2)).tolist())"
    text = docker.run("-e", "NVIDIA_CPU_ONLY=1", command=["python", "-c", script], image="pytorch:26.07-py3")
    assert "== PyTorch ==" in text
    assert "2.13.0+cpu [[3.0, 3.0], [3.0, 3.0]]" in text


def test_the_configs_carry_what_ngc_images_carry(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    host = lab["registry"]["host"]
    docker("pull", "-q", f"{host}/nvidia/tensorflow:18.01-py2")
    config = json.loads(docker("image", "inspect", "-f", "{{json .Config}}", f"{host}/nvidia/tensorflow:18.01-py2"))
    assert {"CUDA_VERSION=9.0.176", "NVIDIA_REQUIRE_CUDA=cuda>=9.0", "NVIDIA_VISIBLE_DEVICES=all"} <= set(config["Env"])
    assert (config["WorkingDir"], config["Entrypoint"]) == ("/workspace", ["/usr/local/bin/nvidia_entrypoint.sh"])
    assert config["Labels"]["com.nvidia.cuda.version"] == "9.0"


def test_an_entrypoint_of_the_image_runs_before_the_command(docker: Docker) -> None:
    assert docker.run(command="echo hello", image="busybox:entry").splitlines()[-2:] == [
        "lab entrypoint: echo hello",
        "hello",
    ]


# ---- the GPU chain ----

WAYS = {
    "gpus": ["--gpus", "all"],
    "runtime": ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=all"],
    "cdi": ["--device", "nvidia.com/gpu=all"],
}
SECOND = {
    "gpus": ["--gpus", "device=1"],
    "runtime": ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=1"],
    "cdi": ["--device", "nvidia.com/gpu=1"],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_shows_all_cards_or_the_one_asked_for(docker: Docker, way: str) -> None:
    assert [line[:6] for line in docker.run(*WAYS[way], command="nvidia-smi -L").splitlines()] == ["GPU 0:", "GPU 1:"]
    assert docker.run(*WAYS[way], command="nvidia-smi -L").startswith(FIRST_CARD)
    assert docker.run(*SECOND[way], command="nvidia-smi -L").startswith("GPU 0: NVIDIA A100")
    assert docker.run("--read-only", *WAYS[way], command="nvidia-smi -L").startswith(FIRST_CARD)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_fails_in_nvidias_words(docker: Docker, way: str) -> None:
    texts = {
        "driver-not-loaded": "nvidia-container-cli: initialization error: nvml error: driver not loaded",
        "version-mismatch": "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch",
        "library-missing": "load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file",
    }
    for name, text in texts.items():
        assert text in docker.run("-e", f"NGCDL_LAB_GPU_FAULT={name}", *WAYS[way], command="true", fails=True)


def test_a_card_that_is_not_there_is_unknown(docker: Docker) -> None:
    assert "device error: 7: unknown device" in docker.run("--gpus", "device=7", command="true", fails=True)
    assert "unresolvable CDI devices nvidia.com/gpu=7" in docker.run(
        "--device", "nvidia.com/gpu=7", command="true", fails=True
    )


def test_what_an_image_requires_is_held_against_the_driver(docker: Docker) -> None:
    text = docker.run("-e", "NVIDIA_REQUIRE_CUDA=cuda>=12.8", "--gpus", "all", command="true", fails=True)
    assert "requirement error: unsatisfied condition: cuda>=12.8" in text
    docker.run("-e", "NVIDIA_REQUIRE_CUDA=cuda>=12.8 driver>=535", "--gpus", "all", command="true")


def test_no_gpu_is_there_unless_asked_for(docker: Docker) -> None:
    assert "not found" in docker.run(command="nvidia-smi", fails=True)


def test_the_stand_in_library_loads_inside_the_old_image(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    script = "import ctypes;print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    text = docker.run("--gpus", "all", command=["python", "-c", script], image="tensorflow:18.01-py2")
    assert text.rstrip().endswith("\n0")


def test_the_runtime_notes_the_limits_and_leaves_them(lab: dict[str, Any], docker: Docker) -> None:
    limits = ["--ulimit", "memlock=65536", "--ulimit", "stack=67108864"]
    text = docker.run("--runtime", "nvidia", "--hostname", "limited", *limits, command=["sh", "-c", "ulimit -l -s"])
    assert re.findall(r"\d+$", text, re.M) == ["64", "65536"]
    entries = [json.loads(line) for line in Path(lab["rlimits_log"]).read_text().splitlines()]
    entry = [e for e in entries if e["hostname"] == "limited"][-1]
    assert {(limit["type"], limit["hard"]) for limit in entry["rlimits"]} == {
        ("RLIMIT_MEMLOCK", 65536),
        ("RLIMIT_STACK", 67108864),
    }


def test_an_engine_without_the_chain_says_so_in_dockers_words(lab: dict[str, Any], docker: Docker) -> None:
    assert lab["bare"], "no bare engine: type `scripts/lab up --without-gpu`"
    texts = {
        "gpus": 'could not select device driver "" with capabilities: [[gpu]]',
        "runtime": "unknown or invalid runtime name: nvidia",
        "cdi": 'could not select device driver "cdi" with capabilities: []',
    }
    for way, text in texts.items():
        assert text in docker.run(*WAYS[way], command="true", fails=True, engine="bare")


def test_the_oldest_supported_engine_runs_and_has_the_chain(lab: dict[str, Any], docker: Docker) -> None:
    assert lab["floor"], "no floor engine: type `scripts/lab up --floor`"
    assert lab["floor"]["version"].startswith("20.10.24")
    assert lab["floor"]["api"] == "1.41"
    assert docker.run("--gpus", "all", command="nvidia-smi -L", engine="floor").startswith(FIRST_CARD)


def test_compose_answers_wherever_docker_keeps_its_config(docker: Docker) -> None:
    assert "v2" in docker("compose", "version") or "2." in docker("compose", "version")
