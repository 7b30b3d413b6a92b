"""compose.yaml as Compose reads it (`filled`), what ngcdl sends, and where the two may differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ngcdl.engines.docker import request
from ngcdl.engines.values import Order
from ngcdl.planning import plan
from ngcdl.spec import GpuRequest, ImageRef, RunSpec, Workload

ROOT = Path(__file__).parents[2]
USER = "12345:12345"
SERVICES = ("tensorflow", "pytorch", "cpu")
TAGS = {"tensorflow": "18.01-py2", "cpu": "18.01-py2", "pytorch": "26.07-py3"}
STEPS = 20


# -- the file, read as Compose reads it ----------------------------------------------------------------------------


def filled(text: str, variables: Mapping[str, str]) -> str:
    """Interpolate variables in `text`: ${A} ${A-b} ${A:-b} ${A:+b} ${A:?b}, nested, and $$.

    https://docs.docker.com/reference/compose-file/interpolation/"""
    made, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            made, at = made + "$", at + 2
        elif text.startswith("${", at):
            end = _closing(text, at + 2)
            made, at = made + _value(text[at + 2 : end], variables), end + 1
        else:
            made, at = made + text[at], at + 1
    return made


def _closing(text: str, at: int) -> int:
    depth = 1
    while depth:
        depth += text.startswith("${", at) - (text[at] == "}")
        at += 1
    return at - 1


def _value(inner: str, variables: Mapping[str, str]) -> str:
    match = re.fullmatch(r"(\w+)(?:(:?[-+?])(.*))?", inner, re.DOTALL)
    assert match, inner
    name, sign, word = match.groups()
    value = variables.get(name)
    there = value is not None and (value != "" or ":" not in (sign or ""))
    if sign and sign[-1] == "+":
        return filled(word, variables) if there else ""
    if sign and sign[-1] == "?" and not there:
        raise KeyError(filled(word, variables))
    return value or "" if there else filled(word or "", variables)


def service(name: str, **variables: str) -> dict[str, Any]:
    """Return one service of compose.yaml, interpolated with `variables`."""

    def inside(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: inside(value) for key, value in node.items()}
        if isinstance(node, list):
            return [inside(value) for value in node]
        return filled(node, variables) if isinstance(node, str) else node

    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    found: dict[str, Any] = inside(document["services"][name])
    return found


def as_body(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /containers/create that Compose makes from a service. An unknown key fails the test."""
    asked = dict(asked)
    assert asked.pop("profiles")
    assert asked.pop("network_mode") == "bridge"  # the Engine API's default
    logging, limits = asked.pop("logging"), asked.pop("ulimits")
    host = {
        "Init": asked.pop("init"),
        "ShmSize": {"1g": 1 << 30}[asked.pop("shm_size")],
        "Ulimits": [{"Name": name, "Soft": int(value), "Hard": int(value)} for name, value in limits.items()],
        "LogConfig": {"Type": logging["driver"], "Config": logging["options"]},
        "PidsLimit": asked.pop("pids_limit"),
        "SecurityOpt": asked.pop("security_opt"),
        "Mounts": [_mount(entry) for entry in asked.pop("volumes")],
    }
    deploy = asked.pop("deploy", None)
    if deploy:
        host["DeviceRequests"] = [_device(entry) for entry in deploy["resources"]["reservations"]["devices"]]
    body = {
        "Image": asked.pop("image"),
        "Cmd": asked.pop("command").split(),
        "Env": asked.pop("environment"),
        "Labels": asked.pop("labels"),
        "User": asked.pop("user"),
        "WorkingDir": asked.pop("working_dir"),
        "StopTimeout": int(asked.pop("stop_grace_period").removesuffix("s")),
        "HostConfig": host,
    }
    assert not asked, "no entrypoint, and nothing else that ngcdl does not send"
    return body


def _mount(entry: Mapping[str, Any]) -> dict[str, Any]:
    assert entry["bind"] == {"create_host_path": False}, "Docker would make the folder as root's"
    source = str((ROOT / entry["source"]).resolve() if entry["source"].startswith(".") else entry["source"])
    made = {"Type": entry["type"], "Source": source, "Target": entry["target"]}
    return {**made, "ReadOnly": entry.get("read_only", False)}


def _device(entry: Mapping[str, Any]) -> dict[str, Any]:
    count = -1 if entry["count"] == "all" else int(entry["count"])
    return {"Driver": entry["driver"], "Count": count, "Capabilities": [entry["capabilities"]]}


# -- what ngcdl sends, and what may differ ---------------------------------------------------------------------------


def ngcdl_spec(name: str, image: str, data: Path | None = None) -> RunSpec:
    gpus = GpuRequest("none") if name == "cpu" else GpuRequest("all")
    device = "cpu" if name == "cpu" else "gpu"
    workload = Workload("cifar10", data=str(data) if data else "synthetic", device=device)
    return replace(plan.training(ImageRef.parse(image), workload, gpus, data, None), user=USER)


def ngcdl_body(name: str, image: str, runs: Path, data: Path | None = None) -> dict[str, Any]:
    """Return what `ngcdl run IMAGE --train cifar10` sends with --gpus all (cpu: --gpus none)."""
    way = "none" if name == "cpu" else "device-request"
    body = request.create_body(Order(ngcdl_spec(name, image, data), "id", runs / "id", image, way))
    body["Env"] = dict(variable.split("=", 1) for variable in body["Env"])
    return body


def with_allowed_differences(
    body: dict[str, Any], runs: Path, spec: Mapping[str, Any], data: Path | None
) -> dict[str, Any]:
    """Return `body` changed in every way in which compose.yaml may differ. All else must be equal."""
    host = body["HostConfig"]
    # Nobody has created a folder for this run: the trainer does, and writes the record that ngcdl would write.
    at = body["Cmd"].index("--out")
    body["Cmd"][at : at + 2] = ["--record", "--runs", "/ngcdl/runs"]
    host["Mounts"][-1] |= {"Source": str(runs), "Target": "/ngcdl/runs"}
    # So it can't hold HOME either, and Compose can't add the caller's name to the container's passwd.
    body["Env"] |= {"HOME": "/tmp", "USER": "ngcdl", "LOGNAME": "ngcdl"}
    # What ngcdl would have written into the record.
    body["Env"] |= {"NGCDL_ENGINE": "compose", "NGCDL_IMAGE": body["Image"], "NGCDL_SPEC": json.dumps(spec)}
    # The run has no id yet.
    del body["Labels"]["ngcdl.run"]
    # Compose can't make a mount optional. The trainer's own default is the synthetic set.
    if data is None:
        empty = {"Type": "bind", "Source": "/dev/null", "Target": "/ngcdl/data", "ReadOnly": True}
        host["Mounts"].insert(1, empty)
        at = body["Cmd"].index("--data")
        del body["Cmd"][at : at + 2]
    # Compose does not know whether the engine has SELinux; one without it ignores this.
    host["SecurityOpt"].append("label=disable")
    # Compose files conventionally name the driver; without one Docker takes the first with the capability, the same.
    for device in host.get("DeviceRequests", []):
        device["Driver"] = "nvidia"
    # Empty or the engine's default: Compose sends them too, or the engine fills them in.
    for key in ("Tty", "OpenStdin", "StdinOnce", "AttachStdin", "AttachStdout", "AttachStderr", "ExposedPorts"):
        del body[key]
    assert host.pop("PortBindings") == {}
    return body


def asked_spec(body: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(body["Env"]["NGCDL_SPEC"])
    return spec
