"""How long something may take, and what is reported during a wait."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from house import until

from ngcdl import waiting


def test_what_is_waited_for_is_said_with_the_time_until_it_is_there() -> None:
    before = threading.enumerate()  # another test's start may still be waiting for its engine
    said: list[str] = []
    waits_for: list[str | None] = ["the engine to make it"]
    with waiting.telling(said.append, lambda: waits_for[0], 0.01):
        until(lambda: said, "a word")
        waits_for[0] = "the engine to start it"
        until(lambda: "start" in said[-1], "a later word")
    assert all(
        re.fullmatch(r"waiting for the engine to (make|start) it \(\d+ s so far\); Ctrl-C cancels", one) for one in said
    )
    assert not [one for one in threading.enumerate() if one.name == "ngcdl-telling" and one not in before]


def test_nothing_is_said_of_what_does_not_take_long_or_has_no_name() -> None:
    said: list[str] = []
    asked: list[None] = []
    with waiting.telling(said.append, lambda: "the engine to start it", 60):
        pass
    with waiting.telling(said.append, lambda: asked.append(None), 0.01):  # type: ignore[func-returns-value]
        until(lambda: len(asked) > 1, "a second look")
    assert said == []


def test_a_lock_s_file_keeps_its_content_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("thesis")
    (tmp_path / "link").symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(OSError, match="symbolic link"), waiting.locked(tmp_path / "link", print, "another"):
        pass
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    with pytest.raises(OSError, match="symbolic link"), waiting.locked(tmp_path / "link", print, "another"):
        pass
    with waiting.locked(tmp_path / "thesis.tex", print, "another"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "thesis"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: no call can be made to fail")
@pytest.mark.parametrize(
    ("error", "entered"), [("ENOLCK", True), ("ENOSYS", True), ("EOPNOTSUPP", True), ("EIO", False)]
)
def test_a_file_system_without_locks_stops_nobody_and_only_who_needs_one_is_told(
    tmp_path: Path, error: str, entered: bool
) -> None:
    code = """
import sys
from pathlib import Path
from ngcdl import waiting
for locked in (waiting.locked(Path("lock"), print, "another"), waiting.locked_within(Path("lock"), 0)):
    try:
        with locked: print("entered")
    except OSError as error: print(type(error).__name__)
"""
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=flock:error={error}"]
    words = [*strace, sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.stdout.split() == ["entered" if entered else "OSError", "OSError"], done.stderr


def test_a_lock_is_waited_for_up_to_a_limit(tmp_path: Path) -> None:
    path, taken = tmp_path / "lock", threading.Event()

    def take() -> None:
        with waiting.locked_within(path, 60):
            taken.set()

    other = threading.Thread(target=take)
    with waiting.locked_within(path, 0, 0o600):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(TimeoutError), waiting.locked_within(path, 0.01):
            pass
        other.start()
        assert not taken.is_set()
    other.join(240)
    assert taken.is_set()


def test_a_lock_that_cannot_be_had_keeps_nobody_out(tmp_path: Path) -> None:
    def lock() -> contextlib.AbstractContextManager[None]:
        return waiting.locked_within(tmp_path / "lock", 0)

    with lock(), waiting.if_possible(lock):
        pass
    with waiting.if_possible(lock), pytest.raises(TimeoutError), lock():
        pass
    with pytest.raises(OSError, match="of the block"), waiting.if_possible(lock):
        raise OSError("of the block")


def test_what_takes_too_long_is_left_behind_and_what_does_not_gives_its_result_or_its_error() -> None:
    forever = threading.Event()
    with pytest.raises(TimeoutError):
        waiting.within(forever.wait, 0.01)
    forever.set()
    assert waiting.within(lambda: None, 60) is None
    with pytest.raises(ZeroDivisionError):
        waiting.within(lambda: 1 // 0, 60)


def test_the_list_of_runs_loads_nothing_that_starts_one() -> None:
    """Start-up is felt: prepare alone brings in sixty modules."""
    code = "import sys; from ngcdl.cli import runs; print([n for n in sys.modules if n == 'ngcdl.running.prepare'])"
    assert (
        subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    )
