"""A run's folder is read as far as possible, whatever the run put there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ngcdl.folder import (
    EXIT,
    MOST_BYTES,
    RECORD,
    RecordedExit,
    has_checkpoint,
    job_of,
    last_lines,
    lines,
    recorded_exit,
)


def test_torn_foreign_and_nested_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a": 1}\n\xff\n[1]\n\n5\n' + b"[" * 100_000 + b'\n{"b": 2}\n{"c": ')
    with pytest.warns(UserWarning, match="events.jsonl: 4 lines can't be read; what stood there is missing"):
        assert list(lines(path)) == [{"a": 1}, {"b": 2}]
    path.write_bytes(b'{"a": 1}\n\n{"c": ')
    assert list(lines(path)) == [{"a": 1}], "the last one may be in writing"


def test_lines_that_can_t_be_read_are_none(tmp_path: Path) -> None:
    assert list(lines(tmp_path / "missing")) == []
    with pytest.warns(UserWarning, match=f"{tmp_path} can't be read: "):
        assert list(lines(tmp_path)) == [], "a folder in its place"


def test_a_line_that_never_ends_ends_the_reading_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    os.truncate(path, 4 * MOST_BYTES)  # all zeros, none of them on the disk
    with path.open("ab") as file:
        file.write(b'\n{"b": 2}\n')
    for read in (lines(path), lines(path, (0, 100))):
        with pytest.warns(UserWarning, match="a line of more than 16 MiB, or several together, can't be read; it"):
            assert list(read) == [{"a": 1}]
    with pytest.warns(UserWarning, match="events.jsonl: a line of more than 16 MiB"):
        assert list(lines(path, (20, 4 * MOST_BYTES))) == []
    assert list(last_lines(path, 9)) == [{"b": 2}]


def test_a_line_of_megabytes_is_read_but_not_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"a": "x" * (MOST_BYTES - 20)}) + '\n{"b": 2}\n')
    assert [list(line) for line in lines(path)] == [["a"], ["b"]]
    path.write_text(f"{json.dumps({'a': 'x' * (MOST_BYTES // 3)})}\n" * 5)
    with pytest.warns(UserWarning, match="a line of more than 16 MiB, or several together"):
        assert len(list(lines(path))) == 3, "those who read them hold many at once"


@pytest.mark.parametrize("name", [RECORD, EXIT])
def test_a_file_that_would_fill_the_memory_is_none(tmp_path: Path, name: str) -> None:
    text = json.dumps({"container": "c0ffee", "code": 0, "t": 1.5})
    (tmp_path / name).write_text(text.ljust(MOST_BYTES))
    assert (job_of(tmp_path), recorded_exit(tmp_path)) != (None, None)
    (tmp_path / name).write_text(text.ljust(MOST_BYTES + 1))
    assert (job_of(tmp_path), recorded_exit(tmp_path)) == (None, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"code": 0, "t": 1.5, "restarts": 0, "why": null}', RecordedExit(0, 1.5, None)),
        ('{"code": 143, "t": 2, "restarts": 1, "why": "time_limit"}', RecordedExit(143, 2.0, "time_limit")),
        ('{"code": 1, "t": null, "restarts": null}', RecordedExit(1, None, None)),
        ('{"t": 1.5}', None),
        ('{"code": null, "t": 1.5}', None),
        ('{"code": 0, "t": []}', None),
        ('{"code": 0, "t": 1e999}', RecordedExit(0, None, None)),
        ('{"code": 0, "t": NaN}', RecordedExit(0, None, None)),
        ('{"code": 1e999, "t": 1.5}', None),
        pytest.param('{"code": 0, "t": 1' + "0" * 400 + "}", None, id="a huge time"),
        ('{"code": 0', None),
        ("[0]", None),
        ("[" * 100_000, None),
    ],
)
def test_how_a_run_on_a_cluster_ended_is_what_was_written_there_or_unknown(
    tmp_path: Path, text: str, told: RecordedExit | None
) -> None:
    assert recorded_exit(tmp_path) is None
    (tmp_path / EXIT).write_text(text)
    assert recorded_exit(tmp_path) == told


def test_an_end_that_another_machine_wrote_is_seen_over_nfs_which_remembers_what_was_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / EXIT).write_text('{"code": 143, "t": 5.5, "why": "time_limit"}')
    missing, open_one, scandir = {str(tmp_path / EXIT)}, os.open, os.scandir

    def opened(path: Path, *words: int) -> int:
        if str(path) in missing:
            raise FileNotFoundError(path)
        return open_one(path, *words)

    def listed(path: Path) -> Any:
        missing.clear()
        return scandir(path)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "scandir", listed)
    assert recorded_exit(tmp_path) == RecordedExit(143, 5.5, "time_limit")


def test_a_pipe_in_its_place_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / EXIT)
    assert recorded_exit(tmp_path) is None


def test_a_checkpoint_that_was_torn_while_it_was_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-100.npz.77.tmp").touch()
    assert not has_checkpoint(tmp_path)
    (tmp_path / "checkpoints/step-90.npz").touch()
    assert has_checkpoint(tmp_path)
