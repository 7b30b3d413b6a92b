"""What else a host needs: the architecture, a GPU and access to it, disk space, a CPU with AVX."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_facts import GTX_980, HOST, IMAGE, reason, rules

from ngcdl.preflight.facts import HostFacts
from ngcdl.preflight.verdict import judge_host


def test_another_architecture_is_a_no_that_names_what_the_image_is_made_for() -> None:
    verdict = judge_host(replace(IMAGE, architectures=("amd64",)), replace(HOST, architecture="arm64"))
    assert (verdict.verdict, rules(verdict), verdict.cards) == ("no", ["architecture"], ())
    assert verdict.reasons[0].text == "the image is made for amd64, not for arm64"


def test_an_unknown_architecture_is_a_caution_on_arm64_only() -> None:
    image = replace(IMAGE, architectures=None)
    assert judge_host(image, HOST).verdict == "runs"
    assert judge_host(image, replace(HOST, architecture="arm64")).reasons[0].rule == "unknown"


def test_an_image_without_cuda_needs_no_gpu_but_the_right_processor() -> None:
    image = replace(IMAGE, has_cuda=False, cuda=None)
    for host in (HostFacts(), HOST, HostFacts(elsewhere="tcp://there")):
        verdict = judge_host(image, host)
        assert (verdict.verdict, verdict.mode, rules(verdict)) == ("runs", None, ["no-cuda"])
    assert judge_host(image, HostFacts(architecture="riscv64")).verdict == "no"


def test_a_host_without_a_gpu_runs_it_on_the_cpu_and_says_why_none_is_found() -> None:
    verdict = judge_host(IMAGE, HostFacts(gpu_trouble="NVML: driver/library version mismatch"))
    assert (verdict.verdict, verdict.mode, rules(verdict)) == ("caution", None, ["no-gpu"])
    assert "CPU" in verdict.reasons[0].text
    assert verdict.reasons[0].text.startswith("no GPU can be used here (NVML: driver/library version mismatch)")
    verdict = judge_host(IMAGE, HostFacts(gpu_trouble="The library of NVML is missing."))
    assert verdict.reasons[0].text.startswith("no GPU can be used here (the library of NVML is missing)")


def test_an_engine_elsewhere_is_not_judged_and_its_architecture_is() -> None:
    there = replace(HOST, elsewhere="DOCKER_HOST is ssh://there", gpus=(GTX_980,))
    verdict = judge_host(IMAGE, there)
    assert (verdict.verdict, rules(verdict), verdict.cards) == ("caution", ["elsewhere"], ())
    assert "ssh://there" in verdict.reasons[0].text
    assert judge_host(replace(IMAGE, architectures=("arm64",)), there).verdict == "no"


def test_an_engine_without_a_way_for_gpus_is_a_caution_whatever_the_cards_are() -> None:
    verdict = judge_host(IMAGE, replace(HOST, gpu_way="none"))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "native", "gpu-way")
    for way in (None, "runtime", "cdi", "device-request"):
        assert judge_host(IMAGE, replace(HOST, gpu_way=way)).verdict == "runs"


def test_the_disk_must_hold_two_and_a_half_times_what_is_fetched() -> None:
    image = replace(IMAGE, compressed_bytes=10 << 30)
    free = [judge_host(image, replace(HOST, free_bytes=gib << 30)) for gib in (25, 24, 10, 9)]
    assert [one.verdict for one in free] == ["runs", "caution", "caution", "no"]
    assert (free[1].mode, free[3].mode) == ("native", None)
    assert (free[1].reasons[0].found, free[1].reasons[0].needed) == (str(24 << 30), str(25 << 30))
    assert "24.0 GiB" in free[1].reasons[0].text
    assert "25.0 GiB" in free[1].reasons[0].text


def test_tensorflow_from_1_6_on_wants_avx_of_an_amd64_processor() -> None:
    def is_told(framework: str, version: str | None, release: str, host: HostFacts) -> bool:
        image = replace(IMAGE, framework=framework, framework_version=version, release=release)
        return "avx" in rules(judge_host(image, host))

    bare = replace(HOST, avx=False)
    assert is_told("tensorflow", "1.12.0-rc2", "18.11", bare)
    assert is_told("tensorflow", "2.17.0", "24.12", bare)
    assert is_told("tensorflow", None, "18.04", bare)
    assert not is_told("tensorflow", None, "18.03", bare)
    assert is_told("tensorflow", "1.6.0", "18.03", bare)
    assert not is_told("tensorflow", "1.5.0", "18.03", bare)
    assert not is_told("pytorch", "2.0", "23.10", bare)
    assert not is_told("tensorflow", "2.17.0", "24.12", replace(bare, avx=True))
    assert not is_told("tensorflow", "2.17.0", "24.12", replace(bare, avx=None))
    assert not is_told("tensorflow", "2.17.0", "24.12", replace(bare, architecture="arm64"))


@pytest.mark.parametrize(
    ("engine", "level"),
    [("25.0.5", "caution"), ("26.0.0", "no"), ("29.2.1", "no"), (None, "caution"), ("dev", "caution")],
)
def test_a_schema_1_manifest_is_refused_by_docker_26_and_newer(engine: str | None, level: str) -> None:
    verdict = judge_host(replace(IMAGE, is_schema_1=True), replace(HOST, engine_version=engine))
    assert (verdict.verdict, reason(verdict, "schema1").level) == (level, level)
