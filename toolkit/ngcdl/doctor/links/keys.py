"""The key for the registry: is it on this host, and does the registry accept it?"""

from __future__ import annotations

from shlex import quote

from ngcdl.doctor.chain import Finding, Link, Step, broken, from_error, not_seen, ok, unchecked, warning
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.errors import BadKey, RegistryUnreachable
from ngcdl.spec import NVCR

_KEYS_URL = "https://org.ngc.nvidia.com/setup/api-keys"
# https://docs.docker.com/reference/cli/docker/login/#credential-stores
_HELPERS_URL = "https://docs.docker.com/go/credential-store/"
_UNREACHABLE = (
    "Images that are already here run all the same. Behind a proxy, set HTTPS_PROXY here and for the engine; to use a "
    "mirror of the registry, set NGCDL_REGISTRY"
)


def credentials(sight: Sight) -> Finding:
    name = "credentials"
    keys = sight.keys
    if isinstance(keys, Trouble):
        return not_seen(name, keys)
    if isinstance(keys.error, BadKey):  # from a variable, which takes precedence over every key that a login stores
        cause = "A variable takes precedence over every stored key. Copy the key again, or unset the variable"
        step = Step(f"unset {keys.error.variable} && ngcdl login", by_hand=True)
        return broken(name, keys.error.why, cause, step, source=_KEYS_URL)
    if keys.error is not None:
        return from_error(name, keys.error)
    if (exposed := keys.exposure) is not None:
        file = quote(str(exposed.file))
        # The file's owner may need it, so the user has to decide whether to take it over.
        step = Step(f"chmod 600 {file}") if exposed.is_ours else Step(f'sudo chown "$(id -u)" {file}', by_hand=True)
        return warning(name, f"a key in {keys.source}" if keys.source else "no key", exposed.who, step)
    if keys.source is None:
        return _no_key(name, sight.registry_host)
    if keys.in_clear:
        hint = "It is stored unencrypted; a credential helper avoids that"
        return ok(name, f"a key in {keys.source}", hint, source=_HELPERS_URL)
    return ok(name, f"a key in {keys.source}")


def _no_key(name: str, host: str) -> Finding:
    """Judge that there is no key. nvcr.io requires none for what most people pull; other registries may."""
    if host == NVCR:
        hint = "TensorFlow's and PyTorch's images need none. For an image that asks for a key: ngcdl login"
        return ok(name, f"no key for {host}", hint, source=_KEYS_URL)
    cause = f"{host} may serve its images only to users who are signed in"
    return warning(name, f"no key for {host}", cause, Step("ngcdl login"))


def registry(sight: Sight) -> Finding:
    name = "registry"
    seen = sight.registry
    if isinstance(seen, Trouble):
        if seen.is_late:
            cause = "The network, a firewall or a proxy drops the connection"
            look = Step(f"curl -sI https://{sight.registry_host}/v2/", by_hand=True)
            return broken(name, f"{sight.registry_host} gave {seen.why}", cause, look)
        return not_seen(name, seen)
    if seen.error is not None:
        is_silent = isinstance(seen.error, RegistryUnreachable)
        return from_error(name, seen.error, _UNREACHABLE if is_silent else None)
    return ok(name, f"{sight.registry_host} answers")


def key(sight: Sight) -> Finding | None:
    name = "key"
    seen, keys = sight.registry, sight.keys
    if isinstance(keys, Trouble) or keys.error is not None:
        return unchecked(name, "needs credentials")
    if keys.source is None:
        return None
    if isinstance(seen, Trouble) or seen.error is not None:
        return unchecked(name, "needs registry")
    if seen.key_error is not None:
        return from_error(name, seen.key_error)
    if seen.takes_key is None:
        return ok(name, f"{sight.registry_host} asks nobody to sign in, so the key was not tried")
    return ok(name, f"{sight.registry_host} accepts it")


LINKS = (Link(200, "credentials", credentials), Link(210, "registry", registry), Link(220, "key", key))
