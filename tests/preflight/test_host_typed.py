"""How the values of --host and --gpu are parsed."""

from __future__ import annotations

import pytest

from ngcdl.errors import BadOption
from ngcdl.preflight.facts import Gpu, HostFacts
from ngcdl.preflight.host import typed
from ngcdl.preflight.names import brand_of, capability_of


def test_one_card_is_typed_beside_its_host() -> None:
    assert typed("driver=535.104.05,cc=7.5,brand=tesla,arch=amd64") == HostFacts(
        architecture="amd64", driver="535.104.05", gpus=(Gpu("7.5", None, "tesla", index=0),)
    )


def test_several_cards_are_typed_by_gpu_inside_or_beside() -> None:
    inside = typed("driver=535.104.05,gpu=7.5:tesla,gpu=6.1:geforce")
    beside = typed("driver=535.104.05", ["cc=7.5,brand=tesla", "cc=6.1,brand=geforce"])
    assert inside == beside
    assert inside.gpus == (Gpu("7.5", None, "tesla", index=0), Gpu("6.1", None, "geforce", index=1))


def test_a_card_s_brand_may_be_left_out() -> None:
    assert typed("gpu=7.5").gpus == typed("gpu=7.5:").gpus == typed("cc=7.5").gpus == (Gpu("7.5", index=0),)


def test_the_card_of_the_host_comes_before_the_others() -> None:
    host = typed("gpu=6.1,cc=8.0,name=A100", ["name=T4"])
    assert [(gpu.index, gpu.capability) for gpu in host.gpus] == [(0, "8.0"), (1, "6.1"), (2, "7.5")]


def test_a_card_s_name_gives_its_capability_and_brand() -> None:
    assert typed("gpu=T4").gpus == (Gpu("7.5", "T4", "tesla", index=0),)
    assert typed("", ["T4", "6.1:geforce"]) == typed("gpu=T4,gpu=6.1:geforce")
    assert typed("gpu=RTX 4090").gpus == (Gpu("8.9", "RTX 4090", "geforce", index=0),)
    assert typed("", ["name=GTX 1050 Ti"]).gpus == (Gpu("6.1", "GTX 1050 Ti", "geforce", index=0),)


def test_what_is_typed_goes_before_what_the_name_says() -> None:
    assert typed("gpu=T4:grid").gpus[0].brand == "grid"
    assert typed("", ["name=My Card,cc=8.6,brand=NVIDIA RTX"]).gpus == (Gpu("8.6", "My Card", "nvidiartx", index=0),)


@pytest.mark.parametrize("text", ["arm64", "aarch64", "AArch64", "arm64/v8", "sbsa"])
def test_arm64_is_spelled_in_any_way(text: str) -> None:
    assert typed(f"arch={text}").architecture == "arm64"


@pytest.mark.parametrize("text", ["amd64", "x86_64", "x86-64", "X64"])
def test_amd64_is_spelled_in_any_way(text: str) -> None:
    assert typed(f"arch={text}").architecture == "amd64"


@pytest.mark.parametrize(
    "card",
    ["GB10", "DGX Spark", "GH200", "NVIDIA GH200 144G HBM3e", "GB200", "GB300", "AGX Thor", "Orin", "8.7", "11.0"],
)
def test_a_card_that_only_arm_machines_have_implies_arm64(card: str) -> None:
    assert typed(f"driver=580.95.05,gpu={card}").architecture == "arm64"
    assert typed(f"arch=amd64,gpu={card}").architecture == "amd64"


@pytest.mark.parametrize("card", ["B200", "B300", "H100", "H200", "RTX 5090", "12.0", "10.3", "9.0"])
def test_a_card_that_other_machines_have_too_does_not(card: str) -> None:
    assert typed(f"gpu={card}").architecture == "amd64"


def test_what_is_not_typed_is_unknown_or_not_there() -> None:
    host = typed("arch=amd64")
    assert host == HostFacts(architecture="amd64")
    assert (host.gpus, host.avx, host.free_bytes, host.driver) == ((), None, None, None)


def test_a_driver_alone_stands_for_a_card_of_which_nothing_is_known() -> None:
    assert typed("driver=535.104.05").gpus == (Gpu(None, index=0),)


def test_the_rest_of_a_host_can_be_typed_too() -> None:
    host = typed(" avx=no , free=20g, engine=26.1.4,")
    assert (host.avx, host.free_bytes, host.engine_version, host.architecture) == (False, 20 << 30, "26.1.4", "amd64")
    assert typed("avx=yes").avx is True


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", ",", "535.104.05", "driver", "driver=", "driver=new", "driver=535.x", "cc=75", "cc=sm_75", "cc=7.5.1",
        "brand=amd", "arch=sparc", "memory=16g", "driver=1,driver=2", "cc=7.5,cc=8.0", "gpu=", "avx=maybe",
        "gpu=Voodoo 2", "gpu=RTX 6000", "gpu=7.5:amd", "free=much", "=7.5",
    ],
)  # fmt: skip
def test_what_cant_be_meant_is_refused_with_the_form_that_is_wanted(text: str) -> None:
    with pytest.raises(BadOption) as caught:
        typed(text)
    assert "--host driver=" in caught.value.hint or "--host free=much: must be a size" in caught.value.message


@pytest.mark.parametrize("text", ["driver=535", "cc=7.5,gpu=T4", "cc=7", "", "Voodoo 2"])
def test_gpu_takes_what_belongs_to_a_card(text: str) -> None:
    with pytest.raises(BadOption):
        typed("", [text])


@pytest.mark.parametrize(
    ("name", "capability", "brand"),
    [
        ("NVIDIA A100-SXM4-80GB", "8.0", "tesla"),
        ("Tesla V100-SXM2-16GB", "7.0", "tesla"),
        ("NVIDIA H100 80GB HBM3", "9.0", "tesla"),
        ("NVIDIA-A10G", "8.6", "tesla"),
        ("T4G", "7.5", "tesla"),
        ("NVIDIA GeForce RTX 2080 SUPER", "7.5", "geforce"),
        ("GeForce GTX 1660", "7.5", "geforce"),
        ("RTX A4000", "8.6", "nvidiartx"),
        ("RTX A6000", "8.6", "nvidiartx"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9", "nvidiartx"),
        ("Quadro RTX 6000", "7.5", "quadrortx"),
        ("TITAN V", "7.0", "titan"),
        ("NVIDIA GeForce RTX 3080 Ti", "8.6", "geforce"),
        ("GTX1050Ti", "6.1", "geforce"),
        ("RTX3080Ti", "8.6", "geforce"),
        ("RTX2080SUPER", "7.5", "geforce"),
        ("NVIDIA GeForce RTX 4090 D", "8.9", "geforce"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", "nvidiartx"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "8.9", "nvidiartx"),
        ("GB200", "10.0", "tesla"),
        ("GB10", "12.1", None),
        ("NVIDIA GB10", "12.1", None),
        ("DGX Spark", "12.1", None),
        ("Jetson AGX Orin", "8.7", None),
        ("Orin (nvgpu)", "8.7", None),
        ("NVIDIA Thor", "11.0", None),
        ("NVIDIA Jetson AGX Thor Developer Kit", "11.0", None),
        ("Jetson AGX Xavier", "7.2", None),
        ("k80", "3.7", "tesla"),
        ("NVIDIA B300 SXM6 AC", "10.3", "tesla"),
        ("NVIDIA GH200 144G HBM3e", "9.0", "tesla"),
        ("NVIDIA A800-SXM4-80GB", "8.0", "tesla"),
        ("NVIDIA H20-3e", "9.0", "tesla"),
        ("NVIDIA L20", "8.9", "tesla"),
        ("NVIDIA L2", "8.9", "tesla"),
        ("NVIDIA RTX A1000", "8.6", "nvidiartx"),
        ("NVIDIA RTX A400", "8.6", "nvidiartx"),
        ("Quadro P5000", "6.1", "quadro"),
        ("Quadro M2000", "5.2", "quadro"),
        ("Quadro M2000M", "5.0", "quadro"),
        ("GeForce GTX 950", "5.2", "geforce"),
        ("NVIDIA TITAN X (Pascal)", "6.1", "titan"),
        ("NVIDIA GeForce GTX TITAN X", "5.2", "titan"),
        ("GTX TITAN", "3.5", "titan"),
        ("NVIDIA T1200 Laptop GPU", "7.5", None),
        ("Quadro T2000", "7.5", "quadro"),
        ("NVIDIA RTX A500 Laptop GPU", "8.6", "nvidiartx"),
        ("Jetson Nano", "5.3", None),
        ("Jetson Orin Nano", "8.7", None),
    ],
)
def test_cards_are_known_by_the_names_that_drivers_give_them(name: str, capability: str, brand: str | None) -> None:
    assert (capability_of(name), brand_of(name)) == (capability, brand)


@pytest.mark.parametrize(
    "name", ["RTX 6000", "TITAN X", "Jetson Nano X", "Quadro", "GeForce", "Ada", "Nano", "4000", "", "-"]
)
def test_a_name_of_several_cards_or_of_none_is_not_guessed(name: str) -> None:
    assert capability_of(name) is None
