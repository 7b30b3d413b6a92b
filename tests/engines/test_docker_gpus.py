"""What nvidia-smi in a container tells: cards, none, or nothing at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ngcdl.engines.docker import gpus
from ngcdl.errors import GpuNotInside
from ngcdl.errors.gpu import GpuUnknown

MISSING = b'OCI runtime exec failed: exec failed: exec: "nvidia-smi": executable file not found in $PATH: unknown\r\n'


@dataclass
class Client:
    """A daemon in whose container nvidia-smi writes what has been sent into `line`, and ends with `code`."""

    line: Any
    code: int | None

    def exec_create(self, container: str, command: list[str]) -> dict[str, str]:
        return {"Id": "1"}

    def exec_start(self, identity: str, socket: bool) -> Any:
        return self.line

    def exec_inspect(self, identity: str) -> dict[str, int | None]:
        return {"ExitCode": self.code}


@pytest.fixture
def line() -> Iterator[tuple[Any, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours.makefile("rwb", buffering=0), theirs


@pytest.mark.parametrize(("code", "text", "found"), [
    (0, b"GPU 0: A100 (UUID: GPU-6a2f)\n", ("GPU-6a2f",)),
    (0, b"No devices found.\n", ()),
    (0, b"", GpuUnknown),
    (9, b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", GpuNotInside),
    (255, b"Failed to initialize NVML: Unknown Error\n", GpuNotInside),
    (2, b"", GpuNotInside),
    (126, MISSING, GpuUnknown),
    (128, MISSING, GpuUnknown),
    (127, b"", GpuUnknown),
    (12, b"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", GpuUnknown),
    (1, b"exec /usr/bin/nvidia-smi: no such file or directory\n", GpuUnknown),
    (1, b"nvidia-smi: /lib/libc.so.6: version `GLIBC_2.7' not found\n", GpuUnknown),
])  # fmt: skip
def test_only_a_tool_that_ran_and_saw_no_gpu_says_that_there_is_none(
    line: Any, code: int, text: bytes, found: tuple[str, ...] | type[Exception]
) -> None:
    line[1].sendall(b"\1\0\0\0" + len(text).to_bytes(4, "big") + text)
    line[1].shutdown(socket.SHUT_WR)
    got = gpus.look(Client(line[0], code), "c0ffee")
    assert got == found if isinstance(found, tuple) else isinstance(got, found)


def test_a_driver_that_hangs_is_not_waited_for(line: Any) -> None:
    assert isinstance(gpus.look(Client(line[0], None), "c0ffee", seconds=0), GpuUnknown)
