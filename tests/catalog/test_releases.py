"""Lookups in the table of releases."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ngcdl.catalog import releases
from ngcdl.catalog.rows import comparable


def test_every_tag_of_the_table_is_found_again_and_is_a_tag_of_its_own_release() -> None:
    every = [(release, tag) for release in releases.releases() for tag in release.tags]
    assert len(every) > 250
    assert [tag for release, tag in every if releases.find(release.framework, tag) != release] == []
    assert [tag for release, tag in every if not tag.startswith(release.release)] == []


def test_the_newest_releases_say_what_was_seen_in_them_and_mark_the_rest() -> None:
    august, september = releases.find("pytorch", "26.08-py3"), releases.find("pytorch", "26.09-py3")
    assert august is not None
    assert september is not None
    assert (august.framework_version, august.driver) == ("2.14.0a0+4fdf77b940", "615.65.02")
    assert (september.framework_version, september.cuda) == ("2.14.0a0+b2c75dd062", "13.4")
    for one in (august, september):
        assert one.source_of("framework_version").startswith("https://github.com/")
        assert not {"framework_version", "cuda", "reference"} & one.recalled_on("amd64")
    assert "driver" in september.recalled_on("amd64")
    assert "driver" not in august.recalled_on("amd64")


def test_releases_come_newest_first() -> None:
    months = [comparable(release.release) for release in releases.releases()]
    assert months == sorted(months, reverse=True)
    assert {release.framework for release in releases.releases("pytorch")} == {"pytorch"}


def test_the_first_image_of_this_project_is_known() -> None:
    release = releases.find("tensorflow", "18.01-py2")
    assert release is not None
    assert (release.cuda, release.driver, release.pythons["-py2"]) == ("9.0.176", "384.81", "2.7")
    assert release.sass == {"amd64": ("5.2", "6.0", "6.1", "7.0")}
    assert {"cuda", "driver", "sass", "reference"} <= release.recalled_on("amd64")


@pytest.mark.parametrize(
    ("tag", "release", "variant", "python"),
    [
        ("17.12", "17.12", None, "2.7"),
        ("19.10-py3", "19.10", None, "3.6"),
        ("19.11-tf1-py2", "19.11", "tf1", "2.7"),
        ("24.05-tf2-py3", "24.05", "tf2", "3.10"),
        ("24.05-tf2-py3-igpu", "24.05", "tf2", "3.10"),
    ],
)
def test_a_tag_leads_to_its_release_and_its_python(tag: str, release: str, variant: str | None, python: str) -> None:
    found = releases.find("tensorflow", tag)
    assert found is not None
    assert (found.release, found.variant, found.pythons[tag.removeprefix(found.release)]) == (release, variant, python)


@pytest.mark.parametrize(
    "tag", ["18.01", "24.05", "24.05-py3", "24.05-tf2-py3-x", "20.04-tf2-py3", "latest", "", "x.y"]
)
def test_a_tag_that_the_table_does_not_have_is_not_guessed(tag: str) -> None:
    assert releases.find("tensorflow", tag) is None


def test_tags_come_newest_first_python_3_before_2_without_those_for_jetson() -> None:
    tags = releases.tags("tensorflow")
    assert tags[0] == "25.02-tf2-py3"
    assert tags[-1] == "17.05"
    assert tags.index("18.01-py3") + 1 == tags.index("18.01-py2")
    month = [tag for tag in tags if tag.startswith("19.11")]
    assert month == ["19.11-tf2-py3", "19.11-tf1-py3", "19.11-tf1-py2"]
    assert [tag for tag in tags if "igpu" in tag] == []
    assert releases.tags("no-such-framework") == ()


def test_tags_beyond_the_table_are_ordered_by_their_month() -> None:
    tags = ["18.01-py3", "27.01-py3", "26.08-py3", "18.01-py2", "26.12-py3-igpu", "26.12-py3"]
    ordered = sorted(tags, key=lambda tag: releases.order(tag) or (), reverse=True)
    assert ordered == ["27.01-py3", "26.12-py3", "26.12-py3-igpu", "26.08-py3", "18.01-py3", "18.01-py2"]


@pytest.mark.parametrize(
    "tag", ["latest", "1.13", "2024.05", "24.13-py3", "24.00-py3", "24.5", "24.05 ", "24.05py3", ""]
)
def test_a_tag_that_is_no_month_has_no_place_in_the_order(tag: str) -> None:
    assert releases.order(tag) is None


def test_a_field_with_a_source_of_its_own_names_that_one() -> None:
    release = releases.find("pytorch", "26.07-py3")
    assert release is not None
    assert release.source_of("framework_version").endswith("pytorch-jetson-rel.html")
    assert release.source_of("cuda").startswith("docker history of pytorch:26.07-py3")


def test_what_is_unverified_for_one_processor_is_not_so_for_the_other() -> None:
    release = releases.find("pytorch", "26.07-py3")
    assert release is not None
    assert "sass_arm64" in release.unverified
    assert "sass" in release.recalled_on("arm64")
    assert "sass" not in release.recalled_on("amd64")


def test_no_table_is_read_at_import() -> None:
    code = (
        "from ngcdl.catalog import cards, cuda, holes, releases, rows\n"
        "assert rows.rows.cache_info().misses == 0\n"
        "releases.find('pytorch', '26.07-py3')\n"
        "assert rows.rows.cache_info().misses == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
