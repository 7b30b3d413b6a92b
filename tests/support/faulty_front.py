"""A test's own proxy to the lab's registry: its faults affect nobody else, and it logs every request."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_parts.registry import MANIFEST, Answer


@dataclass(frozen=True)
class Front:
    host: str
    faults: Path
    log: Path

    def break_down(self, **faults: Any) -> None:
        """Set the faults; their grammar is in scripts/lab_parts/ngc_registry/faults.py."""
        draft = self.faults.with_suffix(".draft")
        draft.write_text(json.dumps(faults))
        draft.replace(self.faults)

    def requests(self, kind: str = "") -> list[dict[str, Any]]:
        """The requests so far, or only those with `kind` in the path."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [line for line in lines if kind in line["path"]]

    def get(
        self, path: str, token: str | None = None, key: str | None = None, timeout: float = 20, **headers: str
    ) -> Answer:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if key:
            headers["Authorization"] = "Basic " + base64.b64encode(f"$oauthtoken:{key}".encode()).decode()
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=timeout)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def token(self, name: str = "busybox", key: str | None = None) -> str:
        answer = self.get(f"/proxy_auth?scope=repository:nvidia/{name}:pull", key=key)
        assert answer.status == 200, answer
        return str(json.loads(answer.body)["token"])

    def biggest_layer(self, tag: str, name: str = "busybox") -> str:
        """The digest of the biggest layer of a public image."""
        answer = self.get(f"/v2/nvidia/{name}/manifests/{tag}", token=self.token(name), Accept=MANIFEST)
        layers = json.loads(answer.body)["layers"]
        return str(max(layers, key=lambda layer: int(layer["size"]))["digest"])


@contextlib.contextmanager
def front_in(folder: Path, lab: Mapping[str, Any]) -> Iterator[Front]:
    folder.mkdir(parents=True)
    faults, log = folder / "faults.json", folder / "requests.jsonl"
    faults.write_text("{}")
    own = ["--faults", str(faults), "--log", str(log), "--port", "0", "--cdn-port", "0"]
    with subprocess.Popen([*lab["registry"]["front"], *own], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            port = json.loads(process.stdout.readline())["port"]
            yield Front(f"127.0.0.1:{port}", faults, log)
        finally:
            process.terminate()
