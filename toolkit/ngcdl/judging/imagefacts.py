"""Facts about images: a few KB from the registry, cached by digest; if the registry can't be asked, from the catalogue.

Queries are anonymous at first, and use the key only if that is refused. The content of a digest never changes, so it is
queried once; a tag's digest is queried again after TAG_SECONDS.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ngcdl.errors import NgcdlError, NotAsked, RateLimited, RegistryUnreachable, UnknownRepository, UnknownTag
from ngcdl.frozen import dataclass
from ngcdl.preflight.facts import ImageFacts
from ngcdl.registry.kept import KeptAnswers, Said
from ngcdl.registry.session import HURRY, USUAL, Keys, Session
from ngcdl.spec import ImageRef

if TYPE_CHECKING:
    from ngcdl.registry.client import Registry

Clock = Callable[[], float]
Cost = tuple[int, int]

TAG_SECONDS = 600.0
TAGS_SECONDS = 3600.0
THREADS = 8
# Definite answers of the registry: there is no such tag or repository. Other errors leave open what the image is.
_TRUTH = (UnknownTag, UnknownRepository)
_DOWN = (RegistryUnreachable, RateLimited)


@dataclass(frozen=True)
class Found:
    """`trouble`: why the registry gave no usable answer, None if there was no such error. `age_seconds`: the age of a
    cached tag's answer.

    `requests` and `bytes` are the cost of this query. Origin `engine`: the facts are from the engine's own copy.
    """

    facts: ImageFacts
    origin: Literal["registry", "cache", "catalogue", "engine"]
    trouble: NgcdlError | None
    requests: int
    bytes: int
    age_seconds: float | None = None

    @property
    def is_fresh(self) -> bool:
        return self.age_seconds is None or self.age_seconds <= TAG_SECONDS


@dataclass(frozen=True)
class Tags:
    """`names` are in the order of the registry, or of the catalogue; `trouble` and `age_seconds` are as in Found."""

    names: tuple[str, ...]
    origin: Literal["registry", "cache", "catalogue"]
    trouble: NgcdlError | None
    age_seconds: float | None = None


def look_up(
    ref: ImageRef,
    cache: Path,
    architecture: str,
    *,
    offline: bool = False,
    session: Session | None = None,
    now: Clock = time.time,
) -> Found:
    """Return what is known about an image. Raise RegistryError if there is no such image, or nothing is known about it.

    UnknownTag and UnknownRepository are definite answers, and are raised. If the registry can't be asked (unreachable,
    rate-limited, needs a key, odd answer), return an older answer, else the catalogue's, with the trouble.

    With a `session`, several queries share one token.
    """
    look = _Look(ref, architecture, KeptAnswers(cache, ref.name, now))
    known = look.known()
    if known and known.is_fresh:
        return known
    if offline:
        return look.without(known, None)
    with _opened(session, bool(known)) as opened:
        return look.answer(opened, known)


def look_up_all(
    refs: Iterable[ImageRef], cache: Path, architecture: str, *, offline: bool = False
) -> dict[ImageRef, Found | NgcdlError]:
    """Return what is known about each image, or the error because of which nothing is. Eight images are queried at a
    time; a registry that does not answer is not queried again."""
    found: dict[ImageRef, Found | NgcdlError] = {}
    left: deque[tuple[_Look, Found | None]] = deque()
    order = list(dict.fromkeys(refs))
    for ref in order:
        look = _Look(ref, architecture, KeptAnswers(cache, ref.name))
        known = look.known()
        if known and known.is_fresh:
            found[ref] = known
        elif offline:
            try:
                found[ref] = look.without(known, None)
            except NgcdlError as error:
                found[ref] = error
        else:
            left.append((look, known))
    _ask_all(left, found)
    return {ref: found[ref] for ref in order}


def tags(
    registry: str,
    repository: str,
    cache: Path,
    *,
    offline: bool = False,
    session: Session | None = None,
    now: Clock = time.time,
) -> Tags:
    """Return a repository's tags: the registry's, cached for an hour, else the catalogue's. Raise as look_up() does."""
    kept = KeptAnswers(cache, f"{registry}/{repository}", now)
    known = kept.listed()
    if known and known.age_seconds <= TAGS_SECONDS:
        return Tags(known.names, "cache", None, known.age_seconds)
    trouble: NgcdlError | None = None
    if not offline:
        try:
            with _opened(session, bool(known)) as opened:
                names = tuple(opened.ask(registry, repository, lambda one: one.tags(repository)))
        except _TRUTH:
            raise
        except NgcdlError as error:
            trouble = error
        else:
            kept.keep_listed(names)
            return Tags(names, "registry", None)
    if known:
        return Tags(known.names, "cache", trouble, known.age_seconds)
    from ngcdl.catalog import releases

    *_, owner, framework = ("", *repository.split("/"))
    if owner == "nvidia" and (names := releases.tags(framework)):
        return Tags(names, "catalogue", trouble)
    raise trouble or NotAsked(registry, repository)


@contextlib.contextmanager
def _opened(session: Session | None, has_older: bool) -> Iterator[Session]:
    """Yield `session`, which the caller closes, or if it is None, a temporary session."""
    if session is not None:
        yield session
        return
    with Session(Keys(), HURRY if has_older else USUAL) as own:
        yield own


@dataclass(frozen=True)
class _Look:
    """One image to look up, for one processor architecture."""

    ref: ImageRef
    architecture: str
    kept: KeptAnswers

    def known(self) -> Found | None:
        """Return the cached answer: a digest's has no age limit, a tag's comes with its age. None if none is cached."""
        digest, age = self.ref.digest, None
        if digest is None and self.ref.tag and (tagged := self.kept.tagged(self.ref.tag)):
            digest, age = tagged.digest, tagged.age_seconds
        said = self.kept.image(digest, self.architecture) if digest else None
        return Found(self._facts(said), "cache", None, 0, 0, age) if said else None

    def without(self, known: Found | None, trouble: NgcdlError | None, cost: Cost = (0, 0)) -> Found:
        """Return what is known without the registry. If nothing is, raise `trouble`, or NotAsked if that is None."""
        from ngcdl.preflight import image

        if known:
            return Found(known.facts, "cache", trouble, *cost, known.age_seconds)
        if facts := image.from_catalog(self.ref, self.architecture):
            return Found(facts, "catalogue", trouble, *cost)
        raise trouble or NotAsked(self.ref.registry, str(self.ref))

    def answer(self, session: Session, known: Found | None) -> Found:
        """Query the registry, and cache its answer. Raise as look_up() does."""
        before = session.cost
        try:
            said = session.ask(self.ref.registry, self.ref.repository, self._ask)
        except _TRUTH:
            raise
        except NgcdlError as trouble:
            return self.without(known, trouble, _less(session.cost, before))
        if self.ref.digest is None and self.ref.tag:
            self.kept.keep_tagged(self.ref.tag, said.digest)
        return Found(self._facts(said), "registry", None, *_less(session.cost, before))

    def _ask(self, registry: Registry) -> Said:
        document = registry.document(self.ref)
        if said := self.kept.image(document.digest, self.architecture):
            return said
        platform = "linux", self.architecture
        manifest, _ = registry.described(self.ref, platform, any_platform=True, document=document)
        config = registry.config(self.ref, manifest)
        own = config.get("architecture")
        chosen = manifest.platform.rpartition("/")[2] if manifest.platform else None
        offered = tuple(name.partition("/")[2] for name in manifest.platforms if name.startswith("linux/"))
        said = Said(
            digest=document.digest,
            architecture=own if isinstance(own, str) and own else chosen or self.architecture,
            architectures=offered or ((own,) if isinstance(own, str) and own else None),
            compressed_bytes=manifest.compressed_bytes,
            is_schema_1=manifest.is_schema_1,
            config=config,
        )
        self.kept.keep_image(self.architecture, said)
        return said

    def _facts(self, said: Said) -> ImageFacts:
        from ngcdl.preflight import image

        return image.from_config(
            self.ref,
            said.config,
            architecture=said.architecture,
            architectures=said.architectures,
            digest=said.digest,
            compressed_bytes=said.compressed_bytes,
            is_schema_1=said.is_schema_1,
        )


def _ask_all(left: deque[tuple[_Look, Found | None]], found: dict[ImageRef, Found | NgcdlError]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    keys, patience = Keys(), HURRY if all(known for _, known in left) else USUAL
    down: dict[str, NgcdlError] = {}

    def work() -> None:
        with Session(keys, patience) as session:
            while left:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    look, known = left.popleft()
                    found[look.ref] = _one(look, known, session, down)

    with ThreadPoolExecutor(max(1, min(THREADS, len(left)))) as pool:
        try:
            for job in [pool.submit(work) for _ in range(min(THREADS, len(left)))]:
                job.result()
        finally:
            left.clear()  # Ctrl-C waits only for queries in progress


def _one(look: _Look, known: Found | None, session: Session, down: dict[str, NgcdlError]) -> Found | NgcdlError:
    host = look.ref.registry
    answer: Found | NgcdlError
    try:
        answer = look.without(known, down[host]) if host in down else look.answer(session, known)
    except NgcdlError as error:
        answer = error
    trouble = answer if isinstance(answer, NgcdlError) else answer.trouble
    if isinstance(trouble, _DOWN):
        down[host] = trouble
    return answer


def _less(cost: Cost, before: Cost) -> Cost:
    return cost[0] - before[0], cost[1] - before[1]
