"""The caller's line in the container's passwd and group."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field

import docker.errors
import pytest

from ngcdl.engines.docker.passwd import add_caller, with_line

ROOT = "root:x:0:0:root:/root:/bin/bash\n"


@dataclass
class FakeClient:
    """The files of a created container, as docker's archive calls see them."""

    files: dict[str, bytes]
    put: list[str] = field(default_factory=list)

    def get_archive(self, container: str, path: str) -> tuple[Iterator[bytes], dict[str, str]]:
        if path not in self.files:
            raise docker.errors.NotFound("no such file")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            member = tarfile.TarInfo(path.rsplit("/", 1)[-1])
            member.size = len(self.files[path])
            archive.addfile(member, io.BytesIO(self.files[path]))
        data = buffer.getvalue()
        return iter([data[:100], *(data[at : at + (1 << 20)] for at in range(100, len(data), 1 << 20))]), {}

    def put_archive(self, container: str, path: str, data: bytes) -> bool:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                assert (member.mode, member.uid) == (0o644, 0)
                file = archive.extractfile(member)
                assert file is not None
                self.files[f"{path}/{member.name}"] = file.read()
                self.put.append(member.name)
        return True


def test_a_line_is_added_at_the_end() -> None:
    assert with_line(ROOT, 1000, "me:x:1000:1000:::") == ROOT + "me:x:1000:1000:::\n"
    assert with_line(ROOT.rstrip(), 1000, "me") == ROOT + "me\n"
    assert with_line("", 1000, "me") == "me\n"


def test_a_number_that_has_a_name_keeps_it() -> None:
    taken = "+\nbroken\n:\nubuntu:x:1000:1000::/:\n"
    assert (with_line(ROOT, 0, "me"), with_line(taken, 1000, "me")) == (ROOT, taken)


def test_the_caller_gets_a_name_a_home_and_a_group() -> None:
    client = FakeClient({"/etc/passwd": ROOT.encode(), "/etc/group": b"root:x:0:\nml:x:2001:\n"})
    add_caller(client, "c0ffee", "1000:1001", ("2001", "2002"))
    assert client.files["/etc/passwd"].decode() == ROOT + "ngcdl:x:1000:1001:ngcdl:/ngcdl/run/home:/bin/bash\n"
    assert client.files["/etc/group"] == b"root:x:0:\nml:x:2001:\nngcdl:x:1001:\nngcdl2002:x:2002:ngcdl\n"


def test_only_what_is_missing_is_written() -> None:
    client = FakeClient({"/etc/passwd": ROOT.encode(), "/etc/group": b"users:x:1001:\n"})
    add_caller(client, "c0ffee", "1000:1001")
    assert client.put == ["passwd"]


@pytest.mark.parametrize("user", [None, "0:0", "root", "1000"])
def test_root_and_names_of_the_image_need_no_line(user: str | None) -> None:
    client = FakeClient({"/etc/passwd": ROOT.encode()})
    add_caller(client, "c0ffee", user)
    assert client.put == []


def test_a_file_that_would_fill_the_memory_is_left_as_it_is() -> None:
    client = FakeClient({"/etc/passwd": ROOT.encode() + bytes(8 << 20), "/etc/group": b"root:x:0:\n"})
    add_caller(client, "c0ffee", "1000:1000")
    assert client.put == ["group"]


def test_an_image_without_these_files_is_left_as_it_is() -> None:
    client = FakeClient({})
    add_caller(client, "c0ffee", "1000:1000")
    assert client.put == []


def test_a_file_that_is_no_text_keeps_what_can_be_kept() -> None:
    client = FakeClient({"/etc/passwd": b"root:x:0:0:\xff:/:\n"})
    add_caller(client, "c0ffee", "1000:1000")
    assert client.files["/etc/passwd"].startswith(b"root:x:0:0:\xff:/:\n")
