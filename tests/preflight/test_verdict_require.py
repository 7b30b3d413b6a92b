"""NVIDIA_REQUIRE_*: the grammar of the legacy hook."""

from __future__ import annotations

import pytest

from ngcdl.preflight.require import unmet

T4 = {"cuda": "12.2", "driver": "535.104.05", "arch": "7.5", "brand": "tesla"}
# as in nvidia/cuda's images
BASE = "cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=535,driver<536 brand=tesla,driver>=550"


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("cuda>=9.0", True),
        ("cuda>=12.2", True),
        ("cuda>=12.2.0", True),
        ("cuda>12.2", False),
        ("cuda<=12.2", True),
        ("cuda<12.2", False),
        ("cuda=12.2", True),
        ("cuda!=12.2", False),
        ("cuda!=12.3", True),
        ("cuda>=12.10", False),
        ("driver>=535", True),
        ("driver<536", True),
        ("driver<=535", False),  # 535.104.05 is more than 535
        ("driver=535.104.05.0", True),
        ("arch>=7.0", True),
        ("arch=8.0", False),
        ("brand=tesla", True),
        ("brand=Tesla", True),
        ("brand!=geforce", True),
        ("brand=geforce", False),
        ("brand=geforce brand=tesla", True),  # blanks are OR
        ("brand=tesla,driver>=550", False),  # commas are AND
        ("cuda>=13.0 brand=tesla,driver>=535,driver<536", True),
        ("cuda>=13.0  driver>=550", False),
        (BASE, True),
        ("", True),
    ],
)
def test_a_requirement_is_read_as_the_hook_reads_it(text: str, is_met: bool) -> None:
    assert (unmet((text,), T4) is None) == is_met


def test_all_variables_must_be_met_and_the_one_that_is_not_is_given() -> None:
    assert unmet(("cuda>=9.0", "brand=geforce", "driver>=600"), T4) == "brand=geforce"


def test_the_base_image_s_text_leaves_geforce_out() -> None:
    assert unmet((BASE,), {**T4, "brand": "geforce"}) == BASE


@pytest.mark.parametrize(
    "text", ["cuda=>12", "os=linux", "cuda", ">=13", "cuda>=abc", "brand>tesla", "cuda>=" + "9" * 200]
)
def test_a_text_outside_the_grammar_is_no_certain_refusal(text: str) -> None:
    assert unmet((text,), T4) is None


def test_an_unknown_value_refuses_only_what_no_value_could_meet() -> None:
    nameless = {**T4, "brand": None}
    assert unmet(("brand=tesla",), nameless) is None
    assert unmet(("brand=tesla,cuda>=13.0",), nameless) == "brand=tesla,cuda>=13.0"
