"""pod.sh, run here: it trains, passes SIGTERM on, resumes from a checkpoint, and its record is read from the log."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ngcdl.engines.kubernetes import bundle, pod_output
from ngcdl.engines.kubernetes.pod_output import BEGIN, END, PodOutput

STOPPED = "trap 'echo saved; exit 143' TERM; echo ready; while :; do sleep 0.1; done"


class Pod:
    """The folder that a ConfigMap mounts, and the run's."""

    def __init__(self, folder: Path) -> None:
        self.run, self._brought = folder / "inside", folder / "brought"
        self.work = folder / "work"
        for made in (self._brought, self.work):
            made.mkdir()
        shutil.copy(Path(bundle.__file__).parent / bundle.SCRIPT, self._brought)

    def starts(self, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sh", str(self._brought / bundle.SCRIPT), *words], cwd=self.work, stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "NGCDL_RUN": str(self.run), **variables},
        )  # fmt: skip

    def says(self, script: str, **variables: str) -> tuple[int, bytes]:
        with self.starts("sh", "-c", script, "trainer", **variables) as process:
            said, _ = process.communicate(timeout=240)
        return process.returncode, said

    def brings(self, trainer: Path) -> None:

        (self._brought / bundle.KEY).write_bytes(base64.b64decode(bundle.packed(str(trainer))))


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def told(said: bytes, folder: Path, size: int = 7) -> bytes:
    """Read a pod's output in pieces."""
    folder.mkdir(exist_ok=True)
    reader = PodOutput(folder, "pod-0")
    return b"".join(reader.take(said[i : i + size]) for i in range(0, len(said), size)) + reader.end()


def kept(folder: Path) -> set[str]:
    """Return the names of the record's files."""
    return {path.name for path in folder.iterdir()} - {"log.txt"}


def test_code_and_record_of_a_training_come_out_of_its_log(pod: Pod, tmp_path: Path) -> None:
    code, said = pod.says(
        f"echo step 0; echo '{{}}' | tee {pod.run}/events.jsonl >{pod.run}/trace.json; "
        f"echo '[]' >{pod.run}/samples-n1.jsonl; exit 3"
    )
    shown = told(said, tmp_path / "kept")
    assert (code, shown) == (3, b"step 0\n")
    files = {path.name: path.read_text() for path in (tmp_path / "kept").iterdir()}
    assert files["events.jsonl"] == files["trace.json"] == "{}\n"
    assert files["samples-n1.jsonl"] == "[]\n"
    assert files["log.txt"] == "ngcdl: pod pod-0\nstep 0\n"
    ended: dict[str, Any] = json.loads(files["exit.json"])
    assert ended["code"] == 3
    assert ended["t"] > 1_700_000_000
    assert ended["restarts"] is None


def test_a_node_that_is_not_the_first_tells_its_samples_alone(pod: Pod, tmp_path: Path) -> None:
    """The folder may be one claim's, with the files of all nodes, of which this one has an old state."""
    files = ("events.jsonl", "trace.json", "samples-n1.jsonl", "samples-n2.jsonl", "samples-n20.jsonl")
    script = f"cd {pod.run}; touch {' '.join(files)}; echo node $NGCDL_NODE"
    nodes = {"NGCDL_NODES": "2", "NGCDL_HOST": "n2"}
    code, said = pod.says(script, JOB_COMPLETION_INDEX="1", **nodes)
    assert (code, told(said, tmp_path / "kept")) == (0, b"node 1\n")
    assert kept(tmp_path / "kept") == {"samples-n2.jsonl"}
    _, said = pod.says(script, JOB_COMPLETION_INDEX="0", **nodes)
    told(said, tmp_path / "first")
    assert kept(tmp_path / "first") == {"events.jsonl", "exit.json", "trace.json", "samples-n2.jsonl"}


def test_one_node_s_record_has_the_samples_of_the_lost_pod_whose_place_it_took(pod: Pod, tmp_path: Path) -> None:
    _, said = pod.says(f"cd {pod.run}; touch samples-n1.jsonl samples-n2.jsonl", NGCDL_HOST="n2")
    told(said, tmp_path / "kept")
    assert kept(tmp_path / "kept") == {"exit.json", "samples-n1.jsonl", "samples-n2.jsonl"}


def test_sigterm_is_passed_on_and_the_end_that_follows_is_waited_for(pod: Pod, tmp_path: Path) -> None:
    with pod.starts("sh", "-c", STOPPED) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=240)
    assert (process.returncode, first) == (143, b"ready\n")
    assert told(said, tmp_path / "kept").startswith(b"saved\n")
    assert json.loads((tmp_path / "kept" / "exit.json").read_text())["code"] == 143


def test_no_moment_is_too_early_for_a_sigterm(pod: Pod) -> None:
    """The child requests its own end before the script can know its PID."""
    early = "trap 'echo saved; exit 143' TERM; kill -TERM $PPID; while :; do sleep 0.1; done"
    for _ in range(10):
        code, said = pod.says(early)
        assert (code, said.splitlines()[0]) == (143, b"saved")


@pytest.mark.parametrize(("training", "words"), [("yes", "a --resume {run}"), ("", "a")])
def test_a_pod_in_the_place_of_a_lost_one_goes_on_from_the_checkpoint(pod: Pod, training: str, words: str) -> None:
    (pod.run / "checkpoints").mkdir(parents=True)
    (pod.run / "checkpoints" / "step-10.npz").touch()
    with pod.starts("sh", "-c", 'echo "$@"', "trainer", "a", NGCDL_TRAINING=training) as process:
        said, _ = process.communicate(timeout=240)
    assert said.splitlines()[0].decode() == words.format(run=pod.run)


def test_on_a_claim_the_run_s_user_makes_its_folder_and_others_may_make_theirs_beside_it(
    pod: Pod, tmp_path: Path
) -> None:
    claim = tmp_path / "claim"
    claim.mkdir()
    claim.chmod(0o1777)  # whatever the umask is
    kept, before = claim / "ngcdl-runs/second", claim / "ngcdl-runs/first"
    names = {"NGCDL_CLAIM": "cifar", "NGCDL_KEPT": str(kept)}
    code, _ = pod.says(f"echo 1 >{pod.run}/events.jsonl", **names)
    assert (code, (kept / "events.jsonl").read_text(), pod.run.readlink()) == (0, "1\n", kept)
    assert kept.parent.stat().st_mode & 0o7777 == 0o1777
    before.mkdir()
    (before / "step").touch()
    code, _ = pod.says(f"ls {pod.run.parent}/resume/step", **names, NGCDL_BEFORE=str(before))
    assert code == 0


@pytest.mark.parametrize("below", ["", "home", "a/b"])
@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_command_may_start_in_the_run_s_folder_and_finds_that_on_the_claim(
    pod: Pod, tmp_path: Path, is_claimed: bool, below: str
) -> None:
    pod.work = pod.run / below
    pod.work.mkdir(parents=True)  # as the runtime makes a missing one
    made, claim = pod.run.stat().st_ino, tmp_path / "claim"
    claim.mkdir()
    kept = claim / "ngcdl-runs/x" if is_claimed else pod.run
    code, _ = pod.says("echo 1 >result", **({"NGCDL_CLAIM": "cifar", "NGCDL_KEPT": str(kept)} if is_claimed else {}))
    assert (code, pod.run.is_symlink(), (kept / below / "result").read_text()) == (0, is_claimed, "1\n")
    assert (kept / "exit.json").is_file()
    assert kept.stat().st_ino != made, "which may be root's"


def test_on_a_claim_that_the_run_s_user_can_t_write_the_pod_says_whose_it_is_and_is_not_tried_again(
    pod: Pod, tmp_path: Path
) -> None:
    claim = tmp_path / "claim"
    claim.write_text("")  # root, too, can make no folder below a file
    kept = str(claim / "ngcdl-runs/x")
    code, said = pod.says("echo trained", NGCDL_CLAIM="cifar", NGCDL_KEPT=kept)
    first, second = said.decode().splitlines()
    who = f"{os.getuid()}:{os.getgid()}"
    assert first == f"ngcdl: on the claim cifar the user {who} can't make {kept}. Whose folders these are:"
    assert second.split()[-1] == str(claim)
    assert code == 2, "with which a Job fails at once"


def test_the_trainer_is_unpacked_where_the_pod_works(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "trainer" / "deep").mkdir(parents=True)
    (tmp_path / "trainer" / "deep" / "one.py").write_text("x = 1\n")
    pod.brings(tmp_path / "trainer")
    _, said = pod.says("cat trainer/deep/one.py")
    assert said.startswith(b"x = 1\n")


def test_a_record_that_was_cut_leaves_the_log_and_no_half_file(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the record of a pod can't be read: "):
        shown = told(b"step 0\n" + BEGIN + b"H4sI\n" + END + b"step 1\n" + BEGIN + b"H4", tmp_path)
    assert shown == b"step 0\nstep 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


@pytest.mark.parametrize("size", [1, 7, 100, 65536])
@pytest.mark.parametrize("words", ["hello", "hello\n", "", "one\n\ntwo\n\n", "\n\nngcdl: the record, for"])
def test_a_record_is_found_wherever_what_was_written_ends(pod: Pod, tmp_path: Path, words: str, size: int) -> None:
    """An unterminated line is ended, and no empty line is shown that was not written."""
    code, said = pod.says('printf "$WORDS"; exit 3', WORDS=words)
    shown = told(said, tmp_path / "kept", size).decode()
    assert (code, shown) == (3, words if words.endswith("\n") or not words else f"{words}\n")
    assert json.loads((tmp_path / "kept" / "exit.json").read_text())["code"] == 3


def test_what_is_written_without_a_record_is_shown_as_it_is(tmp_path: Path) -> None:
    for size in (1, 3, 100):
        assert told(b"\n\none\n\n\ntwo\n\n", tmp_path, size) == b"\n\none\n\n\ntwo\n\n"


def test_a_record_that_was_damaged_on_its_way_is_left(pod: Pod, tmp_path: Path) -> None:
    _, said = pod.says(f"seq 3000 >{pod.run}/events.jsonl")
    lines = said.splitlines(keepends=True)
    begin = lines.index(BEGIN)
    for at in range(begin + 1, len(lines) - 1):
        without = lines[:at] + lines[at + 1 :]
        within = [*lines[:at], b"Exception ignored in: <function>\n", *lines[at:]]
        for damaged in (without, within):
            with pytest.warns(UserWarning, match="the record of a pod can't be read: "):
                assert told(b"".join(damaged), tmp_path / "kept") == b""
            assert not (tmp_path / "kept" / "exit.json").exists()
            assert not (tmp_path / "kept" / "events.jsonl").exists()


@pytest.mark.parametrize("size", [1, 7, 100, 65536])
def test_a_log_that_its_node_rotated_within_the_record_still_has_events_and_exit_code(
    pod: Pod, tmp_path: Path, size: int
) -> None:
    """Wherever it is cut: nothing packed is shown, and what is printed last is whole."""
    samples, events = f"head -c 700 /dev/urandom >{pod.run}/samples-n1.jsonl", f"echo '{{}}' >{pod.run}/events.jsonl"
    _, said = pod.says(f"{samples}; {events}; exit 3")
    lines = said.splitlines(keepends=True)
    assert lines.count(BEGIN) == 2
    for at in range(lines.index(BEGIN) + 1, lines.index(END) + 1):
        folder = tmp_path / f"kept-{at}"
        with pytest.warns(UserWarning, match="the record of a pod can't be read: its node kept only the end of it"):
            shown = told(b"".join(lines[at:]), folder, size)
        is_word = len(lines[at]) != 77 and lines[at] != END  # a short line of base64 may be one
        assert shown == (lines[at] if is_word else b"")
        assert kept(folder) == {"events.jsonl", "exit.json"}


@pytest.mark.parametrize("size", [1, 7, 100, 65536])
@pytest.mark.parametrize("ending", ["", "\n", "\nstep 0\n", "QUJD\n", "QUJD\n\n\n", "QUJD\nngcdl: end of the"])
def test_what_only_looks_like_a_record_s_end_is_shown(pod: Pod, tmp_path: Path, ending: str, size: int) -> None:
    words = f"{'A' * 76}\n{'B' * 76}{ending}"
    assert told(words.encode(), tmp_path, size) == words.encode()
    _, said = pod.says('printf "$WORDS"', WORDS=words)
    assert told(said, tmp_path / "kept", size).decode() == (words if words.endswith("\n") else f"{words}\n")
    assert kept(tmp_path / "kept") == {"exit.json"}


def test_a_record_may_name_no_file_but_those_of_a_record(tmp_path: Path) -> None:
    import base64
    import io
    import tarfile

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in ("../exit.json", "run.json", "/etc/passwd", "exit.json"):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            archive.addfile(entry, io.BytesIO(b"{}"))
    told(BEGIN + base64.encodebytes(made.getvalue()) + END, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["exit.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_what_two_of_us_bring_of_one_pod_stands_in_the_log_once_below_each_pods_name(tmp_path: Path) -> None:
    told(b"step 0\nstep 1\n", tmp_path)
    told(b"step 0\n", tmp_path)
    second = PodOutput(tmp_path, "pod-1")
    second.take(b"step 1\n")
    assert (tmp_path / "log.txt").read_text() == "ngcdl: pod pod-0\nstep 0\nstep 1\nngcdl: pod pod-1\nstep 1\n"


def test_a_log_that_can_t_be_written_is_told_and_the_output_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "log.txt").mkdir()
    with pytest.warns(UserWarning, match=r"log\.txt can't be written \(Is a directory\); the run goes on without it\."):
        assert told(b"step 0\n", tmp_path) == b"step 0\n"


def test_the_end_that_a_node_kept_of_a_long_log_goes_on_in_what_was_brought_and_is_written_over_nothing(
    tmp_path: Path,
) -> None:
    steps = [f"step {number:04}\n" for number in range(3000)]
    title, log = "ngcdl: pod pod-0\n", tmp_path / "log.txt"
    for first, last in ((0, 1000), (300, 1100), (310, 1100), (300, 1200)):
        told("".join(steps[first:last]).encode(), tmp_path, 65536)
        assert log.read_text() == title + "".join(steps[: max(last, 1000)])
    for last in (2100, 2100, 2200):  # what lies between is lost with the node's older file
        told("".join(steps[2000:last]).encode(), tmp_path, 65536)
        assert log.read_text() == title + "".join(steps[:1200]) + title + "".join(steps[2000:last])


def test_a_long_log_is_searched_a_piece_at_a_time(tmp_path: Path) -> None:
    log, steps = tmp_path / "log.txt", b"".join(b"step %d\n" % number for number in range(400_000))
    whole = b"ngcdl: pod a\n" + steps + b"ngcdl: pod b\n" + steps
    log.write_bytes(whole)
    tracemalloc.start()
    PodOutput(tmp_path, "b").take(steps[-9000:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    is_unchanged = log.read_bytes() == whole
    assert is_unchanged
    assert peak < len(steps)


def printed(size: int, **headers: str) -> bytes:
    """What a program in a pod can print itself: a packed record, of events of `size` bytes, or with such headers."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("events.jsonl")
        entry.size, entry.pax_headers = size, {name.replace("_", "."): value for name, value in headers.items()}
        archive.addfile(entry, io.BytesIO(bytes(size)))
    return BEGIN + base64.encodebytes(gzip.compress(tar.getvalue())) + END


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (printed(2 << 20), "it has more than 1 MiB"),
        (printed(0, GNU_sparse_map="a,b"), "invalid literal for int"),
    ],
)
def test_a_record_that_no_ngcdl_packed_neither_fills_the_memory_nor_ends_what_reads_it(
    tmp_path: Path, record: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_output, "_MOST_BYTES", 1 << 20)
    with pytest.warns(UserWarning, match=f"the record of a pod can't be read: .*{said}"):
        PodOutput(tmp_path, "x").take(record)
    assert not (tmp_path / "events.jsonl").exists()


@pytest.mark.parametrize(("begun", "line"), [(BEGIN, b"A" * 4096), (BEGIN, b"\xff\n"), (b"", b"A" * 76 + b"\n")])
def test_a_record_without_an_end_is_not_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes, line: bytes
) -> None:
    monkeypatch.setattr(pod_output, "_MOST_PACKED_BYTES", 1 << 13)
    told = PodOutput(tmp_path, "a")
    told.take(begun)
    for _ in range(1 << 13):
        told.take(line)
    assert len(b"".join([told._rest, *(told._packed or ()), *(told._cut or ())])) <= 1 << 14


def test_a_file_that_is_large_only_by_its_header_is_none_of_a_record_s(tmp_path: Path) -> None:
    PodOutput(tmp_path, "x").take(printed(0, GNU_sparse_map="0,0", GNU_sparse_size=str(1 << 40)))
    assert not (tmp_path / "events.jsonl").exists()
