import errno
import io
import json
import subprocess
import sys
import time

import pytest
from own_process import Said
from trainer_process import CONTAINERS, until

from trainer import events, files
from trainer.events import Events, Stop, Voice, by_c_library


def written(folder):
    return (folder / "events.jsonl").read_text().splitlines()


def test_an_event_is_one_line_with_its_time(tmp_path):
    Events(str(tmp_path)).write("eval", step=3, precision_at_1=0.5)
    (line,) = written(tmp_path)
    event = json.loads(line)
    assert event.pop("t") > 1.5e9
    assert event == {"event": "eval", "step": 3, "precision_at_1": 0.5}


def test_what_is_no_number_becomes_null(tmp_path):
    Events(str(tmp_path)).write("step", loss=float("nan"), rates=[float("inf"), {"x": float("-inf")}, 1.0])
    event = json.loads(written(tmp_path)[0], parse_constant=pytest.fail)
    assert (event["loss"], event["rates"]) == (None, [None, {"x": None}, 1.0])


def test_a_path_that_is_no_text_is_told_with_a_sign_in_its_place(tmp_path):
    Events(str(tmp_path)).write("error", message=b"/data/\xc3\xb6 and \xf6", kind="data")
    assert json.loads(written(tmp_path)[0])["message"] == "/data/\u00f6 and \ufffd"


def test_what_stdout_has_no_letters_for_is_said_and_logged_all_the_same(tmp_path):
    for encoding, text, heard in (
        ("ascii", "of /tmp/\u00f6", b"of /tmp/?\n"),
        ("utf-8", "of /tmp/\u00f6", "of /tmp/\u00f6\n".encode("utf-8")),
        ("utf-8", "of /tmp/\udcf6", b"of /tmp/?\n"),  # Python 3's surrogate for a non-UTF-8 byte
    ):
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with (tmp_path / "log").open("wb") as log:
            Voice(stdout, log).say(text)
        assert stdout.buffer.getvalue() == heard
        assert (tmp_path / "log").read_bytes() == text.encode("utf-8", "replace") + b"\n"


def test_python_2_too_has_a_clock_that_nobody_sets():
    before = time.monotonic()
    assert before <= by_c_library()() <= time.monotonic()


def test_a_torn_last_line_does_not_swallow_the_next_event(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b'{"event": "start"}\n{"event": "st')
    Events(str(tmp_path)).write("start", step=1)
    assert json.loads(written(tmp_path)[2])["step"] == 1


def test_a_nearly_full_disk_keeps_lines_whole_and_takes_none_of_what_it_has_no_room_for(tmp_path):
    code = """
import resource, sys
from trainer.events import Appended, Events, Stop, Voice
events, voice = Events(sys.argv[1]), Voice(None, Appended(sys.argv[1] + "/log.txt"))
for limit in (300, 10**6):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, 10**6))  # as a disk: it takes what it has room for
    for write in lambda: events.write("step", step=limit, text="x" * 150), lambda: voice.say("y" * 200):
        for _ in range(2):
            try:
                write()
            except Stop as stop:
                print(stop.kind)
"""
    said = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(said, env={"PYTHONPATH": str(CONTAINERS)}, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"disk_full\n" * 2
    assert [json.loads(line)["step"] for line in written(tmp_path)] == [300, 10**6, 10**6]
    assert (tmp_path / "log.txt").read_text() == ("y" * 200 + "\n") * 3


def test_a_second_trainer_is_refused_until_the_first_is_gone(tmp_path):
    command = "import sys; from trainer.files import lock; held = lock(sys.argv[1]); print('held', flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", command, str(tmp_path)],
        env={"PYTHONPATH": str(CONTAINERS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    with pytest.raises(Stop, match="another trainer works in") as stop:
        files.lock(str(tmp_path))
    assert stop.value.kind == "bad_argument"
    other.communicate("\n")
    files.lock(str(tmp_path)).close()


class Pipe(io.StringIO):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def flush(self):
        if self.number:
            raise OSError(self.number, "it says")


def test_a_reader_that_left_does_not_stop_the_training():
    log = io.BytesIO()
    voice = Voice(Pipe(errno.EPIPE), log)
    voice.say("one")
    voice.say("two")
    assert log.getvalue() == b"one\ntwo\n"


def test_what_takes_long_is_said_once_while_it_is_done(monkeypatch):
    log = Said()
    voice = Voice(None, log)
    with voice.still("loading tf2"):
        assert not log
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    with voice.still("loading tf2"):
        until(lambda: log, "it says so")
    assert log == [b"Still loading tf2\n"]


def test_a_full_disk_behind_stdout_is_said():
    with pytest.raises(Stop) as stop:
        Voice(Pipe(errno.ENOSPC)).say("one")
    assert stop.value.kind == "disk_full"


def test_a_file_written_whole_replaces_the_old_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "run.json"
    for content in b"old", b"new":
        files.write_whole(str(path), content)
    assert path.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["run.json"]
