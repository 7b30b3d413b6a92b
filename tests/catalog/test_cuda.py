"""CUDA toolkits: drivers, floors, compute capabilities, and what the compat packages run on."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.catalog import cards, cuda
from ngcdl.catalog.rows import comparable, rows
from ngcdl.preflight.facts import BRANDS

TOOLKITS = [row["cuda"] for row in rows("cuda_driver")]
NEWEST_BRANCH = int(rows("cuda_driver")[0]["branch"])
versions = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
drivers = st.builds("{}.{}".format, st.integers(0, NEWEST_BRANCH), versions)


@pytest.mark.parametrize(
    ("asked", "row", "driver"),
    [
        ("9.0", "9.0.76", "384.81"),
        ("9.0.176", "9.0.76", "384.81"),
        ("10.1.243", "10.1.105", "418.39"),
        ("11.0.167", "11.0.1", "450.36.06"),
        ("11.0.194", "11.0.2", "450.51.05"),
        ("11.0.3", "11.0.3", "450.51.06"),
        ("12.4.1.003", "12.4.1", "550.54.15"),
        ("12.4.7", "12.4.1", "550.54.15"),
        ("13.3", "13.3.0", "610.43.02"),
        ("13.4.2", "13.4.1", "615.65.02"),
        ("13.5.0.020", "13.5.0", "620.70.06"),
    ],
)
def test_a_toolkit_has_its_row_or_the_nearest_below_of_the_same_minor(asked: str, row: str, driver: str) -> None:
    found = cuda.driver_for(asked)
    assert found is not None
    assert (found.cuda, found.driver) == (row, driver)


@pytest.mark.parametrize("asked", ["12.7", "6.5", "14.0", "abc", "", "12.x"])
def test_a_toolkit_of_an_unknown_minor_has_no_row(asked: str) -> None:
    assert cuda.driver_for(asked) is None


@pytest.mark.parametrize(
    ("driver", "newest"),
    [
        ("346.10", "7.0"),
        ("390.12", "9.1"),
        ("384.81", "9.0"),
        ("470.57.02", "11.4"),
        ("535.54.03", "12.2"),
        ("570.86.10", "12.8"),
        ("575.51.02", "12.9"),
        ("615.71.09", "13.4"),
        ("620.70.06", "13.5"),
        ("999.1", None),  # a branch newer than the table runs at least 13.5: a lower bound would refuse too much
        ("340.108", None),
        ("none", None),
    ],
)
def test_a_driver_runs_the_cuda_of_its_branch(driver: str, newest: str | None) -> None:
    assert cuda.newest_cuda(driver) == newest


@given(drivers, drivers)
def test_of_the_branches_in_the_table_a_newer_driver_never_runs_an_older_cuda(one: str, other: str) -> None:
    older, newer = sorted((one, other), key=comparable)
    assert comparable(cuda.newest_cuda(older) or "0") <= comparable(cuda.newest_cuda(newer) or "0")


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_the_driver_that_a_toolkit_wants_runs_it(toolkit: str) -> None:
    row = cuda.driver_for(toolkit)
    assert row is not None
    newest = cuda.newest_cuda(row.driver)
    assert newest is not None
    assert comparable(newest) >= comparable(toolkit)[:2]


@pytest.mark.parametrize(
    ("toolkit", "floor"),
    [("10.2.89", None), ("9.0", None), ("11.0.3", "450.80.02"), ("12.7", "525.60.13"), ("13.9", "580"),
     ("14.0", None), ("abc", None)],
)  # fmt: skip
def test_each_major_from_11_on_has_a_floor(toolkit: str, floor: str | None) -> None:
    found = cuda.minor_floor(toolkit)
    assert (found[0] if found else None) == floor
    assert found is None or found[1].startswith("https://docs.nvidia.com/")


@pytest.mark.parametrize(
    ("toolkit", "lowest", "highest"),
    [("8.0.61", "2.0", "6.2"), ("9.0.176", "3.0", "7.0"), ("9.1", "3.0", "7.2"), ("11.8.0", "3.5", "9.0"),
     ("12.9.1.010", "5.0", "12.1"), ("13.0.2", "7.5", "12.1")],
)  # fmt: skip
def test_a_toolkit_knows_its_cards(toolkit: str, lowest: str, highest: str) -> None:
    found = cuda.capabilities(toolkit)
    assert found is not None
    assert (found.lowest, found.listed[-1]) == (lowest, highest)


@pytest.mark.parametrize("toolkit", ["7.5", "14.0", "abc"])
def test_the_cards_of_a_toolkit_outside_the_table_are_unknown(toolkit: str) -> None:
    assert cuda.capabilities(toolkit) is None


def test_the_branches_of_a_release_are_those_of_its_notes() -> None:
    found = cuda.compat(release="24.05")
    assert found is not None
    assert found.branches == (470, 525, 535, 545)
    assert "tesla" in found.brands
    assert "geforce" not in found.brands
    assert found.source.startswith("https://docs.nvidia.com/")
    assert not found.recalled
    assert found.brands_recalled


def test_where_a_page_says_tesla_no_quadro_is_let_in() -> None:
    found = cuda.compat(release="19.10")
    assert found is not None
    assert (found.branches, found.brands) == ((384, 396, 410), ("tesla", "nvidia"))


@pytest.mark.parametrize(
    ("release", "toolkit", "branches"),
    [
        ("24.06", "12.5.0", (470, 535, 550)),
        ("24.12", "12.6.3", (470, 535, 550)),
        ("25.03", "12.8.1", (470, 535, 550, 560, 565)),
        (None, "12.8.0", (470, 535, 550, 560, 565)),
        ("26.04", "13.2.1", (535, 570, 580, 590)),
        ("26.07", "13.3.1", (535, 570, 580, 590, 595)),
    ],
)
def test_the_branches_of_a_cuda_are_those_that_its_base_image_lets_in(
    release: str | None, toolkit: str, branches: tuple[int, ...]
) -> None:
    found = cuda.compat(release, toolkit)
    assert found is not None
    assert (found.branches, found.likely) == (branches, ())
    assert not found.recalled
    assert not found.brands_recalled
    assert found.source.startswith("https://gitlab.com/nvidia/container-images/cuda/")


@pytest.mark.parametrize(("release", "toolkit"), [(None, "13.5.0"), ("27.01", "14.0")])
def test_no_list_is_made_up_where_none_is_known(release: str | None, toolkit: str | None) -> None:
    found = cuda.compat(release, toolkit)
    assert found is not None
    assert found.branches is None


@pytest.mark.parametrize(("release", "toolkit"), [("26.08", None), ("26.09", "13.4"), (None, "13.4.0")])
def test_the_branches_of_cuda_13_4_are_those_of_nvidia_s_page(release: str | None, toolkit: str | None) -> None:
    found = cuda.compat(release, toolkit)
    assert found is not None
    assert (found.branches, found.likely) == ((535, 570, 580, 590, 595, 610), ())
    assert (found.recalled, found.brands_recalled) == (False, True)
    assert found.source == "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"


def test_a_list_that_is_known_in_part_keeps_what_the_one_before_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    *table, last = rows("forward_compat")
    table.append(last | {"branches": "580 595", "unverified": "branches brands"})
    monkeypatch.setattr(cuda, "rows", lambda _: table)
    for release, toolkit in (("26.08", None), ("26.09", "13.4"), (None, "13.4.0")):
        found = cuda.compat(release, toolkit)
        assert found is not None
        assert (found.branches, found.likely) == ((580, 595), (535, 570, 580, 590, 595))
        assert found.recalled, "the branches were seen to work; the list was not read"


@pytest.mark.parametrize(
    ("release", "toolkit", "likely"),
    [
        (None, "13.5.0", (535, 570, 580, 590, 595, 610)),  # newer than the table: as for 13.4, the last list
        ("24.05", None, ()),
    ],
)
def test_where_no_list_is_known_those_around_it_say_what_is_likely(
    release: str | None, toolkit: str | None, likely: tuple[int, ...]
) -> None:
    found = cuda.compat(release, toolkit)
    assert found is not None
    assert found.likely == likely


def test_no_list_of_branches_has_one_again_that_the_list_before_had_lost() -> None:
    """Unknown lists are judged by this. 2019 had one exception, 396, within CUDA 10.1."""
    lists = [cuda.compat(release=row["first"]) for row in rows("forward_compat") if row["first"] >= "19.11"]
    known = [one.branches for one in lists if one is not None and one.branches is not None and not one.likely]
    assert len(known) > 15
    for before, after in pairwise(known):
        assert all(branch in before or branch > max(before) for branch in after), (before, after)


def test_an_image_with_another_cuda_than_its_release_is_looked_up_by_its_cuda() -> None:
    assert cuda.compat("24.05", "13.0.2") == cuda.compat(cuda="13.0")


@pytest.mark.parametrize(
    ("release", "toolkit"), [("17.12", None), (None, "9.0"), ("99.01", None), ("x", "y"), (None, None)]
)
def test_before_and_after_the_table_there_is_no_row(release: str | None, toolkit: str | None) -> None:
    assert cuda.compat(release, toolkit) is None


def test_brands_are_spelled_as_those_of_cards() -> None:
    listed = {brand for row in rows("forward_compat") for brand in row["brands"].split()}
    assert listed <= set(BRANDS.values())


def test_a_capability_has_a_family_with_a_name() -> None:
    found = cards.family("7.5")
    assert found is not None
    assert found.architecture == "Turing"
    assert cards.family("7.9") is None


@pytest.mark.parametrize(
    ("capability", "last"),
    [("3.0", 470), ("3.7", 470), ("5.0", 580), ("6.1", 580), ("7.0", 580), ("7.5", None), ("5.3", None), ("7.2", None)],
)
def test_a_family_that_drivers_have_dropped_names_its_last_branch(capability: str, last: int | None) -> None:
    found = cards.family(capability)
    assert found is not None
    assert found.last_branch == last
    assert last is None or found.source_of_branch.startswith("https://docs.nvidia.com/")


@pytest.mark.parametrize(
    ("capability", "first_cuda"),
    [
        ("7.5", "10.0"), ("8.0", "11.0"), ("8.6", "11.0"), ("8.9", "11.8"), ("9.0", "11.8"), ("10.0", "12.8"),
        ("10.3", "12.9"), ("12.0", "12.8"), ("12.1", "12.9"), ("7.0", None),
    ],
)  # fmt: skip
def test_a_family_names_its_first_branch_which_is_that_of_the_first_cuda_for_it(
    capability: str, first_cuda: str | None
) -> None:
    found, toolkit = cards.family(capability), cuda.driver_for(first_cuda or "")
    assert found is not None
    assert found.first_branch == (toolkit.branch if toolkit else None)
    assert found.source_of_branch.startswith("https://docs.nvidia.com/")


@pytest.mark.parametrize(
    ("number", "branch"), [(580, 580), (582, 580), (591, 590), (475, 470), (573, 570), (576, 575), (610, 610), (9, 9)]
)
def test_a_windows_driver_is_of_the_branch_that_its_number_counts_on_from(number: int, branch: int) -> None:
    assert cuda.branch_of(number) == branch
