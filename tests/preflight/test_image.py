"""Facts about an image, from its configuration, with gaps filled from the catalogue."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.catalog import releases
from ngcdl.catalog.rows import comparable, rows
from ngcdl.preflight.configuration import branches_of, kernels
from ngcdl.preflight.facts import BRANDS, ImageFacts
from ngcdl.preflight.image import estimated_unpacked, from_catalog, from_config
from ngcdl.spec import ImageRef

TORCH_26_07 = [
    "CUDA_VERSION=13.3.1.008",
    "CUDA_DRIVER_VERSION=610.43.02",
    "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
    "NVIDIA_PYTORCH_VERSION=26.07",
    "PYTORCH_VERSION=2.13.0a0+9186a08",
    "TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0 10.0 12.0+PTX",
]
# nvidia/cuda:13.0.2 has this for twelve brands
CUDA_13 = "cuda>=13.0 " + " ".join(
    f"brand={brand},driver>={branch},driver<{branch + 1}"
    for branch in (535, 550, 565, 570, 575)
    for brand in ("unknown", "grid", "tesla", "nvidia", "quadro", "cloudgaming")
)


def ref(text: str) -> ImageRef:
    return ImageRef.parse(text)


def facts(image: str, *variables: str, labels: dict[str, str] | None = None, **given: Any) -> ImageFacts:
    config = {"architecture": "amd64", "config": {"Env": list(variables), "Labels": labels}}
    return from_config(ref(image), config, architecture="amd64", **given)


# -- the catalogue ----------------------------------------------------------------------------------------------------


def test_every_tag_of_the_table_gives_facts_that_can_be_judged() -> None:
    every = [(one.framework, tag) for one in releases.releases() for tag in one.tags if not releases.is_jetson(tag)]
    assert len(every) > 250
    for framework, tag in every:
        found = from_catalog(ref(f"{framework}:{tag}"), "amd64")
        assert found is not None
        assert found.has_cuda
        assert comparable(found.driver or "")
        assert comparable(found.cuda or "")
        assert found.sass
        assert found.python
        assert "amd64" in (found.architectures or ())
        assert (found.minor_floor is not None) == (comparable(found.cuda or "")[0] >= 11)
        assert set(found.compat_brands) <= set(BRANDS.values())
        known = {name for name, value in vars(found).items() if value != getattr(ImageFacts(""), name)}
        assert set(found.sources) == known - {"reference", "sources", "recalled"}
        assert found.recalled <= set(found.sources) | {"reference"}


def test_the_seed_s_image_is_known_without_a_network_and_says_what_was_not_read() -> None:
    found = from_catalog(ref("tensorflow:18.01-py2"), "amd64")
    assert found is not None
    assert (found.framework, found.release, found.python, found.cuda) == ("tensorflow", "18.01", "2.7", "9.0.176")
    assert (found.driver, found.minor_floor, found.compat_branches) == ("384.81", None, None)
    assert (found.sass, found.ptx) == (("5.2", "6.0", "6.1", "7.0"), "7.0")
    assert {"reference", "cuda", "driver", "sass", "python"} <= found.recalled


def test_a_driver_that_follows_from_a_cuda_version_that_was_read_is_not_called_recalled() -> None:
    found = from_catalog(ref("tensorflow:20.10-tf2-py3"), "amd64")
    assert found is not None
    assert found.driver == "455.23"
    assert "driver" not in found.recalled
    assert found.sources["driver"].startswith("https://docs.nvidia.com/cuda/")


def test_from_25_01_on_the_bundled_driver_goes_before_the_prose() -> None:
    for tag, prose, bundled in (("25.01-py3", "560", "570.86.10"), ("25.08-py3", "575", "580.65.06")):
        found = from_catalog(ref(f"pytorch:{tag}"), "amd64")
        assert found is not None
        (row,) = [row for row in rows("releases") if (row["framework"], row["release"]) == ("pytorch", found.release)]
        assert (row["docs_min_driver"], found.driver) == (prose, bundled)


def test_a_mirror_s_image_is_found_by_its_name() -> None:
    found = from_catalog(ref("mirror.example/nvcr/nvidia/pytorch:26.07-py3"), "amd64")
    assert found is not None
    assert found.release == "26.07"


@pytest.mark.parametrize(
    "image",
    ["nvidia/cuda:13.0.2-base", "mirror.example/me/pytorch:26.07-py3", "pytorch:26.07", "tensorflow:25.02-py3",
     "pytorch@sha256:" + "0" * 64],
)  # fmt: skip
def test_what_is_no_framework_image_of_the_table_gives_nothing(image: str) -> None:
    assert from_catalog(ref(image), "amd64") is None


def test_each_processor_has_its_own_kernels() -> None:
    arm, amd = from_catalog(ref("pytorch:26.07-py3"), "arm64"), from_catalog(ref("pytorch:26.07-py3"), "amd64")
    assert arm is not None
    assert amd is not None
    assert "11.0" in (arm.sass or ())
    assert "11.0" not in (amd.sass or ())
    assert "sass" in arm.recalled - amd.recalled


def test_of_an_image_that_is_not_made_for_a_processor_no_kernels_are_known() -> None:
    found = from_catalog(ref("tensorflow:18.01-py2"), "arm64")
    assert found is not None
    assert (found.architectures, found.sass, found.ptx) == (("amd64",), None, None)


@pytest.mark.parametrize(
    ("tag", "python"),
    [("tensorflow:24.05-tf2-py3-igpu", "3.10"), ("pytorch:25.08-py3-igpu", "3.12"), ("pytorch:26.02-py3-igpu", "3.12")],
)
def test_an_image_for_jetson_has_neither_cuda_nor_driver_nor_kernels_of_the_others(tag: str, python: str) -> None:
    found = from_catalog(ref(tag), "amd64")
    assert found is not None
    assert (found.architectures, found.has_cuda, found.cuda, found.python) == (("arm64",), True, None, python)
    assert (found.driver, found.minor_floor, found.sass, found.compat_branches) == (None, None, None, None)
    assert from_catalog(ref("pytorch:26.03-py3-igpu"), "amd64") is None, "NVIDIA makes them no more"


# -- the configuration ------------------------------------------------------------------------------------------------


def test_a_configuration_goes_before_the_catalogue() -> None:
    found = facts("pytorch:26.07-py3", *TORCH_26_07)
    assert (found.framework, found.release, found.framework_version) == ("pytorch", "26.07", "2.13.0a0+9186a08")
    assert (found.cuda, found.driver, found.require) == ("13.3.1.008", "610.43.02", ("cuda>=9.0",))
    assert (found.sass, found.ptx) == (("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), "12.0")
    assert {found.sources[name] for name in ("cuda", "driver", "sass", "release", "require")} == {"registry"}
    assert (found.python, found.min_capability, found.minor_floor) == ("3.12", "7.5", "580")
    assert found.sources["python"] != "registry"
    assert "reference" not in found.recalled


def test_what_the_registry_says_is_not_recalled() -> None:
    said = ("CUDA_VERSION=9.0.176", "CUDA_DRIVER_VERSION=384.81", "NVIDIA_TENSORFLOW_VERSION=18.01")
    found = facts("tensorflow:18.01-py2", *said)
    assert found.recalled & {"cuda", "driver", "release", "reference"} == set()
    assert {"sass", "python"} <= found.recalled
    assert (found.sass, found.python) == (("5.2", "6.0", "6.1", "7.0"), "2.7")


def test_somebody_s_image_made_from_one_of_nvidia_s_is_judged_as_that_one() -> None:
    found = facts("registry.example/me/model:7", *TORCH_26_07[:-1])
    assert (found.release, found.python, found.min_capability) == ("26.07", "3.12", "7.5")
    assert found.sass == ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
    assert found.sources["sass"] != "registry"


def test_an_image_newer_than_the_table_stands_on_its_own_words_and_the_cuda_tables() -> None:
    said = [text.replace("26.07", "26.11") for text in TORCH_26_07 if "CUDA_DRIVER_VERSION" not in text]
    found = facts("pytorch:26.11-py3", *said)
    assert (found.release, found.has_cuda) == ("26.11", True)
    assert (found.driver, found.minor_floor) == ("610.43.02", "580")
    assert (found.python, found.compat_branches) == (None, (535, 570, 580, 590, 595))


def test_of_tensorflow_1_and_2_of_one_month_the_version_tells() -> None:
    for said, python in ((("TENSORFLOW_VERSION=1.15.5",), "tf1"), (("TENSORFLOW_VERSION=2.9.1",), "tf2")):
        row = releases.find("tensorflow", f"22.07-{python}-py3")
        found = facts("me/mine:1", "CUDA_VERSION=11.7.1", "NVIDIA_TENSORFLOW_VERSION=22.07", *said)
        assert row is not None
        assert found.sources["python"] == row.source_of("python")
    assert facts("me/mine:1", "CUDA_VERSION=11.7.1", "NVIDIA_TENSORFLOW_VERSION=22.07").python is None
    named = facts("me/mine:1", "CUDA_VERSION=11.7.1", "NVIDIA_TENSORFLOW_VERSION=22.07-tf1")
    assert (named.release, named.framework_version) == ("22.07", "1.15.5")


def test_a_label_names_the_release_where_no_variable_does() -> None:
    found = facts("tensorflow:x", "CUDA_VERSION=9.0.176", labels={"com.nvidia.tensorflow.version": "18.01"})
    assert (found.framework, found.release) == ("tensorflow", "18.01")
    other = facts("pytorch:x", "CUDA_VERSION=13.0.2", labels={"com.nvidia.pytorch.version": "2.9.0"})
    assert (other.framework, other.release, other.framework_version) == ("pytorch", None, "2.9.0")
    for called in ("tensorflow", "pytorch"):  # an image with both
        assert facts(f"{called}:x", "TENSORFLOW_VERSION=2.9.1", "PYTORCH_VERSION=2.9.0").framework == called


def test_a_row_of_another_cuda_gives_no_driver_and_no_kernels() -> None:
    found = facts("me/mine:1", "CUDA_VERSION=12.4.1", "NVIDIA_PYTORCH_VERSION=26.07")
    assert (found.driver, found.minor_floor, found.sass) == ("550.54.15", "525.60.13", None)
    assert found.compat_branches == (470, 525, 535, 545)


def test_an_image_without_cuda_is_said_to_have_none() -> None:
    assert facts("busybox:1", "PATH=/bin").has_cuda is False
    assert from_config(ref("busybox:1"), {"config": {}}, architecture="amd64").has_cuda is False


def test_an_image_that_wants_gpus_without_a_cuda_version_is_unknown() -> None:
    found = facts("pytorch/pytorch:2.9", "NVIDIA_VISIBLE_DEVICES=all", "PYTORCH_VERSION=2.9.0")
    assert (found.has_cuda, found.cuda, found.driver) == (None, None, None)


def test_where_no_configuration_can_be_read_the_tag_tells() -> None:
    found = from_config(ref("tensorflow:18.01-py2"), {}, architecture="amd64", is_schema_1=True)
    assert (found.has_cuda, found.cuda, found.is_schema_1) == (True, "9.0.176", True)
    assert from_config(ref("me/x:1"), {}, architecture="amd64").has_cuda is None


@pytest.mark.parametrize(
    ("variable", "field"),
    [("CUDA_VERSION=abc", "cuda"), ("CUDA_VERSION=", "cuda"), ("CUDA_VERSION=" + "1." * 5000 + "1", "cuda"),
     ("CUDA_VERSION=١٢.٤", "cuda"), ("CUDA_DRIVER_VERSION=newest", "driver"),
     ("TORCH_CUDA_ARCH_LIST=Ampere;Turing", "sass"), ("NVIDIA_PYTORCH_VERSION=26.99", "release"),
     ("PYTORCH_VERSION=\x1b[2J", "framework_version")],
)  # fmt: skip
def test_a_broken_text_leaves_its_field_unknown(variable: str, field: str) -> None:
    assert getattr(facts("me/mine:1", variable), field) is None


def test_the_configuration_s_own_processor_goes_before_the_one_that_was_asked_for() -> None:
    found = from_config(ref("me/x:1"), {"architecture": "arm64", "config": {}}, architecture="amd64")
    assert found.architectures == ("arm64",)
    of_index = from_config(ref("me/x:1"), {"config": {}}, architecture="amd64", architectures=("amd64", "arm64"))
    assert of_index.architectures == ("amd64", "arm64")


def test_the_compressed_size_is_kept_and_the_unpacked_one_estimated_from_it() -> None:
    found = facts("busybox:1", digest="sha256:" + "0" * 64, compressed_bytes=1000)
    assert (found.compressed_bytes, found.unpacked_bytes) == (1000, 2500)
    assert "unpacked_bytes" in found.recalled
    assert estimated_unpacked(None) is None
    assert facts("busybox:1").unpacked_bytes is None


# -- what the hook would ask, and what compat packages are for --------------------------------------------------------


def test_a_require_string_gives_the_branches_where_the_tables_have_none() -> None:
    found = facts("nvidia/cuda:13.5.0-base", "CUDA_VERSION=13.5.0", "NVIDIA_REQUIRE_CUDA=" + CUDA_13)
    assert found.compat_branches == (535, 550, 565, 570, 575)
    assert found.compat_brands == ("cloudgaming", "nvidia", "quadro", "tesla")
    assert found.sources["compat_branches"] == "registry"
    assert "compat_branches" not in found.recalled


def test_the_tables_go_before_a_require_string() -> None:
    found = facts("nvidia/cuda:12.4.1-base", "CUDA_VERSION=12.4.1", "NVIDIA_REQUIRE_CUDA=" + CUDA_13)
    assert found.compat_branches == (470, 525, 535, 545)


def test_only_whole_branches_of_data_centre_cards_are_taken_from_a_require_string() -> None:
    text = (
        "cuda>=12.0 brand=tesla,driver>=450,driver<451 brand=tesla,driver>=470,driver<471 "
        "brand=geforce,driver>=470,driver<471 brand=quadro,driver>=470,driver<471 brand=nvidia,driver>=470,driver<999 "
        "brand=tesla driver>=525"
    )
    assert branches_of([text]) == ((450, 470), ("tesla",))
    assert branches_of(["cuda>=9.0", "", "arch>=7.5"]) == ((), ())


def test_the_hook_asks_for_the_cuda_version_of_an_image_of_before_the_variables() -> None:
    assert facts("me/mine:1", "CUDA_VERSION=9.0.176").require == ("cuda>=9.0",)


def test_the_hook_asks_nothing_where_the_image_says_so_and_never_of_jetpack() -> None:
    asked = ("CUDA_VERSION=9.0", "NVIDIA_REQUIRE_CUDA=cuda>=9.0", "NVIDIA_REQUIRE_ARCH=arch>=7.5")
    assert facts("me/mine:1", *asked, "NVIDIA_REQUIRE_JETPACK=csv-mounts=all").require == ("arch>=7.5", "cuda>=9.0")
    assert facts("me/mine:1", *asked, "NVIDIA_DISABLE_REQUIRE=true").require == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5.2 6.0 6.1 7.0 7.5 8.0+PTX", (("5.2", "6.0", "6.1", "7.0", "7.5", "8.0"), "8.0")),
        ("8.0;8.6;9.0", (("8.0", "8.6", "9.0"), None)),
        ("12.0+PTX 9.0a 7.5", (("7.5", "9.0", "12.0"), "12.0")),
        ("sm_80 sm_90 120", (("8.0", "9.0", "12.0"), None)),
        ("8.0 Hopper", None),
        ("8.0 10.0a", None),
        ("   ", None),
        (None, None),
    ],
)
def test_a_list_of_kernels_is_read_whole_or_not_at_all(text: str | None, found: object) -> None:
    assert kernels(text) == found


# -- junk -------------------------------------------------------------------------------------------------------------

NAMES = ["CUDA_VERSION", "CUDA_DRIVER_VERSION", "TORCH_CUDA_ARCH_LIST", "CUDA_ARCH_LIST", "NVIDIA_PYTORCH_VERSION",
         "NVIDIA_TENSORFLOW_VERSION", "PYTORCH_VERSION", "TENSORFLOW_VERSION", "NVIDIA_REQUIRE_CUDA",
         "NVIDIA_DISABLE_REQUIRE"]  # fmt: skip
values = st.text(max_size=30) | st.from_regex(r"\A[0-9. +a-zPTX,<>=-]{0,30}\Z")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
)
said = st.builds("{}={}".format, st.sampled_from(NAMES), values)
inner = st.fixed_dictionaries(
    {}, optional={"Env": st.lists(said | junk, max_size=12) | junk, "Labels": st.dictionaries(
        st.sampled_from(["com.nvidia.pytorch.version", "com.nvidia.tensorflow.version", "com.nvidia.cuda.version"]),
        values | junk) | junk}
)  # fmt: skip
configs = st.fixed_dictionaries({}, optional={"config": inner | junk, "architecture": values | junk})
images = st.sampled_from(["tensorflow:18.01-py2", "pytorch:26.07-py3", "pytorch:26.07-py3-igpu", "me/mine:1"])


@given(images, configs)
def test_no_configuration_raises_and_what_is_given_can_be_read(image: str, config: dict[str, Any]) -> None:
    found = from_config(ref(image), config, architecture="amd64")
    for text in (found.cuda, found.driver, found.minor_floor, found.min_capability, found.ptx, *(found.sass or ())):
        assert text is None or comparable(text)
    assert list(found.sass or ()) == sorted(set(found.sass or ()), key=comparable)
    assert all(isinstance(text, str) for text in found.require)
    assert set(found.compat_brands) <= set(BRANDS.values())
    assert "" not in vars(found).values()
