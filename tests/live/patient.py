"""A host for doctor to examine: the lab's engine, registry and driver, with the test's own /proc, /sys and /dev."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngcdl_child import User
from stand_ins import stand_in

# NVML is located when a process starts, so each look is a child process. It runs ngcdl's own gatherer on another root.
_LOOK = """
import json, sys
from pathlib import Path
from ngcdl.doctor import chain, look
from ngcdl.doctor.hands import Hands, space
from ngcdl.doctor.sight import Space
root, shm = Path(sys.argv[1]), json.loads(sys.argv[2])
def measured(path):
    return Space(*shm) if path.name == "shm" else space(path)
print(json.dumps(chain.document(chain.examine(look.gather(Hands(root, space=measured))))))
"""
NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
CARDS = ("0000:01:00.0", "0000:41:00.0")
# Makes doctor's limits ten times as long, for whatever is not about them: a busy machine is no fault of the chain.
PATIENCE = """
from ngcdl import __main__
from ngcdl.doctor import look
from ngcdl.doctor.look import keys, programs, registry
look.LIMITS = dict.fromkeys(look.LIMITS, 50.0)
registry._SECONDS, programs._SECONDS, keys.HELPER_SECONDS = (20.0, 20.0), 20.0, 20.0
"""


@dataclass(frozen=True)
class Look:
    links: Mapping[str, Mapping[str, Any]]
    seconds: float

    @property
    def states(self) -> dict[str, str]:
        return {name: str(link["state"]) for name, link in self.links.items()}

    @property
    def but_disk(self) -> dict[str, str]:
        """Without the disk's: other tests fill and empty it meanwhile."""
        return {name: state for name, state in self.states.items() if name != "disk"}

    def commands(self, name: str) -> list[str]:
        return [str(step["command"]) for step in self.links[name]["remedy"]]


class Patient:
    """`root` stands for the host's root: its content is injected, all else is the lab's."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.root = user.folder / "root"
        self.bin = user.folder / "bin"
        self.shm = [8 << 30, 8 << 30]
        self.state = user.has_gpus()
        user.environment["PATH"] = f"{self.bin}:{user.environment['PATH']}"
        self._make_root()
        self.has_toolkit("1.19.1")

    def look(self, words: tuple[str, ...] = (), *, is_hurried: bool = False, **environment: str) -> Look:
        """Examine everything; `words` precede the child's command, to run it as another user. is_hurried: within
        doctor's own limits."""
        code = _LOOK if is_hurried else PATIENCE + _LOOK
        arguments = [*words, sys.executable, "-P", "-c", code, str(self.root), json.dumps(self.shm)]
        began = time.monotonic()
        done = subprocess.run(
            arguments, env=self.user.environment | environment, cwd=self.user.here, capture_output=True, text=True,
            timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        tree = json.loads(done.stdout)
        return Look({link["name"]: link for link in tree["links"]}, time.monotonic() - began)

    def put(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def has_toolkit(self, version: str) -> None:
        self.bin.mkdir(exist_ok=True)
        stand_in(self.bin, "nvidia-ctk", f"echo 'NVIDIA Container Toolkit CLI version {version}'")

    def _make_root(self) -> None:
        self.put("proc/driver/nvidia/version", NVRM)
        self.put("proc/cpuinfo", "flags\t\t: fpu avx avx2\n")
        self.put("etc/os-release", 'ID=ubuntu\nID_LIKE="debian"\n')
        self.put("run/systemd/system/of-a-test", "")
        for address in CARDS:
            self.put(f"sys/bus/pci/devices/{address}/vendor", "0x10de\n")
            self.put(f"sys/bus/pci/devices/{address}/class", "0x030000\n")
        self._make_nodes()
        # Folders that the engine names must exist at the same path below the root.
        for top in {Path(self.user.lab["dir"]).parts[1], self.user.folder.parts[1]}:
            if not (self.root / top).exists():
                (self.root / top).symlink_to(f"/{top}")
        self.daemon_may_lock_memory(_listener(self.user.environment["DOCKER_HOST"]))

    def _make_nodes(self) -> None:
        (self.root / "dev/char").mkdir(parents=True)
        for name, major, minor in (
            ("nvidia0", 195, 0),
            ("nvidia1", 195, 1),
            ("nvidiactl", 195, 255),
            ("nvidia-uvm", 510, 0),
        ):
            with contextlib.suppress(PermissionError):
                os.mknod(self.root / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(major, minor))
                (self.root / f"dev/char/{major}:{minor}").symlink_to(f"../{name}")

    def daemon_may_lock_memory(self, pid: int) -> None:
        """Give the engine's daemon the capability that this lab's root may lack."""
        self.put(f"proc/{pid}/comm", "dockerd\n")
        self.put(f"proc/{pid}/status", "Name:\tdockerd\nCapEff:\t000001ffffffffff\n")
        self.put(f"proc/{pid}/limits", Path(f"/proc/{pid}/limits").read_text())


def _listener(address: str) -> int:
    """Return the pid of the process that listens on an engine's socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(address.removeprefix("unix://"))
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)


def patiently(user: User) -> User:
    """Return `user`, whose ngcdl has PATIENCE from now on."""
    user.words = [sys.executable, "-P", "-c", f"{PATIENCE}__main__.main()"]
    return user


def named(before: Look, after: Look, name: str, state: str) -> None:
    """Assert that only `name` has changed, to `state`. What depends on it may be unchecked, and then says so."""
    changed = {
        link: one
        for link, one in after.states.items()
        if one != before.states.get(link) and one not in ("unchecked", "ok") and (link == name or link != "disk")
    }
    assert changed == {name: state}, {link: after.links[link] for link in changed}
    for link, one in after.states.items():
        if one == "unchecked" and before.states.get(link) != "unchecked":
            assert after.links[link]["found"] == f"needs {name}"


def green(before: Look, after: Look) -> None:
    assert after.but_disk == before.but_disk


def typed(patient: Patient, command: str) -> None:
    """Run a remedy's command exactly as shown."""
    done = subprocess.run(["sh", "-c", command], env=patient.user.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
