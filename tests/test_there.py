"""What is missing is told from what can't be looked at, on every Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import LIKE_OTHERS

from ngcdl import there


def test_what_is_there_is_told_from_what_is_missing(tmp_path: Path) -> None:
    file, loop = tmp_path / "file", tmp_path / "loop"
    file.touch()
    loop.symlink_to(loop)
    told = [(there.exists(one), there.is_folder(one), there.is_file(one)) for one in (tmp_path, file)]
    assert told == [(True, True, False), (True, False, True)]
    for missing in (tmp_path / "none", file / "below", loop, Path("a\0b")):
        assert [there.exists(missing), there.is_folder(missing), there.is_file(missing)] == [False] * 3


@pytest.mark.parametrize("name", ["exists", "is_folder", "is_file"])
def test_what_can_not_be_looked_at_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="too long"):
        getattr(there, name)(tmp_path / ("x" * 300))
    (tmp_path / "locked").mkdir(mode=0)
    code = f"from pathlib import Path; from ngcdl.there import {name}; {name}(Path({str(tmp_path / 'locked/x')!r}))"
    done = subprocess.run([*LIKE_OTHERS, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"PermissionError: [Errno 13] {os.strerror(13)}: " in done.stderr
