"""Which GPUs a container sees: what nvidia-smi reports in it or, if it can't be run, whether /dev has any device."""

from __future__ import annotations

import contextlib
import re
import time
from itertools import pairwise
from typing import Any

from ngcdl.engines.docker import stream
from ngcdl.errors import GpuNotInside, GpuUnknown

# A hung driver never answers, and the run's output waits meanwhile.
LOOK_SECONDS = 30.0
# 126 and 127: it can't be executed, or is missing. Only the capability `utility` provides it and NVML, without which it
# exits with 12; and it needs an image with glibc.
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
# https://docs.nvidia.com/deploy/nvidia-smi/index.html (RETURN VALUE)
# 0 without output: the SDK loses what arrives together with the response's header.
_NOT_ABLE = (0, 12, 126, 127)
# The same as text, where the exit code depends on the release of runc; and a glibc that is too old.
_NOT_RUN = re.compile(r"OCI runtime exec failed|exec [^:]*nvidia-smi[^:]*: |exec user process|version `GLIBC")
# Of a card, WSL and a Jetson.
_DEVICE = re.compile(r"nvidia\d+|dxg|nvhost\S*|nvmap")


def gpus_inside(
    client: Any, container: str, seconds: float = LOOK_SECONDS
) -> tuple[str, ...] | GpuNotInside | GpuUnknown:
    """Return the UUIDs of the GPUs inside, or the error that explains why none are known. Raise the SDK's errors.

    A card with MIG enabled is listed above its MIG devices, and does not count itself. The cards that are listed are
    inside, whatever the exit code says of another one, as 14 (its infoROM is corrupted) or 15 (it is lost)."""
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
    """Return the exit code, None if it did not exit in time, and the output."""
    made = client.exec_create(container, command)
    end = time.monotonic() + seconds
    # The SDK's own read has no timeout.
    with contextlib.closing(client.exec_start(made["Id"], socket=True)) as line:
        chunks = stream.attached(line, False, lambda: time.monotonic() < end)
        text = b"".join(chunk.data for chunk in chunks).decode("utf-8", "replace")
    return client.exec_inspect(made["Id"])["ExitCode"], text
