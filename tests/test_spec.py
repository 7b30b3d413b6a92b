"""What is typed: references, GPU requests, mounts, ports, sizes and variables."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.errors import BadGpuRequest, BadOption, BadReference, UsageError
from ngcdl.spec import GpuRequest, ImageRef, Mount, Port, parse_bytes, parse_cpus, parse_environment, whole_cpus

DIGEST = "sha256:" + "0123456789abcdef" * 4
JETSON = "54d0709b-558d-5a59-9c65-0c5fc14a21a4"  # the UUID of its GPU, as the driver has it
# Text close to valid input: random junk rarely gets past the first character.
NEAR = st.text(alphabet="aA0_./:@-[]=, ~\0\n\"'é٣", max_size=30)
JUNK = st.one_of(st.text(max_size=60), NEAR)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("tensorflow:18.01-py2", "nvcr.io/nvidia/tensorflow:18.01-py2"),
        ("nvidia/tensorflow:18.01-py2", "nvcr.io/nvidia/tensorflow:18.01-py2"),
        ("nvcr.io/nvidia/tensorflow:18.01-py2", "nvcr.io/nvidia/tensorflow:18.01-py2"),
        ("nvidia/k8s/dcgm-exporter:4.0", "nvcr.io/nvidia/k8s/dcgm-exporter:4.0"),
        (f"tensorflow@{DIGEST}", f"nvcr.io/nvidia/tensorflow@{DIGEST}"),
        (f"tensorflow:18.01-py2@{DIGEST}", f"nvcr.io/nvidia/tensorflow:18.01-py2@{DIGEST}"),
        ("127.0.0.1:5443/nvidia/tensorflow:1", "127.0.0.1:5443/nvidia/tensorflow:1"),
        ("localhost/mine:1", "localhost/mine:1"),
        ("Mirror/mine:1", "Mirror/mine:1"),
        ("[::1]:5000/mine:1", "[::1]:5000/mine:1"),
        ("a__b/c.d-e--f:1", "nvcr.io/a__b/c.d-e--f:1"),
    ],
)
def test_a_reference_is_read_as_docker_reads_it(text: str, full: str) -> None:
    assert str(ImageRef.parse(text)) == full


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" tensorflow:1", "blanks"),
        ("tensorflow:1\n", "blanks"),
        ("tensorflow", "which release"),
        ("https://nvcr.io/nvidia/tensorflow:1", "no scheme"),
        ("TensorFlow:1", "lower case"),
        ("tensorflow:", "is not a tag"),
        ("tensorflow:-1", "is not a tag"),
        ("tensorflow:" + "1" * 129, "is not a tag"),
        ("tensorflow@sha256:12", "a digest"),
        ("tensorflow@sha256:" + "A" * 64, "lower-case hexadecimal"),
        ("a" * 64 + ":1", None),
        ("nvcr.io/" + "a" * 64 + ":1", "image id"),
        ("nvcr.io/" + "a" * 256 + ":1", "255"),
        ("a//b:1", "not a repository"),
        ("a_/b:1", "not a repository"),
        ("nvcr.io:port/b:1", "not a registry host"),
        ("-v/data:1", "not a repository"),
    ],
)
def test_a_reference_outside_the_grammar_is_refused_with_the_reason(text: str, reason: str | None) -> None:
    if reason is None:
        assert ImageRef.parse(text).repository == "nvidia/" + "a" * 64
        return
    with pytest.raises(BadReference, match=reason):
        ImageRef.parse(text)


@pytest.mark.parametrize("text", ["sha256:" + "93772b49" * 8, "93772b49" * 8, "sha256:93772b494c34", "93772b494c34"])
def test_an_image_s_id_is_told_how_to_get_a_name(text: str) -> None:
    """`ngcdl run $(docker build -q .)`"""
    with pytest.raises(BadReference) as refused:
        ImageRef.parse(text)
    assert f"docker tag {text} NAME:TAG\n    ngcdl run NAME:TAG" in refused.value.hint


def test_a_name_may_stay_open_where_that_is_asked_for() -> None:
    assert ImageRef.parse("nvidia/cuda", needs_tag=False) == ImageRef("nvcr.io", "nvidia/cuda")
    assert ImageRef.parse("cuda:1", needs_tag=False) == ImageRef.parse("cuda:1")


def test_short_names_belong_to_the_registry_that_was_set_also_below_a_path() -> None:
    assert str(ImageRef.parse("tensorflow:1", "127.0.0.1:5443")) == "127.0.0.1:5443/nvidia/tensorflow:1"
    assert str(ImageRef.parse("tensorflow:1", "mirror.example/nvcr")) == "mirror.example/nvcr/nvidia/tensorflow:1"
    assert str(ImageRef.parse("nvcr.io/a/b:1", "mirror.example")) == "nvcr.io/a/b:1"


def test_a_reference_tells_its_name_framework_and_pinned_form() -> None:
    ref = ImageRef.parse("pytorch:24.05-py3")
    assert (ref.name, ref.framework, ref.pinned(DIGEST)) == (
        "nvcr.io/nvidia/pytorch",
        "pytorch",
        f"nvcr.io/nvidia/pytorch@{DIGEST}",
    )


@given(JUNK)
def test_any_text_is_a_reference_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        ref = ImageRef.parse(text)
    except UsageError:
        return
    assert ImageRef.parse(str(ref)) == ref


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("auto", GpuRequest()),
        ("none", GpuRequest("none")),
        ("all", GpuRequest("all")),
        ("-1", GpuRequest("all")),
        ("count=all", GpuRequest("all")),
        ("2", GpuRequest("count", 2)),
        ("count=2", GpuRequest("count", 2)),
        ("0,", GpuRequest("devices", devices=("0",))),
        ("0,2", GpuRequest("devices", devices=("0", "2"))),
        ("10,21", GpuRequest("devices", devices=("10", "21"))),
        ("device=1", GpuRequest("devices", devices=("1",))),
        ('"device=0,2"', GpuRequest("devices", devices=("0", "2"))),
        ("'device=0,2'", GpuRequest("devices", devices=("0", "2"))),
        ("GPU-5f1e-0a", GpuRequest("devices", devices=("GPU-5f1e-0a",))),
        ("0:1", GpuRequest("devices", devices=("0:1",))),
        ("MIG-GPU-5f/1/2", GpuRequest("devices", devices=("MIG-GPU-5f/1/2",))),
        (JETSON, GpuRequest("devices", devices=(JETSON,))),
        (f"auto:{JETSON}", GpuRequest("auto", devices=(JETSON,))),
        ("all:GPU-5f1e,0:1", GpuRequest("all", devices=("GPU-5f1e", "0:1"))),
    ],
)
def test_a_gpu_request_is_read_in_docker_s_forms_too(text: str, request_: GpuRequest) -> None:
    assert GpuRequest.parse(text) == request_


@pytest.mark.parametrize("text", ["0", "00", "count=0", "count=000"])
def test_no_gpu_at_all_is_refused_with_the_forms_that_may_be_meant(text: str) -> None:
    with pytest.raises(BadGpuRequest) as caught:
        GpuRequest.parse(text)
    assert "Docker" not in caught.value.message, "a command on this host may have been typed"
    assert "--gpus 0," in caught.value.hint
    assert "--gpus none" in caught.value.hint


def test_unquoted_devices_are_refused_with_the_form_meant() -> None:
    with pytest.raises(BadGpuRequest) as caught:
        GpuRequest.parse("device=0,1")
    assert caught.value.hint == "    --gpus 0,1"


@pytest.mark.parametrize(
    "text", [JETSON[:-1], "", ",", "x", "-2", "1.5", "0,0", "device=", "driver=nvidia", "all,capabilities=gpu"]
)
def test_other_gpu_requests_are_refused(text: str) -> None:
    with pytest.raises(BadGpuRequest) as caught:
        GpuRequest.parse(text)
    assert ("NVIDIA_DRIVER_CAPABILITIES" in caught.value.hint) == (text in ("driver=nvidia", "all,capabilities=gpu"))


def test_everything_but_auto_and_none_is_a_demand() -> None:
    demanded = {text: GpuRequest.parse(text).demanded for text in ("auto", "none", "all", "1", "0,")}
    assert demanded == {"auto": False, "none": False, "all": True, "1": True, "0,": True}


@given(st.one_of(JUNK, st.from_regex(r"(device=|count=)?[0-9,:]{0,5}", fullmatch=True)))
def test_any_text_is_a_gpu_request_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        asked = GpuRequest.parse(text)
    except UsageError:
        return
    assert GpuRequest.parse(str(asked)) == asked


@pytest.mark.parametrize("parse", [GpuRequest.parse, Port.parse, partial(parse_bytes, option=""), parse_cpus])
def test_a_number_of_thousands_of_digits_is_a_usage_error(parse: object) -> None:
    with pytest.raises(UsageError):
        parse("9" * 5000)  # type: ignore[operator]  # each of them takes a str


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/data:/data:ro", Mount("/data", "/data")),
        ("/data:/data", Mount("/data", "/data", True)),
        ("/data:/data:rw", Mount("/data", "/data", True)),
        ("./x/../y:/data", Mount("/here/y", "/data", True)),
        (".:/data", Mount("/here", "/data", True)),
        ("..:/data", Mount("/", "/data", True)),
        ("x/y:/data", Mount("/here/x/y", "/data", True)),
        ("~:/data", Mount("/home/me", "/data", True)),
        ("~/x:/data:ro", Mount("/home/me/x", "/data")),
        ("volume:/data", Mount("volume", "/data", True)),
    ],
)
def test_a_mount_is_read_as_docker_s_v_with_relative_paths(text: str, mount: Mount) -> None:
    assert Mount.parse(text, "/here", "/home/me") == mount


@pytest.mark.parametrize(
    "text", ["", "/data", ":/data", "/data:", "/data:data", "/a:/b:z", "/a:/b:ro,rw", "/a:/b:ro:x"]
)
def test_other_mounts_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="-v"):
        Mount.parse(text, "/", "/")


@given(JUNK)
def test_any_text_is_a_mount_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        mount = Mount.parse(text, "/here", "/home/me")
    except UsageError:
        return
    assert Mount.parse(str(mount), "/", "/") == mount


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("8888:8888", Port(8888, 8888)),
        ("8888", Port(None, 8888)),
        (":8888", Port(None, 8888)),
        ("53:53/udp", Port(53, 53, protocol="udp")),
        ("127.0.0.1:80:8080", Port(80, 8080, "127.0.0.1")),
        ("127.0.0.1::8080", Port(None, 8080, "127.0.0.1")),
        ("[::1]:80:8080", Port(80, 8080, "::1")),
    ],
)
def test_a_port_is_read_as_docker_s_p_and_reads_back(text: str, port: Port) -> None:
    assert Port.parse(text) == port
    assert Port.parse(str(port)) == port


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0",
        "65536",
        "65536:80",
        "80:65536",
        "1:2:3",
        "[]:1:1",
        "[here]:1:1",
        "1.2.3:1:1",
        "1:1/sctp",
        "1-2:1-2",
    ],
)
def test_other_ports_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="-p"):
        Port.parse(text)


@given(
    st.one_of(JUNK, st.from_regex(r"(\[[:0-9a-f]{0,6}\]:|[0-9.]{0,9}:)?[0-9]{0,6}:?[0-9]{0,6}(/udp)?", fullmatch=True))
)
def test_any_text_is_a_port_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        port = Port.parse(text)
    except UsageError:
        return
    assert Port.parse(str(port)) == port


def test_sizes_are_docker_s_powers_of_1024() -> None:
    assert [parse_bytes(text, "--memory ") for text in ("1g", "512m", "64K", "1.5GiB", "7", "1tb")] == [
        1 << 30,
        512 << 20,
        64 << 10,
        3 << 29,
        7,
        1 << 40,
    ]


@pytest.mark.parametrize("text", ["", "0", "-1", "1x", "g", "0.1", "1e9", "inf"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match=f"--memory {re.escape(text)}: must be a size"):
        parse_bytes(text, "--memory ")


def test_cpus_are_a_number_that_may_have_decimals() -> None:
    assert [parse_cpus(text) for text in ("8", "8.0", "0.5", ".5", "1.125", "128")] == [8, 8, 0.5, 0.5, 1.125, 128]
    assert str(parse_cpus("8.0")) == "8", "as it is typed, and recorded"


@pytest.mark.parametrize(
    "text", ["", "0", "0.0", "-1", "x", "1e3", "inf", "nan", "2.", ".", "0.0001", "1,5", "٣", "1g"]
)
def test_other_numbers_of_cpus_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match=f"--cpus {re.escape(text)}: must be a number above 0"):
        parse_cpus(text)


def test_half_a_cpu_is_refused_where_there_are_whole_ones_only() -> None:
    assert [whole_cpus(cpus) for cpus in (8, 8.0)] == [8, 8]
    with pytest.raises(BadOption, match="Slurm divides no CPU") as refused:
        whole_cpus(1.5)
    assert refused.value.hint == "    ngcdl run ... --cpus 2"


@given(JUNK)
def test_any_text_is_a_size_of_at_least_a_byte_or_a_usage_error(text: str) -> None:
    try:
        assert parse_bytes(text, "--memory ") >= 1
    except UsageError:
        return


def test_a_variable_is_given_or_taken_from_the_caller() -> None:
    assert parse_environment("A=b=c", {}) == ("A", "b=c")
    assert parse_environment("A=", {}) == ("A", "")
    assert parse_environment("A", {"A": "mine"}) == ("A", "mine")


@pytest.mark.parametrize("text", ["", "=x", "1A=x", "A B=x", "A=\0", "UNSET"])
def test_other_variables_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="-e"):
        parse_environment(text, {})
