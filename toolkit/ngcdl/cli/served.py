"""Servers for a browser, such as notebooks: in a container nobody reaches them unless a port is published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from ngcdl.cli.typed import own_end
from ngcdl.frozen import dataclass


@dataclass(frozen=True)
class _Server:
    """`needs` are options by which it answers others than its own container, each with the beginnings of words that
    make it needless."""

    port: str
    needs: tuple[tuple[str, tuple[str, ...]], ...]


# https://jupyter-server.readthedocs.io/en/latest/operators/public-server.html
_NOTEBOOKS = _Server(
    "8888", (("--ip=0.0.0.0", ("--ip", "--ServerApp.ip", "--NotebookApp.ip")), ("--no-browser", ("--no-browser",)))
)
_SERVERS = {
    ("jupyter", "lab"): _NOTEBOOKS,
    ("jupyter", "notebook"): _NOTEBOOKS,
    ("jupyter", "server"): _NOTEBOOKS,
    ("jupyter-lab",): _NOTEBOOKS,
    ("jupyter-notebook",): _NOTEBOOKS,
    # https://github.com/tensorflow/tensorboard/blob/master/README.md ("My TensorBoard isn't showing any data")
    ("tensorboard",): _Server("6006", (("--bind_all", ("--bind_all", "--host")),)),
}
_PUBLISHED = re.compile(r"-(?:[di]*p|-publish)")
_PORT = re.compile(r"--(?:ServerApp\.|NotebookApp\.)?port[= ](\d{1,5})(?!\S)")
# With these words after its name such a program serves nothing.
_NOT_SERVING = frozenset(
    {"list", "stop", "password", "build", "clean", "extension", "path", "paths", "workspaces", "licenses", "dev"}
    | {"--version", "--help", "--help-all", "-h", "--generate-config", "--show-config", "--inspect"}
)


def reachable(words: Sequence[str]) -> list[str] | None:
    """Return `words`, the line of a run in an image, with what a browser needs to reach the server that its command
    starts; None if a port is published, or if the command is not known to start one."""
    at = own_end(words)
    own, command = list(words[:at]), list(words[at + 1 :])
    names = [PurePosixPath(command[0]).name, *command[1:]] if command else []
    found = next(((name, one) for name, one in _SERVERS.items() if tuple(names[: len(name)]) == name), None)
    if found is None or any(map(_PUBLISHED.match, own)) or _NOT_SERVING.intersection(names[len(found[0]) :]):
        return None
    server = found[1]
    typed = _PORT.search(" ".join(command))
    port = typed[1] if typed else server.port
    needed = [option for option, enough in server.needs if not any(word.startswith(enough) for word in command)]
    return [*own, "-p", f"127.0.0.1:{port}:{port}", "--", *command, *needed]
