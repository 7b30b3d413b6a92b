"""What Docker gets for a run, as a service for docker compose, to keep in git. Pure.

https://docs.docker.com/reference/compose-file/services/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ngcdl.engines import yaml
from ngcdl.engines.docker.request import LABEL, Terms, create_body
from ngcdl.engines.values import Order
from ngcdl.spec import inside, is_secret

_HEAD = """\
# The run {run} of ngcdl ({image}), for docker compose.
# Once, in the folder of this file, and then:
#
#   mkdir -p run
#   docker compose -f FILE {how}
#
# The folder run is {inside} in the container, and HOME: it keeps what is written there.
# Set these where they must differ: NGCDL_RUN=FOLDER instead of it (a new one for each training),
# NGCDL_USER=UID:GID, and NGCDL_MEMLOCK=BYTES if Docker refuses the documented memlock limit of -1.
"""
# Compose adds no entry for the caller to the container's passwd, in which some programs look the user's name up.
_NAMES = {"USER": "ngcdl", "LOGNAME": "ngcdl"}
_NO_ROOTS_FOLDER = {"create_host_path": False}  # a missing folder is an error: Docker would create it, owned by root


def service(order: Order, image: str, groups: Sequence[int] = ()) -> str:
    """Return a file for docker compose with one service: the run of `order`, without its folder. `image` names what
    order.target identifies, for people; `groups` are the caller's besides the primary one.

    Whether the engine has SELinux, Compose does not know: label=disable does nothing elsewhere."""
    spec = order.spec
    body = create_body(order, Terms(tuple(groups), has_selinux=True))
    host, labels = body["HostConfig"], body["Labels"]
    del labels[LABEL]  # a new run must not be taken for the recorded one
    mounts = [_volume(mount) for mount in host["Mounts"] if mount["Target"] != inside.RUN]
    run = {"type": "bind", "source": "${NGCDL_RUN:-./run}", "target": inside.RUN, "bind": _NO_ROOTS_FOLDER}
    made = {
        "image": body["Image"],
        # Docker Hub's of that name is a stranger's
        "pull_policy": "never" if spec.image and spec.image.is_engines_own else None,
        "command": [_escaped(word) for word in spec.command],
        "user": f"${{NGCDL_USER:-{spec.user}}}" if spec.user else None,
        "group_add": host.get("GroupAdd"),
        "working_dir": _escaped(body["WorkingDir"]),
        "tty": spec.tty,
        "stdin_open": spec.tty,
        "environment": _environment(order, body["Env"]),
        "volumes": [*mounts, run],
        "ports": [str(port) for port in spec.ports],
        **_gpus(host),
        "shm_size": spec.shm_bytes,
        "ulimits": dict(spec.ulimits)
        | ({"memlock": "${NGCDL_MEMLOCK:--1}"} if ("memlock", -1) in spec.ulimits else {}),
        "cpus": spec.cpu_limit,
        "mem_limit": spec.memory_bytes,
        "pids_limit": host["PidsLimit"],
        "init": host["Init"],
        "stop_grace_period": f"{body['StopTimeout']}s" if body["StopTimeout"] else None,
        "security_opt": host["SecurityOpt"],
        "network_mode": "bridge",  # Docker's default network: Compose would leave one of its own behind
        "logging": {"driver": host["LogConfig"]["Type"], "options": host["LogConfig"]["Config"]},
        "labels": {name: _escaped(value) for name, value in labels.items()},
    }
    name = spec.workload.name if spec.workload else "run"
    volumes = {mount.host: {"name": mount.host} for mount in spec.mounts if mount.is_volume}
    how = f"run --rm {name}" if spec.tty else "up"
    head = _HEAD.format(run=order.run_id, image=image, how=how, inside=inside.RUN)
    # Compose would take the folder's name, and what ran in another folder of that name for its own.
    project = "ngcdl-" + re.sub("[^a-z0-9_-]", "-", order.run_id.lower())
    document = {"name": project, "services": {name: {key: value for key, value in made.items() if value}}}
    return head + yaml.document(document | ({"volumes": volumes} if volumes else {}))


def _escaped(text: str) -> str:
    """https://docs.docker.com/reference/compose-file/interpolation/"""
    return text.replace("$", "$$")


def _volume(mount: Mapping[str, Any]) -> dict[str, Any]:
    made = {"type": mount["Type"], "source": _escaped(mount["Source"]), "target": _escaped(mount["Target"])}
    made |= {"read_only": True} if mount["ReadOnly"] else {}
    return made if mount["Type"] == "volume" else {**made, "bind": _NO_ROOTS_FOLDER}


def _environment(order: Order, variables: Sequence[str]) -> dict[str, str | None]:
    """Return the variables. Those whose values look like secrets Compose takes from the caller's shell."""
    found = dict(variable.split("=", 1) for variable in variables)
    if order.spec.user:
        found = _NAMES | found | {"HOME": dict(order.spec.environment).get("HOME", inside.RUN)}
    return {name: _hidden(name) if is_secret(name, value) else _escaped(value) for name, value in found.items()}


def _hidden(name: str) -> str | None:
    return f"${{{name}:?its value was not recorded}}" if name.isidentifier() else None  # None: empty if it is not set


def _gpus(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the GPUs get in. CDI's names need Compose 2.30: https://github.com/docker/compose/pull/12184"""
    if "Runtime" in host:
        return {"runtime": host["Runtime"]}
    (request,) = host.get("DeviceRequests") or (None,)
    if request is None:
        return {}
    if request["Driver"] == "cdi":
        return {"devices": request["DeviceIDs"]}
    count = "all" if request["Count"] == -1 else request["Count"]
    device = {"driver": "nvidia", "count": count, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}
