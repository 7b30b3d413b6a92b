"""What Docker's error texts mean.

The HTTP status does not tell: the daemon wraps a registry's 401, 429 and 502 as 500, and 403 as 404. So the text is
parsed, and kept in the message. For well-known texts, meaning and advice come from catalog/failures.py alone.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ngcdl.engines.docker.context import named_by, tls, without_tls_files
from ngcdl.errors import (
    CannotInvoke,
    CommandNotFound,
    DigestMismatch,
    DiskFull,
    EngineAbsent,
    EngineForbidden,
    EngineHangs,
    EngineLost,
    EngineRefused,
    EngineTooOld,
    GpuHookFailed,
    MountMissing,
    NgcdlError,
    NoGpuWay,
    RateLimited,
    RegistryAnswer,
    RegistryUnreachable,
    TooManyFiles,
)
from ngcdl.excerpt import excerpt
from ngcdl.spec import LIMITS

DEFAULT_ADDRESS = "the default socket"

# A number is taken for a status code only beside these words: digests, names of runs and paths contain digits, too.
_TOO_MANY = r"toomanyrequests|\b429 Too Many|\b(?:HTTP|status(?: code)?:?) 429\b"
_FULL = r"no space left on device|disk quota exceeded"
_SERVER_TROUBLE = (
    r"\b(?:HTTP|status(?: code)?:?) 50[0234]\b|"
    r"\b50[0234] (?:Internal Server|Bad Gateway|Service (?:Temporarily )?Unavailable|Gateway Time)"
)

_PAGE = r"HTTP \d+, and a page in place of an answer"
_NO_PAGES = "Docker has no pages: a proxy before it answered, or another server. Does docker itself get through?"

# Rows of the catalogue's failures that decide the error's class.
_FAMOUS: dict[str, Callable[[str, str], NgcdlError]] = {
    "no-gpu-driver-in-docker": NoGpuWay,
    "runtime-unknown": NoGpuWay,
    "cdi-off": NoGpuWay,
    "gpu-not-found-by-runtime": GpuHookFailed,
    "cdi-devices-unresolvable": GpuHookFailed,
    "hook-called-directly": GpuHookFailed,
    "driver-mismatch": GpuHookFailed,
    "hook-forbidden": GpuHookFailed,
    "no-driver-at-the-engine": GpuHookFailed,
    "requirement-unsatisfied": GpuHookFailed,
    "docker-init-missing": EngineRefused,  # its text reads like that of a command missing from the image
    "podman-init-missing": EngineRefused,  # as this one's second text does
    "nvidia-smi-missing": lambda what, advice: CommandNotFound(what, hint=advice),
    "rlimit-forbidden": lambda what, advice: _limit_refused(what, advice),
}
# NVIDIA's runtime, its older hook, and the hooks of its CDI descriptions. The last text is the runtime's, too:
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.19.0/internal/oci/runtime_modifier.go
_HOOK = re.compile(
    r"nvidia-container-cli|nvidia-container-runtime|nvidia-cdi-hook|nvidia-ctk|required modification to OCI spec",
    re.IGNORECASE,
)
_PROGRAM = r'exec: "(?P<what>[^"]+)": (?:stat \S+: )?'  # so says runc

# (pattern, what it means); the first match wins.
_MEANINGS: tuple[tuple[str, Callable[[str], NgcdlError]], ...] = (
    (r"bind source path does not exist: (?P<what>.+)", lambda what: MountMissing(what, seen_here=os.path.exists(what))),  # noqa: PTH110  # it raises nothing
    (rf"{_PROGRAM}(executable file not found|no such file or directory)", CommandNotFound),
    (rf"{_PROGRAM}(permission denied|is a directory)", CannotInvoke),
    (r"executable file not found|exec: .*no such file or directory", CommandNotFound),
    (r"exec: .*(permission denied|is a directory)", CannotInvoke),
    (r"(?P<what>.*range of CPUs is from .*)", lambda what: _cpus_refused(what)),
    (r"(?P<what>.*minimum memory limit .*)", lambda what: EngineRefused(what, "    ngcdl run ... --memory 1g")),
    (r"No such image: (?P<what>.+)", lambda name: _image_gone(name)),
    (
        r"Container (?P<what>\w+) is paused",
        lambda its: EngineRefused(f"the container {its[:12]} is paused", f"    docker unpause {its[:12]}"),
    ),
    (_FULL, lambda what: DiskFull(None, what)),
    (r"verification failed|failed to verify|unexpected (commit )?digest|filesystem layer verif", DigestMismatch),
    (rf"{_TOO_MANY}|rate limit", lambda _: RateLimited("The registry", None)),
    (r"client version .* too (old|new)|minimum supported API version", EngineTooOld),
)

_TRANSIENT = re.compile(
    r"connection reset|unexpected EOF|\bEOF\b|i/o timeout|TLS handshake timeout|context deadline|temporary failure|"
    rf"net/http: request canceled|server misbehaving|{_SERVER_TROUBLE}|{_TOO_MANY}",
    re.IGNORECASE,
)


def meaning(text: str) -> NgcdlError:
    """Return the error that the daemon's `text` stands for; EngineRefused with that text if it is unknown."""
    from ngcdl.catalog import failures

    clean = " ".join(text.split())
    if re.match(_PAGE, clean):
        return EngineRefused(clean, f"{_NO_PAGES}\n    docker version")
    failure = failures.find(clean)
    advice = failure.advice if failure else ""
    if failure and failure.name in _FAMOUS:
        return _FAMOUS[failure.name](clean, advice)
    if _HOOK.search(clean):
        return GpuHookFailed(clean, advice or "    ngcdl doctor")
    for pattern, make in _MEANINGS:
        match = re.search(pattern, clean, re.IGNORECASE)
        if match:
            return make(match.groupdict().get("what") or clean)
    return EngineRefused(clean, advice)


def of_page(status: int, page: str) -> str:
    """Say what a page of HTML says that came with an HTTP status in place of the engine's answer."""
    body = re.search(r"<body\b.*", page, re.IGNORECASE | re.DOTALL)
    said = excerpt(body[0] if body else page, limit=100) or "an empty one."
    return f"HTTP {status}, and a page in place of an answer: {said}"


def pull_meaning(text: str, host: str) -> NgcdlError:
    """Return the error that `text` stands for at the end of a failed pull from `host`."""
    clean = " ".join(text.split())
    if re.match(_PAGE, clean):
        return meaning(clean)
    if re.search(_FULL, clean, re.IGNORECASE):  # first: the name of a file in the image may contain the words below
        return DiskFull(None, clean)
    if re.search(_TOO_MANY, clean, re.IGNORECASE):
        return RateLimited(host, None)
    if re.search(r"error parsing HTTP \d+|invalid character '<'", clean):  # before words of the page that follows
        return RegistryAnswer(host, excerpt(clean))
    if re.search(r"no such host|connection refused|no route to host|network is unreachable|lookup .*:", clean):
        return RegistryUnreachable(host, clean)
    if re.search(r"x509|certificate", clean):
        return RegistryUnreachable(host, clean, is_untrusted=True, by_engine=True)
    if re.search(r"gave HTTP response to HTTPS|i/o timeout|request canceled|Client.Timeout|deadline exceeded", clean):
        return RegistryUnreachable(host, clean)
    if re.search(r"received unexpected HTTP status|unexpected EOF", clean):
        return RegistryAnswer(host, clean)
    return meaning(clean)


def _limit_refused(what: str, advice: str) -> EngineRefused:
    """Return the error with advice for the limit in question, which runc names by number and crun by name."""
    found = re.search(r"rlimit type (\d+)|RLIMIT_([A-Z]+)", what)
    name = "NAME"
    if found and found[2]:
        name = found[2].lower()
    elif found and int(found[1]) < len(LIMITS):
        name = LIMITS[int(found[1])]
    return EngineRefused(what, advice.replace("NAME", name))


def _image_gone(name: str) -> EngineRefused:
    """Return the error about an image that the engine had when ngcdl looked, perhaps hours ago: a run that waits for
    its GPUs, or whose turn in a comparison has not come, keeps no image from being removed."""
    again = f"    ngcdl pull {name}" if "@" in name else "    docker image ls"
    return EngineRefused(f"No such image: {name}", f"It was removed meanwhile, as by docker image prune:\n{again}")


def _cpus_refused(what: str) -> EngineRefused:
    found = re.search(r"only (\d+) CPU", what)
    return EngineRefused(what, f"    ngcdl run ... --cpus {found[1] if found else 1}")


def is_transient(text: str) -> bool:
    """Whether a pull that failed with `text` is worth a retry: not with a wrong key, name or digest, or a full disk."""
    return bool(_TRANSIENT.search(text)) and not re.search(r"denied|unauthorized|verif|no space|disk quota", text)


@contextmanager
def docker_errors(address: str, doing: str) -> Iterator[None]:
    """Turn what the SDK, requests and urllib3 raise into ngcdl's errors, with the original as their cause."""
    import docker.errors
    import requests.exceptions
    import urllib3.exceptions

    broken = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, docker.errors.StreamParseError)
    try:
        yield
    except docker.errors.APIError as error:
        raise meaning(error.explanation or str(error)) from error
    except docker.errors.TLSParameterError as error:  # raised before any engine is asked
        raise without_tls_files() or _no_connection(address, str(error)) from error
    except docker.errors.DockerException as error:
        raise _no_connection(address, str(error)) from error
    except (*broken, ConnectionError) as error:
        text = str(error)
        if os.strerror(errno.EMFILE) in text:
            raise TooManyFiles(doing) from error
        if "timed out" in text.lower():
            raise EngineHangs(address, _waited_seconds(text, 60)) from error
        if "Connection refused" in text or "No such file" in text or "Permission denied" in text:
            raise _no_connection(address, text) from error
        raise EngineLost(doing) from error


def if_there(ask: Callable[..., Any], *words: Any, **more: Any) -> Any:
    """Return what the engine answers to a call of the SDK; None if it has no such image, container or file (any more).
    Raise the SDK's other errors."""
    import docker.errors

    try:
        return ask(*words, **more)
    except docker.errors.NotFound:
        return None


def _waited_seconds(text: str, usual: float) -> float:
    """Return the timeout, in seconds, that requests names: Read timed out. (read timeout=8)."""
    found = re.search(r"timeout=(\d+(?:\.\d+)?)", text)
    return float(found[1]) if found else usual


def _no_connection(address: str, text: str) -> NgcdlError:
    if "Permission" in text:
        return EngineForbidden(address)
    if "timed out" in text.lower():
        return EngineHangs(address, _waited_seconds(text, 10))
    if "too old" in text or "too new" in text or ("API version" in text and "server" not in text):
        return EngineTooOld(text)
    page = re.search(rf"{_PAGE}.*[^\")]", text)
    reason = page[0].rstrip(".") if page else " ".join(text.split())[:200]
    if "FileNotFound" in text or "No such file" in text:
        reason = "there is no socket"
    elif "refused" in text:
        reason = "the connection was refused"
    elif "NameResolutionError" in text:
        reason = "its name can't be resolved"
    elif (found := re.search(r"\[SSL[^]]*\] (.+?) \(_ssl", text)) and (its := tls()):
        alone = f"ca.pem alone: {its.folder} has neither cert.pem nor key.pem"
        files = f"the files in {its.folder}" if its.has_own else alone
        reason = f"TLS failed with {files} ({found[1].rstrip('.')})"
    elif "to an HTTPS server" in text:
        reason = "it wants TLS, which DOCKER_TLS_VERIFY=1 turns on"
    return EngineAbsent(address, reason, is_default=address == DEFAULT_ADDRESS, named_by=named_by())
