"""Which GPUs a container sees: what nvidia-smi says in it; where that can't be run, whether any device is there."""

from __future__ import annotations

import contextlib
import re
import time
from itertools import pairwise
from typing import Any

from ngcdl.engines.docker import stream
from ngcdl.errors import GpuNotInside, GpuUnknown

# A driver that hangs never answers, and the run's output waits meanwhile.
LOOK_SECONDS = 30.0
# 126 and 127: it can't be executed, or is not there. Only the capability `utility` brings it and NVML, without which it
# ends with 12; and it wants an image with glibc.
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
# https://docs.nvidia.com/deploy/nvidia-smi/index.html (RETURN VALUE)
# 0 without a word: the SDK loses what comes together with the head of the answer.
_NOT_ABLE = (0, 12, 126, 127)
# The same in words, with a code that depends on the release of runc, and of a glibc that is too old.
_NOT_RUN = re.compile(r"OCI runtime exec failed|exec [^:]*nvidia-smi[^:]*: |exec user process|version `GLIBC")
# Of a card, of WSL, of a Jetson.
_DEVICE = re.compile(r"nvidia\d+|dxg|nvhost\S*|nvmap")


def look(client: Any, container: str, seconds: float = LOOK_SECONDS) -> tuple[str, ...] | GpuNotInside | GpuUnknown:
    """Give the UUIDs of the GPUs inside, else the error that says why none are known. Raises the SDK's errors.

    A card with MIG on is listed above its MIG devices, and is none itself."""
    code, text = _run(client, container, ["nvidia-smi", "-L"], seconds)
    if code == 0 and text:
        uuids = [*re.findall(r"\(UUID: ([0-9A-Za-z/-]+)\)", text), ""]  # a Jetson's has no GPU- before it
        return tuple(one for one, below in pairwise(uuids) if one.startswith("MIG-") or not below.startswith("MIG-"))
    if code is None:
        return GpuUnknown(f"nvidia-smi gave no answer within {seconds:g} s")
    said = " ".join(text.split()) or f"nvidia-smi -L ended with {code}"
    if code not in _NOT_ABLE and not _NOT_RUN.search(said):
        return GpuNotInside(said)
    code, text = _run(client, container, ["ls", "/dev"], seconds)
    is_bare = code == 0 and text.split() and not any(map(_DEVICE.fullmatch, text.split()))
    return GpuNotInside(f"{said}; and /dev has none") if is_bare else GpuUnknown(said)


def _run(client: Any, container: str, command: list[str], seconds: float) -> tuple[int | None, str]:
    """Give the exit code, None where it has not ended in time, and what was written."""
    made = client.exec_create(container, command)
    end = time.monotonic() + seconds
    # The SDK's own reading has no time limit.
    with contextlib.closing(client.exec_start(made["Id"], socket=True)) as line:
        chunks = stream.attached(line, False, lambda: time.monotonic() < end)
        text = b"".join(chunk.data for chunk in chunks).decode("utf-8", "replace")
    return client.exec_inspect(made["Id"])["ExitCode"], text
