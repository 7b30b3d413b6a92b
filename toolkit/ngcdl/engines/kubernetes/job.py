"""One Indexed Job: followed through its first pod's log, over when its condition says so, stopped by deleting it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ngcdl.engines.base import Unconnected
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.limits import labels
from ngcdl.engines.kubernetes.messages import shown
from ngcdl.engines.kubernetes.pod import CONTAINER
from ngcdl.engines.kubernetes.pod_output import PodOutput
from ngcdl.engines.kubernetes.podstate import Pod
from ngcdl.engines.kubernetes.state import State
from ngcdl.engines.values import Chunk, Exit, Started
from ngcdl.errors import ClusterError, ClusterForbidden, ClusterHangs, ClusterLost, KubectlMissing
from ngcdl.folder import recorded_exit

TAIL_LINES = 40
_TAIL_BYTES = 1 << 16  # which these have at most
# What differs between two tries of the same: a sandbox's id, and the end of a pod's name
_ID = re.compile(r"\b[0-9a-f]{12,}\b|(?<=\d)-[a-z0-9]{5}\b")


class KubernetesJob(Unconnected):
    """`folder` is the run's, which receives the log and the record. An unreachable cluster, or a pod that fails to
    start, is tolerated for `lost_seconds`."""

    detached = False
    started = Started(keeps_log=True)
    poll_seconds, lost_seconds = 3.0, 300.0
    look_seconds = 15.0  # for other nodes, while the first one's output is followed
    quiet_seconds = 30.0  # a log that is only read up to now: a node that hangs hands over nothing

    def __init__(self, kubectl: Kubectl, name: str, run_id: str, folder: Path) -> None:
        self._kubectl, self._name, self._labels, self._folder = kubectl, name, labels(run_id), folder
        self._given: dict[str, int] = {}  # pod -> the offset in the log up to which its output was yielded
        self._drained: set[str] = set()
        self._newest: dict[int, str] = {}  # node -> its newest pod
        self._said: set[tuple[str | None, str]] = set()  # a retry says the same again, with another id in it
        self._errors, self._unread = "", set[str]()  # kubectl's last ones about a log; the pods of which that was told
        self._was_seen = False
        self.identity = f"kubernetes:{kubectl.namespace}/{name}"

    def way_in(self, command: Sequence[str], placement: Mapping[str, Any]) -> str:
        """As in EnteredBy. https://kubernetes.io/docs/reference/kubectl/generated/kubectl_exec/"""
        del placement
        where = f"--namespace={self._kubectl.namespace} " if self._kubectl.namespace else ""
        return f"    kubectl exec -it {where}job/{self._name} -c {CONTAINER} -- {shlex.join(command)}"

    def state(self) -> State:
        """Read the job's state. Raise ClusterError."""
        items = self._kubectl.items("jobs,pods", self._labels)
        self._was_seen = True
        now = time.time()
        state = State.read(items, now=now)
        if state.unexplained:
            with contextlib.suppress(ClusterForbidden):  # then without the reasons
                return State.read(items, [event for name in state.unexplained for event in self._events(name)], now)
        return state

    def _events(self, name: str) -> list[dict[str, Any]]:
        about = f"involvedObject.name={name}"
        return list(self._kubectl.json("get", "events", "--field-selector", about).get("items", []))

    def output(self) -> Iterator[Chunk]:
        well = time.monotonic()
        while True:
            state = yield from self._surely()
            yield from self._news(state)
            first = state.of(0)
            if first and first.began and first.name not in self._drained:
                yield from self._follow(first, state.has_others)
                if first.name not in self._drained:  # the log ended before the pod did, or can't be read yet
                    time.sleep(self.poll_seconds)
                continue
            if state.trouble:
                raise state.trouble
            if state.stumble is None:
                well = time.monotonic()
            elif time.monotonic() - well > self.lost_seconds:
                raise state.stumble
            if state.is_over:
                break
            time.sleep(self.poll_seconds)
        yield from self._others(state)

    def _news(self, state: State) -> Iterator[Chunk]:
        """Tell once of each pod that took another one's place (its program began again), and of what is waited for."""
        for pod in state.pods:
            if state.of(pod.index) is pod:
                before, self._newest[pod.index] = self._newest.get(pod.index), pod.name
                if before not in (None, pod.name):
                    yield Chunk("stderr", f"{state.replaced(before, pod)}\n".encode())
        first = state.of(0)
        this = (first.name if first else None, _ID.sub("", state.waits_for or ""))
        if state.waits_for and not (state.trouble or state.is_over) and this not in self._said:
            self._said.add(this)
            yield Chunk("stderr", f"waiting: {state.waits_for}\n".encode())

    def _follow(self, pod: Pod, has_others: bool) -> Iterator[Chunk]:
        """Yield what was not yielded before of a pod's output: after a cut connection its log is read again. Meanwhile
        tell what becomes of other nodes."""
        told = PodOutput(self._folder, pod.name)
        with self._logs(pod.name, follow=True) as (process, pipe):
            looked, is_read = time.monotonic(), False
            while True:
                if has_others and time.monotonic() - looked > self.look_seconds:
                    yield from self._look()
                    looked = time.monotonic()
                if select.select([pipe], [], [], self.look_seconds if has_others else None)[0]:
                    if not (data := os.read(pipe.fileno(), 65536)):
                        break
                    is_read = True
                    if new := self._new(told, pod, told.take(data)):
                        yield Chunk("stdout", new)
        if rest := self._new(told, pod, told.take(pod.last_words) + told.end()):
            yield Chunk("stdout", rest)
        if pod.ended and not (process.returncode and self._is_fresh(pod)):
            self._drained.add(pod.name)
        elif process.returncode and self._errors and not is_read and pod.name not in self._unread:
            self._unread.add(pod.name)
            yield Chunk("stderr", f"the log of {pod.name} can't be read: {self._errors}\nTrying again.\n".encode())

    def _look(self) -> Iterator[Chunk]:
        """Tell what is new of the nodes. Raise a trouble of theirs: the first one might wait for them, for long."""
        try:
            state = self.state()
        except ClusterError:
            return  # if that lasts, the log ends, too, and `_surely` says so
        yield from self._news(state)
        first = state.of(0)
        if state.trouble and first and not first.ended:  # else its output comes first
            raise state.trouble

    def _is_fresh(self, pod: Pod) -> bool:
        """Whether the pod has just ended: its log, which holds the record, may be unreadable now and readable soon.
        False if its container never started: then it may have no log."""
        finished = pod.ended.finished if pod.ended and not pod.last_words else None
        return finished is not None and time.time() - finished < self.lost_seconds

    def _new(self, told: PodOutput, pod: Pod, shown: bytes) -> bytes:
        """Return the part of `shown`, the newest output, that was not yielded: what follows the pod's offset in
        `_given`."""
        given = self._given.get(pod.name, 0)
        self._given[pod.name] = max(given, told.place)
        return shown[max(given - (told.place - len(shown)), 0) :]

    def _others(self, state: State) -> Iterator[Chunk]:
        """Fetch the other nodes' records; yield the end of a failed node's output, which may say why."""
        for pod in state.pods:
            if state.of(pod.index) is not pod or pod.index == 0 or pod.name in self._drained:
                continue
            self._drained.add(pod.name)
            while (shown := self._bring(pod)) is None:
                time.sleep(self.poll_seconds)
            if pod.ended and pod.ended.code != 0 and shown:
                tail = b"".join(shown.splitlines(keepends=True)[-TAIL_LINES:])
                told = PodOutput(self._folder, pod.name)
                told.take(tail)
                told.end()
                yield Chunk("stdout", f"the last lines of node {pod.index}:\n".encode() + tail)

    def _bring(self, pod: Pod) -> bytes | None:
        """Fetch a pod's log and record. Return the end of its output, None if the log is not readable yet."""
        told, tail = PodOutput(self._folder, pod.name, keep_log=pod.index == 0), b""
        with self._logs(pod.name, follow=False) as (process, pipe):
            while select.select([pipe], [], [], self.quiet_seconds)[0] and (data := os.read(pipe.fileno(), 65536)):
                tail = (tail + told.take(data))[-_TAIL_BYTES:]
        tail += told.take(pod.last_words) + told.end()
        return None if process.returncode and self._is_fresh(pod) else tail

    @contextlib.contextmanager
    def _logs(self, pod: str, follow: bool) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        words = ("logs", *(["--follow"] if follow else []), f"--container={CONTAINER}", pod)
        with os.fdopen(os.memfd_create("errors"), "w+b") as errors:  # a disk may be full
            with self._kubectl.stream(*words, errors=errors) as process:
                assert process.stdout is not None  # PIPE was asked for
                try:
                    yield process, process.stdout
                finally:
                    if process.poll() is None:
                        process.terminate()
            errors.seek(0)
            self._errors = shown(errors.read().decode("utf-8", "replace"))

    def wait(self) -> Exit:
        while (ended := self._exit(_returned(self._surely()))) is None:
            time.sleep(self.poll_seconds)
        return ended

    def ended(self) -> Exit | None:
        """As in Job. Also update log and records, as perhaps no other process does. Raise ClusterHangs if the final log
        is missing."""
        state = self.state()
        for pod in state.pods:
            is_wanted = pod.index == 0 or state.is_over
            if not is_wanted or state.of(pod.index) is not pod or not pod.began or pod.name in self._drained:
                continue
            if self._bring(pod) is None and state.is_over:
                raise ClusterHangs(f"read the log of {pod.name}", None)
        return self._exit(state)

    def _exit(self, state: State) -> Exit | None:
        ended, told = state.exit, recorded_exit(self._folder)
        if ended and ended.code is None and told:  # the pod is gone, but its record has the code
            # that its Job is gone, because another ngcdl has tidied up, is no reason of a good end
            reason = None if state.job is None and told.code == 0 else ended.reason
            return replace(ended, code=told.code, finished=told.finished, reason=reason)
        if ended and ended.code == 0 and not told:
            return replace(ended, reason="; ".join(filter(None, (_unread(state), ended.reason))))
        return ended

    def waiting(self) -> str | None:
        return self.state().waits_for

    def stop(self, grace_seconds: float) -> None:
        """Delete the Job: its pods get SIGTERM, and their output until they are gone is kept."""
        state = self.state()
        pods = [pod for pod in state.pods if pod.began and pod.ended is None]
        followers = [threading.Thread(target=self._keep, args=(pod,), daemon=True) for pod in pods]
        for follower in followers:
            follower.start()
        self._kubectl.delete("jobs", self._labels, "--cascade=background")
        self._kubectl.delete("pods", self._labels, f"--grace-period={max(round(grace_seconds), 1)}")
        until = time.monotonic() + grace_seconds + self.poll_seconds
        for follower in followers:
            follower.join(max(until - time.monotonic(), 0))

    def _keep(self, pod: Pod) -> None:
        told = PodOutput(self._folder, pod.name, keep_log=pod.index == 0)
        with self._logs(pod.name, follow=True) as (_, pipe):
            while data := os.read(pipe.fileno(), 65536):
                told.take(data)
        told.end()

    def kill(self) -> None:
        self._kubectl.delete("jobs", self._labels, "--cascade=background")
        self._kubectl.delete("pods", self._labels, "--grace-period=1")

    def remove(self) -> None:
        self._kubectl.delete("jobs,services,configmaps", self._labels)
        with contextlib.suppress(ClusterForbidden):  # without the right to create secrets, none was created
            self._kubectl.delete("secrets", self._labels)

    def _surely(self) -> Generator[Chunk, None, State]:
        """Return the job's state, retrying while the cluster is away; once the job was seen, any error counts as
        absence, because a change of leader or an expired token does not end a training. Yield each new error. Raise
        ClusterLost."""
        until, said = time.monotonic() + self.lost_seconds, None
        while True:
            try:
                return self.state()
            except ClusterError as error:
                if not self._was_seen and isinstance(error, ClusterForbidden | KubectlMissing):
                    raise  # the job could never be followed
                if time.monotonic() > until:
                    raise ClusterLost("was following the job", said=error.message) from error
                if error.message != said:
                    again = f"Trying again for {self.lost_seconds:g} s."
                    yield Chunk("stderr", f"the cluster can't be asked: {error.message} {again}\n".encode())
                said = error.message
                time.sleep(self.poll_seconds)


def _unread(state: State) -> str:
    """Say why a job that succeeded has no record, and where its record may be."""
    where = f"what it recorded is {state.kept}" if state.kept else "without --data-pvc nothing else keeps it"
    if state.of(0):
        return f"no record could be read from its pod's log; {where}"
    return f"its pod was gone before its log, with the record, was read to its end; {where}"


def _returned(steps: Generator[Chunk, None, State]) -> State:
    """Run a generator to its end, and return its value; what it yields is dropped."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            state: State = end.value
            return state
