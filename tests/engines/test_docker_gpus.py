"""What nvidia-smi in a container says: cards, none, or nothing at all."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from socket import SHUT_WR
from socket import socketpair as pair
from typing import Any

import docker
import pytest

from ngcdl.engines.docker import gpus
from ngcdl.engines.values import Chunk
from ngcdl.errors import GpuNotInside, GpuUnknown

MISSING = b'OCI runtime exec failed: exec failed: exec: "nvidia-smi": executable file not found in $PATH: unknown\r\n'


@dataclass
class Client:
    """A daemon whose exec writes a text and ends with a code; None: it never ends."""

    answers: dict[str, tuple[int | None, bytes]]
    lines: list[socket.socket] = field(default_factory=list)

    def exec_create(self, container: str, command: list[str]) -> dict[str, str]:
        return {"Id": command[0]}

    def exec_start(self, identity: str, socket: bool) -> Any:
        code, text = self.answers[identity]
        ours, theirs = pair()
        self.lines += [ours, theirs]
        if code is not None:
            theirs.sendall(b"\1\0\0\0" + len(text).to_bytes(4, "big") + text)
            theirs.shutdown(SHUT_WR)
        return ours.makefile("rwb", buffering=0)

    def exec_inspect(self, identity: str) -> dict[str, int | None]:
        return {"ExitCode": self.answers[identity][0]}


def looked(code: int | None, text: bytes, devices: tuple[int, bytes] = (127, b""), **how: Any) -> Any:
    client = Client({"nvidia-smi": (code, text), "ls": devices})
    try:
        return gpus.gpus_inside(client, "c0ffee", **how)
    finally:
        for line in client.lines:
            line.close()


@pytest.mark.parametrize(("code", "text", "found"), [
    (0, b"GPU 0: A100 (UUID: GPU-6a2f)\n", ("GPU-6a2f",)),
    (0, b"GPU 0: Orin (nvgpu) (UUID: 54d0709b-558d-5a59-9c65-0c5fc14a21a4)\n",
     ("54d0709b-558d-5a59-9c65-0c5fc14a21a4",)),
    (0, b"GPU 0: A100 (UUID: GPU-6a)\n  MIG 1g.5gb     Device  0: (UUID: MIG-41)\n  MIG 1g.5gb     Device  1: (UUID: "
        b"MIG-42)\nGPU 1: A100 (UUID: GPU-6b)\n", ("MIG-41", "MIG-42", "GPU-6b")),
    (0, b"No devices found.\n", ()),
    (0, b"", GpuUnknown),
    (14, b"GPU 0: A100 (UUID: GPU-6a2f)\nWARNING: infoROM is corrupted at gpu 0000:00:1E.0\n", ("GPU-6a2f",)),
    (15, b"GPU 0: A100 (UUID: GPU-6a)\nUnable to determine the device handle for gpu 0000:02:00.0: GPU is lost.  "
         b"Reboot the system to recover this GPU\nGPU 2: A100 (UUID: GPU-6c)\n", ("GPU-6a", "GPU-6c")),
    (15, b"Unable to determine the device handle for gpu 0000:02:00.0: GPU is lost.\n", GpuNotInside),
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
def test_only_a_tool_that_ran_and_listed_no_gpu_says_that_there_is_none(
    code: int, text: bytes, found: tuple[str, ...] | type[Exception]
) -> None:
    got = looked(code, text)
    assert got == found if isinstance(found, tuple) else isinstance(got, found)


@pytest.mark.parametrize(("code", "devices", "found"), [
    (0, b"console\nnull\nnvidia-uvm\nnvidia0\nnvidiactl\n", GpuUnknown),
    (0, b"dxg\nnull\n", GpuUnknown), (0, b"nvhost-gpu\nnull\n", GpuUnknown),
    (0, b"console\nnull\nzero\n", GpuNotInside), (0, b"null nvidiactl nvidia-uvm\n", GpuNotInside),
    (0, b"", GpuUnknown), (127, b"", GpuUnknown),
])  # fmt: skip
def test_where_the_tool_is_missing_a_container_without_any_device_has_no_gpu(
    code: int, devices: bytes, found: type[Exception]
) -> None:
    assert isinstance(looked(126, MISSING, (code, devices)), found)


class Endless:
    """A line whose other end has always more to say."""

    def __init__(self) -> None:
        self.ours, self.theirs = pair()
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.theirs.sendall(b"\1\0\0\0" + (60_000).to_bytes(4, "big") + b"y" * 60_000)

    def fileno(self) -> int:
        return self.ours.fileno()

    def close(self) -> None:
        self.ours.close()
        self._writer.join()
        self.theirs.close()


def test_a_tool_that_never_stops_writing_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    line, client = Endless(), Client({"nvidia-smi": (None, b"")})
    monkeypatch.setattr(client, "exec_start", lambda *_, **__: line)
    found = gpus.gpus_inside(client, "c0ffee", seconds=0.2)
    assert isinstance(found, GpuUnknown)
    assert "no answer within 0.2 s" in str(found)


def test_of_an_output_of_megabytes_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [Chunk("stdout", b"GPU 0: A100 (UUID: GPU-6a2f)\n"), *[Chunk("stdout", b"y" * 100_000)] * 100]
    monkeypatch.setattr("ngcdl.engines.docker.stream.attached", lambda *_: iter(chunks))
    assert looked(0, b"") == ("GPU-6a2f",)
    chunks = chunks[1:]
    assert len(str(looked(9, b""))) < 400_000


@pytest.mark.usefixtures("hurried")
def test_a_driver_that_hangs_is_not_waited_for() -> None:
    assert isinstance(looked(None, b"", seconds=0), GpuUnknown)


@pytest.mark.lab
def test_a_look_leaves_no_connection(lab: dict[str, Any]) -> None:
    def connections() -> int:
        names = (Path(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd"))  # noqa: PTH208  # of this moment
        return sum(os.path.islink(name) and os.readlink(name).startswith("socket:") for name in names)  # noqa: PTH114, PTH115

    with contextlib.closing(docker.APIClient(lab["engine"]["host"], version="auto")) as client:
        repository = f"{lab['registry']['host']}/nvidia/busybox"
        client.pull(repository, tag="1")
        container = client.create_container(f"{repository}:1", ["sleep", "600"])["Id"]
        gc.disable()  # which would find them sooner or later
        try:
            client.start(container)
            gpus.gpus_inside(client, container)
            before = connections()
            for _ in range(30):  # the SDK keeps up to 25 for other requests
                assert isinstance(gpus.gpus_inside(client, container), GpuNotInside)
            assert connections() < before + 30
        finally:
            gc.enable()
            client.remove_container(container, force=True)
