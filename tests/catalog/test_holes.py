"""Versions with known holes, and those nothing is known about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.catalog import holes


def cves(component: str, version: str) -> list[str] | None:
    found = holes.known(component, version)
    return None if found is None else [hole.cve for hole in found]


RACES = ["CVE-2025-52565", "CVE-2025-31133", "CVE-2025-52881"]


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("1.1.11", ["CVE-2024-21626", *RACES]),
        ("1.1.12", RACES),
        ("1.2.7", RACES),
        ("1.2.8", []),
        ("1.3.2", RACES),
        ("v1.3.3", []),
        ("1.4.0-rc.2", RACES),
        ("1.4.0-rc.3", []),
        ("1.4.0", []),
        ("1.5.0", []),
        ("1.0.0-rc92", RACES),
    ],
)
def test_runc_is_mended_in_each_branch_by_itself(version: str, found: list[str]) -> None:
    assert cves("runc", version) == found


@pytest.mark.parametrize(
    ("version", "worst", "number"),
    [("1.16.1", "CVE-2024-0132", 10), ("1.17.2", "CVE-2025-23266", 7), ("1.17.4", "CVE-2025-23266", 3),
     ("1.17.8", "CVE-2026-24260", 1), ("1.19.0-1", "CVE-2026-24260", 1)],
)  # fmt: skip
def test_the_holes_of_an_old_toolkit_come_worst_first(version: str, worst: str, number: int) -> None:
    found = cves("nvidia-container-toolkit", version)
    assert found is not None
    assert (found[0], len(found)) == (worst, number)


def test_the_toolkit_that_mends_the_last_hole_has_none() -> None:
    assert cves("nvidia-container-toolkit", "1.19.1") == []
    assert cves("docker", "29.7.0") == []
    assert cves("docker", "29.6.0") == ["CVE-2026-17106"]
    assert cves("docker", "29.3.1") == ["CVE-2026-41567", "CVE-2026-42306", "CVE-2026-17106", "CVE-2026-41568"]
    assert (cves("docker", "29.3.0") or [""])[0] == "CVE-2026-34040"


@pytest.mark.parametrize(
    "version",
    ["1.1.5+ds1-1+deb12u1", "20.10.24+dfsg1", "24.0.7-0ubuntu2~22.04.1", "1.17.8-1.amzn2023", "", "dev", "29"],
)
def test_of_a_distribution_s_package_and_of_a_text_that_is_no_version_nothing_can_be_told(version: str) -> None:
    assert holes.known("runc", version) is None


def test_of_an_unknown_component_nothing_can_be_told() -> None:
    assert holes.known("podman", "1.0.0") is None


def test_a_hole_says_when_and_where_it_was_read() -> None:
    hole = (holes.known("docker", "28.0.0") or ())[0]
    assert (hole.read, hole.fixed_in, hole.cvss) == ("2026-11", ("29.3.1",), 8.8)
    assert hole.source.startswith("https://")
    assert "authorization plugin" in hole.notes


@given(st.text(max_size=40))
def test_no_text_breaks_the_look(version: str) -> None:
    found = holes.known("runc", version)
    assert found is None or holes.parse(version) is not None
