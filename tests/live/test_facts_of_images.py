"""What inspecting an image costs and yields, against the lab's registry; the facts of the lab's engine and card."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from own_engine import engine_of_ones_own

from ngcdl import hostfacts
from ngcdl.engines import docker
from ngcdl.errors import KeyWithoutRights, LoginNeeded, RegistryUnreachable, UnknownTag
from ngcdl.judging import imagefacts
from ngcdl.judging.imagefacts import Found
from ngcdl.spec import ImageRef

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
CUDA = "cuda:13.0.2-base-ubuntu24.04"  # public, for two architectures


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without any key."""
    for name in [name for name in os.environ if name.startswith(("NGC_", "XDG_", "DOCKER_", "NGCDL_REGISTRY"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home/.docker").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def cache(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def signed_in(lab: dict[str, Any], home: Path, front: Front) -> None:
    pair = base64.b64encode(f"$oauthtoken:{lab['registry']['key']}".encode()).decode()
    (home / ".docker/config.json").write_text(json.dumps({"auths": {front.host: {"auth": pair}}}))


def ref(front: Front, name: str) -> ImageRef:
    return ImageRef.parse(name, front.host)


def test_a_cold_look_costs_five_requests_and_a_few_kb_and_a_warm_one_nothing(front: Front, cache: Path) -> None:
    cold = imagefacts.look_up(ref(front, CUDA), cache, "amd64")
    assert (cold.origin, cold.requests) == ("registry", 5)
    asked = front.requests()
    assert len(asked) == 5
    assert cold.bytes == sum(line["bytes"] for line in asked) < 65536
    assert (cold.facts.cuda, cold.facts.architectures) == ("13.0.2", ("amd64", "arm64"))
    assert cold.facts.require[0].startswith("cuda>=13.0 brand=unknown,driver>=535,driver<536 ")
    warm = imagefacts.look_up(ref(front, CUDA), cache, "amd64")
    assert (warm.origin, warm.requests, warm.facts) == ("cache", 0, cold.facts)
    assert len(front.requests()) == 5


def test_a_warm_look_by_a_new_program_takes_a_moment(front: Front, cache: Path) -> None:
    imagefacts.look_up(ref(front, CUDA), cache, "amd64")
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom ngcdl.spec import ImageRef\nbegan = time.process_time()\n"
        "from ngcdl.judging import imagefacts\n"
        "found = imagefacts.look_up(ImageRef.parse(sys.argv[1]), Path(sys.argv[2]), 'amd64')\n"
        "assert found.origin == 'cache'\nprint(time.process_time() - began)"
    )
    environment = {"PYTHONPATH": str(ROOT / "toolkit"), "PATH": os.environ["PATH"]}
    words = [sys.executable, "-c", code, str(ref(front, CUDA)), str(cache)]
    asked = len(front.requests())
    imports = "import email, http.client, json, ssl"
    bare = f"import time\nbegan = time.process_time()\n{imports}\nprint(time.process_time() - began)"

    def seconds(*words: str) -> float:
        return min(float(subprocess.check_output(words, env=environment, text=True)) for _ in range(5))

    usual = seconds(sys.executable, "-c", bare)
    assert seconds(*words) < max(0.3, 10 * usual), "of the processor's time: what others take of it is not ours"
    assert len(front.requests()) == asked, "and waits for nobody"


def test_a_key_costs_one_request_more_and_is_shown_to_the_realm_only(
    front: Front, cache: Path, signed_in: None
) -> None:
    found = imagefacts.look_up(ref(front, "tensorflow:24.05-tf2-py3"), cache, "amd64")
    assert (found.origin, found.requests, len(front.requests())) == ("registry", 6, 6)
    assert found.bytes < 65536
    shown = [line["path"] for line in front.requests() if line["authorization"] == "basic"]
    assert shown == ["/proxy_auth"]
    assert (found.facts.cuda, found.facts.driver) == ("12.4.1.003", "550.54.15")
    assert (found.facts.release, found.facts.framework_version) == ("24.05", "2.15.0")


@pytest.mark.parametrize("moves", [False, True])
def test_a_token_that_expires_in_mid_look_is_fetched_anew(
    front: Front, cache: Path, signed_in: None, moves: bool
) -> None:
    front.break_down(token_lifetime=4, realm_moves=moves, blob={"delay": 4.2, "times": 1})
    found = imagefacts.look_up(ref(front, "pytorch:25.03-py3"), cache, "amd64")
    assert (found.origin, found.facts.driver) == ("registry", "570.124.06")
    refused = [line["authorization"] for line in front.requests("/blobs/") if line["status"] == 401]
    assert refused == ["bearer", "none"]  # the second answer names a realm that accepts the key
    assert len([line for line in front.requests("proxy_auth") if line["authorization"] == "basic"]) == 2


def test_without_a_key_the_catalogue_answers_for_what_it_has(front: Front, cache: Path) -> None:
    found = imagefacts.look_up(ref(front, "pytorch:25.03-py3"), cache, "amd64")
    assert (found.origin, found.facts.cuda) == ("catalogue", "12.8.1.012")
    assert isinstance(found.trouble, LoginNeeded)
    with pytest.raises(LoginNeeded):
        imagefacts.look_up(ref(front, "pytorch:26.10-py3"), cache, "amd64")


def test_a_release_that_no_table_has_is_known_by_its_own_configuration(
    front: Front, cache: Path, signed_in: None
) -> None:
    found = imagefacts.look_up(ref(front, "pytorch:26.10-py3"), cache, "arm64")
    assert (found.facts.cuda, found.facts.driver, found.facts.release) == ("13.5.0.001", "620.10", "26.10")
    assert found.facts.sass == ("8.0", "8.6", "9.0", "10.0", "12.0")
    assert found.facts.ptx == "12.0"


def test_what_the_registry_refuses_is_told_apart(front: Front, cache: Path, signed_in: None) -> None:
    with pytest.raises(KeyWithoutRights):
        imagefacts.look_up(ref(front, "gated:1"), cache, "amd64")
    with pytest.raises(UnknownTag) as caught:
        imagefacts.look_up(ref(front, "tensorflow:24.06-tf2-py3"), cache, "amd64")
    assert "24.05-tf2-py3" in caught.value.nearest


def test_an_image_for_arm64_only_is_described_on_amd64(front: Front, cache: Path) -> None:
    assert imagefacts.look_up(ref(front, "busybox:arm64"), cache, "amd64").facts.architectures == ("arm64",)


@pytest.mark.parametrize("fault", [{"reset": True}, {"status": 503}, {"corrupt": True}, {"cut_after": 10}])
def test_a_bad_day_leaves_it_to_the_catalogue(
    front: Front, cache: Path, signed_in: None, fault: dict[str, Any]
) -> None:
    front.break_down(manifest=fault)
    found = imagefacts.look_up(ref(front, "tensorflow:25.02-tf2-py3"), cache, "amd64")
    assert (found.origin, found.facts.release) == ("catalogue", "25.02")
    assert found.trouble
    front.break_down()
    assert imagefacts.look_up(ref(front, "tensorflow:25.02-tf2-py3"), cache, "amd64").origin == "registry"


def test_a_registry_that_hangs_is_given_up_sooner_where_an_older_answer_is_there(front: Front, cache: Path) -> None:
    before = imagefacts.look_up(ref(front, CUDA), cache, "amd64")
    front.break_down(manifest={"hang": True})
    found = imagefacts.look_up(ref(front, CUDA), cache, "amd64", now=lambda: time.time() + imagefacts.TAG_SECONDS + 1)
    assert (found.origin, found.facts) == ("cache", before.facts)
    assert isinstance(found.trouble, RegistryUnreachable)
    assert "within 4 s" in found.trouble.message


def test_all_tags_of_a_repository_are_looked_at_together(
    front: Front, cache: Path, signed_in: None, lab: dict[str, Any]
) -> None:
    tags = imagefacts.tags(front.host, "nvidia/pytorch", cache)
    assert tags.origin == "registry"
    assert {name for name in lab["images"] if name.startswith("pytorch:")} == {f"pytorch:{tag}" for tag in tags.names}
    refs = [ref(front, f"pytorch:{tag}") for tag in tags.names]
    found = imagefacts.look_up_all(refs, cache, "amd64")
    assert [one.origin for one in found.values() if isinstance(one, Found)] == ["registry"] * len(refs)
    digests = {f"pytorch:{one.tag}": answer.facts.digest for one, answer in found.items() if isinstance(answer, Found)}
    assert digests == {name: digest for name, digest in lab["images"].items() if name.startswith("pytorch:")}
    asked = len(front.requests())
    imagefacts.look_up_all(refs, cache, "amd64")
    assert imagefacts.tags(front.host, "nvidia/pytorch", cache).origin == "cache"
    assert len(front.requests()) == asked


def test_the_bench_s_engine_tells_its_runtimes_devices_and_disk(
    lab: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", lab["engine"]["host"])
    facts = docker.connect().facts()
    assert facts.version == lab["engine"]["version"]
    assert facts.images_folder == f"{lab['dir']}/main/data"
    assert (facts.free_bytes or 0) > 0
    assert {"nvidia.com/gpu=all", "nvidia.com/gpu=0"} <= set(facts.cdi_devices)
    assert (facts.is_rootless, facts.is_snap, facts.is_desktop) == (False,) * 3
    assert facts.runc_version


def test_an_engine_with_the_containerd_store_keeps_images_with_its_containerd(
    lab: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64 << 20
    with engine_of_ones_own(lab, tmpfs_bytes=size, features={"containerd-snapshotter": True}) as own:
        monkeypatch.setenv("DOCKER_HOST", own.host)
        facts = docker.connect().facts()
        assert Path(facts.images_folder or "").is_dir()
        assert (facts.images_folder or "").startswith(f"{own.folder}/data/containerd/")
        assert 0 < (facts.free_bytes or 0) < size


@pytest.mark.parametrize("name", ["engine", "floor", "bare"])
def test_each_engine_of_the_bench_is_a_host(lab: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", lab[name]["host"])
    host = hostfacts.gather(docker.connect())
    assert host.engine_version == lab[name]["version"]
    assert host.gpu_way == ("none" if name == "bare" else "runtime")
    assert (host.free_bytes or 0) > 0
    assert host.elsewhere is None


def test_the_bench_s_cards_are_told_with_their_brand(lab: dict[str, Any]) -> None:
    code = (
        "from ngcdl import hostfacts\n"
        "for gpu in hostfacts.gather(None).gpus: print(gpu.capability, gpu.brand, gpu.name)"
    )
    environment = {
        "PYTHONPATH": str(ROOT / "toolkit"), "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": lab["nvml"]["library_dir"],
        "NGCDL_NVML_STATE": lab["nvml"]["default_state"],
    }  # fmt: skip
    told = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert "6.1 geforce NVIDIA GeForce GTX 1050 Ti" in told.splitlines()
