"""The SDK's client without any key: ngcdl hands the engine the one key that a pull needs, and looks it up itself.

The SDK's own reads all keys of config.json before its first call, and fails of one that is broken, whosever it is.
"""

from __future__ import annotations

from typing import Any

from ngcdl.engines.docker import keys


def client(version: str, timeout: int) -> Any:
    """Make a docker.APIClient for the engine that `docker.from_env` finds. Raises what that raises."""
    from docker import APIClient, DockerClient

    class Keyless(APIClient):
        @property
        def _general_configs(self) -> dict[str, Any]:
            """What the SDK takes of config.json, where it looks for it: never the keys, and the proxies neither, which
            are in ngcdl's requests already (proxies.py).

            It reads the file once more where this is empty, and looks for keys in here until it meets a text: so there
            is one always, and it comes first. https://github.com/docker/docker-py/blob/7.2.0/docker/auth.py
            """
            return self._taken

        @_general_configs.setter
        def _general_configs(self, read: object) -> None:
            headers = read.get("HttpHeaders") if isinstance(read, dict) else None
            self._taken = {"detachKeys": keys.named()} | ({"HttpHeaders": headers} if isinstance(headers, dict) else {})

    class Client(DockerClient):
        def __init__(self, **asked: Any) -> None:
            self.api = Keyless(**asked)

    return Client.from_env(version=version, timeout=timeout).api
