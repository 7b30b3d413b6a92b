"""An image judged for a host: the facts of both are gathered, and the newest tag that does run is named."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ngcdl import imagefacts
from ngcdl.catalog import releases
from ngcdl.errors import (
    EngineError,
    ImageUnfit,
    NgcdlError,
    NoReleases,
)
from ngcdl.fetch import FINAL
from ngcdl.imagefacts import Found
from ngcdl.preflight import image as reading
from ngcdl.preflight.facts import LEVELS, CardVerdict, HostFacts, ImageFacts, Reason, Verdict
from ngcdl.preflight.newest import newest
from ngcdl.preflight.verdict import judge
from ngcdl.registry.session import Keys, Session
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef

if TYPE_CHECKING:
    from ngcdl.engines.base import Engine

log = logging.getLogger(__name__)

# What a run on the CPU depends on; a card that can't be used is nothing to it.
_OF_THE_CPU = frozenset({"architecture", "schema1", "disk", "avx"})
# So many tags that no table knows are looked at in the registry for the newest one that runs.
_UNKNOWN_TAGS = 3


@dataclass(frozen=True)
class Judged:
    """`newest` is the newest tag of the image's framework that runs on the same host, as a reference."""

    image: ImageRef
    host: HostFacts
    found: Found
    verdict: Verdict
    newest: ImageRef | None = None

    @property
    def facts(self) -> ImageFacts:
        return self.found.facts


def of(ref: ImageRef, host: HostFacts, settings: Settings, engine: Engine | None) -> Judged:
    """Judge `ref` for `host`, and name the newest that runs. Raises RegistryError where nothing is known of the image.

    The registry is asked for a few KB; where it can't be, the catalogue answers, and `found` says so. `engine` is the
    host's, which may have the image.
    """
    with Session(Keys()) as session:
        found = imagefacts.of(ref, settings.cache, host.architecture, session=session)
        verdict = judge(to_fetch(ref, found.facts, engine), host)
        return Judged(ref, host, found, verdict, _newest(ref, host, settings, session, engine, offline=False))


def newest_of(ref: ImageRef, host: HostFacts, settings: Settings, engine: Engine | None) -> Judged | None:
    """Give the newest tag of a repository that runs on `host`, by the registry's own facts; None where none does.

    Raises RegistryError where the registry can't be asked: a reference by digest is its word alone. NoReleases: it has
    no tags by month.
    """
    with Session(Keys()) as session:
        tags = imagefacts.tags(ref.registry, ref.repository, settings.cache, session=session)
        if tags.trouble:
            raise tags.trouble
        if not any(releases.order(tag) for tag in tags.names):
            raise NoReleases(ref.name)
        left = list(tags.names)
        facts_of = _FactsOfTags(ref, host.architecture, settings, session, engine)
        while best := newest(ref.framework, ref.tag, left, facts_of, host):
            chosen = replace(ref, tag=best, digest=None)
            found = imagefacts.of(chosen, settings.cache, host.architecture, session=session)
            if found.trouble:
                raise found.trouble
            verdict = judge(to_fetch(chosen, found.facts, engine), host)
            if verdict.verdict != "no":
                return Judged(chosen, host, found, verdict, chosen)
            left.remove(best)  # the table was wrong about it
    return None


def newest_known(ref: ImageRef, host: HostFacts, settings: Settings) -> ImageRef | None:
    """Name the newest tag that runs by what is known here, without its digest: nobody is asked."""
    with Session(Keys()) as session:
        return _newest(ref, host, settings, session, None, offline=True)


def to_fetch(ref: ImageRef, facts: ImageFacts, engine: Engine | None) -> ImageFacts:
    """Leave the size out of an image that `engine` has: nothing of it travels, so what is free is enough."""
    if engine and facts.digest and facts.compressed_bytes is not None:
        with contextlib.suppress(EngineError):
            if engine.has(replace(ref, digest=facts.digest)):
                return replace(facts, compressed_bytes=None)
    return facts


def _newest(
    ref: ImageRef, host: HostFacts, settings: Settings, session: Session, engine: Engine | None, *, offline: bool
) -> ImageRef | None:
    """Name the newest that runs, out of the registry's tags and the catalogue's rows; unknown tags cost a look each.

    None on another machine, too: its cards are not known, so of no tag can be told that it runs there.
    """
    if not _is_framework(ref) or host.elsewhere:
        return None
    try:
        tags = imagefacts.tags(ref.registry, ref.repository, settings.cache, offline=offline, session=session)
    except NgcdlError as error:
        log.info("no tag to take instead: %s", error)
        return None
    looks = 0 if offline or tags.trouble else _UNKNOWN_TAGS
    facts_of = _FactsOfTags(ref, host.architecture, settings, session, engine, looks)
    best = newest(ref.framework, ref.tag, tags.names, facts_of, host)
    return replace(ref, tag=best, digest=None) if best else None


@dataclass
class _FactsOfTags:
    """The facts of a tag of `ref`: the catalogue's row, else the registry's answer, for `looks` tags at most."""

    ref: ImageRef
    architecture: str
    settings: Settings
    session: Session
    engine: Engine | None
    looks: int = _UNKNOWN_TAGS

    def __call__(self, tag: str) -> ImageFacts | None:
        chosen = replace(self.ref, tag=tag, digest=None)
        known = reading.from_catalog(chosen, self.architecture)
        if known is not None or self.looks <= 0:
            return known
        self.looks -= 1
        try:
            facts = imagefacts.of(chosen, self.settings.cache, self.architecture, session=self.session).facts
            return to_fetch(chosen, facts, self.engine)
        except NgcdlError as error:
            log.info("%s is left out: %s", chosen, error)
            return None


def _is_framework(ref: ImageRef) -> bool:
    return bool(releases.tags(ref.framework))


# -- before a pull and before a run -----------------------------------------------------------------------------------


def look(
    ref: ImageRef,
    host: HostFacts,
    settings: Settings,
    engine: Engine | None,
    *,
    offline: bool = False,
    anew: bool = False,
) -> Found | NgcdlError:
    """Give what is known of an image, or why nothing is.

    One that `engine` has is known by its own configuration: no network is needed, none can block it. With `anew` the
    registry's is wanted, as a pull would get it."""
    try:
        local = _local(ref, engine) if engine and not anew else None
        found = local or imagefacts.of(ref, settings.cache, host.architecture, offline=offline)
        return replace(found, facts=to_fetch(ref, found.facts, engine))
    except NgcdlError as error:
        return error


def before(
    ref: ImageRef,
    host: HostFacts,
    settings: Settings,
    found: Found | NgcdlError,
    command: str = "run",
    *,
    on_cpu: bool | None = None,
    force: bool = False,
    on_each: bool = False,
) -> tuple[str, ...]:
    """Give the line of caution for a pull or a run of `ref`, if there is one. Raises ImageUnfit where it can't run.

    `found` is what look() gave, `command` what was typed. `on_cpu`: the run will compute on the CPU, whatever cards
    there are; None for a pull, of which nothing runs yet. `on_each`: it computes on all cards of `host`, so that one
    decides which does worst. `force` makes a line of the refusal, too. Where nothing can be known the pull will tell;
    what no pull can mend (UnknownTag, KeyWithoutRights, ...) is raised.
    """
    if isinstance(found, FINAL):
        raise found
    if isinstance(found, NgcdlError):
        return (f"whether {ref} can run here is not known: {found.message}",)
    verdict, others = judge(found.facts, host), ""
    if on_each and len(verdict.cards) > 1:
        others = "".join(f"; {reason.text}" for reason in verdict.reasons if reason.rule == "mixed")
        worst = max(verdict.cards, key=lambda card: LEVELS.index(card.verdict))
        host = replace(host, gpus=(worst.gpu,))
        verdict = judge(found.facts, host)
    reasons = tuple(that_matter(verdict, on_cpu))
    refusals = [reason for reason in reasons if reason.level == "no"]
    if refusals:
        with Session(Keys()) as session:
            take = _newest(ref, host, settings, session, None, offline=found.trouble is not None)
        return (forced(refusal(ref, refusals, refusals[0].text + others, take, command), force),)
    if isinstance(found.trouble, FINAL):  # told last: nobody signs in for an image that can't run here
        raise found.trouble
    return tuple(line(reason) for reason in reasons if reason.level == "caution")[:1]


def cards(found: Found | NgcdlError, host: HostFacts) -> tuple[CardVerdict, ...]:
    """Judge each card of `host` for an image; () where nothing is known of it."""
    return () if isinstance(found, NgcdlError) else judge(found.facts, host).cards


def _local(ref: ImageRef, engine: Engine) -> Found | None:
    config = engine.config(ref)
    if config is None:
        return None
    facts = reading.from_config(ref, config, architecture=str(config.get("architecture") or ""))
    return Found(facts, "engine", None, 0, 0)


def that_matter(verdict: Verdict, on_cpu: bool | None) -> Iterator[Reason]:
    """Give the reasons of a verdict that are about a run; `on_cpu` as in before()."""
    for reason in verdict.reasons:
        # That a run has no GPU was told by the choice of the engine, in its own loud line.
        is_told = on_cpu is not None and reason.rule in ("no-gpu", "gpu-way")
        if not is_told and (not on_cpu or reason.rule in _OF_THE_CPU):
            yield reason


def refusal(
    ref: ImageRef, reasons: Sequence[Reason], why: str, take: ImageRef | None, command: str, **elsewhere: str
) -> ImageUnfit:
    """Give the error for an image that can't run for `reasons`; `elsewhere` are ImageUnfit's `where` and `host`."""
    return ImageUnfit(
        str(ref),
        why,
        str(take) if take else None,
        others=None if _is_framework(ref) else ref.name,
        command=command,
        cpu_would_do=not any(reason.rule in _OF_THE_CPU for reason in reasons),
        **elsewhere,
    )


def forced(unfit: ImageUnfit, force: bool) -> str:
    """Raise it, or give the line in its place."""
    if not force:
        raise unfit
    return f"{unfit.message} Going on, as --force says."


def line(reason: Reason) -> str:
    return reason.text + (" (not read anywhere: from memory)" if reason.recalled else "")


# -- as JSON ----------------------------------------------------------------------------------------------------------


def as_json(judged: Judged) -> dict[str, Any]:
    """Give `ngcdl check --json`: image, verdict, mode, reasons, compressed_bytes, newest, and what they rest on."""
    facts, verdict = judged.facts, judged.verdict
    return {
        "image": str(judged.image),
        "digest": facts.digest,
        "verdict": verdict.verdict,
        "mode": verdict.mode,
        "reasons": _reasons(verdict.reasons),
        "gpus": [
            {**vars(card.gpu), "verdict": card.verdict, "mode": card.mode, "reasons": _reasons(card.reasons)}
            for card in verdict.cards
        ],
        "compressed_bytes": facts.compressed_bytes,
        "unpacked_bytes_estimated": facts.unpacked_bytes,
        "newest": str(judged.newest) if judged.newest else None,
        "facts": facts_as_json(facts),
        "known_from": judged.found.origin,
        "trouble": judged.found.trouble.message if judged.found.trouble else None,
        "requests": judged.found.requests,
        "request_bytes": judged.found.bytes,
        "host": {name: value for name, value in vars(judged.host).items() if name != "gpus"},
    }


def facts_as_json(facts: ImageFacts) -> dict[str, Any]:
    """Give what is known of an image; `recalled` names the fields that were not read anywhere."""
    left_out = ("reference", "digest", "compressed_bytes", "unpacked_bytes")
    plain = {name: value for name, value in vars(facts).items() if name not in left_out}
    return {**plain, "sources": dict(facts.sources), "recalled": sorted(facts.recalled)}


def _reasons(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    # The row that a number from memory stands in has a source, which does not hold that number.
    return [vars(reason) | ({"source": None} if reason.recalled else {}) for reason in reasons]
