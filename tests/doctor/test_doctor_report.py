"""What leaves this host: the redaction, and the archive with a key planted in each of its sources."""

from __future__ import annotations

import base64
import json
import os
import resource
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.doctor import bundle
from ngcdl.doctor.hands import Hands
from ngcdl.doctor.redact import Redactor, known_names
from ngcdl.errors import BadOption

KEY = "nvapi-Canary0Canary1Canary2_Canary3-Canary4"
OTHER = "Zm9vYmFyOldlIGFyZSBhIGNhbmFyeQ"  # a key whose form no pattern knows
HOME, HOST, USER = "/home/canarybird", os.uname().nodename, "canarybird"


def redact(text: str) -> str:
    return Redactor([], {HOME: "~", USER: "USER"})(text)


# -- the redaction ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "shown"), [
    (f"the key {KEY}.", "the key nvapi-***."),
    ("Authorization: Bearer abcdefghijk", "Authorization: ***"),
    ('"Authorization": "Basic YWJjZGVmZ2g="', '"Authorization": "***"'),
    ("X-Registry-Auth: eyJ1c2VybmFtZSI6", "X-Registry-Auth: ***"),
    ('{"auths": {"nvcr.io": {"auth": "JG9hdXRo"}}}', '{"auths": {"nvcr.io": {"auth": "***"}}}'),
    ('{\\"auth\\": \\"JG9hdXRo\\", \\"a\\": 1}', '{\\"auth\\": \\"***\\", \\"a\\": 1}'),
    ('"password": "two words"', '"password": "***"'),
    ("DB_PASSWORD=hunter2 ls", "DB_PASSWORD=*** ls"),
    ("MY_API_KEY: hunter2", "MY_API_KEY: ***"),
    (f"token_{'x' * 90}=hunter2 ls", f"token_{'x' * 90}=*** ls"),
    ("http://me:se@cr/et@proxy:3128/x", "http://***@proxy:3128/x"),
    ("https://token@github.com/x.git", "https://***@github.com/x.git"),
    ("me:s/@t@proxy.example:3128", "***@proxy.example:3128"),
    ("a token eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl there", "a token *** there"),
    ("export DB_PASS='hunter 2' ls", "export DB_PASS=*** ls"),
    ("WANDB_KEY=hunter2 AWS_ACCESS_KEY_ID=abc KEY_2=x", "WANDB_KEY=*** AWS_ACCESS_KEY_ID=*** KEY_2=***"),
    ("+ hf login --token hunter2 --api-key=hunter2 -v", "+ hf login --token *** --api-key=*** -v"),
    ("it is hf_abcdefghijklmnop, ghp_abcdefghijklmnop", "it is hf_***, ghp_***"),
    ("https://x.blob.example/a?sv=1&sig=hunter2 there", "https://x.blob.example/a?*** there"),
    ("a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b",
     "a -----BEGIN PRIVATE KEY-----***-----END RSA PRIVATE KEY----- b"),
    ("of its end: MIIE\n-----END PRIVATE KEY----- b", "***-----END PRIVATE KEY----- b"),
    (f"{HOME}/data of {USER}, not {USER}s", f"~/data of USER, not {USER}s"),
])  # fmt: skip
def test_what_has_the_form_of_a_secret_is_taken_out_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("text", [
    "nvcr.io/nvidia/tensorflow@sha256:cd3b53745974", "The author: Bird", "NVRM: Xid (PCI:0000:01:00): 79, GPU has gone",
    "https://docs.nvidia.com/deploy/", "step 100, loss = 4.61", "unauthorized: authentication required",
    "PASS: test_a", "KeyError: 'x'", "----- a table ----- of lines -----", "BYPASS=1",
    "ngcdl login --password-stdin -v", "warmup:100@lr", "proxy.example:3128",
])  # fmt: skip
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redact(text) == text


@given(st.text(min_size=4, max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_a_known_secret_is_in_no_text_whatever_stands_around_it(secret: str, before: str, after: str) -> None:
    shown = Redactor([secret], {})(f"{before}{secret}{after}")
    assert secret not in shown or secret in "***"


NAMES = st.sampled_from(["auth", "password", "MY_TOKEN", "identitytoken"])


@given(NAMES, st.text(min_size=1, max_size=30), st.text(max_size=20))
def test_a_secret_field_of_json_shows_nothing_and_its_neighbours_stay(name: str, value: str, other: str) -> None:
    shown = Redactor([], {}).tree({name: value, "n": 1, "list": [{name: value}], "other": "plain"})
    assert shown == {name: "***", "n": 1, "list": [{name: "***"}], "other": "plain"}


@given(NAMES, st.from_regex(r"[A-Za-z0-9+/=\\\"' ]{4,30}", fullmatch=True))
def test_a_secret_in_json_in_a_log_line_is_taken_out_whatever_quotes_it_holds(name: str, value: str) -> None:
    line = redact(f"got {json.dumps({name: 'Canary' + value + 'Canary'})} from it")
    assert "Canary" not in line
    assert line.endswith("} from it")


def test_a_log_of_one_long_word_is_no_trap() -> None:
    words = ("x", "a.", "://", "://a:", "auth", "eyJ", "token=", '\\"', "-", "--key ", "_KEY=", "https://a?", "hf_")
    for word in (*words, "atoken", "eyJ-", "a------"):
        before = time.process_time()
        redact(word * 20_000)
        assert time.process_time() - before < 5, word


def test_root_is_everybodys_name_and_stays() -> None:
    assert known_names({"HOME": "/root", "USER": "root"}) == {"/root": "~", HOST: "HOST"}


# -- the archive ------------------------------------------------------------------------------------------------


def planted(tmp_path: Path) -> Hands:
    """A host in which every source of the archive contains the key, in every form in which it occurs."""
    packed = base64.b64encode(f"$oauthtoken:{OTHER}".encode()).decode()
    everything = f"key {KEY} {OTHER} auth={packed} http://bird:{OTHER}@proxy:1 {HOME}/x on {HOST} by {USER}\n"
    root, home = tmp_path / "root", tmp_path / "home"
    for name in ("etc/docker/daemon.json", "etc/os-release", "proc/driver/nvidia/version"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(everything)
    run = home / ".local/state/ngcdl/runs/20260101-000000-shell-0a1b2c"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"env": {"MY_TOKEN": OTHER}, "text": everything}))
    (run / "log.txt").write_text("x" * 100_000 + everything)

    def says(words: Sequence[str], seconds: float) -> str:
        return f"NVRM of {' '.join(words)}: {everything}"

    environ = {
        "HOME": str(home), "USER": USER, "NGC_API_KEY": OTHER, "HTTPS_PROXY": f"http://bird:{OTHER}@proxy:1",
        "NGCDL_REGISTRY": "nvcr.io", "DOCKER_CONFIG": str(home / "none"), "NGCDL_NOTE": everything,
    }  # fmt: skip
    return Hands(root, environ, says)


DOCUMENT: dict[str, Any] = {
    "links": [{"name": "key", "found": f"refused {KEY} {OTHER} in {HOME}/.docker"}],
    "broken": 1,
}
MEMBERS = {
    "doctor.json", "versions.json", "environment.json", "docker-info.json", "daemon.json", "nvidia-smi.txt",
    "driver.txt", "kernel.txt", "last-run/run.json", "last-run/log.txt",
}  # fmt: skip


INFO = {
    "ServerVersion": "29.1.0", "HttpsProxy": f"http://bird:{OTHER}@proxy:1", "Labels": [f"key={KEY}"],
    "DockerRootDir": f"{HOME}/d",
}  # fmt: skip


def test_a_proxy_that_is_no_address_is_a_secret_as_a_whole(tmp_path: Path) -> None:
    hands = Hands(root=tmp_path, environ={"HOME": str(tmp_path), "HTTPS_PROXY": "http://me:pa[ss@proxy"})
    assert "http://me:pa[ss@proxy" in list(bundle.secrets(hands))


def test_an_archive_is_made_though_ngcdls_settings_can_t_be_read(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "NGCDL_REGISTRY": "x"}
    packed = base64.b64encode(f"$oauthtoken:{OTHER}".encode()).decode()
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {"nvcr.io": {"auth": packed}}}))
    hands = Hands(tmp_path, environ, lambda *_: f"it said {OTHER}")
    assert "nvidia-smi.txt" in bundle.write(tmp_path / "b.tgz", DOCUMENT, hands, info=dict)
    with tarfile.open(tmp_path / "b.tgz") as archive:
        texts = [file.read().decode() for one in archive.getmembers() if (file := archive.extractfile(one))]
    assert [text for text in texts if OTHER in text] == []


def test_a_variable_that_names_a_secret_and_the_password_of_a_bare_proxy_are_in_no_member(tmp_path: Path) -> None:
    said = {
        "DOCKER_PASS": "Canary0", "DOCKER_PAT": "Canary1", "DOCKER_HUB_PWD": "Canary2", "NVIDIA_KEY": "Canary3",
        "DOCKER_CONTENT_TRUST_ROOT_PASSPHRASE": "Canary4", "http_proxy": "bird:Canary5@proxy.example:3128",
        "https_proxy": "http://bird:Canary6@proxy.example:3128", "NGCDL_RUNS": "/data/runs",
    }  # fmt: skip
    environ = {"HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path), **said}
    hands = Hands(tmp_path, environ, lambda *_: "it said Canary5 and Canary6")
    bundle.write(tmp_path / "b.tgz", DOCUMENT, hands, info=lambda: {"HttpProxy": "bird:pw@proxy.example:3128"})
    with tarfile.open(tmp_path / "b.tgz") as archive:
        texts = [file.read().decode() for one in archive.getmembers() if (file := archive.extractfile(one))]
    assert [text for text in texts if "Canary" in text or "bird:" in text] == []
    shown = "".join(texts)
    assert "it said *** and ***" in shown
    assert '"http_proxy": "***@proxy.example:3128"' in shown
    assert '"https_proxy": "http://***@proxy.example:3128"' in shown
    assert '"NGCDL_RUNS": "/data/runs"' in shown


@pytest.fixture
def members(tmp_path: Path) -> dict[str, bytes]:
    """Return every member, by name, of an archive made on the planted host."""
    hands = planted(tmp_path)
    redactor = Redactor(bundle.secrets(hands), known_names(hands.environ) | {HOME: "~"})
    told = bundle.write(tmp_path / "report.tar.gz", DOCUMENT, hands, redactor, lambda: INFO)
    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        found = {}
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("ngcdl-doctor/")] = file.read()
            assert (entry.uname, entry.gname, entry.uid, entry.gid, entry.mode) == ("", "", 0, 0, 0o600)
    assert set(told) == set(found)
    return found


def test_every_source_is_in_the_archive(members: dict[str, bytes]) -> None:
    assert set(members) == MEMBERS
    assert b"NVRM of nvidia-smi -q" in members["nvidia-smi.txt"]
    assert b"ServerVersion" in members["docker-info.json"]
    assert b'"NGC_API_KEY": "***"' in members["environment.json"]


@pytest.mark.parametrize("secret", [
    KEY, OTHER, base64.b64encode(f"$oauthtoken:{OTHER}".encode()).decode(), HOME, USER, "bird:",
])  # fmt: skip
def test_the_planted_key_is_in_no_member(members: dict[str, bytes], secret: str) -> None:
    assert [name for name, content in members.items() if secret.encode() in content] == []


def test_this_hosts_name_is_in_no_member_as_a_word(members: dict[str, bytes]) -> None:
    assert [name for name, content in members.items() if f"on {HOST} by".encode() in content] == []


def test_the_log_is_kept_by_its_end(members: dict[str, bytes]) -> None:
    assert 60_000 < len(members["last-run/log.txt"]) < 70_000


def test_the_archive_is_its_makers_alone_and_nothing_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    hands = Hands(tmp_path, {"HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path)}, lambda *_: None)
    bundle.write(file, DOCUMENT, hands, info=dict)
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    with pytest.raises(BadOption, match="left as it is"):
        bundle.write(file, DOCUMENT, hands, info=dict)
    assert file.read_bytes() == before
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadOption, match="it already exists"):
        bundle.write(tmp_path / "link", DOCUMENT, hands, info=dict)
    with pytest.raises(BadOption, match="can't be written"):
        bundle.write(tmp_path / "nosuch/report.tar.gz", DOCUMENT, hands, info=dict)


def test_an_archive_that_does_not_fit_leaves_nothing_in_its_place(tmp_path: Path) -> None:
    hands = Hands(tmp_path, {"HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path)}, lambda *_: None)
    noise = {"noise": os.urandom(1 << 16).hex()}  # too random to be packed into what the limit allows
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(BadOption, match=r"report\.tar\.gz: it can't be written: File too large"):
            bundle.write(tmp_path / "report.tar.gz", DOCUMENT, hands, info=lambda: noise)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
