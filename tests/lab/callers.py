"""Who asks something of the bench: the docker client, and a caller of a registry front over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


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
