"""kubectl's stderr, translated into the errors that users meet. Pure.

The patterns are kubectl's and the API server's own words (tested with 1.32); unknown text is kept verbatim.
"""

from __future__ import annotations

import re

from ngcdl.errors import ClusterForbidden, ClusterHangs, ClusterRefused, ClusterUnreachable, EngineError

_UNREACHABLE = re.compile(
    r"connection to the server .* was refused|Unable to connect to the server|no such host|i/o timeout|"
    r"no configuration has been provided|context .* does not exist|context was not found|x509:|"
    r"Error loading config file|getting credentials|TLS handshake",
    re.IGNORECASE,
)
_HANGS = re.compile(r"Client\.Timeout|context deadline exceeded|request canceled", re.IGNORECASE)
_FORBIDDEN = re.compile(r"\(Forbidden\)|Unauthorized|You must be logged in|is forbidden", re.IGNORECASE)


def translated(said: str) -> EngineError:
    """Return the error that `said` means."""
    line = shown(said)
    if hint := remedy(said):
        return ClusterRefused(line, hint)
    if _HANGS.search(said):
        return ClusterHangs("query it", None)
    if _UNREACHABLE.search(said):
        return ClusterUnreachable(line)
    if _FORBIDDEN.search(said):
        return ClusterForbidden(line)
    return ClusterRefused(line)


_BY_A_RULE = (
    "A rule of this cluster refuses it; whoever runs the cluster knows what it asks for. What ngcdl creates, and how "
    "to add to it:\n    ngcdl run ... --dry-run\n    ngcdl run ... --job-patch FILE"
)
# What is created is refused with these words: pods mostly in an event about their Job, as kubectl creates only the Job.
_REMEDIES = {
    "exceeded quota": "Request less, wait for others, or check what the namespace has:\n    kubectl describe quota",
    "failed quota": "The namespace's quota counts what the run does not request. CPUs and memory by these options:\n"
    "    ngcdl run ... --cpus 8 --memory 32g\n"
    "The rest --job-patch FILE can request, or whoever runs the cluster can set defaults (a LimitRange). What is "
    "counted:\n"
    "    kubectl describe quota",
    "violates PodSecurity": "This namespace forbids that: leave --root out, and what a --job-patch adds of it, or name "
    "another namespace.",
    # https://github.com/projectnessie/nessie/issues/11823
    "unable to validate against any security context constraint": "OpenShift allows no such user ID here. Leave --root "
    "out; whoever runs the cluster can allow every other ID:\n    oc adm policy add-scc-to-user nonroot-v2 -z default",
    # https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
    "low on resource: memory": "Pods that use more memory than they request are evicted first. To request it:\n"
    "    ngcdl run ... --memory 64g",
    "low on resource: ephemeral-storage": "What a pod writes outside a claim fills its node's disk. To mount a claim:\n"
    "    ngcdl run ... -v CLAIM:/path",
    # A webhook's answer, and its failed connection, are the API server's and not kubectl's:
    # https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
    "failed calling webhook": "A program on the cluster (a webhook) has to approve what is created, and could not be "
    "asked. That may pass; if it doesn't, whoever runs the cluster can mend it.",
    '" denied the request': _BY_A_RULE,
    # https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
    "denied request:": _BY_A_RULE,
}


def remedy(said: str) -> str:
    """Return advice for a Job or a pod that may not be created, or that was evicted; "" if none is known."""
    return next((hint for words, hint in _REMEDIES.items() if words in said), "")


def shown(said: str) -> str:
    """Drop kubectl's log lines (E1121 19:27:05.1 memcache.go:265] ...) and repeated lines."""
    lines = [line for line in said.splitlines() if line.strip() and not re.match(r"[EIW]\d{4} \d\d:", line)]
    return "\n".join(dict.fromkeys(lines or said.splitlines()[-1:]))[:2000]
