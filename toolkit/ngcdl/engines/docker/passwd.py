"""The caller's name inside the container, without building an image for it.

A uid missing from /etc/passwd gives `I have no name!` and, in PyTorch, a KeyError from getpwuid
(https://github.com/pytorch/pytorch/issues/140765); a gid missing from /etc/group makes bash complain.
So lines are added to the files of the created container before it starts; the image is unchanged.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from typing import Any

from ngcdl import tars
from ngcdl.engines.docker.messages import if_there
from ngcdl.spec import inside

NAME = "ngcdl"
_MOST_BYTES = 4 << 20  # of such a file, packed: some 60,000 users


def with_line(text: str, number: int, line: str) -> str:
    """Return `text`, a passwd or group file, with `line` added; unchanged if it already has an entry for `number`."""
    for entry in text.splitlines():
        parts = entry.split(":")
        if len(parts) > 2 and parts[2] == str(number):
            return text
    return text + ("" if text.endswith("\n") or not text else "\n") + line + "\n"


def add_caller(client: Any, container: str, user: str | None, groups: Iterable[str] = ()) -> None:
    """Add uid and gid of `user` (uid:gid), and `groups` (gids), to the files of a created container. A file that its
    image lacks is not created, and one of megabytes is left as it is."""
    if not user or ":" not in user or user.startswith("0:"):
        return
    uid, gid = (int(part) for part in user.split(":"))
    wanted = {
        "passwd": {uid: f"{NAME}:x:{uid}:{gid}:ngcdl:{inside.HOME}:/bin/bash"},
        "group": {gid: f"{NAME}:x:{gid}:"} | {int(more): f"{NAME}{more}:x:{more}:{NAME}" for more in groups},
    }
    changed = {}
    for name, lines in wanted.items():
        text = new = _read(client, container, f"/etc/{name}")
        for number, line in lines.items():
            new = None if new is None else with_line(new, number, line)
        if new is not None and new != text:
            changed[name] = new
    if changed:
        client.put_archive(container, "/etc", _archive(changed))


def _read(client: Any, container: str, path: str) -> str | None:
    found = if_there(client.get_archive, container, path)
    if found is None:
        return None
    packed = b""
    for some in found[0]:
        packed += some
        if len(packed) > _MOST_BYTES:
            return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file:
                return file.read().decode("utf-8", "surrogateescape")
    return None


def _archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            tars.add(archive, name, text.encode("utf-8", "surrogateescape"))
    return buffer.getvalue()
