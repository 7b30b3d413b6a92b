"""Properties of every verdict, on the catalogue's images and on arbitrary facts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.catalog import releases
from ngcdl.catalog.rows import comparable
from ngcdl.preflight.facts import BRANDS, CardVerdict, Gpu, HostFacts, ImageFacts, Verdict
from ngcdl.preflight.image import from_catalog
from ngcdl.preflight.newest import newest
from ngcdl.preflight.verdict import judge_host
from ngcdl.spec import GpuRequest, ImageRef

IMAGES = tuple(
    facts
    for framework in ("tensorflow", "pytorch")
    for tag in releases.tags(framework)
    if (facts := from_catalog(ImageRef.parse(f"{framework}:{tag}"), "amd64")) is not None
)
BRANCHES = (367, 375, 384, 390, 396, 410, 418, 430, 440, 450, 455, 460, 465, 470, 495, 510, 515, 520, 525, 530, 535)
BRANCHES += (545, 550, 555, 560, 565, 570, 575, 580, 590, 595, 610, 615)
CAPABILITIES = ("3.7", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")
WITHOUT_FORWARD = ("geforce", "titan", "nvs", "grid")
WITH_FORWARD = ("tesla", "nvidia")
BETTER = ("runs", "caution", "no")

images = st.sampled_from(IMAGES)
capabilities = st.sampled_from(CAPABILITIES)
by_brand = st.sampled_from([one for one in CAPABILITIES if one != "12.1"])  # GB10 takes cuda-compat whatever its brand
own_and_floor = st.sampled_from([text for one in IMAGES for text in (one.driver, one.minor_floor) if text])
drivers = own_and_floor | st.builds(
    lambda branch, major, patch: f"{branch}.{major:02}.{patch:02}",
    st.sampled_from(BRANCHES),
    st.integers(0, 130),
    st.integers(0, 15),
)


def on(image: ImageFacts, capability: str, brand: str, driver: str) -> CardVerdict:
    return judge_host(image, HostFacts(driver=driver, gpus=(Gpu(capability, brand=brand),))).cards[0]


def is_worse(one: CardVerdict, than: CardVerdict) -> bool:
    return BETTER.index(one.verdict) > BETTER.index(than.verdict)


def drops(driver: str, capability: str) -> bool:
    """Drivers after 470 don't drive Kepler, those after 580 neither Maxwell, Pascal nor Volta."""
    last = 470 if capability < "5" else 580 if capability in ("5.2", "6.0", "6.1", "7.0") else 9999
    return comparable(driver)[0] > last


@given(images, by_brand, st.sampled_from(WITHOUT_FORWARD), drivers, drivers)
def test_a_newer_driver_is_never_worse_for_a_card_without_forward_compatibility(
    image: ImageFacts, capability: str, brand: str, one: str, other: str
) -> None:
    older, newer = sorted((one, other), key=comparable)
    before, after = on(image, capability, brand, older), on(image, capability, brand, newer)
    if not drops(newer, capability):
        assert not is_worse(after, before)
        assert before.mode != "native" or after.mode == "native"


@given(images, capabilities, st.sampled_from(WITH_FORWARD), drivers, st.integers(0, 130))
def test_a_newer_driver_of_the_same_branch_is_never_worse_for_any_card(
    image: ImageFacts, capability: str, brand: str, one: str, patch: int
) -> None:
    older, newer = sorted((one, f"{comparable(one)[0]}.{patch}"), key=comparable)
    assert not is_worse(on(image, capability, brand, newer), on(image, capability, brand, older))


@given(images, capabilities, st.sampled_from(WITH_FORWARD), drivers, drivers)
def test_a_newer_driver_is_worse_only_where_its_branch_is_off_the_compat_list(
    image: ImageFacts, capability: str, brand: str, one: str, other: str
) -> None:
    older, newer = sorted((one, other), key=comparable)
    before, after = on(image, capability, brand, older), on(image, capability, brand, newer)
    listed = {*(image.compat_branches or ()), *image.compat_likely}

    def is_listed(driver: str) -> bool:
        branch = comparable(driver)[0]
        return branch in listed and comparable(driver) >= comparable(image.compat_minimums.get(branch, "0"))

    leaves_the_list = is_listed(older) and not is_listed(newer)
    assert leaves_the_list or drops(newer, capability) or not is_worse(after, before)


def test_branch_460_is_worse_than_450_for_a_data_centre_card_and_cuda_12() -> None:
    image = from_catalog(ImageRef.parse("tensorflow:23.01-tf2-py3"), "amd64")
    assert image is not None
    assert on(image, "7.5", "tesla", "450.80.02").mode == "forward"
    after = on(image, "7.5", "tesla", "460.32.03")
    assert (after.verdict, after.reasons[0].needed) == ("no", "470.57")


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch"])
@pytest.mark.parametrize("variant", [None, "tf1", "tf2"])
def test_a_newer_release_never_needs_an_older_driver(framework: str, variant: str | None) -> None:
    rows = [one for one in reversed(releases.releases(framework)) if one.variant == variant]
    facts = [from_catalog(ImageRef.parse(f"{framework}:{one.tags[0]}"), "amd64") for one in rows]
    known = [one for one in facts if one is not None and one.driver is not None]
    assert len(known) == len(rows)
    assert (len(known) > 10) == ((framework, variant) not in (("pytorch", "tf1"), ("pytorch", "tf2")))
    for older, newer in pairwise(known):
        assert comparable(newer.driver or "") >= comparable(older.driver or ""), newer.reference
        assert least(newer) >= least(older), newer.reference


def least(image: ImageFacts) -> tuple[int, ...]:
    """Return the oldest driver that runs `image` on a GeForce."""
    return min(comparable(text) for text in (image.driver, image.minor_floor) if text)


@given(images, images, by_brand, drivers)
def test_a_driver_that_is_too_old_for_an_image_runs_no_newer_one_on_a_geforce(
    one: ImageFacts, other: ImageFacts, capability: str, driver: str
) -> None:
    older, newer = sorted((one, other), key=lambda image: comparable(image.release or ""))
    rules = {reason.rule for reason in on(older, capability, "geforce", driver).reasons}
    # a card may be too new for the older image's kernels, and its PTX then needs the image's own driver
    is_refused_for_its_driver = "driver" in rules and "ptx" not in rules
    assert not (is_refused_for_its_driver and on(newer, capability, "geforce", driver).verdict == "runs")


# -- arbitrary facts --------------------------------------------------------------------------------------------------

versions = st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,3}){0,3}", fullmatch=True)
texts = st.none() | versions | st.text(max_size=12)
capability_texts = st.none() | st.sampled_from((*CAPABILITIES, "8.7", "5.3")) | versions | st.text(max_size=5)
counts = st.none() | st.integers(-1, 1 << 50)
branch_lists = st.none() | st.lists(st.integers(0, 700), max_size=5).map(tuple)
brand_lists = st.lists(st.sampled_from(sorted(BRANDS.values())), max_size=5).map(tuple)
require_texts = st.text(alphabet="cudabrn,= <>!driver.0123456789", max_size=40)
requires = st.lists(require_texts | st.just("cuda>=12.0 brand=tesla,driver>=470,driver<471"), max_size=3).map(tuple)

any_image = st.builds(
    ImageFacts,
    reference=st.sampled_from(("nvcr.io/nvidia/x:1", "")),
    for_jetson=st.booleans(),
    framework=st.none() | st.sampled_from(("tensorflow", "pytorch", "")),
    release=texts,
    framework_version=texts,
    cuda=texts,
    has_cuda=st.sampled_from((True, True, True, None, False)),
    driver=texts,
    minor_floor=texts,
    architectures=st.sampled_from((("amd64", "arm64"), ("amd64", "arm64"), ("amd64",), (), None)),
    sass=st.none() | st.lists(st.sampled_from(CAPABILITIES) | st.text(max_size=4), max_size=5).map(tuple),
    ptx=capability_texts,
    min_capability=capability_texts,
    compat_branches=branch_lists,
    compat_brands=brand_lists,
    compat_likely=st.lists(st.integers(0, 700), max_size=3).map(tuple),
    require=requires,
    is_schema_1=st.booleans(),
    compressed_bytes=counts,
)
any_gpu = st.builds(
    Gpu,
    capability=capability_texts,
    name=st.none() | st.text(max_size=8),
    brand=st.none() | st.sampled_from(sorted(BRANDS.values())),
    index=st.none() | st.integers(0, 999999),
    uuid=st.none() | st.from_regex(r"GPU-[0-9a-f]{4}", fullmatch=True),
)
any_host = st.builds(
    HostFacts,
    architecture=st.sampled_from(("amd64", "amd64", "arm64", "ppc64le")),
    driver=texts,
    gpus=st.lists(any_gpu, min_size=1, max_size=4, unique_by=lambda gpu: (gpu.index, gpu.uuid)).map(tuple)
    | st.just(()),
    avx=st.none() | st.booleans(),
    free_bytes=counts,
    engine_version=texts,
    gpu_way=st.none() | st.sampled_from(("runtime", "device-request", "cdi", "none")),
    gpu_trouble=st.none() | st.text(max_size=8),
    elsewhere=st.sampled_from((None, None, None, None, "ssh://there")),
)


def check(verdict: Verdict) -> None:
    """Check what holds for every verdict."""
    assert verdict.reasons[0].level == verdict.verdict
    assert list(verdict.reasons) == sorted(verdict.reasons, key=lambda one: BETTER.index(one.level), reverse=True)
    assert verdict.verdict != "no" or verdict.mode is None
    assert verdict.verdict != "runs" or verdict.mode != "ptx"
    for card in verdict.cards:
        assert card.reasons[0].level == card.verdict
        assert card.verdict != "no" or card.mode is None


@given(any_image, any_host)
def test_whatever_the_facts_are_there_is_a_verdict_with_its_decisive_reason_first(
    image: ImageFacts, host: HostFacts
) -> None:
    check(judge_host(image, host))


@given(any_image, any_host)
def test_the_cards_to_take_are_named_in_words_that_gpus_takes(image: ImageFacts, host: HostFacts) -> None:
    numbered = tuple(replace(gpu, index=place) for place, gpu in enumerate(host.gpus))
    verdict = judge_host(image, replace(host, gpus=numbered))
    mixed = [reason for reason in verdict.reasons if reason.rule == "mixed"]
    levels = {card.verdict for card in verdict.cards}
    assert bool(mixed) == (len(levels) > 1)
    for reason in mixed:
        asked = GpuRequest.parse(reason.text.rpartition("--gpus ")[2].strip("'"))
        best = min((card.verdict for card in verdict.cards), key=BETTER.index)
        assert asked.devices == tuple(str(card.gpu.index) for card in verdict.cards if card.verdict == best)


@given(any_host)
def test_the_newest_that_is_named_is_one_that_does_run(host: HostFacts) -> None:
    by_tag = {facts.reference.partition(":")[2]: facts for facts in IMAGES if facts.framework == "tensorflow"}
    named = newest(None, tuple(by_tag), by_tag.get, host)
    assert named is None or judge_host(by_tag[named], host).verdict != "no"
