"""A project's own settings for its commands: ngcdl.toml in this folder or one above it, for what is not typed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngcdl import console
from ngcdl.cli.typed import Typed
from ngcdl.cli.typed_container import current_folder
from ngcdl.errors import BadOption
from ngcdl.planning import requirements
from ngcdl.settings import toml
from ngcdl.spec import KINDS, Mount, kind_of, redacted_words

NAME = "ngcdl.toml"
# The keys, and the fields of Typed that they set. They are named like the options that they stand for.
_TEXTS = {"image": "image", "gpus": "gpus", "shm-size": "shm_size", "cpus": "cpus", "memory": "memory"}
_ROOT = 0
_LISTS = {"pip": "packages", "volume": "volumes"}


def filled(typed: Typed) -> Typed:
    """Return `typed` with the project's settings for what was not typed, and say which those are. A bundled training is
    not the project's, and a command without a container takes none of them.

    Raise BadOption if the file is no such file, or grants what only its caller may grant."""
    has_container = typed.engine not in KINDS or kind_of(typed.engine).has_containers
    path = None if typed.train or not has_container else _found(current_folder())
    if path is None:
        return typed
    settings = _read(path)
    if not (typed.image or "image" in settings):
        console.say(f"{path} is left out: no image is named, so there is no container")
        return typed
    if "volume" in settings:
        replaced = {_place(text) for text in typed.volumes}
        settings["volume"] = [text for text in settings["volume"] if _place(text) not in replaced]
    own = {*typed.given, *(["image"] if typed.image else [])}  # --vary names images, too
    scalars = {name: settings[key] for key, name in _TEXTS.items() if key in settings and name not in own}
    console.say(f"from {path}: {', '.join(redacted_words(_words(settings, scalars)))}")  # before errors about them
    packages = requirements.listed(settings.get("pip", ()), path.parent, within=path.parent)
    volumes = tuple(_inside(path, text) for text in settings.get("volume", ()))
    variables = tuple(f"{name}={value}" for name, value in settings.get("env", {}).items())
    return replace(
        typed,
        **scalars,
        packages=(*packages, *typed.packages),
        volumes=(*volumes, *typed.volumes),
        environment=(*variables, *typed.environment),
    )


def _found(folder: Path) -> Path | None:
    """Return the nearest file, from `folder` up. One of another user's is passed over: in a folder that all may write
    to it would decide what others run."""
    for place in (folder, *folder.parents):
        path = place / NAME
        try:
            owners = {path.lstat().st_uid, path.stat().st_uid}
        except OSError:
            continue
        if owners <= {os.getuid(), _ROOT}:
            return path
        console.say(f"{path} is another user's, and is not read")
    return None


def _read(path: Path) -> dict[str, Any]:
    settings = toml(path)
    fits: Mapping[str, Callable[[Any], bool]] = {
        **dict.fromkeys(_TEXTS, lambda value: isinstance(value, str)),
        **dict.fromkeys(_LISTS, _is_texts),
        "env": lambda value: isinstance(value, dict) and _is_texts(list(value.values())),
    }
    for key, value in settings.items():
        if key not in fits:
            raise BadOption(f"{path}: {key} is no setting; those are {', '.join(fits)}.")
        if not fits[key](value):
            raise BadOption(f"{path}: {key} must be {_form(key, value)}.")
    return settings


def _form(key: str, value: object) -> str:
    if key == "env":
        return '{ NAME = "VALUE" }'
    text = value if isinstance(value, str | int | float) and not isinstance(value, bool) else "..."
    return f'a list: {key} = ["{text}"]' if key in _LISTS else f'text: {key} = "{text}"'


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _place(text: str) -> str:
    return Mount.parse(text, "/", "/").place


def _inside(path: Path, text: str) -> str:
    """Return a mount with the whole path of its folder. Raise BadOption if that is outside the project: what somebody
    wrote there must not open other folders to a container."""
    host, colon, rest = text.partition(":")
    try:
        folder = (path.parent / Path(host).expanduser()).resolve()
    except (RuntimeError, ValueError) as error:  # ~NAME of no user; a NUL
        raise BadOption(f"{path}: volume {text!r}: there is no such folder.") from error
    if not colon or not folder.is_relative_to(path.parent.resolve()):
        raise BadOption(
            f"{path}: volume {text}: only folders of the project, as in data:/data.",
            f"Type the others:\n    ngcdl run ... -v {shlex.quote(text)}",
        )
    return f"{folder}:{rest}"


def _words(settings: Mapping[str, Any], scalars: Mapping[str, str]) -> tuple[str, ...]:
    """Say what is taken from the settings, as it would be typed."""
    taken = [(key, settings[key]) for key, name in _TEXTS.items() if name in scalars]
    said = [value if key == "image" else f"--{key} {value}" for key, value in taken]
    said += [f"--pip {word}" for word in settings.get("pip", ())]
    said += [f"-v {text}" for text in settings.get("volume", ())]
    return (*said, *(f"-e {name}" for name in settings.get("env", {}))) or ("nothing",)
