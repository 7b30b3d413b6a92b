"""Judges an image for a host, from the facts of both, and names the newest tag that runs there."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ngcdl.catalog import releases
from ngcdl.errors import (
    EngineError,
    ImageGone,
    ImageUnfit,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    NoReleases,
    RegistryError,
    UnknownRepository,
    UnknownTag,
)
from ngcdl.frozen import dataclass
from ngcdl.judging import imagefacts
from ngcdl.judging.imagefacts import Found
from ngcdl.preflight import image as reading
from ngcdl.preflight.facts import HostFacts, ImageFacts, Reason, Verdict
from ngcdl.preflight.meant import may_be_own, on_docker_hub
from ngcdl.preflight.newest import newest
from ngcdl.preflight.verdict import judge_each, judge_host
from ngcdl.pulling.fetch import FINAL
from ngcdl.registry.session import Keys, Session
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef

if TYPE_CHECKING:
    from ngcdl.engines.base import Engine


# The rules that matter to a run on the CPU. Rules about cards don't.
_OF_THE_CPU = frozenset({"architecture", "schema1", "disk", "avx"})
# The search for the newest tag that runs queries the registry for at most this many tags that no table has.
_UNKNOWN_TAGS = 3
_WITH_VERSION = 3  # tags to name to a user who typed a framework's version for a tag


@dataclass(frozen=True)
class Judgement:
    """The verdict on an image for a host. `newest` is the newest tag of the image's framework that runs there."""

    image: ImageRef
    host: HostFacts
    found: Found
    verdict: Verdict
    newest: ImageRef | None = None

    @property
    def facts(self) -> ImageFacts:
        return self.found.facts


def judge_image(ref: ImageRef, host: HostFacts, settings: Settings, engine: Engine | None) -> Judgement:
    """Judge `ref` for `host`, and name the newest tag that runs. Raise RegistryError if nothing is known about `ref`.

    This reads a few KB from the registry. If the registry can't be asked, the catalogue answers, and `found` says so.
    `engine` is the host's, which may have the image. An engine's own image is judged by its configuration alone; if the
    engine no longer has it, raise ImageGone.
    """
    if ref.id and engine:
        if (own := _local(ref, engine)) is None:
            raise ImageGone(ref.typable)
        return Judgement(ref, host, own, judge_host(own.facts, host))
    with spelt(ref), Session(Keys()) as session:
        found = imagefacts.look_up(ref, settings.cache, host.architecture, session=session)
        verdict = judge_host(to_fetch(ref, found.facts, engine), host)
        return Judgement(ref, host, found, verdict, _newest(ref, host, settings, session, engine, offline=False))


def newest_of(ref: ImageRef, host: HostFacts, settings: Settings, engine: Engine | None) -> Judgement | None:
    """Return the newest tag of a repository that runs on `host`, by the registry's own facts, or None.

    Raise RegistryError if the registry can't be asked: only it can name a digest. Raise NoReleases if the repository
    has no monthly tags.
    """
    with spelt(ref), Session(Keys()) as session:
        tags = imagefacts.tags(ref.registry, ref.repository, settings.cache, session=session)
        if tags.trouble:
            raise tags.trouble
        if not any(releases.order(tag) for tag in tags.names):
            raise NoReleases(ref.name)
        left = list(tags.names)
        facts_of = _FactsOfTags(ref, host.architecture, settings, session, engine)
        while best := newest(ref.tag, left, facts_of, host):
            chosen = replace(ref, tag=best, digest=None)
            found = imagefacts.look_up(chosen, settings.cache, host.architecture, session=session)
            if found.trouble:
                raise found.trouble
            verdict = judge_host(to_fetch(chosen, found.facts, engine), host)
            if verdict.verdict != "no":
                return Judgement(chosen, host, found, verdict, chosen)
            left.remove(best)  # the catalogue was wrong about this tag
    return None


def newest_known(ref: ImageRef, host: HostFacts, settings: Settings) -> ImageRef | None:
    """Name the newest tag that runs, without its digest, from local knowledge alone: no registry is asked."""
    with Session(Keys()) as session:
        return _newest(ref, host, settings, session, None, offline=True)


@contextlib.contextmanager
def spelt(ref: ImageRef, is_lacking: bool = False) -> Iterator[None]:
    """Add what was probably meant to an error of the registry, which does not say which repositories exist.

    `is_lacking`: it may be a name of the engine's own, which was asked, and has no such image."""
    *_, owner, name = ("", *ref.repository.split("/"))
    try:
        yield
    except UnknownTag as error:
        minor = re.match(r"\d+\.\d+", ref.tag or "")
        if minor and owner == "nvidia" and (tags := releases.with_version(name, minor[0])):
            error.means_version(f"{name} {minor[0]}", tags[:_WITH_VERSION])
        elif not error.nearest:
            _add_docker_hub(error, ref)
        raise
    except RegistryError as error:
        if isinstance(error, UnknownRepository | LoginNeeded | KeyWithoutRights):
            if is_lacking:
                error.not_here_either(str(ref.short))
            _add_docker_hub(error, ref)
        near = difflib.get_close_matches(name, releases.frameworks(), 1, 0.8) if owner == "nvidia" else []
        if near and near[0] != name:
            meant = f"{near[0]}{str(ref).removeprefix(ref.name)}"
            error.hint = f"Did you mean {meant}?\n    ngcdl ... {meant}  # without {ref}\n{error.hint}"
        raise


def _add_docker_hub(error: NgcdlError, ref: ImageRef) -> None:
    error.hint = "\n".join(filter(None, (error.hint, on_docker_hub(ref))))


def to_fetch(ref: ImageRef, facts: ImageFacts, engine: Engine | None) -> ImageFacts:
    """Return `facts`, without the size if `engine` already has the image: nothing is downloaded, so any free space will
    do."""
    if engine and facts.digest and facts.compressed_bytes is not None:
        with contextlib.suppress(EngineError):
            if engine.has(replace(ref, digest=facts.digest)):
                return replace(facts, compressed_bytes=None)
    return facts


def _newest(
    ref: ImageRef,
    host: HostFacts,
    settings: Settings,
    session: Session,
    engine: Engine | None,
    *,
    offline: bool,
    on_each: bool = False,
) -> ImageRef | None:
    """Name the newest tag that runs, from the registry's tags and the catalogue's rows; a tag without a row costs a
    request.

    `on_each` is as in cautions(). Return None also if the host is another machine, whose cards are unknown: no tag is
    known to run there.
    """
    if ref.id or not _is_framework(ref) or host.elsewhere:
        return None
    try:
        tags = imagefacts.tags(ref.registry, ref.repository, settings.cache, offline=offline, session=session)
    except NgcdlError:
        return None
    looks = 0 if offline or tags.trouble else _UNKNOWN_TAGS
    facts_of = _FactsOfTags(ref, host.architecture, settings, session, engine, looks)
    best = newest(ref.tag, tags.names, facts_of, host, on_each=on_each)
    return replace(ref, tag=best, digest=None) if best else None


@dataclass
class _FactsOfTags:
    """Looks up a tag of `ref`: in the catalogue, else in the registry, for `looks` tags at most."""

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
            facts = imagefacts.look_up(chosen, self.settings.cache, self.architecture, session=self.session).facts
            return to_fetch(chosen, facts, self.engine)
        except NgcdlError:
            return None


def _is_framework(ref: ImageRef) -> bool:
    return bool(releases.tags(ref.framework))


# -- before a pull and before a run -----------------------------------------------------------------------------------


def facts_of(
    ref: ImageRef,
    host: HostFacts,
    settings: Settings,
    engine: Engine | None,
    *,
    offline: bool = False,
    anew: bool = False,
) -> Found | NgcdlError:
    """Return what is known about an image, or the error because of which nothing is.

    If `engine` has the image, the image's configuration there answers, without any network. With `anew` the registry
    answers instead, as for a pull, except about an engine's own image, which no registry knows."""
    try:
        local = _local(ref, engine) if engine and (ref.id or not anew) else None
        if ref.id and not local:
            raise ImageGone(ref.typable)
        # a pull takes a short name for NGC's, without asking the engine for its own images
        with spelt(ref, engine is not None and not anew and _may_be_built(ref, settings)):
            found = local or imagefacts.look_up(ref, settings.cache, host.architecture, offline=offline)
        return replace(found, facts=to_fetch(ref, found.facts, engine))
    except NgcdlError as error:
        return error


def _may_be_built(ref: ImageRef, settings: Settings) -> bool:
    return may_be_own(ref, settings.registry) and not ref.digest and not str(ref.short).startswith("nvidia/")


def cautions(
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
    """Return the warnings for a pull or a run of `ref`. Raise ImageUnfit, with every reason, if it can't run.

    `found` is the result of facts_of(), `command` the command that was typed. `on_cpu`: the run will compute on the
    CPU, whatever the cards; None for a pull, which runs nothing yet. `on_each`: the run computes on all cards of
    `host`, so the worst card decides. With `force` the refusal is a warning, too. An error in `found` is a warning, as
    the pull may still work, unless no pull can (UnknownTag, KeyWithoutRights, ...): then it is raised.
    """
    if isinstance(found, FINAL):
        raise found
    if isinstance(found, NgcdlError):
        return (f"it is not known whether {ref.typable} can run here: {found.message}",)
    verdict, others = judge_host(found.facts, host), ""
    if on_each and len(verdict.cards) > 1:
        others = "".join(f"; {reason.text}" for reason in verdict.reasons if reason.rule == "mixed")
        verdict = judge_each(found.facts, host)
    reasons = tuple(that_matter(verdict, on_cpu))
    refusals = [reason for reason in reasons if reason.level == "no"]
    cautions = tuple(in_a_line(reason) for reason in reasons if reason.level == "caution")
    if refusals:
        with Session(Keys()) as session:
            take = _newest(ref, host, settings, session, None, offline=found.trouble is not None, on_each=on_each)
        why = ". Besides, ".join([in_a_line(refusals[0]) + others, *map(in_a_line, refusals[1:])])
        return (forced(refusal(ref, refusals, why, take, command), force), *cautions)
    if isinstance(found.trouble, FINAL):  # last: nobody should sign in for an image that can't run here
        raise found.trouble
    return cautions


def _local(ref: ImageRef, engine: Engine) -> Found | None:
    config = engine.config(ref)
    if config is None:
        return None
    facts = reading.from_config(ref, config, architecture=str(config.get("architecture") or ""))
    return Found(facts, "engine", None, 0, 0)


def that_matter(verdict: Verdict, on_cpu: bool | None) -> Iterator[Reason]:
    """Yield those reasons of a verdict that concern a run; `on_cpu` is as in cautions()."""
    for reason in verdict.reasons:
        # That a run has no GPU has been reported already, when the engine was chosen.
        is_told = on_cpu is not None and reason.rule in ("no-gpu", "gpu-way")
        if not is_told and (not on_cpu or reason.rule in _OF_THE_CPU):
            yield reason


def refusal(
    ref: ImageRef, reasons: Sequence[Reason], why: str, take: ImageRef | None, command: str, **elsewhere: str
) -> ImageUnfit:
    """Return the error for an image that can't run because of `reasons`; `elsewhere` has ImageUnfit's `where` and
    `host`. `take` is the tag to take instead."""
    return ImageUnfit(
        ref.typable,
        why,
        str(take) if take else None,
        others=None if ref.id or _is_framework(ref) else ref.name,
        command=command,
        cpu_would_do=not any(reason.rule in _OF_THE_CPU for reason in reasons),
        **elsewhere,
    )


def forced(unfit: ImageUnfit, force: bool) -> str:
    """Raise `unfit`, or with `force` return it as a line."""
    if not force:
        raise unfit
    return f"{unfit.message} Going on because of --force."


def in_a_line(reason: Reason) -> str:
    return reason.text + (" (from memory: no source)" if reason.recalled else "")


# -- as JSON ----------------------------------------------------------------------------------------------------------


def as_json(judged: Judgement) -> dict[str, Any]:
    """Return what `ngcdl check --json` prints: image, verdict, mode, reasons, newest tag, and the facts behind them."""
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
    """Return the facts about an image; `recalled` names the fields that are from memory, not from a source."""
    left_out = ("reference", "digest", "compressed_bytes", "unpacked_bytes")
    plain = {name: value for name, value in vars(facts).items() if name not in left_out}
    return {**plain, "sources": dict(facts.sources), "recalled": sorted(facts.recalled)}


def _reasons(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    # A number from memory may be in a row with a source: that source does not have this number.
    return [vars(reason) | ({"source": None} if reason.recalled else {}) for reason in reasons]
