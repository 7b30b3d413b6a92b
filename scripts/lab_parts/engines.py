"""The lab's own Docker Engines: main (26.1.5 with all three GPU mechanisms), floor (20.10.24, the oldest supported) and
bare (26.1.5 without a GPU chain).

Each has its own data, sockets and containerd under the lab's folder. Only main has a bridge, NAT and published ports;
containers of the other two run with `--network none` or `--network host`.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

from lab_parts import packages, processes
from lab_parts.where import Lab, say, step, write_whole

SUBNETS = ["172.29.99", "172.30.99", "10.213.99", "192.168.213"]
CHAINS = {
    "filter": ["DOCKER", "DOCKER-ISOLATION-STAGE-1", "DOCKER-ISOLATION-STAGE-2", "DOCKER-USER"],
    "nat": ["DOCKER"],
}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMES = ("main", "floor", "bare")


def up(lab: Lab, name: str) -> dict[str, object]:
    """Start one engine if it is not running yet; return its address, version and pid."""
    pid, address = processes.pid_of(lab, name), socket_of(lab, name)
    if pid is None or not answers(address):
        with step(f"Docker Engine `{name}`"):
            processes.stop(lab, name)
            pid = _start(lab, name)
    version = json.loads(ask(address, "/version"))
    return {"host": f"unix://{address}", "version": version["Version"], "api": version["ApiVersion"], "pid": pid}


def down(lab: Lab, name: str) -> None:
    """Stop one engine with its containers, and remove the network devices and firewall chains that it created."""
    if processes.pid_of(lab, name) is not None:
        with step(f"stopped engine `{name}`"):
            processes.stop(lab, name)
    left = processes.stop_descendants(lab.dir / name)
    if left:
        say(f"killed {left} processes that a killed engine `{name}` had left behind")
    if name == "main" and (lab.dir / "before.json").exists():
        devices = [bridge_of(lab), *_bridges(lab, name)]
        for device in devices:
            _quiet(["ip", "link", "delete", device])
        _restore_firewall(lab, devices)


def unmount(folder: Path) -> None:
    """Unmount what an engine or a test has mounted below a folder, the deepest mounts first."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in sorted((m for m in mounts if m.startswith(f"{folder}/")), key=len, reverse=True):
        subprocess.run(["umount", "-l", place], check=False)


def answers(address: Path) -> bool:
    """Return whether an engine answers at this socket."""
    try:
        return ask(address, "/_ping") == b"OK"
    except (OSError, http.client.HTTPException):
        return False


def ask(address: Path, path: str) -> bytes:
    """GET one path of an engine's API."""
    connection = http.client.HTTPConnection("localhost", timeout=5)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(5)
    try:
        connection.sock.connect(str(address))
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def socket_of(lab: Lab, name: str) -> Path:
    return lab.dir / name / "docker.sock"


def program_path(lab: Lab, name: str) -> str:
    """Return the PATH of one engine: its programs, Debian 12's runc, and the GPU hook, which only the bare engine
    lacks."""
    engine = packages.unpacked(lab, "floor" if name == "floor" else "engine")
    runc = packages.unpacked(lab, "tools") / "usr/sbin"
    gpu = [] if name == "bare" else [lab.dir / "gpu/bin"]
    return ":".join(str(p) for p in (*gpu, runc, engine / "usr/sbin", engine / "usr/bin", SYSTEM_PATH))


def _start(lab: Lab, name: str) -> int:
    folder, path = lab.dir / name, program_path(lab, name)
    processes.stop_descendants(folder)  # else a new daemon waits 20 s for the containerd of a killed one
    packages.ensure_installed({"iptables": "iptables", "ip": "iproute2"})
    settings: dict[str, object] = {
        "hosts": [f"unix://{socket_of(lab, name)}"],
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/docker.pid",
        "shutdown-timeout": 3,
        "max-concurrent-downloads": 3,
        "userland-proxy-path": shutil.which("docker-proxy", path=path),
        "init-path": shutil.which("tini-static", path=path),
    }
    if name == "main":
        settings["bridge"] = _bridge(lab)
        settings |= {"features": {"cdi": True}, "cdi-spec-dirs": [f"{lab.dir}/gpu/cdi"]}
    else:
        settings |= {"bridge": "none", "iptables": False, "ip6tables": False}
    if name != "bare":
        settings["runtimes"] = {"nvidia": {"path": f"{lab.dir}/gpu/bin/nvidia-container-runtime"}}
    write_whole(folder / "daemon.json", json.dumps(settings, indent=1))
    for stale in ("docker.pid", "exec/containerd/containerd.pid"):
        (folder / stale).unlink(missing_ok=True)
    environment = {**os.environ, "PATH": path}
    command = [str(shutil.which("dockerd", path=path)), "--config-file", str(folder / "daemon.json")]
    return processes.start(lab, name, command, lambda: answers(socket_of(lab, name)), environment)


def bridge_of(lab: Lab) -> str:
    """Return the bridge's name, derived from the folder so that two labs can run side by side."""
    return "ngcdl-" + hashlib.sha256(str(lab.dir).encode()).hexdigest()[:6]


def _bridge(lab: Lab) -> str:
    """Create the bridge on the first subnet that no route of this machine covers; return its name."""
    _note_firewall(lab)
    bridge = bridge_of(lab)
    if not Path(f"/sys/class/net/{bridge}").exists():
        routes = _output(["ip", "-4", "route"])
        subnet = next((s for s in SUBNETS if s not in routes), SUBNETS[0])
        for words in (
            ["link", "add", bridge, "type", "bridge"],
            ["addr", "add", f"{subnet}.1/24", "dev", bridge],
            ["link", "set", bridge, "up"],
        ):
            _output(["ip", *words])
    return bridge


def _bridges(lab: Lab, name: str) -> list[str]:
    """Return the devices of the networks that users have created in this engine, by its files: the engine may have
    ended."""
    try:
        known = (lab.dir / name / "data/network/files/local-kv.db").read_bytes()
    except FileNotFoundError:
        return []
    return [d.name for d in Path("/sys/class/net").glob("br-*") if d.name.removeprefix("br-").encode() in known]


def _note_firewall(lab: Lab) -> None:
    """Record which firewall chains existed and whether the kernel forwarded packets, so that `down` removes only what
    is ours."""
    note = lab.dir / "before.json"
    if not note.exists():
        stood = [
            c for table, chains in CHAINS.items() for c in chains if _quiet(["iptables", "-t", table, "-n", "-L", c])
        ]
        policy = _output(["iptables", "-S", "FORWARD"]).split()[2]
        forward = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()
        write_whole(note, json.dumps({"chains": stood, "policy": policy, "forward": forward}))


def _restore_firewall(lab: Lab, devices: list[str]) -> None:
    """Delete the rules that name our bridges. Also delete Docker's chains, unless they existed before or another engine
    is running now."""
    before = json.loads((lab.dir / "before.json").read_text())
    alone = not before["chains"] and not _another_engine()
    for table, chains in CHAINS.items():
        rules = [line.split() for line in _output(["iptables", "-t", table, "-S"]).splitlines()]
        for rule in rules:
            if rule[0] == "-A" and (
                set(rule) & set(devices) or (alone and rule[1] not in chains and set(rule[2:]) & set(chains))
            ):
                _quiet(["iptables", "-t", table, "-D", *rule[1:]])
        for action in ("-F", "-X") if alone else ():
            for chain in chains:
                _quiet(["iptables", "-t", table, action, chain])
    if alone:
        _quiet(["iptables", "-P", "FORWARD", before["policy"]])
        Path("/proc/sys/net/ipv4/ip_forward").write_text(before["forward"])


def _another_engine() -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == "dockerd" and (folder / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def _quiet(command: list[str]) -> bool:
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    return subprocess.run(command, capture_output=True, env=environment).returncode == 0


def _output(command: list[str]) -> str:
    return packages.run(command, env={**os.environ, "PATH": SYSTEM_PATH})
