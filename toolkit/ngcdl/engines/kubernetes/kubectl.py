"""kubectl as a subprocess, the only access to the API: it signs in however the user's cluster requires."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from ngcdl.engines.kubernetes.messages import translated
from ngcdl.errors import ClusterHangs, ClusterRefused, EngineError, KubectlMissing
from ngcdl.frozen import dataclass
from ngcdl.settings import without_keys

SECONDS = 30  # for an answer, except from credential plugins that open a browser
EXTRA_SECONDS = 15


@dataclass(frozen=True)
class Kubectl:
    """`namespace` None is the context's own, `context` None is whichever is current at each call."""

    namespace: str | None = None
    program: str = "kubectl"
    context: str | None = None

    def pinned(self) -> Kubectl:
        """Return a Kubectl that stays with the current context, whatever other shells choose. Inside a cluster there
        may be no context. Raise KubectlMissing."""
        with contextlib.suppress(ClusterRefused):
            return replace(self, context=self.text("config", "current-context").strip() or None)
        return self

    def text(self, *words: str, given: Any = None) -> str:
        """Return kubectl's stdout; `given` goes to its stdin as JSON, never to a file. Raise EngineError."""
        said, trouble = self._ran(words, given, SECONDS)
        if trouble:
            raise trouble
        return said

    def json(self, *words: str) -> dict[str, Any]:
        """Return the object that kubectl prints as JSON. Raise EngineError."""
        return _object(self.text(*words, "-o", "json"), words[0])

    def merged(self, thing: Mapping[str, Any], patch: str) -> dict[str, Any]:
        """Return an object with a strategic merge patch (YAML or JSON) in it, without a cluster. Raise EngineError."""
        with os.fdopen(os.memfd_create("patch"), "w", encoding="utf-8") as file:  # neither in argv nor on a disk
            file.write(patch)
            file.flush()
            words = ("--local", "-f", "-", "--type=strategic", f"--patch-file=/dev/fd/{file.fileno()}", "-o", "json")
            said, trouble = replace(self, namespace=None)._ran(("patch", *words), thing, SECONDS, (file.fileno(),))
        if trouble:
            raise trouble
        return _object(said, "patch")

    def visible(self, kinds: str, seconds: float) -> tuple[Sequence[dict[str, Any]], EngineError | None]:
        """Return the objects of several kinds, and the error if some kinds could not be listed.

        Raise EngineError if the cluster can't be queried."""
        # If a kind is forbidden, kubectl goes on to the next. In one chunk: it then has all objects of a kind, or none.
        said, trouble = self._ran(("get", kinds, "--chunk-size=0", "-o", "json"), None, seconds)
        if trouble and not said:
            raise trouble
        return list(_object(said, "get").get("items", [])), trouble

    def items(self, kinds: str, selector: Mapping[str, str]) -> Sequence[dict[str, Any]]:
        """List the objects with these labels. Raise EngineError."""
        return list(self.json("get", kinds, "-l", _chosen(selector)).get("items", []))

    def delete(self, kinds: str, selector: Mapping[str, str], *options: str) -> None:
        """Request the deletion of the objects with these labels, and don't wait for it. Raise EngineError."""
        self.text("delete", kinds, "-l", _chosen(selector), "--ignore-not-found", "--wait=false", *options)

    def stream(self, *words: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start kubectl with its stdout as a pipe, and its stderr to `errors`."""
        try:
            return subprocess.Popen(
                self._argv(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                env=without_keys(os.environ), start_new_session=True,  # Ctrl-C reaches ngcdl alone
            )  # fmt: skip
        except OSError as error:
            raise KubectlMissing(self.program, error.strerror or str(error)) from error

    def _ran(
        self, words: Sequence[str], given: Any, seconds: float, files: Sequence[int] = ()
    ) -> tuple[str, EngineError | None]:
        """Return kubectl's stdout, and what its failure means. `files`: open files that it reads. Raise EngineError if
        it can't start or hangs."""
        argv = self._argv(f"--request-timeout={seconds:g}s", *words)
        content = b"" if given is None else json.dumps(given).encode()
        try:
            done = subprocess.run(
                argv,
                input=content,
                capture_output=True,
                timeout=seconds + EXTRA_SECONDS,
                env=without_keys(os.environ),
                pass_fds=files,
                check=False,
            )
        except OSError as error:
            raise KubectlMissing(self.program, error.strerror or str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise ClusterHangs(words[0], error.timeout) from error
        said = done.stderr.decode("utf-8", "replace").strip() or f"it exited with {done.returncode}"
        return done.stdout.decode("utf-8", "replace"), translated(said) if done.returncode else None

    def _argv(self, *words: str) -> list[str]:
        where = [f"--context={self.context}"] if self.context else []
        where += [f"--namespace={self.namespace}"] if self.namespace else []
        return [self.program, *where, *words]


def _object(said: str, verb: str) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise translated(f"kubectl {verb} printed no JSON: {said[:200]!r}")
    return found


def _chosen(selector: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in selector.items())
