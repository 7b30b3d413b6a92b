"""Which GPUs a container sees: what nvidia-smi reports in it or, if it can't be run, whether /dev has any device."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import Any

from ngcdl.engines.docker import stream
from ngcdl.errors import GpuNotInside, GpuUnknown

# A hung driver never answers, and the run's output waits meanwhile.
LOOK_SECONDS = 30.0
_MOST_BYTES = 1 << 18  # of its output: a node of 16 cards, each in 7 parts, has 10 KB
# Exit codes after which nvidia-smi has said nothing about GPUs. 126 and 127: it can't be executed, or is missing; only
# the capability `utility` provides it, and it needs an image with glibc. 12: NVML, also from `utility`, is missing.
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
# https://docs.nvidia.com/deploy/nvidia-smi/index.html (RETURN VALUE)
# 0 without output tells nothing.
_NOT_ABLE = (0, 12, 126, 127)
# The same as text, because the exit code depends on runc's release; and a glibc that is too old.
_NOT_RUN = re.compile(r"OCI runtime exec failed|exec [^:]*nvidia-smi[^:]*: |exec user process|version `GLIBC")
# The device files of a card, of WSL and of a Jetson.
_DEVICE = re.compile(r"nvidia\d+|dxg|nvhost\S*|nvmap")


def gpus_inside(
    client: Any, container: str, seconds: float = LOOK_SECONDS
) -> tuple[str, ...] | GpuNotInside | GpuUnknown:
    """Return the UUIDs of the GPUs inside, or the error that explains why none are known. Raise the SDK's errors.

    A card with MIG enabled is listed before its MIG devices, and is not counted itself. Listed cards are inside,
    whatever the exit code: it may be about another card, as 14 (corrupted infoROM) or 15 (lost card)."""
    code, text = _run(client, container, ["nvidia-smi", "-L"], seconds)
    if code is None:
        return GpuUnknown(f"nvidia-smi gave no answer within {seconds:g} s")
    listed = re.findall(r"\(UUID: ([0-9A-Za-z/-]+)\)", text)  # a Jetson's has no prefix GPU-
    if listed or (code == 0 and text):
        pairs = pairwise([*listed, ""])
        return tuple(one for one, below in pairs if one.startswith("MIG-") or not below.startswith("MIG-"))
    said = " ".join(text.split()) or f"nvidia-smi -L exited with {code}"
    if code not in _NOT_ABLE and not _NOT_RUN.search(said):
        return GpuNotInside(said)
    code, text = _run(client, container, ["ls", "/dev"], seconds)
    is_bare = code == 0 and text.split() and not any(map(_DEVICE.fullmatch, text.split()))
    return GpuNotInside(f"{said}; and /dev has none") if is_bare else GpuUnknown(said)


def _run(client: Any, container: str, command: list[str], seconds: float) -> tuple[int | None, str]:
    """Run `command` in the container. Return its exit code, None if it did not end within `seconds`, and its output up
    to the chunk that exceeds _MOST_BYTES: it is the image's own program, and may write for ever."""
    made = client.exec_create(container, command)
    end = time.monotonic() + seconds
    # The SDK's own read has no timeout.
    line, said = client.exec_start(made["Id"], socket=True), b""
    try:
        for chunk in stream.attached(line, False, lambda: time.monotonic() < end):
            said += chunk.data if len(said) <= _MOST_BYTES else b""
            if time.monotonic() >= end:
                break
    finally:
        stream.close(line)
    return client.exec_inspect(made["Id"])["ExitCode"], said.decode("utf-8", "replace")
