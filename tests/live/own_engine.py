"""A Docker Engine for a single test: to pull onto from scratch, to fill up, to kill."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import certificates
import pytest
from house import until
from lab_parts import engines, processes
from lab_parts.where import Lab


class OwnEngine:
    """dockerd from the lab's packages with its own folder, without network and GPU chain."""

    def __init__(
        self, folder: Path, lab: Mapping[str, Any], packages: str = "bare", tls_port: int | None = None, **settings: Any
    ) -> None:
        """`packages`: the lab engine whose packages to use; floor is the oldest supported Docker. `tls_port`: where it
        answers over TLS, too."""
        self.folder = folder
        self.over_tls: dict[str, str] = {}  # the variables of a user who asks it there
        self._path = engines.program_path(Lab(Path(lab["dir"]), Path(lab["cache"])), packages)
        self._config, self._socket = folder / "daemon.json", folder / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._config.write_text(json.dumps({
            "hosts": [self.host], "data-root": f"{folder}/data", "exec-root": f"{folder}/exec",
            "pidfile": f"{folder}/docker.pid", "bridge": "none", "iptables": False, "ip6tables": False,
            "shutdown-timeout": 3, "max-download-attempts": 2,
            "userland-proxy": False, "init-path": shutil.which("tini-static", path=self._path), **settings,
            **(self._tls(tls_port) if tls_port else {}),
        }))  # fmt: skip

    @property
    def host(self) -> str:
        return f"unix://{self._socket}"

    def _tls(self, port: int) -> dict[str, Any]:
        """Make one certificate for both sides; return the settings."""
        ca, certificate, key = (self.folder / f"{name}.pem" for name in ("ca", "cert", "key"))
        certificates.make(key, certificate, "engine", "IP:127.0.0.1")
        shutil.copy(certificate, ca)
        address = f"tcp://127.0.0.1:{port}"
        self.over_tls = {"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(self.folder)}
        files = {"tlscacert": str(ca), "tlscert": str(certificate), "tlskey": str(key)}
        return {"hosts": [self.host, address], "tlsverify": True, **files}

    def start(self) -> None:
        """Start it, or restart it after kill9; wait until it answers."""
        (self.folder / "docker.pid").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(shutil.which("dockerd", path=self._path)), "--config-file", str(self._config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": self._path},
                start_new_session=True,
            )  # fmt: skip
        process = self._process
        until(lambda: engines.answers(self._socket) or process.poll() is not None, "dockerd")
        assert process.poll() is None, (self.folder / "log").read_text()[-2000:]

    def kill9(self) -> None:
        """Kill dockerd and its containerd (a new dockerd starts its own); its containers and their shims stay."""
        assert self._process
        self._process.kill()
        self._process.wait(240)
        killed: list[Path] = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes().split(b"\0")
                if words[0].endswith(b"containerd") and f"{self.folder}/".encode() in b" ".join(words):
                    os.kill(int(entry.parent.name), 9)
                    killed.append(entry.with_name("exe"))
        # a new dockerd would take its pid for that of a containerd that runs; a zombie has no exe
        until(lambda: not any(exe.exists() for exe in killed), "containerd's end")

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        processes.stop_descendants(self.folder)


# What makes an engine of one's own another one: the oldest supported Docker, or containerd's image store.
KINDS: Mapping[str, dict[str, Any]] = {
    "bare": {},
    "floor": {"packages": "floor"},
    "containerd": {"features": {"containerd-snapshotter": True}},
}


@contextlib.contextmanager
def engine_of_ones_own(lab: Mapping[str, Any], tmpfs_bytes: int | None = None, **settings: Any) -> Iterator[OwnEngine]:
    """Yield a running engine, of which nothing is left afterwards. `tmpfs_bytes`: size of a tmpfs for its data."""
    if os.geteuid() != 0 or not lab["engine"].get("pid"):
        pytest.skip("an engine of one's own needs root and the lab's packages (scripts/lab up)")
    folder = Path(tempfile.mkdtemp(prefix="ngcdl-engine-", dir="/tmp"))  # a socket's path must be short
    engine = OwnEngine(folder, lab, **settings)
    try:
        (folder / "data").mkdir()
        if tmpfs_bytes:
            words = ["mount", "-t", "tmpfs", "-o", f"size={tmpfs_bytes}", "tmpfs", f"{folder}/data"]
            subprocess.run(words, check=True)
        engine.start()
        yield engine
    finally:
        engine.stop()
        engines.unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)
