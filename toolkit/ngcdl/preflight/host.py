"""Parses a machine's description: --host driver=535.104.05,cc=7.5,brand=tesla,arch=amd64 --gpu name=A100."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ngcdl.engines.values import architecture
from ngcdl.errors import BadOption
from ngcdl.preflight.facts import BRANDS, Gpu, HostFacts
from ngcdl.preflight.names import brand_of, capability_of, is_with_arm
from ngcdl.spec import parse_bytes

_FORM = (
    "The form is:\n"
    "    --host driver=535.104.05,cc=7.5,brand=tesla,arch=amd64\n"
    "One gpu= per card, with its name or with capability and brand, or one --gpu per card:\n"
    "    --host driver=535.104.05,gpu=T4,gpu=6.1:geforce\n"
    "    --host driver=535.104.05 --gpu T4 --gpu cc=8.0,brand=tesla,name=A100\n"
    "Also: avx=yes or avx=no, free=SIZE (where the engine stores images), engine=VERSION"
)
_ARCHITECTURES = {"x86-64": "amd64", "x64": "amd64", "arm64/v8": "arm64", "sbsa": "arm64"}  # aliases
_OF_A_CARD = ("cc", "brand", "name")
_OF_A_HOST = ("driver", "arch", "avx", "free", "engine")
_DRIVER = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,3}", re.ASCII)
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]", re.ASCII)


def typed(text: str, gpus: Sequence[str] = ()) -> HostFacts:
    """Parse --host and every --gpu. Facts that are not typed are unknown. If neither a card nor a driver is typed, the
    host has no card.

    A driver alone implies one card about which nothing is known; a card that only ARM machines have implies arch=arm64.
    Raise BadOption, which shows the expected form.
    """
    pairs = _pairs("--host", text, (*_OF_A_HOST, *_OF_A_CARD, "gpu"))
    if not pairs and not gpus:
        raise BadOption("--host: the description of the host is empty.", _FORM)
    own = [(key, value) for key, value in pairs if key in _OF_A_CARD]
    host = _host(_once("--host", [pair for pair in pairs if pair[0] != "gpu"]))
    cards = [_card("--host", _once("--host", own))] if own else []
    cards += [_short("--host gpu=", value) for key, value in pairs if key == "gpu"]
    cards += [_long(one) if "=" in one else _short("--gpu", one) for one in gpus]
    if host.driver and not cards:
        cards = [Gpu(None)]
    if "arch" not in dict(pairs) and any(is_with_arm(card.name, card.capability) for card in cards):
        host = replace(host, architecture="arm64")
    return replace(host, gpus=tuple(replace(card, index=place) for place, card in enumerate(cards)))


def _pairs(option: str, text: str, keys: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for part in text.split(","):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key.lower() not in keys or not equals or not value:
            raise BadOption(f"{option} {text}: {part.strip()!r} is not understood; it takes {', '.join(keys)}.", _FORM)
        pairs.append((key.lower(), value))
    return pairs


def _once(option: str, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise BadOption(f"{option}: {twice}= is given twice; name several cards with gpu= or --gpu.", _FORM)
    return dict(pairs)


def _host(values: dict[str, str]) -> HostFacts:
    driver, typed_arch = values.get("driver"), values.get("arch", "amd64").lower()
    arch = _ARCHITECTURES.get(typed_arch) or architecture(typed_arch)
    if driver is not None and not _DRIVER.fullmatch(driver):
        raise BadOption(f"--host driver={driver}: it must be a version such as 535.104.05.", _FORM)
    if arch not in ("amd64", "arm64"):
        raise BadOption(f"--host arch={typed_arch}: it must be amd64 or arm64.", _FORM)
    avx = values.get("avx")
    if avx not in (None, "yes", "no"):
        raise BadOption(f"--host avx={avx}: it must be yes or no.", _FORM)
    return HostFacts(
        architecture=arch,
        driver=driver,
        avx=None if avx is None else avx == "yes",
        free_bytes=parse_bytes(values["free"], "--host free=") if "free" in values else None,
        engine_version=values.get("engine"),
    )


def _long(text: str) -> Gpu:
    """Parse cc=8.0,brand=tesla,name=A100."""
    return _card("--gpu", _once("--gpu", _pairs("--gpu", text, _OF_A_CARD)))


def _short(option: str, value: str) -> Gpu:
    """Parse 7.5:tesla, 7.5, T4 or T4:tesla."""
    first, _, brand = (piece.strip() for piece in value.partition(":"))
    values = {"cc" if _CAPABILITY.fullmatch(first) else "name": first}
    return _card(option, values | ({"brand": brand} if brand else {}))


def _card(option: str, values: dict[str, str]) -> Gpu:
    """Make a card. What was typed takes precedence over what the card's name implies."""
    name, capability = values.get("name"), values.get("cc")
    if capability is not None and not _CAPABILITY.fullmatch(capability):
        raise BadOption(f"{option} cc={capability}: it must be a compute capability such as 7.5.", _FORM)
    if capability is None and name is not None:
        capability = capability_of(name)
        if capability is None:
            raise BadOption(f"{option}: the card {name!r} is unknown, or several cards have that name.", _FORM)
    brand = re.sub(r"[\s_-]", "", values["brand"].lower()) if "brand" in values else None
    if brand is not None and brand not in BRANDS.values():
        raise BadOption(f"{option} brand={values['brand']}: it must be one of {', '.join(BRANDS.values())}.", _FORM)
    return Gpu(capability, name, brand or (brand_of(name) if name else None))
