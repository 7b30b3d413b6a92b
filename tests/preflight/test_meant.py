"""A framework's name without a tag means the newest that is known to run; any other name needs its tag."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ngcdl.catalog import releases
from ngcdl.engines.values import Held
from ngcdl.errors import BadReference
from ngcdl.preflight import meant
from ngcdl.preflight.facts import Gpu, HostFacts
from ngcdl.preflight.image import from_catalog
from ngcdl.preflight.kernels import wants_igpu
from ngcdl.preflight.verdict import judge_host
from ngcdl.spec import NVCR, ImageRef

HOPPER = HostFacts(driver="575.57.08", gpus=(Gpu("9.0", "NVIDIA H100", "tesla"),))
MIRROR = "mirror.example/nvcr"


def image(name: str, registry: str = NVCR) -> ImageRef:
    return meant.named(name, registry)


@pytest.mark.parametrize("name", ["pytorch", "nvidia/pytorch", "nvcr.io/nvidia/pytorch"])
def test_a_framework_of_the_catalogue_needs_no_tag(name: str) -> None:
    assert image(name) == ImageRef(NVCR, "nvidia/pytorch")
    assert meant.is_open(image(name))


def test_so_does_the_same_framework_on_the_mirror_that_is_in_use() -> None:
    for name in ("pytorch", "nvidia/pytorch", f"{MIRROR}/nvidia/pytorch"):
        assert image(name, MIRROR) == ImageRef("mirror.example", "nvcr/nvidia/pytorch")


@pytest.mark.parametrize(
    "name", ["cuda", "pytorch/pytorch", "docker.io/nvidia/pytorch", "nvidia/cuda", "me/tensorflow"]
)
def test_any_other_name_needs_its_tag(name: str) -> None:
    with pytest.raises(BadReference, match=r"which (release|tag)"):
        image(name)


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("pytorh", "pytorch"), ("nvidia/tensorflw", "nvidia/tensorflow"),
        (f"{MIRROR}/nvidia/pytoch", f"{MIRROR}/nvidia/pytorch"),
        ("tensorrt", ""), ("me/pytorh", ""), ("me/pytorch", ""), ("docker.io/nvidia/pytorch", ""),
    ],
)  # fmt: skip
def test_a_misspelt_framework_leads_on_to_the_one_that_was_probably_meant(name: str, framework: str) -> None:
    with pytest.raises(BadReference) as refused:
        image(name, MIRROR)
    assert refused.value.meant == framework


@pytest.mark.parametrize("name", ["pytorch:24.05-py3", "nvidia/pytorch@sha256:" + "1" * 64, "localhost:5000/a:b"])
def test_a_name_with_a_tag_or_a_digest_is_what_it_says(name: str) -> None:
    assert image(name) == ImageRef.parse(name)
    assert not meant.is_open(image(name))


def test_it_is_the_newest_that_is_known_to_run_and_the_line_says_which() -> None:
    assert meant.chosen([image("pytorch")], HOPPER) == (
        ImageRef.parse("pytorch:26.02-py3"), "pytorch: 26.02-py3, the newest known to run here",
    )  # fmt: skip
    assert meant.chosen([image("pytorch")], HOPPER, "there")[1].endswith("known to run there")


def test_for_all_cards_together_it_is_the_newest_that_runs_on_the_oldest_of_them() -> None:
    mixed = replace(HOPPER, gpus=(Gpu("7.0", "Tesla V100", "tesla"), *HOPPER.gpus))
    tags = [meant.chosen([image("pytorch")], mixed, on_each=on_each)[0].tag for on_each in (False, True)]
    assert tags == ["26.02-py3", "24.12-py3"]


def test_where_none_runs_it_is_the_newest_and_the_line_says_that_it_does_not() -> None:
    newest = releases.tags("pytorch")[0]
    found, words = meant.chosen([image("pytorch")], replace(HOPPER, gpus=(Gpu("3.5", "Tesla K40m", "tesla"),)))
    assert found.tag == newest
    assert words == f"pytorch: {newest}, the newest that ngcdl knows; none is known to run here"


def test_for_cards_that_can_t_be_seen_from_here_nothing_is_said_about_running() -> None:
    newest = releases.tags("pytorch")[0]
    found, words = meant.chosen([image("pytorch")], HostFacts(elsewhere="on another machine"))
    assert (found.tag, words) == (newest, f"pytorch: {newest}, the newest that ngcdl knows")


def test_the_first_framework_with_kernels_for_these_cards_is_taken() -> None:
    """NVIDIA's last TensorFlow image is 25.02, which has no kernels for Thor."""
    both = [image("tensorflow"), image("pytorch")]
    assert meant.chosen(both, HOPPER)[1] == "tensorflow: 25.02-tf2-py3, the newest known to run here"
    thor = HostFacts("arm64", "580.65.06", (Gpu("11.0", "NVIDIA Thor"),))
    found, words = meant.chosen(both, thor)
    assert found.framework == "pytorch"
    assert words == f"pytorch: {found.tag}, the newest known to run here; no tensorflow fits as well"
    old = replace(thor, driver="470.82.01")
    assert meant.chosen(both, old)[0].framework == "tensorflow", "neither has kernels for it"
    later = replace(HOPPER, driver="999.10", gpus=(Gpu("99.0", "a later card"),))
    assert meant.chosen(both, later)[1] == "tensorflow: 25.02-tf2-py3, the newest known to run here", "by their PTX"


def test_an_orin_with_jetpack_6_gets_the_newest_image_that_is_made_for_a_jetson() -> None:
    both = [image("tensorflow"), image("pytorch")]
    orin = HostFacts("arm64", "540.4.0", (Gpu("8.7", "Orin (nvgpu)"),))
    found, words = meant.chosen(both, orin)
    assert (found.tag, words) == (
        "25.02-tf2-py3-igpu", "tensorflow: 25.02-tf2-py3-igpu, the newest for a Jetson with JetPack 6"
    )  # fmt: skip
    assert meant.chosen(both[1:], orin)[0].tag == "26.02-py3-igpu"
    facts = from_catalog(found, "arm64")
    assert facts is not None
    assert judge_host(facts, orin).verdict == "caution", "so it is not refused"
    later = replace(orin, driver="595.78")
    assert not releases.is_jetson(str(meant.chosen(both[1:], later)[0].tag)), "JetPack 7.2 runs the ordinary ones"
    for gpus in ((), (Gpu("3.0", "GT 640"),), (*orin.gpus, Gpu("3.0", "GT 640"))):
        other = replace(orin, gpus=gpus)
        assert not wants_igpu(other)
        assert not releases.is_jetson(str(meant.chosen(both[1:], other)[0].tag)), gpus


# -- an engine's own image --------------------------------------------------------------------------------------------

ID = "sha256:" + "1" * 64


def settled(name: str, *has: str, registry: str = NVCR) -> ImageRef:
    """Return the image that `name` means if the engine has images with the names in `has`."""
    held = {ImageRef.parse(one): Held(ID) for one in has}
    return meant.settled(meant.typed(name, registry), registry, held.get)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("mine", "docker.io/library/mine:latest"),
        ("mine:v2", "docker.io/library/mine:v2"),
        ("me/mine", "docker.io/me/mine:latest"),
        ("mine", "localhost/mine:latest"),  # Podman
        ("pytorch2", "docker.io/library/pytorch2:latest"),  # no misspelt pytorch if there is such an image
        ("pytorch/pytorch:2.5.0", "docker.io/pytorch/pytorch:2.5.0"),
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04"),
        (f"mine@sha256:{'2' * 64}", f"docker.io/library/mine@sha256:{'2' * 64}"),
    ],
)
@pytest.mark.parametrize("registry", [NVCR, MIRROR])
def test_a_short_name_is_the_image_that_the_engine_has_under_exactly_that_name(
    name: str, kept: str, registry: str
) -> None:
    assert settled(name, kept, registry=registry) == replace(ImageRef.parse(kept), id=ID)
    assert settled(name, kept, registry=registry).typable == name


def test_where_the_engine_has_none_a_short_name_is_the_registry_s() -> None:
    assert settled("mine:v2", "docker.io/library/mine:v1") == ImageRef.parse("nvcr.io/nvidia/mine:v2")
    assert settled("me/mine:v2", registry=MIRROR) == ImageRef.parse(f"{MIRROR}/me/mine:v2")
    with pytest.raises(BadReference, match="mine: which release") as refused:
        settled("mine", "docker.io/library/mine:v1")
    assert refused.value.message.endswith(" This engine has no mine:latest of its own.")
    with pytest.raises(BadReference) as refused:
        settled("pytorh")
    assert refused.value.meant == "pytorch"


@pytest.mark.parametrize("name", ["pytorch:26.02-py3", "nvidia/pytorch:26.02-py3", "docker.io/me/mine:v2"])
def test_the_engine_is_not_asked_about_a_framework_of_the_catalogue_or_a_complete_name(name: str) -> None:
    assert settled(name, f"docker.io/library/{name}", f"docker.io/{name}") == ImageRef.parse(name)
    with pytest.raises(BadReference, match="which tag"):
        meant.typed("docker.io/me/mine", NVCR)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("pytorch/pytorch:2.5.0", "docker.io/pytorch/pytorch:2.5.0"),
        ("pytorch/pytorch", "docker.io/pytorch/pytorch:latest"),
        ("ubuntu", "docker.io/ubuntu:latest"),
        ("ubuntu:24.04", "docker.io/ubuntu:24.04"),
        ("jax", None), ("cuda:13", None), ("nvidia/cuda:13", None), ("docker.io/ubuntu:1", None),
    ],
)  # fmt: skip
def test_a_name_that_docker_hub_may_have_is_offered_there(name: str, there: str | None) -> None:
    image = ImageRef.parse(name, needs_tag=False)
    assert meant.on_docker_hub(image) == (f"On Docker Hub?\n    ngcdl run {there}" if there else "")
    if there:
        assert meant.named(there, NVCR) == ImageRef.parse(there)
    if meant.is_open(image):
        with pytest.raises(BadReference) as refused:
            meant.named(name, NVCR)
        assert f"ngcdl images {name}\n" in refused.value.hint, "what NGC has of that name"
        assert ("Docker Hub" in refused.value.hint) == (there is not None)


def test_another_registry_s_name_without_a_tag_is_not_told_about_ngc() -> None:
    with pytest.raises(BadReference) as refused:
        meant.named("docker.io/pytorch/pytorch", NVCR)
    assert "NGC" not in refused.value.message + refused.value.hint
    assert "    ngcdl run docker.io/pytorch/pytorch:latest\n" in refused.value.hint
