"""Start the lab's registry: docker-registry on a Unix socket, with its storage in the cache, and ngc_registry in front
of it."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lab_parts import packages, processes
from lab_parts.where import PARTS, Lab, recipe_key, step, write_whole

PROGRAM = PARTS / "ngc_registry"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"


def up(lab: Lab) -> dict[str, object]:
    """Start what is not running yet; return addresses, accounts and files for lab.json."""
    folder = lab.dir / "registry"
    accounts = _accounts(folder / "accounts.json")
    program, note = recipe_key(*sorted(PROGRAM.glob("*.py"))), folder / "program.txt"
    is_same = note.exists() and note.read_text() == program
    if not is_same or None in (processes.pid_of(lab, "docker-registry"), processes.pid_of(lab, "ngc-registry")):
        with step("registry"):
            _start(lab, folder)
            write_whole(note, program)
    ready = json.loads((folder / "ready.json").read_text())
    keys = {kind: key for key, kind in accounts["keys"].items()}
    return {
        "host": f"127.0.0.1:{ready['port']}",
        "cdn": f"127.0.0.2:{ready['cdn_port']}",
        "user": "$oauthtoken",
        "key": keys["valid"],
        "key_revoked": keys["revoked"],
        "key_without_rights": keys["no-rights"],
        "push": accounts["push"],
        "fault_file": str(folder / "faults.json"),
        "request_log": str(folder / "requests.jsonl"),
        "front": _front(folder),
    }


def down(lab: Lab) -> None:
    for name in ("ngc-registry", "docker-registry"):
        processes.stop(lab, name, seconds=3)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Storage:
    """The docker-registry behind the front: it needs no token, so this is where the lab uploads its images."""

    def __init__(self, lab: Lab) -> None:
        self.socket = str(lab.dir / "registry/registry.sock")

    def ask(
        self, method: str, path: str, body: bytes | IO[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("localhost", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.socket)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def has(self, path: str) -> bool:
        return self._head(path).status == 200

    def digest(self, repository: str, tag: str) -> str | None:
        """Return the digest that a tag refers to; None if there is no such tag."""
        answer = self._head(f"/v2/{repository}/manifests/{tag}")
        return answer.headers.get("Docker-Content-Digest") if answer.status == 200 else None

    def _head(self, path: str) -> Answer:
        return self.ask("HEAD", path, headers={"Accept": f"{MANIFEST}, {MANIFEST_LIST}"})


def _start(lab: Lab, folder: Path) -> None:
    down(lab)
    folder.mkdir(parents=True, exist_ok=True)
    storage = lab.cache / "registry"
    storage.mkdir(parents=True, exist_ok=True)
    address = folder / "registry.sock"
    address.unlink(missing_ok=True)
    # YAML is a superset of JSON.
    config = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(storage)},
            "delete": {"enabled": True},
            "redirect": {"disable": True},
        },
        "http": {"net": "unix", "addr": str(address), "relativeurls": True, "secret": secrets.token_hex(16)},
    }
    write_whole(folder / "config.yml", json.dumps(config, indent=1))
    program = packages.unpacked(lab, "tools") / "usr/bin/docker-registry"
    processes.start(
        lab, "docker-registry", [str(program), "serve", str(folder / "config.yml")], lambda: _listens(address)
    )
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    faults, log = folder / "faults.json", folder / "requests.jsonl"
    if not faults.exists():
        write_whole(faults, "{}\n")
    log.touch()
    files = ["--faults", str(faults), "--log", str(log), "--ready", str(ready)]
    processes.start(lab, "ngc-registry", [*_front(folder), *files], ready.exists)


def _front(folder: Path) -> list[str]:
    """Return the command that starts a front for the storage; the caller adds --faults and --log of its own."""
    program = [str(Path(sys.executable).resolve()), "-B", str(PROGRAM)]
    return [*program, "--upstream", str(folder / "registry.sock"), "--accounts", str(folder / "accounts.json")]


def _listens(address: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(address))
        return True
    except OSError:
        return False


def _accounts(path: Path) -> dict[str, dict[str, str]]:
    """Return this lab's accounts, generating them once; their keys are valid nowhere else."""
    if not path.exists():
        keys = {f"nvapi-lab-{secrets.token_urlsafe(24)}": kind for kind in ("valid", "revoked", "no-rights")}
        accounts = {"keys": keys, "push": {"user": "lab-push", "password": secrets.token_urlsafe(24)}}
        write_whole(path, json.dumps(accounts, indent=1), 0o600)
    return json.loads(path.read_text())
