"""`ngcdl login` and `logout`: a key is checked, shown to the registry, and only then kept."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace

from ngcdl import console, settings
from ngcdl.errors import BadKey, BadOption, KeyNotRemoved, NoKey
from ngcdl.frozen import dataclass
from ngcdl.registry import credentials, docker_config
from ngcdl.registry.key import KEY_LIMIT_BYTES, NGC_USERNAME, Credential, check_key
from ngcdl.running.signals import Interrupted
from ngcdl.spec import NVCR

_HELPERS_URL = "https://docs.docker.com/go/credential-store/"


@dataclass(frozen=True)
class Copy:
    """Where a key is copied to: into the pull secret `kubernetes` of `namespace`, or to enroot."""

    kubernetes: str | None = None
    namespace: str | None = None
    enroot: bool = False

    def line(self, registry: str | None) -> str:
        """Return the command line that makes this copy."""
        named = (("--kubernetes", self.kubernetes), ("--namespace", self.namespace))
        words = [word for name, value in named if value is not None for word in (name, value)]
        words = [*([registry] if registry else []), *words, *(["--enroot"] if self.enroot else [])]
        return f"    ngcdl login {shlex.join(words)}"


def login(registry: str | None = None, key_stdin: bool = False) -> Credential:
    """Sign in to nvcr.io, or to the mirror of it that NGCDL_REGISTRY names, with an NGC API key.

    The key is read from standard input (--password-stdin), else from NGC_API_KEY or NGC_CLI_API_KEY, else prompted
    for. Once the registry has accepted it, it is returned and kept where `docker login` keeps it; if it is refused,
    the old one stays.
    """
    from ngcdl.registry.client import Registry

    host = _host(registry)
    if host not in (NVCR, _host(None)):
        raise BadOption(
            f"{host}: an NGC API key is for {NVCR}, or for the mirror of it that NGCDL_REGISTRY names.",
            f"    docker login {host}\nngcdl reads the same file.",
        )
    docker_config.read(docker_config.path(os.environ))  # report a broken file before asking for a key
    typed = _read_key(host, key_stdin, os.environ)
    with Registry(host) as asked:
        checked = asked.verify(typed)
    kept = credentials.save(host, typed.secret)
    if kept.in_clear:
        console.say(f"The key is kept unencrypted. A credential helper avoids that: {_HELPERS_URL}")
    if (exposed := credentials.exposure()) is not None:
        console.say(str(exposed))
    if checked:
        console.result(f"Signed in to {host} with the key from {typed.source}. Kept in {kept.where}.")
    else:
        console.result(f"{host} does not ask for a sign-in, so the key was not checked. Kept in {kept.where}.")
    return typed


def copy(to: Copy, registry: str | None = None, key_stdin: bool = False) -> None:
    """Copy the stored key, or sign in with the one on standard input and copy that.

    Raise BadOption if no key is stored, a name is invalid, or two options exclude each other."""
    host = _host(registry)  # first: `registry` may be a key typed by mistake, which no message may repeat
    if to.namespace is not None and to.kubernetes is None:
        meant = Copy("NAME", to.namespace).line(registry)
        raise BadOption("--namespace: only --kubernetes reads that.", meant)
    if to.kubernetes is not None and to.enroot:
        both = (replace(to, enroot=False), Copy(enroot=True))
        raise BadOption("--kubernetes and --enroot: use only one.", "\n".join(one.line(registry) for one in both))
    if to.kubernetes is not None:
        from ngcdl.engines.kubernetes.engine import check_secret_name

        check_secret_name(to.kubernetes)  # before a key is asked for
    key = login(registry, key_stdin) if key_stdin else credentials.find(host)
    if key is None:
        raise BadOption(f"No key for {host} is stored.", f"    {credentials.sign_in(host)}\n{to.line(registry)}")
    if to.kubernetes is None:
        _to_enroot(host, key)
    else:
        _to_kubernetes(host, key, to.kubernetes, to.namespace)


def _to_kubernetes(host: str, key: Credential, name: str, namespace: str | None) -> None:
    """Create the pull secret `name`, or replace its key. The key goes through kubectl's stdin, never through a file."""
    from ngcdl.engines import kubernetes

    where = kubernetes.connect().keep_pull_secret(name, namespace, host, key.username, key.secret.reveal())
    console.result(
        f"The secret {name} in the namespace {where} has the key for {host}: ngcdl run ... --pull-secret {name}"
    )


def _to_enroot(host: str, key: Credential) -> None:
    """Put the key where enroot reads it. The nodes of a Slurm cluster pull images with enroot."""
    from ngcdl.registry import enroot

    file = enroot.keep(host, key)
    console.result(f"The key for {host} is kept unencrypted in {file}, readable only by you: enroot reads it there.")


def logout(registry: str | None = None) -> None:
    """Remove the key for nvcr.io, or for `registry`, from this machine, including Docker's login and enroot's copy. A
    pull secret in a cluster stays."""
    from ngcdl.registry import enroot

    host = _host(registry)
    copy, not_removed = None, None
    try:
        copy = enroot.forget(host)
    except KeyNotRemoved as error:  # Docker's login is removed all the same
        not_removed = error
    kept, failure = credentials.forget(host)
    places = (*kept, *([str(copy)] if copy else []))
    if places:
        console.result(f"The key for {host} was removed from {' and '.join(places)}.")
    elif failure is None:
        console.result(f"Docker's configuration keeps no key for {host}.")
    for name in credentials.key_variables(host):
        console.say(f"{name} is still set, and takes precedence over any other key: unset {name}")
    if not_removed is not None and failure is not None:
        console.show_error(not_removed)
    if trouble := failure or not_removed:
        raise trouble
    left, _trouble = credentials.find_or_none(host, settings.without_keys(os.environ))
    if left is not None:
        console.say(f"A key for {host} is still found in {left.source}.")


def _host(registry: str | None) -> str:
    if registry is None:
        return settings.load().registry_host
    return settings.host(registry, registry or "REGISTRY").partition("/")[0]


def _read_key(host: str, key_stdin: bool, environ: Mapping[str, str]) -> Credential:
    """Return the key that was typed. Raise NoKey if there is nobody to ask, and BadKey."""
    if key_stdin:
        return Credential(NGC_USERNAME, check_key(_from_stdin()), "standard input")
    for name in credentials.key_variables(host, environ):  # none for another registry: NGC's key is not for it
        return Credential(NGC_USERNAME, check_key(environ[name]), name, variable=name)
    if sys.stdin is None or not sys.stdin.isatty():
        raise NoKey
    try:
        text = getpass.getpass(f"NGC API key for {host} (it stays hidden): ")
    except EOFError:
        console.result("")
        raise NoKey(is_asked=True) from None
    except Interrupted:
        console.result("")  # what is said of it starts on a new line
        raise
    return Credential(NGC_USERNAME, check_key(text), "the prompt")


def _from_stdin() -> str:
    if sys.stdin is None:
        raise NoKey
    raw = sys.stdin.buffer.read(2 * KEY_LIMIT_BYTES)  # more than any key: a large file may be piped in by mistake
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadKey("it is not text") from None
