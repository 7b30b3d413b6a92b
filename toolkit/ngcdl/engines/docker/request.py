"""The request that a RunSpec becomes: the Engine API's own JSON, and the equivalent `docker run` line. Pure.

https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate (1.41 is the
oldest API that is supported: Docker 20.10).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from ngcdl.engines.base import TRAINING_GRACE_SECONDS
from ngcdl.engines.values import Order
from ngcdl.frozen import dataclass
from ngcdl.spec import GpuRequest, Mount, RunSpec, inside, is_secret

LABEL = "ngcdl.run"
# Docker's default is an unlimited log.
_LOG = {"Type": "json-file", "Config": {"max-size": "50m", "max-file": "2"}}
_PIDS = 32768


@dataclass(frozen=True)
class Terms:
    """What the caller and the engine add to every order: `groups` are the caller's besides the primary one, `proxies`
    the variables that Docker's config.json asks for. With `remaps_users`, a uid inside is a different one outside.
    With `has_selinux`, a container may use only what is labelled for containers. `path` is the image's own PATH.

    `cdi_devices` are the GPUs that CDI describes, as far as known: all, 0, GPU-... With `shows_all`, a container sees
    every card of the host, whichever were requested. `is_snap`: Docker is from snap, under whose AppArmor profile no
    program starts in a container with an init process or no-new-privileges ("operation not permitted"):
    https://bugs.launchpad.net/snapd/+bug/1908448 https://github.com/NousResearch/hermes-agent/pull/103726"""

    groups: tuple[int, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)
    remaps_users: bool = False
    cdi_devices: tuple[str, ...] = ()
    shows_all: bool = False
    has_selinux: bool = False
    path: str = ""
    is_snap: bool = False


PLAIN = Terms()


def create_body(order: Order, terms: Terms = PLAIN) -> dict[str, Any]:
    """Return the body of POST /containers/create."""
    spec = order.spec
    of_gpus, shown = _gpus(spec.gpus, order.way, terms)
    environment = _environment(order, terms) | shown | dict(spec.environment)
    return {
        "Image": order.target,
        "Cmd": list(spec.command) or None,
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": _labels(spec, order.run_id),
        "User": spec.user or "",
        "WorkingDir": spec.workdir or "",
        # for stops that bypass ngcdl: docker stop, a restart of the daemon, a shutdown
        "StopTimeout": TRAINING_GRACE_SECONDS if spec.workload else None,
        "Tty": spec.tty,
        "OpenStdin": spec.stdin,
        "StdinOnce": spec.stdin,
        "AttachStdin": spec.stdin,
        "AttachStdout": True,
        "AttachStderr": True,
        "ExposedPorts": {f"{port.container}/{port.protocol}": {} for port in spec.ports},
        "HostConfig": _host(order, terms) | of_gpus,
    }


def _host(order: Order, terms: Terms) -> dict[str, Any]:
    """Return HostConfig, but for the GPUs."""
    spec = order.spec
    host: dict[str, Any] = {
        "Init": not terms.is_snap,  # as PID 1 the command itself would ignore SIGTERM by default
        "ShmSize": spec.shm_bytes,
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in spec.ulimits],
        "LogConfig": _LOG,
        "PidsLimit": _PIDS,
        "SecurityOpt": [*(["no-new-privileges"] if spec.user and not terms.is_snap else []), *_label(terms)],
        "Mounts": [
            {
                "Type": "volume" if mount.is_volume else "bind",
                "Source": mount.host,
                "Target": mount.container,
                "ReadOnly": not mount.writable,
            }
            for mount in _mounts(order)
        ],
        "PortBindings": _bindings(spec),
    }
    if spec.cpu_limit is not None:
        host["NanoCpus"] = round(spec.cpu_limit * 1e9)
    if spec.memory_bytes is not None:
        host["Memory"] = spec.memory_bytes
    if terms.groups:
        host["GroupAdd"] = [str(group) for group in terms.groups]
    if terms.remaps_users:
        # Only the caller may use the run's folder, not the remapped uid that the daemon would turn the caller into:
        # https://docs.docker.com/engine/security/userns-remap/#disable-namespace-remapping-for-a-container
        host["UsernsMode"] = "host"
    return host


def _label(terms: Terms) -> list[str]:
    """Return the option that turns SELinux's separation off for the container: the caller's folders and the GPUs'
    device files are not labelled for containers, a mount of this kind can't be relabelled, and a new label would lock
    other programs out of the caller's files.

    https://docs.docker.com/storage/bind-mounts/#configure-the-selinux-label
    https://github.com/containers/podman/blob/main/troubleshooting.md (2)
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    return ["label=disable"] if terms.has_selinux else []


def _mounts(order: Order) -> list[Mount]:
    mounts = [*order.spec.mounts, Mount(str(order.folder), inside.RUN, writable=True)]
    has_own = any(one.place == inside.CACHE for one in order.spec.mounts)
    mounts += [Mount(str(order.cache), inside.CACHE, writable=True)] if order.cache and not has_own else []
    return mounts + ([Mount(str(order.packages), inside.PACKAGES)] if order.packages else [])


def _environment(order: Order, terms: Terms) -> dict[str, str]:
    """Return the container's variables, but for those of its GPUs, and those that were typed."""
    environment = dict(terms.proxies)
    environment |= {} if order.spec.workload else {"NGCDL_RUN": inside.RUN}  # where a user's script reports its steps
    environment |= {"HOME": inside.HOME} if order.spec.user else {}
    environment |= _caches(order)
    return environment | (_packages(terms.path) if order.packages else {})


def _caches(order: Order) -> dict[str, str]:
    """Return the variables by which programs find the caches that outlive the run; several runs may use them at once.

    Downloads of Hugging Face and torch.hub follow XDG_CACHE_HOME. What is built against an image's libraries is kept
    apart for each image: pip looks up a wheel that it built by source and Python, not by the PyTorch it was built for.
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    https://docs.pytorch.org/docs/stable/hub.html#where-are-my-downloaded-models-saved
    https://pip.pypa.io/en/stable/topics/caching/
    """
    if order.cache is None:
        return {}
    built = f"{inside.CACHE}/built/{order.target.rpartition(':')[2][:20]}"
    return {
        "XDG_CACHE_HOME": inside.CACHE,
        # What the driver compiled from PTX. For TensorFlow's kernels its default size is too small:
        # https://github.com/tensorflow/tensorflow/releases/tag/v2.3.0
        "CUDA_CACHE_PATH": f"{inside.CACHE}/nv",
        "CUDA_CACHE_MAXSIZE": str(2 << 30),
        "PIP_CACHE_DIR": f"{built}/pip",
        # Not kept: a build that is killed leaves its lock, for which the next build would wait forever.
        "TORCH_EXTENSIONS_DIR": f"{inside.HOME}/.cache/torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{built}/inductor",
        "TRITON_CACHE_DIR": f"{built}/triton",
    }


def _packages(path: str) -> dict[str, str]:
    """Return the variables by which Python and a shell find the added packages and their programs.

    https://docs.python.org/3/library/site.html#site.USER_BASE"""
    programs = {"PATH": f"{path}:{inside.PACKAGES}/bin"} if path else {}
    return {"PYTHONUSERBASE": inside.PACKAGES, **programs}


def _gpus(gpus: GpuRequest, way: str, terms: Terms) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of HostConfig that let the GPUs in, and the variables that belong with them.

    NVIDIA_DRIVER_CAPABILITIES is not set: the image decides which of the driver's libraries are mounted (NGC's also ask
    for video), and the toolkit's default includes compute and nvidia-smi.
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    if way == "none" or gpus.kind == "none":
        # NGC images set NVIDIA_VISIBLE_DEVICES=all, which is enough if nvidia is the default runtime.
        return {}, {"NVIDIA_VISIBLE_DEVICES": "void"}
    visible = ",".join(gpus.devices) if gpus.devices else "all"
    shows_all = terms.shows_all
    fields: dict[str, Any]
    if way == "runtime":
        fields = {"Runtime": "nvidia"}
    elif way == "cdi":
        names = gpus.devices or ("all",)
        missing = set(names) - set(terms.cdi_devices)
        if missing and "all" in terms.cdi_devices and not any(":" in name for name in missing):  # CUDA has no 0:1
            names, shows_all = ("all",), True
        fields = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={name}" for name in names]}]}
        visible = "void"  # a hook, if there is one as well, must not add them again
    else:
        chosen: dict[str, Any] = {"DeviceIDs": list(gpus.devices)} if gpus.devices else {"Count": gpus.count or -1}
        fields = {"DeviceRequests": [{"Driver": "", **chosen, "Capabilities": [["gpu"]]}]}
    return fields, {"NVIDIA_VISIBLE_DEVICES": visible, **(_kept_to(gpus) if shows_all else {})}


def _kept_to(gpus: GpuRequest) -> dict[str, str]:
    """Return the variables that limit CUDA to the requested cards, where the container sees more cards.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
    """
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if any(name.isdecimal() for name in gpus.devices) else {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus.devices), **order} if gpus.devices else {}


def _bindings(spec: RunSpec) -> dict[str, list[dict[str, str]]]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in spec.ports:
        one = {"HostIp": port.address, "HostPort": "" if port.host is None else str(port.host)}
        bindings.setdefault(f"{port.container}/{port.protocol}", []).append(one)
    return bindings


def drawn_ports(spec: RunSpec, network: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each port for which the engine chose the host's port; `network` is what it reports."""
    open_ports = {f"{port.container}/{port.protocol}" for port in spec.ports if port.host is None}
    published = network.get("Ports") or {}
    return tuple(
        f"The container's port {name} is published on {_address(one)}."
        for name in sorted(open_ports)
        for one in published.get(name) or ()
    )


def _address(published: Mapping[str, str]) -> str:
    host = published["HostIp"]
    return f"{f'[{host}]' if ':' in host else host}:{published['HostPort']}"


def _labels(spec: RunSpec, run_id: str) -> dict[str, str]:
    labels = {LABEL: run_id, "ngcdl.image": str(spec.image)}
    return labels | ({"ngcdl.workload": spec.workload.name} if spec.workload else {})


def command_line(order: Order, terms: Terms = PLAIN) -> str:
    """Return the equivalent `docker run` line for people: one flag per line, secrets hidden."""
    spec = order.spec
    body = create_body(order, replace(terms, proxies={}))  # the docker command adds the proxies by itself
    host = body["HostConfig"]
    words = ["docker run --rm --init" if host["Init"] else "docker run --rm"]
    words += ["-it"] if spec.tty else ["-i"] if spec.stdin else []
    words.append(f"--name ngcdl-{order.run_id}")
    if host.get("Runtime"):
        words.append(f"--runtime={host['Runtime']}")
    words += [_device_flag(request) for request in host.get("DeviceRequests", [])]
    words.append(f"--shm-size={spec.shm_bytes}")
    words += [f"--ulimit {name}={value}" for name, value in spec.ulimits]
    words += [f"--cpus={spec.cpu_limit}"] if spec.cpu_limit is not None else []
    words += [f"--memory={spec.memory_bytes}"] if spec.memory_bytes is not None else []
    words += [f"--pids-limit={_PIDS}", f"--log-driver={_LOG['Type']}"]
    words += [f"--log-opt {name}={value}" for name, value in _LOG["Config"].items()]  # type: ignore[attr-defined]
    words += [f"--security-opt={option}" for option in host["SecurityOpt"]]
    words += [f"--userns={host['UsernsMode']}"] if terms.remaps_users else []
    words += [f"--user={spec.user}"] if spec.user else []
    words += [f"--group-add={group}" for group in terms.groups]
    words += [f"--stop-timeout={body['StopTimeout']}"] if body["StopTimeout"] else []
    words += [shlex.quote(f"--workdir={spec.workdir}")] if spec.workdir else []
    words += [f"--label {name}={shlex.quote(value)}" for name, value in body["Labels"].items()]
    for variable in body["Env"]:
        name, _, value = variable.partition("=")
        # for a secret, name only the variable: the line can be pasted, and docker takes the value from the caller
        shown = name if is_secret(name, value) else variable
        words.append(f"-e {shlex.quote(shown)}")
    for mount in host["Mounts"]:
        fields = [f"type={mount['Type']}", f"source={mount['Source']}", f"target={mount['Target']}"]
        fields += ["readonly"] if mount["ReadOnly"] else []
        words.append("--mount " + shlex.quote(",".join(_csv(one) for one in fields)))
    words += [f"-p {shlex.quote(str(port))}" for port in spec.ports]
    words.append(" ".join([order.target, *(shlex.quote(word) for word in spec.command)]))
    return " \\\n    ".join(words)


def _csv(text: str) -> str:
    """Quote one field of --mount, which docker parses as CSV."""
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _device_flag(request: dict[str, Any]) -> str:
    if request["Driver"] == "cdi":
        return " ".join(f"--device {name}" for name in request["DeviceIDs"])
    if "DeviceIDs" in request:
        return f"""--gpus '"device={",".join(request["DeviceIDs"])}"'"""
    return "--gpus all" if request["Count"] == -1 else f"--gpus {request['Count']}"
