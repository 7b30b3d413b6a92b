"""One container as the daemon describes it: how it ended, which GPUs it sees, and a daemon that is away."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
import requests.exceptions
from docker_socket import Daemon, serving

from ngcdl.engines.docker import job as docker_job
from ngcdl.engines.docker.job import Clients, DockerJob
from ngcdl.engines.values import Started
from ngcdl.errors import ContainerLeft, EngineLost, GpuError, GpuNotInside
from ngcdl.errors.gpu import GpuUnknown

RUNNING = {"Status": "running", "Running": True, "ExitCode": 0, "OOMKilled": False, "Error": "", "FinishedAt": ""}
STAMP = "2018-02-16T08:25:08.344427123Z"


def _ended(code: int, **more: Any) -> dict[str, Any]:
    return {**RUNNING, "Status": "exited", "Running": False, "ExitCode": code, "FinishedAt": STAMP, **more}


@dataclass
class Client:
    """A daemon that reports one state after another, the last one forever; None: no answer."""

    states: list[dict[str, Any] | None]
    smi: tuple[int, bytes] | None = None  # None: the exec fails
    timeout: float = 60
    killed: list[str] = field(default_factory=list)

    def inspect_container(self, identity: str) -> dict[str, Any]:
        state = self.states[0]
        self.states = self.states[1:] or self.states
        if state is None:
            raise requests.exceptions.ConnectionError("No such file or directory")
        if not state:
            raise docker.errors.NotFound("No such container")
        return {"State": state}

    def kill(self, identity: str) -> None:
        self.killed.append(identity)

    def exec_create(self, identity: str, command: list[str]) -> dict[str, str]:
        if self.smi is None:
            raise docker.errors.APIError("OCI runtime exec failed: exec failed: cannot exec in a stopped container")
        return {"Id": "1"}

    def exec_start(self, identity: str, socket: bool) -> Any:
        assert self.smi
        assert socket
        ours, theirs = line_pair()
        with theirs:
            theirs.sendall(_frame(1, self.smi[1]))
        return ours

    def exec_inspect(self, identity: str) -> dict[str, int]:
        assert self.smi
        return {"ExitCode": self.smi[0]}


def line_pair() -> tuple[Any, socket.socket]:
    """Open a stream like the SDK's; return it and its peer."""
    ours, theirs = socket.socketpair()
    with ours:
        return ours.makefile("rwb", buffering=0), theirs


def _job(*states: dict[str, Any] | None, tty: bool = False, attachment: Any = None, **more: Any) -> DockerJob:
    client = Client(list(states), **more)
    return DockerJob(Clients(client, client), "unix:///x", "c0ffee", tty, Started(), attachment)


@pytest.mark.parametrize(("state", "code", "oom", "reason"), [
    (_ended(0), 0, False, None),
    (_ended(5), 5, False, None),
    (_ended(0, OOMKilled=True), 0, True, "although the command itself exited with 0"),
    (_ended(137, OOMKilled=True), 137, True, "out of memory: the kernel killed it"),
    (_ended(137), 137, False, "not by ngcdl; Docker reports no lack of memory (systemd-oomd and earlyoom"),
    (_ended(137, Status="removing"), 137, False, "the container was removed outside ngcdl"),
    (_ended(137, Status="dead"), 137, False, "the container was removed outside ngcdl"),
    (_ended(0, Status="removing"), 0, False, None),
    (_ended(255), 255, False, None),
    (_ended(143), 143, False, "ended by SIGTERM, not by ngcdl: docker stop,"),
    (_ended(0, Status="created"), None, None, "the container was created but never started"),
    ({}, None, None, "the container was removed outside ngcdl"),
])  # fmt: skip
def test_an_end_is_told_with_what_the_code_does_not_say(
    state: dict[str, Any], code: int | None, oom: bool | None, reason: str | None
) -> None:
    ended = _job(state).wait()
    assert (ended.code, ended.oom_killed) == (code, oom)
    assert (reason is None) == (ended.reason is None)
    assert (reason or "") in (ended.reason or "")


def test_a_lack_of_memory_of_which_docker_hears_after_the_end_is_told() -> None:
    ended = _job(_ended(137), _ended(137, OOMKilled=True)).wait()
    assert (ended.code, ended.oom_killed, ended.reason) == (137, True, "out of memory: the kernel killed it")


def test_the_time_of_the_end_is_the_daemons() -> None:
    assert _job(_ended(0)).wait().finished == pytest.approx(1518769508.344427)
    podman_s = _job(_ended(0, FinishedAt="2018-02-16T09:25:08.344427123+01:00"))
    assert podman_s.wait().finished == pytest.approx(1518769508.344427)
    assert _job(_ended(0, FinishedAt="0001-01-01T00:00:00Z")).wait().finished is None


def test_a_kill_of_ours_is_not_called_somebody_elses() -> None:
    job = _job(_ended(137))
    job.kill()
    assert job.wait().reason is None


def test_a_daemon_that_comes_back_is_waited_for() -> None:
    assert _job(None, RUNNING, _ended(5)).wait().code == 5


def test_a_container_that_ended_unseen_while_the_engine_was_away_is_told_as_that() -> None:
    assert "an end that it did not see" in (_job(None, _ended(255)).wait().reason or "")
    assert _job(None, _ended(5)).wait().reason is None
    assert _job(None, RUNNING, RUNNING, _ended(255)).wait().reason is None, "it ended later, and may have chosen 255"


def test_a_daemon_that_stays_away_is_given_up_once() -> None:
    job = _job(None)
    job.patience_seconds = 0.05
    with pytest.raises(EngineLost):
        job.wait()
    job.patience_seconds = 3600
    with pytest.raises(EngineLost):
        job.wait()


def test_an_engine_that_goes_away_is_told_at_once_and_once_and_so_is_its_return() -> None:
    job, said = _job(None, None, RUNNING, RUNNING, None, _ended(5)), list[str]()
    job.say, job.patience_seconds = said.append, 80.0
    assert job.absences() is None
    assert not job._inspect_or_none()
    assert len(said) == 1, "before any pause"
    assert said[0].startswith("No Docker engine answers at unix:///x: there is no socket. ngcdl waits up to 80 s")
    assert "its output may pause it" in said[0]
    assert job.absences() is None, "it is not over"
    assert job.wait().code == 5
    assert [text.split(",")[0] for text in said[1::2]] == ["the Docker engine answers again"] * 2
    assert len(said) == 4
    assert "did not answer 2 times, for " in (job.absences() or "")


def test_a_container_that_ends_while_it_is_looked_into_lacks_no_gpu() -> None:
    assert _job(RUNNING, RUNNING, _ended(0)).gpus_inside() is None
    assert _job(RUNNING, _ended(0), smi=(137, b"")).gpus_inside() is None


@pytest.mark.parametrize(("smi", "kind", "said"), [
    (None, GpuUnknown, "cannot exec"), ((126, b"OCI runtime exec failed"), GpuUnknown, "OCI runtime"),
    ((9, b"NVIDIA-SMI has failed because it couldn't communicate\n"), GpuNotInside, "couldn't communicate"),
])  # fmt: skip
def test_a_container_that_goes_on_without_a_gpu_says_why_none_is_known(
    smi: tuple[int, bytes] | None, kind: type[GpuError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_job, "ENDING_SECONDS", 0.1)
    with pytest.raises(kind, match=said):
        _job(RUNNING, smi=smi).gpus_inside()


def test_the_cards_inside_are_known_by_uuid_and_in_place_of_one_with_mig_on_its_mig_devices() -> None:
    text = b"GPU 0: A100 (UUID: GPU-6a2f)\n  MIG 1g.5gb Device 0: (UUID: MIG-41b3/7/0)\n"
    assert _job(RUNNING, smi=(0, text)).gpus_inside() == ("MIG-41b3/7/0",)


@pytest.fixture
def line() -> Any:
    ours, theirs = line_pair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.usefixtures("hurried")
def test_an_engine_that_hangs_is_not_a_container_that_runs(line: Any) -> None:
    job = _job(None, attachment=line[0])
    job.patience_seconds = 0.05
    assert list(job.output()) == []
    job.patience_seconds = 3600
    with pytest.raises(EngineLost):
        job.wait()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(Daemon(tmp_path / "d.sock", log=_frame(1, b"one\n") + _frame(2, b"Traceback\n"))) as daemon:
        yield daemon


@contextlib.contextmanager
def _logged_job(daemon: Daemon, attachment: Any, *states: dict[str, Any] | None) -> Iterator[DockerJob]:
    with contextlib.closing(docker.APIClient(daemon.host, "1.47")) as patient:
        yield DockerJob(
            Clients(patient, Client(list(states))), "unix:///x", "c0ffee", False, Started(pid=7), attachment
        )


def _soon() -> str:
    return datetime.fromtimestamp(time.time() + 86400, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("end", "states"), [
    ("reset", [_ended(5)]),
    ("cut", [_ended(5)]),
    ("", [None, _ended(5)]),
    ("", [_ended(5, FinishedAt=_soon())]),
    ("", [None, RUNNING, _ended(5)]),
    ("open", [None, RUNNING, None, _ended(5)]),
], ids=["reset", "in mid frame", "away", "held by systemd's socket", "went on", "away for a moment"])  # fmt: skip
def test_what_was_written_while_the_engine_was_away_is_read_once_it_is_back(
    line: Any, daemon: Daemon, end: str, states: list[dict[str, Any] | None]
) -> None:
    with _logged_job(daemon, line[0], *states) as job:
        line[1].sendall(_frame(1, b"one\n") + (b"\2\0\0" if end == "cut" else b""))
        if end == "reset":
            job.write(b"unread")
        if end != "open":
            line[1].close()
        assert _chunks(job) == [("stdout", b"one\n"), ("stderr", b"Traceback\n")]
        assert job.wait().code == 5
        job.remove()


def test_a_container_whose_last_words_can_t_be_read_is_kept(line: Any, daemon: Daemon) -> None:
    daemon.log = None
    daemon.state = _ended(5)
    line[1].close()
    with _logged_job(daemon, line[0], None, _ended(5)) as job:
        assert _chunks(job) == []
        assert job.wait().code == 5
        with pytest.raises(EngineLost):
            job.remove()
    assert daemon.state


def test_a_container_that_somebody_removed_is_kept_by_nobody(line: Any, daemon: Daemon) -> None:
    daemon.log = daemon.state = None
    line[1].sendall(b"\2\0\0")
    line[1].close()
    with _logged_job(daemon, line[0], {**_ended(137), "Removed": True}) as job:
        assert _chunks(job) == []
        job.remove()


def test_a_container_that_docker_does_not_remove_is_named_with_the_command_that_does(daemon: Daemon) -> None:
    daemon.state, daemon.can_remove = _ended(0), False
    with _logged_job(daemon, None, _ended(0)) as job:
        with pytest.raises(ContainerLeft, match=r"c0ffee could not be removed \(.*device or resource busy\)") as left:
            job.remove()
        assert left.value.commands == ["docker rm -f c0ffee"]
        daemon.can_remove = True
        job.remove()
        job.remove()  # harmless twice


def test_a_container_that_somebody_else_is_removing_is_not_left(daemon: Daemon) -> None:
    daemon.state, daemon.can_remove = _ended(137, Status="removing"), False
    daemon.why_not = "removal of container c0ffee is already in progress"
    with _logged_job(daemon, None, _ended(0)) as job:
        job.remove()


def test_a_container_that_is_removed_leaves_no_connection_and_reads_nothing_more(line: Any, daemon: Daemon) -> None:
    daemon.state = _ended(0)
    line[1].settimeout(240)
    with _logged_job(daemon, line[0], _ended(0)) as job:
        for _ in "12":
            job.remove()
            assert line[1].recv(1) == b""
        job.close_input()
        job.write(b"typed too late")


def test_an_engine_that_is_away_after_the_last_words_costs_none(line: Any, daemon: Daemon) -> None:
    daemon.state = _ended(5)
    line[1].close()
    with _logged_job(daemon, line[0], _ended(5), None, _ended(5)) as job:
        assert _chunks(job) == []
        assert job.wait().code == 5
        job.remove()
    assert daemon.state is None


def test_nobody_reads_what_is_typed_once_the_attachment_has_ended(line: Any, daemon: Daemon) -> None:
    with _logged_job(daemon, line[0], None, RUNNING, _ended(5)) as job:
        job.write(b"")
        line[1].close()
        _chunks(job)
        with pytest.raises(BrokenPipeError):
            job.write(b"")


@pytest.mark.parametrize(("keys", "typed", "tty", "detached"), [
    (None, [b"\x10\x11"], True, True), (None, [b"ls\x10", b"\x11"], True, True),
    (None, [b"\x10", b"x\x11"], True, False), (None, [b"\x10\x11"], False, False),
    (None, [b"\x11\x10"], True, False),
    ("ctrl-@", [b"\x10\x11"], True, False), ("ctrl-@", [b"ls", b"\0"], True, True),
    ("ctrl-a,b,c", [b"\1", b"b", b"c"], True, True), ("ctrl-a,b,c", [b"\1", b"bb", b"c"], True, False),
])  # fmt: skip
def test_the_detach_keys_on_a_terminal_are_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: Any,
    keys: str | None, typed: list[bytes], tty: bool, detached: bool,
) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"detachKeys": keys} if keys else {}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    job = _job(RUNNING, tty=tty, attachment=line[0])
    for data in typed:
        job.write(data)
    assert job.detached == detached
    assert line[1].recv(100) == b"".join(typed)  # the daemon gets them too


def _sent(line: Any, *pieces: bytes) -> None:
    for piece in pieces:
        line[1].sendall(piece)
    line[1].shutdown(socket.SHUT_WR)


def _frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def _chunks(job: DockerJob) -> list[tuple[str, bytes]]:
    return [(chunk.stream, chunk.data) for chunk in job.output()]


def test_frames_are_put_together_and_streams_kept_apart(line: Any) -> None:
    whole = _frame(1, b"out\n") + _frame(2, b"wrong\n") + _frame(1, b"x" * 70_000)
    _sent(line, whole[:3], whole[3:14], whole[14:])
    got = _chunks(_job(_ended(0), attachment=line[0]))
    assert got == [("stdout", b"out\n"), ("stderr", b"wrong\n"), ("stdout", b"x" * 70_000)]


def test_a_terminals_stream_has_no_frames(line: Any) -> None:
    _sent(line, b"\x01\x00\x00prompt# ")
    assert b"".join(data for _, data in _chunks(_job(_ended(0), tty=True, attachment=line[0]))) == (
        b"\x01\x00\x00prompt# "
    )


@pytest.mark.usefixtures("hurried")
def test_a_stream_that_outlives_its_container_is_given_up(line: Any) -> None:
    line[1].sendall(_frame(1, b"last words\n"))
    assert _chunks(_job(_ended(0), attachment=line[0])) == [("stdout", b"last words\n")]


def test_the_input_is_closed_once(line: Any) -> None:
    job = _job(_ended(0), attachment=line[0])
    job.close_input()
    job.close_input()
    assert line[1].recv(10) == b""
