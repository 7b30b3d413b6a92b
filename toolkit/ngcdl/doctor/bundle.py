"""An archive for a bug report: what doctor found and the files behind it, with all secrets removed.

    doctor.json      the links, as --json prints them       nvidia-smi.txt   nvidia-smi -q
    versions.json    ngcdl, Python, kernel, toolkit          kernel.txt       what the kernel logged of NVRM and Xid
    environment.json variables that change what ngcdl does   daemon.json      the engine's configuration
    docker-info.json docker info                              last-run/        run.json, and the end of log.txt

Members that this host has no source for are left out. Every text passes through redact.Redactor before it goes in.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngcdl import __version__, tars, whole
from ngcdl.doctor.hands import Hands
from ngcdl.doctor.redact import Redactor, known_names
from ngcdl.errors import BadOption, NgcdlError
from ngcdl.spec import NVCR, redacted

_TAIL_BYTES = 64 << 10
_SECONDS = 5.0
_VARIABLES = ("NGCDL_", "DOCKER_", "NVIDIA_", "CUDA_", "XDG_", "LD_LIBRARY_PATH", "PATH", "LANG", "LC_", "TERM")


def docker_info() -> Mapping[str, Any]:
    """Return what the engine reports about itself, or the error that prevents this."""
    from ngcdl.engines.docker import connect

    try:
        return connect().info
    except NgcdlError as error:
        return {"error": error.message}


def write(
    file: Path,
    document: Mapping[str, Any],
    hands: Hands,
    redact: Redactor | None = None,
    info: Callable[[], Mapping[str, Any]] = docker_info,
) -> tuple[str, ...]:
    """Write the archive, readable by this user only, and return its members' names. Raise BadOption, and leave nothing,
    if it can't."""
    redact = redact or Redactor(secrets(hands), known_names(hands.environ))
    members = {name: _shown(text, redact) for name, text in _texts(document, hands, info)}
    try:
        # gzip's own header contains neither name nor date.
        with (
            whole.written(file, is_new=True) as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, text in members.items():
                content = text.encode(errors="replace")
                tars.add(archive, f"ngcdl-doctor/{name}", content, mode=0o600, changed=time.time())
    except FileExistsError as error:
        raise BadOption(f"--bundle {file}: it already exists and is left as it is.") from error
    except OSError as error:
        raise BadOption(f"--bundle {file}: it can't be written: {error.strerror}.") from error
    return tuple(members)


def _shown(text: str, redact: Redactor) -> str:
    """Redact a text. If it is JSON, redact it field by field, because then the end of each value is certain."""
    try:
        return _json(redact.tree(json.loads(text)))
    except (ValueError, RecursionError):
        return redact(text)


def _texts(
    document: Mapping[str, Any], hands: Hands, info: Callable[[], Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    yield "doctor.json", _json(document)
    yield "versions.json", _json(_versions(hands))
    yield "environment.json", _json(_environment(hands.environ))
    sources: tuple[tuple[str, Callable[[Hands], str | None]], ...] = (
        ("docker-info.json", lambda _: _json(info())),
        ("daemon.json", lambda at: at.read("/etc/docker/daemon.json")),
        ("nvidia-smi.txt", lambda at: at.run(["nvidia-smi", "-q"], _SECONDS)),
        ("driver.txt", lambda at: at.read("/proc/driver/nvidia/version")),
        ("kernel.txt", _kernel_log),
    )
    for name, source in sources:
        if text := source(hands):
            yield name, text
    yield from _last_run(hands)


def _json(tree: object) -> str:
    return json.dumps(tree, indent=1, ensure_ascii=True, default=str) + "\n"


def _versions(hands: Hands) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    packages = {}
    for name in ("docker", "requests", "nvidia-ml-py", "typer", "rich", "tensorflow"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "ngcdl": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "os-release": hands.read("/etc/os-release"),
        "packages": packages,
        "programs": {
            name: hands.run([name, "--version"], _SECONDS) for name in ("nvidia-ctk", "nvidia-container-cli", "docker")
        },
    }


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter. For keys, say only that they are set."""
    from ngcdl.settings import KEY_VARIABLES

    kept = {
        # Only the name is judged here (DOCKER_PASS): of a value, the Redactor hides no more than the secret in it.
        name: redacted(name, "") or value
        for name, value in environ.items()
        if name.startswith(_VARIABLES) or name.lower().endswith("_proxy")
    }
    return kept | {name: "(set)" for name in KEY_VARIABLES if environ.get(name)}


def _kernel_log(hands: Hands) -> str | None:
    """Return the lines about NVIDIA's module; None if there are none, or this user may not read the log."""
    text = hands.run(["dmesg"], _SECONDS) or hands.run(
        ["journalctl", "-k", "-b", "--no-pager", "-o", "short"], _SECONDS
    )
    if text is None:
        return None
    lines = [line for line in text.splitlines() if "NVRM" in line or "Xid" in line or "nvidia" in line.lower()]
    return "\n".join(lines[-500:]) + "\n" if lines else None


def _last_run(hands: Hands) -> Iterator[tuple[str, str]]:
    from ngcdl import settings
    from ngcdl.folder import LOG, RECORD, opened
    from ngcdl.storing.store import Store

    try:
        store = Store(settings.load(hands.environ).runs)
        ids: Sequence[str] = store.ids()[:1]
    except NgcdlError:
        return
    for run_id in ids:
        for name in (RECORD, LOG):
            with contextlib.suppress(OSError), opened(store.folder(run_id) / name) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                yield f"last-run/{name}", file.read().decode(errors="replace")


def secrets(hands: Hands) -> Iterator[str]:
    """Yield every secret that ngcdl knows on this host, in every form that may appear in a text."""
    import base64
    from urllib.parse import quote, urlsplit

    from ngcdl import settings
    from ngcdl.doctor.look.keys import finder
    from ngcdl.settings import KEY_VARIABLES

    values = [hands.environ[name].strip() for name in KEY_VARIABLES if hands.environ.get(name, "").strip()]
    host = NVCR
    with contextlib.suppress(BadOption):  # the settings can't be read
        host = settings.load(hands.environ).registry_host
    key, _ = finder(hands, host)()
    values += [key.secret.reveal()] if key else []
    for name, value in hands.environ.items():
        if name.lower().endswith("_proxy"):
            try:
                # curl and wget also take a proxy without http://
                password = urlsplit(value if "://" in value else f"//{value}").password
                values += [password] if password else []
            except ValueError:  # not a URL, so it is unknown where a password would be
                values.append(value)
    for value in values:
        yield value
        yield quote(value, safe="")
        for user in ("$oauthtoken", ""):
            yield base64.b64encode(f"{user}:{value}".encode()).decode()
        yield base64.b64encode(value.encode()).decode()
