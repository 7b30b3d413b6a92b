"""ngcdl.registry against a real docker-registry behind NGC's protocol (scripts/lab)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ngcdl.errors import KeyRejected, KeyWithoutRights, LoginNeeded, UnknownTag
from ngcdl.pulling.fetch import explain
from ngcdl.registry import credentials
from ngcdl.registry.client import LINUX_AMD64, Registry
from ngcdl.registry.key import Credential, Secret
from ngcdl.spec import ImageRef

pytestmark = pytest.mark.lab


@pytest.fixture
def registry_lab(lab) -> dict[str, Any]:
    if not lab.get("registry"):
        pytest.fail("the lab has no registry: scripts/lab up")
    return lab["registry"]


def credential(lab: dict[str, Any], name: str = "key") -> Credential:
    return Credential("$oauthtoken", Secret(lab[name]), "the lab")


def image(lab: dict[str, Any], name: str) -> ImageRef:
    return ImageRef.parse(f"{lab['host']}/nvidia/{name}")


def test_the_labs_keys_are_told_apart(registry_lab):
    with Registry(registry_lab["host"]) as registry:
        assert registry.ping()
        assert registry.verify(credential(registry_lab))
        assert registry.verify(credential(registry_lab, "key_without_rights"))
        with pytest.raises(KeyRejected):
            registry.verify(credential(registry_lab, "key_revoked"))


def test_a_real_image_is_described_as_docker_has_it(lab, registry_lab):
    ref = image(registry_lab, "tensorflow:18.01-py2")
    with Registry(ref.registry, credential(registry_lab)) as registry:
        found, _ = registry.described(ref, LINUX_AMD64)
        assert lab["images"]["tensorflow:18.01-py2"] in (found.digest, registry.document(ref).digest)
        assert (found.compressed_bytes or 0) > 1_000_000
        config = registry.config(ref, found)
        assert ref.tag in registry.tags(ref.repository)
    assert config["architecture"] == "amd64"
    assert any(line.startswith("CUDA_VERSION=") for line in config["config"]["Env"])


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("tensorflow:18.01-py2", "key", None),
        ("tensorflow:18.01-py2", None, LoginNeeded),
        ("tensorflow:18.01-py2", "key_revoked", KeyRejected),
        ("pytorch:26.07-py3", "key", None),
        ("gated:1", "key", KeyWithoutRights),
        ("gated:1", "key_without_rights", KeyWithoutRights),
        ("gated:1", None, LoginNeeded),
        ("tensorflow:18.02-py2", "key", UnknownTag),
        ("nosuch:1", "key", KeyWithoutRights),
        ("busybox:1", None, None),
        ("busybox:2", None, UnknownTag),
        ("busybox:arm64", None, None),
    ],
)
def test_each_refusal_of_the_lab_is_explained(registry_lab, name, key, expected):
    error = explain(image(registry_lab, name), credential(registry_lab, key) if key else None)
    assert (type(error) if error else None) is expected, error
    if name == "tensorflow:18.02-py2":
        assert isinstance(error, UnknownTag)
        assert "18.01-py2" in error.nearest


def test_docker_reads_what_we_keep_and_we_read_what_docker_keeps(lab, registry_lab, home):
    docker = lab.get("docker_cli") or shutil.which("docker")
    host, secret = registry_lab["host"], Secret(registry_lab["key"])
    environ = {**home, "DOCKER_HOST": lab["engine"]["host"]}
    credentials.save(host, secret, home)
    again = [docker, "login", host]  # without a key Docker uses the stored one
    done = subprocess.run(again, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert "Login Succeeded" in done.stdout, done.stderr
    subprocess.run([docker, "logout", host], env=environ, check=True, capture_output=True)
    assert credentials.find(host, home) is None
    assert subprocess.run(again, env=environ, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode
    subprocess.run(
        [docker, "login", host, "--username", "$oauthtoken", "--password-stdin"],
        input=secret.reveal(), text=True, env=environ, check=True, capture_output=True,
    )  # fmt: skip
    found = credentials.find(host, home)
    assert found is not None
    assert found.secret == secret
    assert credentials.forget(host, home)[0]
    assert json.loads((Path(home["HOME"]) / ".docker" / "config.json").read_text())["auths"] == {}
