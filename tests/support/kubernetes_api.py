"""A stand-in for a Kubernetes API server: real HTTP, and as much of the API as kubectl uses for one run.

It stores what is created, lists by label, deletes, and streams logs. A test does by hand what a cluster's
controllers would (create pods, place them, end them). What a real server would refuse, it accepts.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

KINDS = {
    "pods": ("v1", "Pod"), "services": ("v1", "Service"), "configmaps": ("v1", "ConfigMap"),
    "secrets": ("v1", "Secret"), "events": ("v1", "Event"), "jobs": ("batch/v1", "Job"),
    "namespaces": ("v1", "Namespace"), "nodes": ("v1", "Node"), "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass"),
}  # fmt: skip
OF_THE_CLUSTER = ("namespaces", "nodes", "runtimeclasses")  # not namespaced
VERBS = ["create", "delete", "get", "list", "patch", "update"]
WAITS_SECONDS = 120


@dataclass
class Log:
    """A pod's output; `closed` once its container has ended, `cut` how many followers lose their connection. While it
    is `stuck`, its node hands over nothing."""

    content: bytes = b""
    closed: bool = False
    cut: int = 0
    stuck: bool = False


@dataclass
class Api:
    """`refusals`: (method, kind) -> (HTTP status, reason, message)."""

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, Log] = field(default_factory=dict)
    refusals: dict[tuple[str, str], tuple[int, str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)  # by time.monotonic()
    changed: threading.Condition = field(default_factory=threading.Condition)
    address: str = ""

    def put(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        meta = thing["metadata"]
        version, name = KINDS[kind]
        with self.changed:
            kept = {"apiVersion": version, "kind": name, **thing}
            self.objects[kind, meta.get("namespace", ""), meta["name"]] = kept
            self.changed.notify_all()
        return kept

    def only(self, kind: str) -> dict[str, Any]:
        with self.changed:
            (found,) = [thing for (of, _, _), thing in self.objects.items() if of == kind]
        return found

    def has_no(self, kind: str, name: str) -> bool:
        return all((of, its) != (kind, name) for of, _, its in self.objects)

    def until(self, what: Any, told: str) -> None:
        with self.changed:
            assert self.changed.wait_for(what, WAITS_SECONDS), told

    def pod(self, index: int = 0, suffix: str = "aaaaa", made: str = "2026-01-01T00:00:00Z", **status: Any) -> str:
        """Create or change a pod of the only job, as its controller and a kubelet would."""
        job = self.only("jobs")
        template, meta = job["spec"]["template"], job["metadata"]
        name = f"{meta['name']}-{index}-{suffix}"
        notes = {"batch.kubernetes.io/job-completion-index": str(index)}
        about = {"name": name, "namespace": meta["namespace"], "labels": template["metadata"]["labels"]}
        self.logs.setdefault(name, Log())
        self.put(
            "pods",
            {
                "metadata": {**about, "annotations": notes, "creationTimestamp": made},
                "spec": template["spec"], "status": status,
            },
        )  # fmt: skip
        return name

    def runs(self, index: int = 0, suffix: str = "aaaaa", made: str = "2026-01-01T00:00:00Z") -> str:
        state = {"name": "run", "state": {"running": {}}}
        return self.pod(index, suffix, made, phase="Running", containerStatuses=[state])

    def writes(self, pod: str, content: bytes) -> None:
        with self.changed:
            self.logs[pod].content += content
            self.changed.notify_all()

    def goes(self, pod: str, last: bytes) -> None:
        """Write the last output of a pod asked to end, and remove it."""
        with self.changed:
            found = next(key for key in self.objects if key[2] == pod)
            assert "deletionTimestamp" in self.objects[found]["metadata"]
            self.logs[pod].content += last
            self.logs[pod].closed = True
            del self.objects[found]
            self.changed.notify_all()

    def ends(
        self,
        index: int = 0,
        code: int = 0,
        suffix: str = "aaaaa",
        finished: str = "2026-01-01T00:10:00Z",
        **said: str,
    ) -> None:
        over = {"exitCode": code, "reason": "Completed", "finishedAt": finished, **said}
        state = {"name": "run", "state": {"terminated": over}}
        name = self.pod(index, suffix, phase="Failed" if code else "Succeeded", containerStatuses=[state])
        with self.changed:
            self.logs[name].closed = True
            self.changed.notify_all()

    def job_ends(self, kind: str = "Complete", reason: str = "") -> None:
        said = {"reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:10:05Z"}
        job = self.only("jobs")
        self.put("jobs", {**job, "status": {"conditions": [{"type": kind, "status": "True", **said}]}})

    def kubeconfig(self, path: Path, namespace: str | None = None) -> Path:
        where = {"cluster": "stub", "user": "me", **({"namespace": namespace} if namespace else {})}
        said = {
            "apiVersion": "v1", "kind": "Config", "current-context": "stub", "users": [{"name": "me", "user": {}}],
            "clusters": [{"name": "stub", "cluster": {"server": self.address}}],
            "contexts": [{"name": "stub", "context": where}],
        }  # fmt: skip
        path.write_text(json.dumps(said))
        return path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def log_message(self, format: str, *arguments: Any) -> None: ...

    def do_GET(self) -> None:
        path, query = self._asked()
        if path in DISCOVERY:
            return self._answer(200, DISCOVERY[path])
        if path == "/openapi/v2":  # empty, so kubectl can't validate a manifest against it
            return self._send(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        found = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/log", path)
        if found:
            if not self._is_refused("GET", "log"):
                with contextlib.suppress(BrokenPipeError):  # who asked has not waited
                    self._log(found[2], query.get("follow") == "true")
            return None
        kind, namespace, name = self._place(path)
        if not kind or self._is_refused("GET", kind):
            return None if kind else self._refuse(404, "NotFound", f"there is no {path}")
        if name:
            thing = self.api.objects.get((kind, namespace, name))
            return self._answer(200, thing) if thing else self._missing(kind, name)
        chosen = _selected(self.api, kind, namespace, query)
        version, one = KINDS[kind]
        return self._answer(200, {"apiVersion": version, "kind": f"{one}List", "metadata": {}, "items": chosen})

    def do_POST(self) -> None:
        path, _ = self._asked()
        thing = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, namespace, _ = self._place(path)
        if self._is_refused("POST", kind):
            return
        thing["metadata"].setdefault("namespace", namespace)
        self._answer(201, self.api.put(kind, thing))

    def do_PUT(self) -> None:
        path, _ = self._asked()
        thing = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, namespace, name = self._place(path)
        if self._is_refused("PUT", kind):
            return
        if (kind, namespace, name) in self.api.objects:
            thing["metadata"].setdefault("namespace", namespace)
            self._answer(200, self.api.put(kind, thing))
        else:
            self._missing(kind, name)

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        said = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        kind, namespace, name = self._place(path)
        if self._is_refused("DELETE", kind):
            return
        with self.api.changed:
            thing = self.api.objects.get((kind, namespace, name))
            if thing and kind == "pods" and not self.api.logs[name].closed and said.get("gracePeriodSeconds", 30) > 1:
                thing["metadata"]["deletionTimestamp"] = "2026-01-01T00:20:00Z"  # asked to end; it goes later
            else:
                self.api.objects.pop((kind, namespace, name), None)
            self.api.changed.notify_all()
        if thing:
            self._answer(200, {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"})
        else:
            self._missing(kind, name)

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        with self.api.changed:
            self.api.asked.append(f"{self.command} {parts.path}")
            self.api.asked_at.append(time.monotonic())
            self.api.changed.notify_all()
        return parts.path, {key: values[0] for key, values in parse_qs(parts.query).items()}

    def _place(self, path: str) -> tuple[str, str, str]:
        found = re.fullmatch(r"/(?:api/v1|apis/[a-z0-9.]+/v1)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?", path)
        return (found[2], found[1] or "", found[3] or "") if found and found[2] in KINDS else ("", "", "")

    def _is_refused(self, method: str, kind: str) -> bool:
        refusal = self.api.refusals.get((method, kind))
        if refusal:
            self._refuse(*refusal)
        return refusal is not None

    def _missing(self, kind: str, name: str) -> None:
        self._refuse(404, "NotFound", f'{kind} "{name}" not found')

    def _refuse(self, code: int, reason: str, message: str) -> None:
        said = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure"}
        self._answer(code, {**said, "reason": reason, "message": message, "code": code})

    def _answer(self, code: int, said: Any) -> None:
        self._send(code, json.dumps(said).encode(), "application/json")

    def _send(self, code: int, content: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _log(self, pod: str, follow: bool) -> None:
        log = self.api.logs[pod]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Warning", '299 - "which is no error"')  # kubectl prints it
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        given = 0
        while True:
            with self.api.changed:
                while log.stuck or (follow and len(log.content) == given and not log.closed and not log.cut):
                    assert self.api.changed.wait(WAITS_SECONDS), "the log was forgotten"
                new, is_over, given = log.content[given:], log.closed or not follow, len(log.content)
                cut, log.cut = log.cut > 0, max(log.cut - 1, 0)
                self.api.changed.notify_all()
            if new:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(new), new))
                self.wfile.flush()
            if cut:
                self.close_connection = True
                return
            if is_over:
                self.wfile.write(b"0\r\n\r\n")
                return


def _selected(api: Api, kind: str, namespace: str, query: dict[str, str]) -> list[dict[str, Any]]:
    wanted = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
    about = dict(pair.split("=", 1) for pair in query.get("fieldSelector", "").split(",") if pair)
    with api.changed:
        return [
            thing
            for (of, where, _), thing in api.objects.items()
            if (of, where) == (kind, namespace)
            and wanted.items() <= thing["metadata"].get("labels", {}).items()
            and about.get("involvedObject.name") in (None, thing.get("involvedObject", {}).get("name"))
        ]


def _resources(version: str) -> dict[str, Any]:
    mine = {plural: kind for plural, (of, kind) in KINDS.items() if of == version}
    listed = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": plural not in OF_THE_CLUSTER,
            "kind": kind,
            "verbs": VERBS,
        }
        for plural, kind in mine.items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


_GROUPS = [
    {"name": name, "versions": [version], "preferredVersion": version}
    for name in ("batch", "node.k8s.io")
    for version in [{"groupVersion": f"{name}/v1", "version": "v1"}]
]
DISCOVERY = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.3"},
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": _GROUPS},
    "/api/v1": _resources("v1"),
    "/apis/batch/v1": _resources("batch/v1"),
    "/apis/node.k8s.io/v1": _resources("node.k8s.io/v1"),
}  # fmt: skip


@contextlib.contextmanager
def serving() -> Iterator[Api]:
    api = Api()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"api": api}))
    server.daemon_threads = True
    api.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
