"""`ngcdl check`, `images` and `resolve`: show which image runs, here or elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ngcdl import console, engines, settings, terminal_text
from ngcdl.catalog import releases
from ngcdl.errors import (
    BadOption,
    EngineElsewhere,
    EngineError,
    KeyRejected,
    LoginNeeded,
    NgcdlError,
    NoneRuns,
    RegistryError,
    UnknownTag,
)
from ngcdl.figures import NOT_AVAILABLE, size
from ngcdl.preflight import meant
from ngcdl.spec import ImageRef
from ngcdl.terminal_text import plain

if TYPE_CHECKING:
    from ngcdl.engines.base import Engine
    from ngcdl.judging.imagefacts import Found, Tags
    from ngcdl.judging.judge import Judgement
    from ngcdl.preflight.facts import CardVerdict, HostFacts, ImageFacts, Reason, Verdict

NEWEST = 10
_RECALLED = "*"
EXIT_CODES = {"runs": 0, "caution": 1, "no": 2}
TELL = "Describe that machine:\n    ngcdl resolve {name} --host driver=535.104.05,gpu=T4"
_WORDS = {"runs": "runs", "caution": "runs, with a caution", "no": "can't run"}
# What the table shows instead of a rule's name, where that name alone would be unclear.
_RULES = {"unknown": "can't tell", "no-gpu": "no GPU", "gpu-way": "no way for GPUs in"}


def check(name: str, host: str | None, cards: Sequence[str], as_json: bool) -> int:
    """Judge one image and return the exit code. Raise RegistryError if nothing is known about it."""
    from ngcdl.judging import judge

    config = settings.load()
    typed, keeper = own(name, config.registry)
    there, engine = _host(host, cards)
    if typed.id:
        console.say(meant.own_in_words(typed))
    image = closed(typed, there, console.say, _where(host, cards))
    try:
        judged = judge.judge_image(image, there, config, keeper if typed.id else engine)
    except UnknownTag:
        if not meant.is_open(typed):
            raise
        judged = served(image, there, config, engine, console.say, _where(host, cards))
    if as_json:
        console.result_json(judge.as_json(judged))
    else:
        console.result(_judged(judged, _where(host, cards)))
    return EXIT_CODES[judged.verdict.verdict]


def resolve(name: str, host: str | None, cards: Sequence[str], as_json: bool) -> None:
    """Print the newest reference that runs, by digest. Raise NoneRuns, or RegistryError: only the registry knows
    digests.

    Scripts use the output unseen: if the registry can't be asked, nothing is printed, and the error's hint has the
    newest tag known here."""
    from ngcdl.judging import judge
    from ngcdl.pulling.fetch import FINAL

    config = settings.load()
    there, engine = _host(host, cards)
    typed = _repository(name, config.registry)
    try:
        judged = judge.newest_of(typed, there, config, engine)
    except RegistryError as error:
        known = None if isinstance(error, FINAL) else judge.newest_known(typed, there, config)
        if known:
            error.hint += (
                f"\nAs far as is known here, this is the newest that runs; its digest is unknown:\n    {known}"
            )
        raise
    if judged is None:
        raise NoneRuns(typed.name, is_here=host is None and not cards)
    for reason in judged.verdict.reasons:
        if reason.rule == "elsewhere":  # scripts use the reference unseen, so it must have been judged
            raise EngineElsewhere("what runs there can't be judged from here.", TELL.format(name=typed.framework))
        if reason.level == "caution":
            console.say(reason.text)
    assert judged.facts.digest is not None  # the registry's own answer has one
    if as_json:
        console.result_json({"reference": judged.image.pinned(judged.facts.digest), **judge.as_json(judged)})
    else:
        console.result(judged.image.pinned(judged.facts.digest))


def images(name: str | None, everything: bool, host: str | None, cards: Sequence[str], as_json: bool) -> None:
    """List the tags of one repository, or the newest of each framework. Raise RegistryError."""
    config = settings.load()
    there, engine = _host(host, cards)
    rows: list[dict[str, Any]] = []
    notes: dict[str, None] = {}  # each once, in order
    for one in (name,) if name is not None else releases.frameworks():
        listed, said = _tags(_repository(one, config.registry), there, config, engine, everything)
        rows += listed
        notes |= dict.fromkeys(said)
    if as_json:
        console.result_json(rows)
    else:
        table = _table(rows, _where(host, cards), console.columns(sys.stdout))
        console.result(table)
        notes |= {f"{_RECALLED} from memory: no source": None} if _RECALLED in table else {}
    for note in notes:
        console.say(note)


# -- the question ---------------------------------------------------------------------------------------------------


def _host(typed: str | None, cards: Sequence[str]) -> tuple[HostFacts, Engine | None]:
    """Return the host to judge for: the host that was typed, without an engine, or this host with its engine. The
    engine is None if it can't be asked or the free disk space is unknown. Raise BadOption."""
    if typed is not None or cards:
        from ngcdl.preflight import host

        return host.typed(typed or "", cards), None
    from ngcdl import hostfacts

    try:
        engine = engines.connect("docker")
        there = hostfacts.gather(engine)
        return there, None if there.free_bytes is None else engine  # its images matter only for the disk space
    except EngineError as error:  # an image can be judged without an engine; doctor says what is wrong with the engine
        return hostfacts.without_engine(error), None


def own(name: str, registry: str) -> tuple[ImageRef, Engine | None]:
    """Return the image that `name` means, and the engine that was asked whether it has an image of its own by that
    name, None if none was asked. Raise BadReference."""
    typed = meant.typed(name, registry)
    if not meant.may_be_own(typed, registry):
        return typed, None
    try:
        engine = engines.connect("docker")
        return meant.settled(typed, registry, engine.has), engine
    except EngineError as error:  # an image of the registry can be judged without an engine
        return meant.without_engine(typed, registry, error), None


def _where(typed: str | None, cards: Sequence[str]) -> str:
    return "there" if typed is not None or cards else "here"


def closed(image: ImageRef, host: HostFacts, say: Callable[[str], None], where: str = "here") -> ImageRef:
    """Return `image` with its tag. If no tag was typed, choose the newest that fits `host`, and say which."""
    if not meant.is_open(image):
        return image
    image, words = meant.chosen([image], host, where)
    say(words)
    return image


def served(
    chosen: ImageRef,
    host: HostFacts,
    config: settings.Settings,
    engine: Engine | None,
    say: Callable[[str], None],
    where: str = "here",
) -> Judgement:
    """Judge the newest image for `host` that the registry has, and say which, as it lacks what closed() has chosen: a
    mirror has not all of the catalogue. Raise NoneRuns or RegistryError."""
    from ngcdl.judging import judge

    judged = judge.newest_of(replace(chosen, tag=None), host, config, engine)
    if judged is None:
        raise NoneRuns(chosen.name, is_here=where == "here")
    say(f"{chosen.registry} lacks that; of its tags the newest that runs {where}: {judged.image.tag}")
    return judged


def _repository(name: str, registry: str) -> ImageRef:
    """Parse pytorch, nvidia/cuda, or a reference whose tag shows which variant is wanted. Raise BadOption."""
    ref = ImageRef.parse(name, registry, needs_tag=False)
    if ref.digest:
        raise BadOption(f"{name}: a digest always names the same image.", f"    ngcdl check {name}")
    return ref


def _tags(
    ref: ImageRef, host: HostFacts, config: settings.Settings, engine: Engine | None, everything: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Judge the newest tags of one repository, and if none of them runs, the newest that does: return rows, and the
    notes to print below them. Raise RegistryError."""
    from ngcdl.judging import imagefacts, judge
    from ngcdl.preflight.newest import ordered

    with judge.spelt(ref):
        tags = imagefacts.tags(ref.registry, ref.repository, config.cache)
    notes = _whose(tags)
    names = ordered(tags.names)
    shown = names if everything else names[:NEWEST]
    refs = [replace(ref, tag=tag, digest=None) for tag in shown]

    def judged(refs: Sequence[ImageRef]) -> list[dict[str, Any]]:
        found = imagefacts.look_up_all(refs, config.cache, host.architecture, offline=bool(tags.trouble))
        return [_judged_row(one, found[one], host, engine) for one in refs]

    rows = judged(refs)
    if len(names) > len(shown) and not any(_may_run(row) for row in rows):
        take = judge.newest_known(ref, host, config)
        if take and take.tag not in shown and _may_run(*(older := judged([take]))):
            rows += older
            notes.append(f"{ref.framework}: none of the newest {len(shown)} runs; {take.tag} is the newest known to")
    if len(names) > len(rows):
        name = ref.framework if ref.name == f"{config.registry}/nvidia/{ref.framework}" else ref.name
        notes.append(f"{len(names) - len(rows)} more:  ngcdl images {name} --all")
    return rows, notes


def _judged_row(one: ImageRef, answer: Found | NgcdlError, host: HostFacts, engine: Engine | None) -> dict[str, Any]:
    from ngcdl.judging import judge
    from ngcdl.preflight import verdict

    if isinstance(answer, NgcdlError):
        return {"image": str(one), "verdict": None, "mode": None, "trouble": answer.message}
    judged = verdict.judge_host(judge.to_fetch(one, answer.facts, engine), host)
    return _row(one, answer, judged, judge.facts_as_json(answer.facts))


def _may_run(row: Mapping[str, Any]) -> bool:
    return row["verdict"] in ("runs", "caution")


def _whose(tags: Tags) -> list[str]:
    """If the registry could not be asked, say where the tags come from instead, and how old they are."""
    if tags.trouble is None:
        return []
    if tags.origin == "catalogue" or tags.age_seconds is None:
        return [f"{tags.trouble.message} These tags are from ngcdl's own catalogue.{_sign_in(tags.trouble, 4)}"]
    hours = tags.age_seconds / 3600
    age = f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"  # tags younger than 1 h are not fetched again
    return [f"{tags.trouble.message} These tags are what it listed {age} ago.{_sign_in(tags.trouble, 4)}"]


def _sign_in(trouble: NgcdlError | None, indent: int) -> str:
    """If a key is missing or was rejected, return a line break and the command that signs in; else ""."""
    if not isinstance(trouble, LoginNeeded | KeyRejected):
        return ""
    return f"\n{' ' * indent}{trouble.commands[0]}"


def _row(ref: ImageRef, found: Found, verdict: Verdict, facts: Mapping[str, Any]) -> dict[str, Any]:
    decisive = verdict.reasons[0] if verdict.reasons else None
    return {
        "image": str(ref),
        "digest": found.facts.digest,
        "verdict": verdict.verdict,
        "mode": verdict.mode,
        "why": decisive.text if decisive else None,
        "rule": decisive.rule if decisive else None,
        "found": decisive.found if decisive else None,
        "needed": decisive.needed if decisive else None,
        "recalled": decisive.recalled if decisive else False,
        "compressed_bytes": found.facts.compressed_bytes,
        "facts": facts,
        "known_from": found.origin,
        "trouble": found.trouble.message if found.trouble else None,
    }


# -- the output -----------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Mapping[str, Any]], where: str, width: int | None) -> str:
    lines = [("IMAGE", "FRAMEWORK", "PYTHON", "CUDA", "SIZE", where.upper()), *(_cells(row) for row in rows)]
    if rows and all(row.get("compressed_bytes") is None for row in rows):  # only the registry knows sizes
        lines = [(*line[:4], *line[5:]) for line in lines]
    return "\n".join(terminal_text.table(lines, width))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    facts = row.get("facts") or {}
    recalled = facts.get("recalled", ())
    facts = {
        **facts,
        "framework_version": (facts.get("framework_version") or "").partition("+")[0] or None,
        "cuda": ".".join((facts.get("cuda") or "").split(".")[:3]) or None,  # without NVIDIA's own build number
    }
    return (
        row["image"].partition("/")[2].removeprefix("nvidia/") + (_RECALLED if "reference" in recalled else ""),
        *(_told(facts.get(name), name in recalled) for name in ("framework_version", "python", "cuda")),
        size(row.get("compressed_bytes")),
        _here(row),
    )


def _here(row: Mapping[str, Any]) -> str:
    """Say in a few words whether a tag runs here; `ngcdl check` says it in a sentence."""
    if row["verdict"] is None:
        return f"{NOT_AVAILABLE}: {row['trouble']}"
    if row["verdict"] == "runs":
        return f"runs{_mode(row['mode'])}{_RECALLED if row['recalled'] else ''}"
    if row["rule"] == "mixed":  # that of several cards only some can run it; more words would need a second line
        return f"some cards{_RECALLED if row['recalled'] else ''}"
    numbers = f" ({row['found']}, needs {row['needed']})" if row["found"] and row["needed"] else ""
    rule = _RULES.get(row["rule"], row["rule"])
    return f"{row['verdict']}{_mode(row['mode'])}: {rule}{numbers}{_RECALLED if row['recalled'] else ''}"


def _told(value: object, recalled: bool) -> str:
    return NOT_AVAILABLE if value is None else f"{value}{_RECALLED if recalled else ''}"


def _judged(judged: Judgement, where: str) -> str:
    facts, verdict = judged.facts, judged.verdict
    said = f"can't run {where}" if verdict.verdict == "no" else _WORDS[verdict.verdict]
    lines = [("image", str(judged.image)), ("verdict", f"{said}{_mode(verdict.mode)}")]
    lines += [("reason", f"{reason.text}{_marks(reason)}") for reason in verdict.reasons]
    if len(verdict.cards) > 1 and len(alike := {_card(card) for card in verdict.cards}) == 1:
        lines.append(("GPUs", f"{len(verdict.cards)} × {alike.pop()}"))
    elif len(verdict.cards) > 1:
        numbers = [place if card.gpu.index is None else card.gpu.index for place, card in enumerate(verdict.cards)]
        lines += [(f"GPU {number}", _card(card)) for number, card in zip(numbers, verdict.cards, strict=True)]
    lines += [("inside", _inside(facts)), ("size", _size(facts))]
    if judged.newest and str(judged.newest) != str(judged.image):
        doubt = "" if judged.host.driver or not judged.host.gpus else "  (by its kernels; the driver is unknown)"
        lines.append((f"newest {where}", f"{judged.newest}{doubt}"))
    lines.append(("known from", _origin(judged)))
    return plain("\n".join(console.wrapped(f"{name:<12} {text}", sys.stdout, 13) for name, text in lines))


def _mode(mode: str | None) -> str:
    return f" ({mode})" if mode else ""


def _marks(reason: Reason) -> str:
    if reason.recalled:
        return " [from memory: no source]"
    return f" [{reason.source}]" if reason.source and reason.source != "registry" else ""


def _card(card: CardVerdict) -> str:
    why = f": {card.reasons[0].text}" if card.verdict != "runs" else ""
    return f"{card.gpu.title}: {_WORDS[card.verdict]}{_mode(card.mode)}{why}"


def _inside(facts: ImageFacts) -> str:
    parts = []
    framework = {"tensorflow": "TensorFlow", "pytorch": "PyTorch"}.get(facts.framework or "", facts.framework or "")
    for name, label in (("framework_version", framework), ("python", "Python"), ("cuda", "CUDA")):
        value = getattr(facts, name)
        if value:
            parts.append(f"{label} {value}".strip() + (" (from memory)" if name in facts.recalled else ""))
    parts += [f"for {' and '.join(facts.architectures)}"] if facts.architectures else []
    return ", ".join(parts) or NOT_AVAILABLE


def _size(facts: ImageFacts) -> str:
    unpacked = f", about {size(facts.unpacked_bytes)} unpacked (an estimate)" if facts.unpacked_bytes else ""
    return f"{size(facts.compressed_bytes)} to fetch{unpacked}" if facts.compressed_bytes is not None else NOT_AVAILABLE


def _origin(judged: Judgement) -> str:
    found = judged.found
    minutes = (found.age_seconds or 0) // 60
    asked_before = f", asked {minutes:.0f} min ago" if minutes else ""
    if found.origin == "registry":
        return f"the registry ({found.requests} requests, {size(found.bytes)})"
    if found.origin == "engine":
        return "this engine's own image"
    if found.origin == "catalogue":
        why = f": {found.trouble.message}{_sign_in(found.trouble, 17)}" if found.trouble else ""
        return f"ngcdl's own catalogue{why}"
    why = f" (now: {found.trouble.message}){_sign_in(found.trouble, 17)}" if found.trouble else ""
    return f"the registry{asked_before}{why}"
