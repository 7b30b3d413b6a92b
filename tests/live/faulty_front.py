"""A front of one's own before the bench's registry: faults for one test, and the log of what was asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parents[2] / "scripts/lab_parts/ngc_registry.py"


@dataclass(frozen=True)
class Front:
    host: str
    faults: Path
    log: Path

    def break_down(self, **faults: Any) -> None:
        """Set the faults; their grammar is in scripts/lab_parts/ngc_registry.py."""
        draft = self.faults.with_suffix(".draft")
        draft.write_text(json.dumps(faults))
        draft.replace(self.faults)

    def requests(self, kind: str = "") -> list[dict[str, Any]]:
        """What was asked so far, or only what has `kind` in its path."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [line for line in lines if kind in line["path"]]

    def biggest_layer(self, tag: str) -> str:
        """The digest of the biggest layer of the public busybox:TAG."""
        token = json.loads(self._get("/proxy_auth?scope=repository:nvidia/busybox:pull"))["token"]
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        text = self._get(f"/v2/nvidia/busybox/manifests/{tag}", Authorization=f"Bearer {token}", Accept=kind)
        return str(max(json.loads(text)["layers"], key=lambda layer: int(layer["size"]))["digest"])

    def _get(self, path: str, **headers: str) -> bytes:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            return connection.getresponse().read()


@contextlib.contextmanager
def front_in(folder: Path, lab: Mapping[str, Any]) -> Iterator[Front]:
    folder.mkdir(parents=True)
    faults, log = folder / "faults.json", folder / "requests.jsonl"
    faults.write_text("{}")
    python, _program, *accounts = lab["registry"]["front"]
    own = ["--faults", str(faults), "--log", str(log), "--port", "0", "--cdn-port", "0"]
    words = [python, "-B", str(PROGRAM), *accounts, *own]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            port = json.loads(process.stdout.readline())["port"]
            yield Front(f"127.0.0.1:{port}", faults, log)
        finally:
            process.terminate()
