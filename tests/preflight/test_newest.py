"""The newest tag that runs: which tags are looked up, in which order, until when."""

from __future__ import annotations

from dataclasses import replace

from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts
from ngcdl.preflight.newest import newest, ordered

HOST = HostFacts(driver="535.104.05", gpus=(Gpu("7.5", brand="geforce"),))
TF = ["19.10-py2", "19.10-py3", "19.11-tf1-py2", "19.11-tf1-py3", "19.11-tf2-py3", "20.02-tf1-py3", "20.02-tf2-py3"]


def fits(tag: str) -> ImageFacts:
    return ImageFacts(f"x:{tag}", cuda="12.2", driver="535.54.03", sass=("7.5",), architectures=("amd64",))


def wants_newer_driver(tag: str) -> ImageFacts:
    return ImageFacts(f"x:{tag}", cuda="13.0", driver="580.65.06", sass=("7.5",), architectures=("amd64",))


def needs_ptx(tag: str) -> ImageFacts:
    return ImageFacts(f"x:{tag}", cuda="12.2", driver="535.54.03", sass=("7.0",), ptx="7.0", architectures=("amd64",))


def asked(like: str | None, tags: list[str]) -> list[str]:
    """Return the order in which tags are looked up, all unknown."""
    seen: list[str] = []

    def look(tag: str) -> None:
        seen.append(tag)

    assert newest(like, tags, look, HOST) is None
    return seen


def test_the_newest_release_goes_first_whatever_order_the_registry_has() -> None:
    assert asked(None, ["9.10-py3", "23.10-py3", "24.05-py3", "23.09-py3"]) == [
        "24.05-py3", "23.10-py3", "23.09-py3",
    ]  # fmt: skip


def test_within_a_release_the_variant_that_was_asked_about_goes_first() -> None:
    assert asked("18.01-py2", TF) == [
        "20.02-tf1-py3", "20.02-tf2-py3", "19.11-tf1-py2", "19.11-tf1-py3", "19.11-tf2-py3", "19.10-py2", "19.10-py3",
    ]  # fmt: skip
    assert asked("19.10-py3", TF)[0] == "20.02-tf1-py3", "before 19.11 the tags of TensorFlow 1 did not name it"
    assert asked("20.02-tf2-py3", TF)[:3] == ["20.02-tf2-py3", "20.02-tf1-py3", "19.11-tf2-py3"]


def test_without_a_tag_python_3_and_tensorflow_2_go_first() -> None:
    assert asked(None, TF) == [
        "20.02-tf2-py3", "20.02-tf1-py3", "19.11-tf2-py3", "19.11-tf1-py3", "19.11-tf1-py2", "19.10-py3", "19.10-py2",
    ]  # fmt: skip


def test_a_question_about_tensorflow_1_does_not_stay_with_the_last_release_that_had_it() -> None:
    assert newest("18.01-py2", [*TF, "24.12-tf2-py3"], fits, HOST) == "24.12-tf2-py3"


def test_jetson_s_tags_are_answers_to_questions_about_them_only() -> None:
    tags = ["24.05-py3", "24.05-py3-igpu", "24.04-py3-igpu", "24.06-py3"]
    assert asked("24.05-py3", tags) == ["24.06-py3", "24.05-py3"]
    assert asked("24.04-py3-igpu", tags) == ["24.05-py3-igpu", "24.04-py3-igpu"]


def test_special_builds_are_answers_to_questions_about_them_only() -> None:
    tags = ["24.05-py3", "24.05-py3-sdk", "24.05-py3-min", "latest", "l4t-r36", "24.13-py3"]
    assert asked("24.05-py3", tags) == ["24.05-py3"]
    assert asked("24.01-py3-sdk", tags) == ["24.05-py3-sdk", "24.05-py3"]


def test_where_the_driver_is_unknown_the_kernels_decide() -> None:
    def look(tag: str) -> ImageFacts:
        return needs_ptx(tag) if tag.startswith("22") else fits(tag)

    assert newest(None, ["22.08-py3", "24.05-py3"], look, replace(HOST, driver=None)) == "24.05-py3"


def test_the_first_that_runs_ends_the_search() -> None:
    seen: list[str] = []

    def look(tag: str) -> ImageFacts:
        seen.append(tag)
        return wants_newer_driver(tag) if tag.startswith("25") else fits(tag)

    tags = ["23.10-py3", "25.08-py3", "24.05-py3", "24.04-py3"]
    assert newest(None, tags, look, HOST) == "24.05-py3"
    assert seen == ["25.08-py3", "24.05-py3"]


def test_an_older_one_that_runs_goes_before_a_newer_one_that_needs_ptx() -> None:
    on_ampere = HostFacts(driver="535.104.05", gpus=(Gpu("8.0"),))
    tags = ["24.05-py3", "24.04-py3", "23.10-py3"]

    def look(tag: str) -> ImageFacts:
        return replace(needs_ptx(tag), sass=("8.0",)) if tag == "23.10-py3" else needs_ptx(tag)

    assert newest(None, tags, look, on_ampere) == "23.10-py3"


def test_the_newest_that_needs_ptx_is_the_answer_where_none_runs_without() -> None:
    on_ampere = HostFacts(driver="535.104.05", gpus=(Gpu("8.0"),))
    assert newest(None, ["24.05-py3", "24.04-py3"], needs_ptx, on_ampere) == "24.05-py3"


def test_none_is_the_answer_where_none_runs_or_nothing_is_known() -> None:
    assert newest(None, ["25.08-py3"], wants_newer_driver, HOST) is None
    assert newest(None, ["25.08-py3"], dict[str, ImageFacts]().get, HOST) is None
    assert newest(None, [], fits, HOST) is None


def test_cautions_of_the_host_are_the_same_for_every_tag_and_stop_none() -> None:
    for host in (
        HostFacts(),
        HostFacts(elsewhere="there"),
        HostFacts(driver=HOST.driver, gpus=HOST.gpus, gpu_way="none"),
    ):
        assert newest(None, ["24.05-py3", "24.04-py3"], fits, host) == "24.05-py3"


def test_an_image_that_may_or_may_not_run_is_not_named() -> None:
    nameless = HostFacts(driver="535.104.05", gpus=(Gpu(None),))
    assert newest(None, ["24.05-py3"], fits, nameless) is None


def test_tags_are_listed_newest_first_and_what_is_no_release_last() -> None:
    assert ordered(["latest", "18.01-py2", "24.05-tf2-py3", "18.01-py3", "abc", "19.11-tf1-py3", "19.11-tf2-py3"]) == [
        "24.05-tf2-py3", "19.11-tf2-py3", "19.11-tf1-py3", "18.01-py3", "18.01-py2", "abc", "latest",
    ]  # fmt: skip


def test_of_tags_that_are_no_month_s_the_higher_version_goes_first() -> None:
    cuda = ["8.0-devel", "13.0.2-base-ubuntu24.04", "latest", "9.2-runtime", "12.8.1-base-ubuntu22.04", "11.0-base"]
    assert ordered(cuda) == [
        "13.0.2-base-ubuntu24.04", "12.8.1-base-ubuntu22.04", "11.0-base", "9.2-runtime", "8.0-devel", "latest",
    ]  # fmt: skip
