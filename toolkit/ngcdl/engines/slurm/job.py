"""A run submitted to Slurm, as its folder and Slurm report it."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngcdl.engines.base import Unconnected
from ngcdl.engines.slurm import commands, jobstate
from ngcdl.engines.slurm.jobstate import State
from ngcdl.engines.slurm.script import NO_OUTPUT
from ngcdl.engines.values import Chunk, Exit, Started
from ngcdl.errors import SlurmLost
from ngcdl.folder import EXIT, LOG, opened, recorded_exit

SLURM = "slurm:"
STOPPING, TASKS = ".stopping", ".task-*"
LOOK_SECONDS = 0.5  # between looks at the log, which is a file
FIRST_ASK_SECONDS, ASK_SECONDS = 0.5, 15.0  # all users share the controller: query it less and less often
PATIENCE_SECONDS = 600.0  # long enough for the controller to be restarted
_SIGNALS = {NO_OUTPUT: 125, 125: 137}  # exit codes for signal numbers of Slurm's own, of which 125 is out of memory
UNOPENED = "a node could not open the run's folder: it must be on storage that all nodes share (set XDG_STATE_HOME)"


class SlurmJob(Unconnected):
    """The job `number`; its run is in `folder`."""

    def __init__(
        self,
        number: str,
        folder: Path,
        started: Started | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.number, self._folder = number, folder
        self.identity = f"{SLURM}{number}"
        self.started = started or Started(keeps_log=True)
        self.detached = False
        self._clock, self._sleep = clock, sleep
        self._pause = FIRST_ASK_SECONDS
        self._asked: float | None = None
        self._written_ns: int | None = None  # when the script last wrote its end, by the folder's clock
        self._answered = clock()
        self._end: Exit | None = None
        self._waiting: str | None = None
        self._never: State | None = None

    def output(self) -> Iterator[Chunk]:
        """Yield what the job waits for, then the log, until the job ends. Raise NotPlaceable if it can never start. A
        job that has started before and was requeued is not given up: it may start again, as when a lost node comes
        back."""
        told, at = None, 0
        while True:
            ended = self._look()
            if self._never:
                raise commands.never_starts(self._never)
            if self._waiting and self._waiting != told:
                yield Chunk("stderr", f"Slurm job {self.number}: {self._waiting}\n".encode())
            told = self._waiting
            for data in self._read(at):
                at += len(data)
                yield Chunk("stdout", data)
            if ended:
                return
            self._sleep(LOOK_SECONDS)

    def _read(self, at: int) -> Iterator[bytes]:
        try:
            with opened(self._folder / LOG) as file:
                file.seek(at)
                while data := file.read(65536):
                    yield data
        except OSError:
            return  # the log does not exist yet, or its storage fails for a moment

    def wait(self) -> Exit:
        while (ended := self._look()) is None:
            self._sleep(LOOK_SECONDS)
        return ended

    def _look(self) -> Exit | None:
        """Return how the job ended, None while it goes on. Query Slurm at a polite rate, but at once when the script
        has recorded its end. Raise SlurmLost after PATIENCE_SECONDS without an answer."""
        now = self._clock()
        if self._has_written():
            self._asked, self._pause = None, FIRST_ASK_SECONDS
        if self._asked is not None and now - self._asked < self._pause:
            return self._end
        try:
            self.ended()
        except SlurmLost:
            if now - self._answered > PATIENCE_SECONDS:
                raise
        else:
            self._answered = now
        self._asked = self._clock()
        self._pause = min(self._pause * 1.5, ASK_SECONDS)
        return self._end

    def _has_written(self) -> bool:
        """Whether the script has recorded its end since the last call."""
        before, self._written_ns = self._written_ns, None
        with contextlib.suppress(OSError):
            self._written_ns = (self._folder / EXIT).stat().st_mtime_ns
        return self._written_ns not in (None, before)

    def ended(self) -> Exit | None:
        self._end = self._found_out()
        return self._end

    def _found_out(self) -> Exit | None:
        """Return how the job ended, None while it goes on. Slurm's answer comes before the folder's: a job about to be
        requeued may have recorded its end, too. Raise SlurmLost."""
        state = self._state()
        if state and state.goes_on:
            self._waiting = jobstate.why_waiting(state, self.number) if state.waits else None
            self._never = state if jobstate.is_never(state) and not self._has_begun() else None
            return None
        self._waiting = None
        told = recorded_exit(self._folder)
        if told is None and state is None:
            return Exit(None, None, "Slurm has forgotten the job, and the job left no record of its end")
        code = told.code if told else _code(state)
        finished, why = (told.finished, told.why) if told else (None, None)
        # Slurm does not see every kill: a container of docker's is not among the job's processes
        is_oom = True if state and state.is_oom else None
        return Exit(code, is_oom, _reason(state, code, why), finished, _is_stopped(state, code, why))

    def _has_begun(self) -> bool:
        """Whether the job has written anything, in this attempt or in an earlier one."""
        return any(self._read(0))

    def _state(self) -> State | None:
        """Return the job's state as Slurm knows it. Return None if only the accounting does not answer, so that the
        controller has forgotten the job, and the script has recorded its end. Raise SlurmLost."""
        try:
            return commands.state(self.number)
        except SlurmLost as error:
            if error.doing != "sacct" or recorded_exit(self._folder) is None:
                raise
            return None

    def waiting(self) -> str | None:
        return self._waiting

    def way_in(self, command: Sequence[str], placement: Mapping[str, Any]) -> str:
        """As in EnteredBy: the first task's container by its name (task.sh), or else a shell beside it on its node.
        https://slurm.schedmd.com/srun.html#OPT_overlap"""
        step = f"    srun --jobid={self.number} --overlap --nodes=1 --ntasks=1 --pty"
        if (runner := placement.get("container")) in ("docker", "podman"):
            return f"{step} {runner} exec -it ngcdl-{self.number}-0 {shlex.join(command)}"
        return f"{step} bash\nThat is a shell on its node, outside the container; the run's processes are there."

    def stop(self, grace_seconds: float) -> None:
        """Ask the tasks to end, which lets them save a checkpoint first; cancel a job whose tasks have not begun."""
        state = self._state()
        if state is None or not state.goes_on:
            return
        if state.state == "RUNNING":
            with contextlib.suppress(FileExistsError):  # a link, which the run made, is not followed
                (self._folder / STOPPING).touch(exist_ok=False)
            if any(self._folder.glob(TASKS)) and self._ends(grace_seconds):  # else nobody hears: it fetches its image
                return
        self.kill()

    def _ends(self, seconds: float) -> bool:
        """Ask the tasks to end; return whether the job ends within `seconds`."""
        commands.cancel(self.number, self._folder, "TERM")
        until = self._clock() + seconds
        while self._clock() < until:
            state = self._state()
            if state is None or not state.goes_on:
                return True
            self._sleep(LOOK_SECONDS)
        return False

    def kill(self) -> None:
        self._pause = FIRST_ASK_SECONDS
        with contextlib.suppress(OSError):  # storage that fails must not keep a job alive
            (self._folder / STOPPING).unlink()  # tells the tasks that they now have a deadline, Slurm's
        commands.cancel(self.number, self._folder)

    def remove(self) -> None:
        """Cancel the job if it was not seen to end; Slurm keeps nothing else that could be deleted."""
        state = None if self._end else self._state()
        if state and state.goes_on and state.state != "COMPLETING":
            self.kill()


def _code(state: State | None) -> int | None:
    """Return the code that Slurm keeps; 0 does not mean success if the job was ended."""
    if state is None:
        return None
    if state.code == NO_OUTPUT:  # the script's first lines failed: after these the script records its end
        return _SIGNALS[NO_OUTPUT]
    if state.signal and not state.code:
        return _SIGNALS.get(state.signal, 128 + state.signal)
    return state.code if state.code or state.state == "COMPLETED" else None


def _is_stopped(state: State | None, code: int | None, why: str | None) -> bool:
    if code == 0:
        return False
    return why in ("time_limit", "preempted") or bool(state and state.state in jobstate.ENDED_BY_OTHERS)


def _reason(state: State | None, code: int | None, why: str | None) -> str | None:
    """Say what the code alone does not."""
    if code == 0:
        return None
    if why == "preempted" or (state and state.state == "PREEMPTED"):
        return "Slurm preempted it for another job"
    if why == "time_limit" or (state and state.state == "TIMEOUT"):
        return "Slurm's time limit was reached (--time)"
    if state is None or state.state in ("COMPLETED", "FAILED"):
        if state and state.is_oom:
            return "out of memory: the kernel killed a process of the job"
        if why == "lost":
            return "a node was lost, and the job was not requeued: the end of its log says why"
        is_unseen = code == _SIGNALS[NO_OUTPUT] and state and NO_OUTPUT in (state.signal, state.code)
        return UNOPENED if is_unseen else None
    words = f"Slurm: {state.state}"
    if state.signal and state.signal in set(signal.Signals):
        words += f", by {signal.Signals(state.signal).name}"
    return words + (f" ({state.reason})" if state.reason else "")
