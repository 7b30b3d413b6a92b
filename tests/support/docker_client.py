"""Docker's client for the lab's engines, with its own login."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any


class Docker:
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

    def login(self, key: str, user: str = "$oauthtoken", fails: bool = False) -> str:
        host = self.lab["registry"]["host"]
        return self("login", host, "-u", user, "--password-stdin", stdin=key, fails=fails)

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
