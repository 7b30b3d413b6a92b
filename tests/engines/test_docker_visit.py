"""How a command in a run's container ended, by what the engine still knows of it and of the container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import docker.errors
import pytest

from ngcdl.engines.docker.visit import RUN_ENDED, DockerVisit
from ngcdl.engines.values import Exit
from ngcdl.errors import EngineLost


@dataclass
class Client:
    """An engine; None: it knows no such command, or no such container."""

    code: int | None
    runs: bool | None

    def exec_create(self, *_: Any, **how: Any) -> dict[str, str]:
        return {"Id": "1"}

    def exec_start(self, *_: Any, **how: Any) -> None: ...

    def exec_inspect(self, identity: str) -> dict[str, Any]:
        if self.code is None:
            raise docker.errors.NotFound("No such exec instance")
        return {"Running": False, "ExitCode": self.code}

    def inspect_container(self, identity: str) -> dict[str, Any]:
        if self.runs is None:
            raise docker.errors.NotFound("No such container")
        return {"State": {"Running": self.runs}}


@pytest.mark.parametrize(
    ("code", "runs", "ended"),
    [
        (0, None, Exit(0)),
        (137, True, Exit(137)),
        (137, False, Exit(137, reason=RUN_ENDED)),
        (None, None, Exit(137, reason=RUN_ENDED)),
        (None, True, EngineLost),  # it was restarted, and has forgotten the command
    ],
)
def test_a_command_ends_by_itself_with_its_run_or_with_its_engine(
    code: int | None, runs: bool | None, ended: Exit | type[EngineLost]
) -> None:
    visit = DockerVisit(Client(code, runs), "unix:///x", "c0ffee", ["ls"], tty=False)
    if isinstance(ended, Exit):
        assert visit.wait() == ended
    else:
        with pytest.raises(ended):
            visit.wait()
