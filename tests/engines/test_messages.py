"""What Docker's messages mean: from daemons, runc and NVIDIA's runtime."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import docker
import docker.errors
import pytest
import requests.exceptions
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.catalog import failures
from ngcdl.engines.docker import connect, messages
from ngcdl.engines.docker.messages import docker_errors, is_transient, meaning, pull_meaning
from ngcdl.errors import (
    CannotInvoke,
    CommandNotFound,
    DigestMismatch,
    DiskFull,
    EngineAbsent,
    EngineForbidden,
    EngineHangs,
    EngineLost,
    EngineNotAsked,
    EngineRefused,
    EngineTooOld,
    GpuHookFailed,
    MountMissing,
    NgcdlError,
    NoGpuWay,
    RateLimited,
    RegistryAnswer,
    RegistryUnreachable,
    TooManyFiles,
)

# The toolkit's runtime from 1.18 on: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1537
RUNTIME = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: "
    "could not apply required modification to OCI specification: error modifying OCI spec: "
)
SINCE_1_18_2 = (
    'failed to create the automatic CDI modifier: failed to generate CDI spec for mode "auto": '
    "failed to construct device spec generators: "
)
RUNC = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', NoGpuWay),
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", NoGpuWay),
        ("unknown or invalid runtime name: nvidia", NoGpuWay),
        ('could not select device driver "cdi" with capabilities: []', NoGpuWay),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", GpuHookFailed),
        ("invoking the NVIDIA Container Runtime Hook directly is not supported", GpuHookFailed),
        ("nvidia-container-cli: initialization error: driver rpc error: timed out", GpuHookFailed),
        ("nvidia-container-cli: something new", GpuHookFailed),
        (RUNTIME + "something new", GpuHookFailed),
        ("crun: error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: 1)", GpuHookFailed),
        (RUNTIME + "failed to inject CDI devices: unresolvable CDI devices runtime.nvidia.com/gpu=all", GpuHookFailed),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", GpuHookFailed),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", GpuHookFailed),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4", GpuHookFailed),
        ('invalid mount config for type "bind": bind source path does not exist: /data', MountMissing),
        (RUNC + 'exec: "pyton": executable file not found in $PATH: unknown', CommandNotFound),
        (RUNC + 'exec: "./x": stat ./x: no such file or directory: unknown', CommandNotFound),
        (RUNC + 'exec: "/etc/passwd": permission denied: unknown', CannotInvoke),
        (RUNC + 'exec: "/tmp": is a directory: unknown', CannotInvoke),
        ('exec: "docker-init": executable file not found in $PATH', EngineRefused),
        ('lookup init binary: exec: "catatonit": executable file not found in $PATH', EngineRefused),
        (
            RUNC + 'error mounting "/nfs/x" to rootfs at "/x": mount src=/nfs/x: permission denied: unknown',
            EngineRefused,
        ),
        ('invalid mount config for type "bind": stat /home/u/x: permission denied', EngineRefused),
        (RUNC + 'error mounting "proc" to rootfs at "/proc": permission denied: unknown', EngineRefused),
        ("write /var/lib/docker/tmp/x: no space left on device", DiskFull),
        ("write /home/u/.local/share/docker/tmp/x: disk quota exceeded", DiskFull),
        ("filesystem layer verification failed for digest sha256:0", DigestMismatch),
        ("toomanyrequests: You have reached your pull rate limit", RateLimited),
        ("error parsing HTTP 429 response body: too many", RateLimited),
        ("received unexpected HTTP status: 429 Too Many Requests", RateLimited),
        ("unexpected status code 429", RateLimited),
        ("client version 1.99 is too new. Maximum supported API version is 1.47", EngineTooOld),
        ("driver failed programming external connectivity: port is already allocated", EngineRefused),
        ("something new", EngineRefused),
    ],
)
def test_a_text_of_the_daemon_is_the_error_it_means(text: str, kind: type[NgcdlError]) -> None:
    error = meaning(text)
    assert type(error) is kind
    assert error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"pyton": executable file not found in $PATH: unknown', "The image has no such command: pyton."),
        ('"./x": stat ./x: no such file or directory: unknown', "The image has no such command: ./x."),
        ('"/a b": permission denied: unknown', "The command can't be invoked: /a b."),
    ],
)
def test_a_command_is_named_without_the_runtime_s_words(text: str, said: str) -> None:
    assert meaning(f"{RUNC}exec: {text}").message == said


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "no-gpu-driver-in-docker"),
        ("Unknown runtime specified nvidia", "runtime-unknown"),
        ('could not select device driver "cdi" with capabilities: []', "cdi-off"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", "cdi-devices-unresolvable"),
        ('failed to inject devices: failed to stat CDI host device "/dev/nvidia1"', "cdi-devices-unresolvable"),
        (RUNTIME + "unresolvable CDI devices runtime.nvidia.com/gpu=0", "gpu-not-found-by-runtime"),
        (RUNTIME + SINCE_1_18_2 + "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND", "no-driver-at-the-engine"),
        (RUNTIME + SINCE_1_18_2 + "failed to initialize NVML: Driver Not Loaded", "no-driver-at-the-engine"),
        (RUNTIME + SINCE_1_18_2 + "failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"),
        ("nvidia-container-cli: ldcache error: process /sbin/ldconfig failed with error code: 1", "ldconfig-failed"),
        (RUNC + "nvidia-container-cli: initialization error: nvml error: driver not loaded", "no-driver-at-the-engine"),
        (RUNC + "nvidia-container-cli: initialization error: driver rpc error: timed out", "driver-times-out"),
        ('exec: "docker-init": executable file not found in $PATH', "docker-init-missing"),
        ('lookup init binary: exec: "catatonit": executable file not found in $PATH', "podman-init-missing"),
        (RUNC + 'error mounting "/nfs/x" to rootfs at "/x": permission denied: unknown', "mount-forbidden"),
        ('invalid mount config for type "bind": stat /home/u/x: permission denied', "mount-forbidden"),
        ("error setting rlimits for ready process: setrlimit RLIMIT_", "rlimit-forbidden"),
        ("manifest for nvcr.io/nvidia/nemo:v1 not found: manifest unknown", "manifest-unknown"),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", "no-matching-manifest"),
        ("Bind for 0.0.0.0:8888 failed: port is already allocated", "port-taken"),
        (RUNC + 'exec: "/x": exec format error', "wrong-processor"),
        (RUNC + 'exec: "nvidia-smi": executable file not found in $PATH: unknown', "nvidia-smi-missing"),
    ],
)
def test_the_remedy_of_a_famous_text_is_the_catalogue_s(text: str, name: str) -> None:
    (row,) = (row for row in failures.table() if row.name == name)
    assert meaning(text).hint == row.advice
    assert row.about(frozenset(("image", "here"))).cause in meaning(text).hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", "    ngcdl run ... --cpus 2"),
        ("Minimum memory limit allowed is 6MB", "    ngcdl run ... --memory 1g"),
        ("No such image: nvcr.io/a@sha256:b", "    ngcdl pull nvcr.io/a@sha256:b"),
        ("No such image: sha256:b", "    docker image ls"),
        ("Container 227a47038e6fe0bb is paused, unpause the container before exec", "    docker unpause 227a47038e6f"),
    ],
)
def test_what_docker_can_t_do_is_refused_with_what_to_type_instead(text: str, hint: str) -> None:
    error = meaning(text)
    assert (type(error), error.hint.splitlines()[-1]) == (EngineRefused, hint)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("error setting rlimit type 3: operation not permitted", "stack"),
        ("error setting rlimit type 7: operation not permitted", "nofile"),
        ("error setting rlimits for ready process: error setting rlimit type 8: operation not permitted", "memlock"),
        ("error setting rlimit type 14: operation not permitted", "rtprio"),
        ("crun: setrlimit `RLIMIT_NPROC`: Operation not permitted: OCI permission denied", "nproc"),
    ],
)
def test_a_limit_that_is_refused_is_left_out_by_its_name(text: str, name: str) -> None:
    error = meaning(text)
    assert type(error) is EngineRefused
    assert f"    ngcdl run ... --ulimit {name}=host\n" in error.hint


def test_a_source_that_is_no_folder_of_a_mount_gets_no_advice_on_folders() -> None:
    assert meaning('error mounting "proc" to rootfs at "/proc": permission denied: unknown').hint == ""


def test_every_row_that_has_a_class_of_its_own_is_in_the_catalogue() -> None:
    assert messages._FAMOUS.keys() <= {row.name for row in failures.table()}


def test_a_failure_of_the_hook_that_is_not_famous_leads_to_the_doctor_who_judges_the_toolkit_too() -> None:
    assert meaning("nvidia-container-cli: something new").hint == "    ngcdl doctor"


def test_unknown_words_are_kept() -> None:
    assert "something new" in meaning("something\nnew").message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dial tcp: lookup nvcr.io: no such host", RegistryUnreachable),
        ("dial tcp 127.0.0.1:5443: connect: connection refused", RegistryUnreachable),
        ("x509: certificate signed by unknown authority", RegistryUnreachable),
        ("http: server gave HTTP response to HTTPS client", RegistryUnreachable),
        ("net/http: request canceled while waiting for connection", RegistryUnreachable),
        ("received unexpected HTTP status: 502 Bad Gateway", RegistryAnswer),
        ("error parsing HTTP 403 response body: invalid character '<'", RegistryAnswer),
        ("unexpected EOF", RegistryAnswer),
        ("error parsing HTTP 429 response body: invalid character '<' looking for beginning of value", RateLimited),
        ("received unexpected HTTP status: 429 Too Many Requests", RateLimited),
        ("no space left on device", DiskFull),
        (
            "failed to register layer: write /usr/share/ca-certificates/mozilla/x.crt: no space left on device",
            DiskFull,
        ),
        ("write /tests/lookup.py: Disk quota exceeded", DiskFull),
    ],
)
def test_a_text_of_a_pull_is_the_error_it_means(text: str, kind: type[NgcdlError]) -> None:
    assert type(pull_meaning(text, "nvcr.io")) is kind


@pytest.mark.parametrize("text", [
    'Get "https://mirror:5443/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority',
    "x509: cannot validate certificate for 10.0.0.5 because it doesn't contain any IP SANs",
])  # fmt: skip
def test_a_certificate_that_the_engine_does_not_trust_is_given_to_the_engine(text: str) -> None:
    error = pull_meaning(text, "mirror:5443")
    assert "/etc/docker/certs.d/mirror:5443/ca.crt\n" in error.hint
    assert "NGCDL_CA_FILE" not in error.hint


def test_docker_hub_is_looked_for_where_it_answers() -> None:
    hint = pull_meaning("dial tcp: no such host", "docker.io").hint
    assert "curl -sI https://registry-1.docker.io/v2/\n" in hint, "docker.io itself is a web site"
    assert "NGCDL_REGISTRY" not in hint


def test_a_registry_that_limits_is_named() -> None:
    assert pull_meaning("toomanyrequests: slow down", "nvcr.io").message.startswith("nvcr.io is limiting")


def test_a_registry_without_tls_has_no_certificate_to_trust() -> None:
    assert "certs.d" not in pull_meaning("http: server gave HTTP response to HTTPS client", "mirror").hint


HEX = st.text("0123456789abcdef", min_size=61, max_size=61).flatmap(
    lambda rest: st.sampled_from(["429", "500", "502", "503", "504"]).flatmap(
        lambda code: st.integers(0, 61).map(lambda at: rest[:at] + code + rest[at:])
    )
)
DAY = st.sampled_from(["20260429", "20260502", "20180216"])
TIME = st.sampled_from(["142945", "150042", "235042", "154290", "235029"])
RUN_ID = st.tuples(DAY, TIME, st.sampled_from(["429", "4290", "500f", "e502", "beef"])).map(
    lambda parts: f"{parts[0]}-{parts[1]}-cifar10-{parts[2]}"
)


@given(HEX, RUN_ID)
def test_no_digest_run_or_path_turns_the_meaning(digest: str, run_id: str) -> None:
    for text in (
        f"No such image: nvcr.io/nvidia/pytorch@sha256:{digest}",
        f"manifest for nvcr.io/nvidia/pytorch@sha256:{digest} not found: manifest unknown",
        f'Conflict. The container name "/ngcdl-{run_id}" is already in use by container "{digest}"',
        f"error while creating mount source path '/data/429/{run_id}/500': mkdir: read-only file system",
    ):
        assert type(meaning(text)) is EngineRefused
        assert not is_transient(text)


@pytest.mark.parametrize("text", [
    "connection reset by peer", "unexpected EOF", "502 Bad Gateway", "toomanyrequests", "status code 503",
    "status: 500", "received unexpected HTTP status: 504 Gateway Timeout", "error parsing HTTP 502 response body",
    "429 Too Many Requests", "500 Internal Server Error",
])  # fmt: skip
def test_trouble_on_the_way_is_worth_another_try(text: str) -> None:
    assert is_transient(text)


@pytest.mark.parametrize("text", [
    "unauthorized", "denied: 502", "verification failed: EOF", "no space left: EOF", "disk quota exceeded: EOF", "x",
])  # fmt: skip
def test_a_no_is_not(text: str) -> None:
    assert not is_transient(text)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (docker.errors.APIError("x", explanation="no space left on device"), DiskFull),
        (docker.errors.DockerException("FileNotFoundError(2, 'No such file or directory')"), EngineAbsent),
        (docker.errors.DockerException("ConnectionRefusedError(111, 'Connection refused')"), EngineAbsent),
        (docker.errors.DockerException("PermissionError(13, 'Permission denied')"), EngineForbidden),
        (docker.errors.DockerException("Read timed out"), EngineHangs),
        (docker.errors.DockerException("Version 1.12 is too old"), EngineTooOld),
        (requests.exceptions.ReadTimeout("Read timed out."), EngineHangs),
        (requests.exceptions.ConnectionError("Connection refused"), EngineAbsent),
        (requests.exceptions.ConnectionError("Permission denied"), EngineForbidden),
        (requests.exceptions.ConnectionError("Remote end closed connection without response"), EngineLost),
        (requests.exceptions.ChunkedEncodingError("Connection broken"), EngineLost),
        (ConnectionResetError(104, "Connection reset by peer"), EngineLost),
        (docker.errors.StreamParseError("Unterminated string starting at: line 1 column 11"), EngineLost),
        (requests.exceptions.ConnectionError("('x', OSError(24, 'Too many open files'))"), TooManyFiles),
    ],
)
def test_what_the_sdk_raises_becomes_an_error_of_ours_with_its_cause(raised: Exception, kind: type[NgcdlError]) -> None:
    with pytest.raises(NgcdlError) as caught, docker_errors("unix:///x.sock", "was tested"):
        raise raised
    assert type(caught.value) is kind
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize(
    ("text", "own", "why"),
    [
        (
            "Error while fetching server API version: HTTPSConnectionPool(host='10.0.0.1', port=2376): Max retries "
            "exceeded with url: /version (Caused by SSLError(SSLCertVerificationError(1, '[SSL: "
            "CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate "
            "(_ssl.c:1006)')))",
            ("cert.pem", "key.pem"),
            "TLS failed with the files in {} (certificate verify failed: unable to get local issuer certificate).",
        ),
        (
            "(Caused by SSLError(1, '[SSL: X] tlsv13 alert certificate required (_ssl.c:2580)'))",
            (),
            "TLS failed with ca.pem alone: {} has neither cert.pem nor key.pem (tlsv13 alert certificate required).",
        ),
        (
            "Error while fetching server API version: 400 Client Error for http://10.0.0.1:2376/version: Bad Request "
            '("Client sent an HTTP request to an HTTPS server.")',
            (),
            "it wants TLS, which DOCKER_TLS_VERIFY=1 turns on.",
        ),
    ],
)
def test_why_an_engine_is_not_reached_over_tls_is_told_in_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, own: tuple[str, ...], why: str
) -> None:
    for name in own:
        (tmp_path / name).touch()
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(EngineAbsent) as caught, docker_errors("tcp://10.0.0.1:2376", "was tested"):
        raise docker.errors.DockerException(text)
    assert caught.value.message == f"No Docker engine answers at tcp://10.0.0.1:2376: {why.format(tmp_path)}"


def test_an_engine_that_gives_no_answer_is_told_with_the_time_that_was_waited(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "x.sock"))
        server.listen()
        client = docker.APIClient(f"unix://{tmp_path}/x.sock", "1.47", timeout=0.05)
        with contextlib.closing(client), pytest.raises(EngineHangs) as caught, docker_errors("x", "was tested"):
            client.info()
    assert "no answer within 0.05 s" in caught.value.message


@pytest.mark.parametrize(
    ("variables", "lacks"),
    [
        ({"DOCKER_TLS_VERIFY": "1"}, "DOCKER_TLS_VERIFY asks for TLS, but {home}/.docker lacks ca.pem."),
        (
            {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "{home}/certs"},
            "DOCKER_TLS_VERIFY asks for TLS, but {home}/certs lacks ca.pem, key.pem.",
        ),
        # as in a folder that may not be entered, it can't be known what is there
        (
            {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/" + "x" * 300},
            f"DOCKER_TLS_VERIFY asks for TLS, but /{'x' * 300} lacks ca.pem.",
        ),
    ],
)
def test_tls_without_its_files_is_told_with_the_variables_that_turn_it_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], lacks: str
) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs/cert.pem").touch()
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (variables | {"HOME": "{home}", "DOCKER_HOST": "unix:///x.sock"}).items():
        monkeypatch.setenv(name, value.format(home=tmp_path))
    with pytest.raises(EngineNotAsked) as caught:
        connect()
    assert caught.value.message == f"Docker was not asked: {lacks.format(home=tmp_path)}"
    assert caught.value.commands == ["unset DOCKER_TLS_VERIFY"]


def test_a_folder_that_is_here_and_that_the_engine_does_not_see_is_not_said_to_be_missing(tmp_path: Path) -> None:
    said = 'invalid mount config for type "bind": bind source path does not exist: '
    assert (
        meaning(f"{said}{tmp_path}").message
        == f"-v {tmp_path}: this machine has it, but the Docker engine does not see it."
    )
    assert "no such file" in meaning(f"{said}{tmp_path}/none").message
