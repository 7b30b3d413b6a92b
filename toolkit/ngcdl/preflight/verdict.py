"""Judges whether an image can run on a host, rule by rule, each with its number and its source. Pure.

card.py judges each card; this module holds the host's rules and combines everything into the verdict.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ngcdl.catalog.rows import comparable, known
from ngcdl.preflight.card import decisive_first, judge_card, worst
from ngcdl.preflight.facts import LEVELS, CardVerdict, HostFacts, ImageFacts, Mode, Reason, Verdict
from ngcdl.preflight.image import UNPACKED_PER_COMPRESSED
from ngcdl.preflight.kernels import JETSON
from ngcdl.spec import GpuRequest

SCHEMA_1 = "https://docs.docker.com/engine/deprecated/#pushing-and-pulling-with-image-manifest-v2-schema-1"
# "Prebuilt binaries will use AVX instructions"
AVX = "https://github.com/tensorflow/tensorflow/releases/tag/v1.6.0"
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
_MODES: tuple[Mode | None, ...] = ("native", "forward", "minor", "ptx", None)


def judge_host(image: ImageFacts, host: HostFacts) -> Verdict:
    """Judge `image` for `host`. This never raises: the reasons name what is unknown, even if all is."""
    made_for = _architecture(image, host)
    if made_for and made_for.level == "no":
        return Verdict("no", None, decisive_first([made_for, *_host_rules(image, host)]))
    reasons, mode, cards = _on_gpus(image, host)
    reasons += [made_for] if made_for else []
    reasons += _host_rules(image, host)
    level = worst(reasons)
    return Verdict(level, None if level == "no" else mode, decisive_first(reasons), cards)


def judge_each(image: ImageFacts, host: HostFacts) -> Verdict:
    """Judge `image` for a run on all cards of `host`: the worst card decides."""
    verdict = judge_host(image, host)
    return judge_host(image, replace(host, gpus=(max(verdict.cards, key=_rank).gpu,))) if verdict.cards else verdict


# -- the GPUs ---------------------------------------------------------------------------------------------------------


def _on_gpus(image: ImageFacts, host: HostFacts) -> tuple[list[Reason], Mode | None, tuple[CardVerdict, ...]]:
    without = _without_gpus(image, host)
    if without:
        return [without], None, ()
    cards = tuple(judge_card(image, gpu, host) for gpu in host.gpus)
    best = min(cards, key=_rank)
    reasons = [*best.reasons]
    if any(_rank(card)[0] > _rank(best)[0] for card in cards):
        reasons.append(_mixed(cards, best))
    if host.gpu_way == "none":
        text = "Docker has no way to hand a GPU to a container: install the NVIDIA Container Toolkit"
        reasons.append(Reason("gpu-way", "caution", text, source=TOOLKIT))
    return reasons, best.mode, cards


def _without_gpus(image: ImageFacts, host: HostFacts) -> Reason | None:
    if image.has_cuda is False:
        text = "its configuration names no CUDA, so it needs neither GPU nor driver; packages from pip don't show there"
        return Reason("no-cuda", "runs", text)
    if host.elsewhere:
        return Reason("elsewhere", "caution", f"{host.elsewhere}; ngcdl check --host judges a host you describe")
    if not host.gpus:
        found = f"can be used here ({_inside(host.gpu_trouble)})" if host.gpu_trouble else "was found on this host"
        return Reason("no-gpu", "caution", f"no GPU {found}: it would run on the CPU only")
    return None


def _rank(card: CardVerdict) -> tuple[int, int, bool]:
    """Return a card's rank, the best card lowest. If two can't run the image, one that needs only another driver is
    better."""
    return (
        LEVELS.index(card.verdict),
        _MODES.index(card.mode),
        card.reasons[0].rule != "driver",
    )


def _inside(sentence: str) -> str:
    """Change a sentence to fit in parentheses. A name such as NVML at its beginning keeps its capitals."""
    return (sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence).rstrip(".")


def _mixed(cards: tuple[CardVerdict, ...], best: CardVerdict) -> Reason:
    """Name the cards to use, in the syntax of --gpus."""
    good = [(place, card.gpu) for place, card in enumerate(cards) if card.verdict == best.verdict]
    names = [gpu.uuid or str(place) if gpu.index is None else str(gpu.index) for place, gpu in good]
    worse = [(place, card) for place, card in enumerate(cards) if card.verdict != best.verdict]
    others = [card.gpu.name or f"card {place if card.gpu.index is None else card.gpu.index}" for place, card in worse]
    does = "can't run it" if worse[0][1].verdict == "no" else "does worse"
    take = str(GpuRequest("devices", devices=tuple(names)))
    take = f"'{take}'" if take.endswith(",") else take  # so that the comma of "0," isn't read as punctuation
    text = f"it runs best on {len(good)} of {len(cards)} cards, and {others[0]} {does}: use --gpus {take}"
    return Reason("mixed", "caution", text, ", ".join(others))


# -- the rest of the host ---------------------------------------------------------------------------------------------


def _host_rules(image: ImageFacts, host: HostFacts) -> list[Reason]:
    rules = (_manifest(image, host), _disk(image, host), _avx(image, host))
    return [reason for reason in rules if reason]


def _architecture(image: ImageFacts, host: HostFacts) -> Reason | None:
    made_for = ("arm64",) if image.for_jetson else image.architectures
    source = JETSON if image.for_jetson else image.sources.get("architectures")
    if not made_for:
        if host.architecture == "amd64":  # every NVIDIA image except the -igpu ones is built for it
            return None
        text = f"the architecture that the image is made for is unknown, and this host is {host.architecture}"
        return Reason("unknown", "caution", text, host.architecture)
    if host.architecture in made_for:
        return None
    text = f"the image is made for {' and '.join(made_for)}, not for {host.architecture}"
    recalled = "architectures" in image.recalled
    return Reason("architecture", "no", text, host.architecture, " ".join(made_for), source, recalled)


def _disk(image: ImageFacts, host: HostFacts) -> Reason | None:
    from ngcdl.figures import size

    free, travels = host.free_bytes, image.compressed_bytes
    if free is None or travels is None or free >= UNPACKED_PER_COMPRESSED * travels:
        return None
    wanted = round(UNPACKED_PER_COMPRESSED * travels)
    text = (
        f"{size(free)} are free where the engine keeps images, but the image needs about {size(wanted)} "
        f"({size(travels)} to download, plus the unpacked layers)"
    )
    return Reason("disk", "no" if free < travels else "caution", text, str(free), str(wanted))


def _avx(image: ImageFacts, host: HostFacts) -> Reason | None:
    if host.avx is not False or host.architecture != "amd64" or image.framework != "tensorflow":
        return None
    if not _is_built_with_avx(image):
        return None
    text = (
        "this processor has no AVX, which TensorFlow's builds use since 1.6: it may crash with an illegal instruction"
    )
    return Reason("avx", "caution", text, "no AVX", "AVX", AVX)


def _is_built_with_avx(image: ImageFacts) -> bool:
    numbers = re.match(r"[0-9]{1,4}\.[0-9]{1,4}", image.framework_version or "")
    if numbers:
        return comparable(numbers[0]) >= (1, 6)
    release = known(image.release)
    return release is not None and release >= (18, 4)  # 18.03 has 1.4, 18.04 has 1.7


def _manifest(image: ImageFacts, host: HostFacts) -> Reason | None:
    """Judge a schema 1 manifest: Docker 26.0 disables it by default, and later versions removed it."""
    if not image.is_schema_1:
        return None
    numbers = re.match(r"[0-9]{1,4}", host.engine_version or "")
    found = host.engine_version
    if numbers and int(numbers[0]) >= 26:
        text = f"the image has a schema 1 manifest, which Docker {found} refuses to pull (26.0 and newer do)"
        return Reason("schema1", "no", text, found, "25", SCHEMA_1)
    text = "the image has a schema 1 manifest, which Docker 26.0 and newer refuse to pull"
    return Reason("schema1", "caution", text, found, "25", SCHEMA_1)
