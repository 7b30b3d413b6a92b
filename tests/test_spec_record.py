"""A request as a record stores it: both ways, without secrets."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.errors import BadOption
from ngcdl.spec import (
    REDACTED,
    GpuRequest,
    ImageRef,
    Mount,
    Placement,
    Port,
    RunSpec,
    Workload,
    redacted,
    redacted_words,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


LONG = "aB3dE6gH9j" * 3 + "kL2n"


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN",
        "hf_token",
        "NGC_API_KEY",
        "DB_PASSWORD",
        "DB_PASS",
        "AWS_SECRET",
        "MY_AUTH",
        "GH_PAT",
        "PAT",
        "PAT_2",
        "MYSQL_PWD",
        "DB_PWD_2",
    ],
)
def test_a_variable_whose_name_says_secret_is_hidden(name: str) -> None:
    assert redacted(name, "x") == REDACTED


@pytest.mark.parametrize(
    "value",
    [
        "Bearer nvapi-abc",
        "http://user:s3cret@proxy:3128",
        "user:s3cret@proxy:3128",
        "redis://:$ecret@host",
        "postgresql+psycopg://me:p%40ss@word@db/x?a=b",
        "https://0123456789abcdef0123456789@host/x",
        "https://1yZq8TtPqWn3kLmN:@host/me/",
        "-H 'Authorization: Bearer s3cret'",
        f"hf_{LONG}",
        f"ghp_{LONG}",
        f"login github_pat_{LONG}_{LONG}",
        f"sk-{LONG}",
        f"sk-proj-{LONG}-x_y",
        f"AccountName=me;AccountKey={LONG}+/==;EndpointSuffix=core.windows.net",
        "https://me.blob.core.windows.net/x?sv=2024&sig=ab%2Fc%3D",
        "https://bucket.s3.amazonaws.com/x?X-Amz-Expires=9&X-Amz-Signature=0123abcd&x=y",
        "http://host:8888/lab?token=0123abcd",
        "https://hooks.slack.com/services/T0/B0/abc",
    ],
)
def test_a_value_that_holds_a_secret_is_hidden_under_any_name(value: str) -> None:
    assert redacted("X", value) == REDACTED
    spec = RunSpec(None, environment=(("X", value),))
    assert spec.without_secrets().environment == (("X", REDACTED),)
    assert spec.as_json()["environment"] == {"X": REDACTED}
    assert spec.as_json(secrets=True)["environment"] == {"X": value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EPOCHS", "3"),
        ("PATH", "/usr/bin:/bin"),
        ("DISPATCH", "x"),
        ("PWD", "/home/me"),
        ("OLDPWD", "/home/me"),
        ("PWD_LIMIT", "x"),
        ("NAME", f"task-{LONG} disk_hf_{LONG} sk-learn sk-ant-colony-optimization-of-a-graph hf_{DIGEST}"),
        ("HF_HOME", f"/data/hf_cache/hf_hub_transfer_of_many_long_model_names/{DIGEST}"),
        ("URL", "https://host/x?page=2&sort=token&key=id&token=1&sig="),
        ("URL", "https://host/x?token={token}&sig=<sig>"),
        ("FORM", "AccountKey=<key>;AccountKey=${KEY}"),
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("REPOSITORY", "ssh://git@host:22/me/x"),
        ("IMAGE", "docker://host:5000/x@sha256:0123"),
        ("IMAGE", "ubuntu:22.04@sha256:0123456789abcdef"),
        ("FORM", "https://{user}:{password}@host"),
        ("FORM", "https://{token}:@host"),
        ("DATABASE_URL", "postgres://postgres:@host/x"),
    ],
)
def test_a_value_that_holds_none_is_shown(name: str, value: str) -> None:
    assert redacted(name, value) == value


# Ordinary settings with TOKEN, KEY, AUTH or PASS in their names.
ORDINARY = (
    "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "NUM_KEY_VALUE_HEADS", "AUTHOR_ID", "PASSES", "KEYFRAMES", "NCCL_KEYS_MAX",
    "TOKEN_DROPOUT", "BYPASS_CACHE",
)  # fmt: skip
HARMLESS = ("0", "512", "123456", "0.25", "true", "False", "YES", "no", "on", "off", "none", "auto")
# Names for which a few digits may be a PIN, and any word a password.
OF_SECRETS = (
    "PASSWORD", "DB_PASSWORD", "PASSWORD_2", "PASSWORDS", "PASSWD", "SSHPASS", "PASS", "KEY_PASSPHRASE", "PASSCODE",
    "API_KEY", "APIKEY", "API_KEYS", "KEY", "KEY_2", "HF_TOKEN", "MYTOKEN", "token", "CLIENT_SECRET", "SECRET_ID",
    "CREDENTIALS", "MY_AUTH", "GH_PAT", "KEY_PIN", "DB_PWD", "TOKEN_PIN", "AUTH_CODE", "TOKEN_OTP", "SECRET_PIN",
    "apiKey",
)  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("value", HARMLESS)
def test_a_harmless_value_of_an_ordinary_variable_is_recorded(name: str, value: str) -> None:
    assert redacted(name, value) == value


@pytest.mark.parametrize("name", OF_SECRETS)
@pytest.mark.parametrize("value", [*HARMLESS, "1234", "hunter2"])
def test_under_a_secret_s_name_even_a_pin_is_hidden(name: str, value: str) -> None:
    assert redacted(name, value) == REDACTED


@pytest.mark.parametrize(
    "value",
    ["1234567", "0.123456", "123456.7", "512 ", "5\n12", "512\n", "1e5", "0x1f", "\u0661\u0662", "truely", "nones", "",
     "12a", "nvapi-1", ".5", "1.", "1.2.3", "-7"],
)  # fmt: skip
def test_any_other_value_is_hidden_where_the_name_may_be_a_secret_s(value: str) -> None:
    assert [redacted(name, value) for name in ORDINARY] == [REDACTED] * len(ORDINARY)


@given(
    st.text("AZ_key1.-", max_size=8), st.sampled_from(["KEY", "TOKEN", "auth", "Pass", "SECRET", "CREDENTIAL"]),
    st.text("AZ_keys1.-", max_size=8), st.text("0123456789.truefalsno-x \n", max_size=9) | st.text(max_size=9),
)  # fmt: skip
def test_what_such_a_name_shows_is_a_small_number_or_a_switch(before: str, part: str, after: str, value: str) -> None:
    if redacted(before + part + after, value) != REDACTED:
        digits = value.replace(".", "", 1)
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= 6
        assert is_number or value.lower() in [one.lower() for one in HARMLESS]
        assert redacted_words((f"{before}{part}{after}=hush",)) != (f"{before}{part}{after}={REDACTED}",)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("echo", "nvapi-a_b-C9 x"), ("echo", "*** x")),
        (("sh", "-c", "a nvapi-1; b 'nvapi-2'"), ("sh", "-c", "a ***; b '***'")),
        (("x", "--api-key=hush=hush", "y"), ("x", "--api-key=***", "y")),
        (("x", "--hf-Token", "hush", "y"), ("x", "--hf-Token", "***", "y")),
        (("x", "--use-password", "--secret", "hush"), ("x", "--use-password", "--secret", "***")),
        (("env", "WANDB_API_KEY=abc", "hf_token=hf_x", "x"), ("env", "WANDB_API_KEY=***", "hf_token=***", "x")),
        (("env", "PGPASSWORD=two words", "DB_PASS=$ecret"), ("env", "PGPASSWORD=***", "DB_PASS=***")),
        (
            ("+wandb.api_key=abc", "--authToken", "abc", "-eKEY_2=x"),
            ("+wandb.api_key=***", "--authToken", "***", "-eKEY_2=x"),
        ),
        (("x", "--auth", "u:p", "--no-auth", "y"), ("x", "--auth", "***", "--no-auth", "y")),
        (
            ("bash", "-c", "export A=1 HF_TOKEN=hf_x; python t.py --api-key abc --lr=3"),
            ("bash", "-c", "export A=1 HF_TOKEN=***; python t.py --api-key *** --lr=3"),
        ),
        (("sh", "-c", "cd /x && DB_PASSWORD='a b' ./t"), ("sh", "-c", "cd /x && DB_PASSWORD=*** ./t")),
        (("python", "-c", "login(token='hf_x')"), ("python", "-c", "login(token=***)")),
        (
            ("env", "MYSQL_PWD=hush", "OLDPWD=/x", "x", "--db-pwd", "hush"),
            ("env", "MYSQL_PWD=***", "OLDPWD=/x", "x", "--db-pwd", "***"),
        ),
        (("curl", "https://h/x?a=b&sig=ab%2F&c=d"), ("curl", "https://h/x?a=b&sig=***&c=d")),
        (("sh", "-c", f"t hf_{LONG} -c 'AccountKey={LONG}==;x'"), ("sh", "-c", "t *** -c 'AccountKey=***;x'")),
        (("git", "clone", "https://me:hush@host/x"), ("git", "clone", "https://me:***@host/x")),
        (("pip", "--index-url", "https://hushhush:@host/x"), ("pip", "--index-url", "https://***:@host/x")),
        (("git", "clone", f"https://{LONG}@host/x"), ("git", "clone", "https://***@host/x")),
        (("sh", "-c", "python t.py --api-key abc"), ("sh", "-c", "python t.py --api-key ***")),
        (("x", "--proxy=http://me:$hush@h:1", "y"), ("x", "--proxy=http://me:***@h:1", "y")),
        (("env", "GH_PAT=hush", "FILE_PATH=x"), ("env", "GH_PAT=***", "FILE_PATH=x")),
        (
            ("sh", "-c", "curl -H 'Authorization: Bearer hush' -H 'X-Api-Key: hush' http://h:80/@x"),
            ("sh", "-c", "curl -H 'Authorization: Bearer ***' -H 'X-Api-Key: ***' http://h:80/@x"),
        ),
    ],
)
def test_words_that_are_secrets_stand_in_no_record_and_no_dry_run(
    words: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert redacted_words(words) == shown
    spec = RunSpec(None, words)
    assert (spec.without_secrets().command, tuple(spec.as_json()["command"])) == (shown, shown)
    assert tuple(spec.as_json(secrets=True)["command"]) == words


@pytest.mark.parametrize(
    "line",
    [
        "python key.py --steps 3 -k v",
        "--tokenizer bert --max-tokens 512 --monkey x --num-key-value-heads 8 --bypass y --author me --key-dim 64",
        "env KEYBOARD=us AUTHOR=x PASSES=3 MAX_TOKENS=9 TOKENIZERS_PARALLELISM=false COMPASS=n KEY= PWD=/x",
        "--schedule warmup:100@lr:5 scp host:path@x:22",
        "primary-key: id sort-key: name",
        "apptainer exec --pwd /work -pwd x --pwd=/work OLDPWD=/x sk-learn hf_transfer http://h/x?token=12&page=3",
        "--auth none --pass 2 use_auth=true --no-password x --password-file /run/x",
        "git clone ssh://git@host:22/x --path y COMPAT=1 pat=x http://host:8080/a@b http://%s:%s@host",
    ],
)
def test_words_that_only_resemble_a_secret_s_are_recorded_as_they_are(line: str) -> None:
    words = tuple(line.split())
    assert redacted_words(words) == words
    assert redacted_words(("bash", "-c", line)) == ("bash", "-c", line)


@pytest.mark.parametrize(
    "script",
    [
        "HF_TOKEN=$TOKEN python t.py",
        'export HF_TOKEN="${TOKEN}"; t',
        "KEY=$(cat /run/key) t",
        "KEY= TOKEN='' t",
        "max(a, key=len)",
        'git clone "https://me:$PASSWORD@host/x"',
        'curl "https://host/x?token=$TOKEN&sig=${SIG}"; DB_PWD=$PWD t',
        "git clone https://${NAME}:${PASSWORD}@host/x https://${TOKEN}:@host/x",
        'curl -H "Authorization: Bearer $TOKEN" -H "X-Api-Key: $(cat key)" http://h',
    ],
)
def test_what_a_script_takes_from_elsewhere_is_no_secret(script: str) -> None:
    assert redacted_words(("bash", "-c", script)) == ("bash", "-c", script)


def test_a_script_of_one_long_word_is_no_trap() -> None:
    words = ("bash", "-c", "a_key-" * 20_000, "http://a:" * 20_000, "x:" * 50_000, "--" + "password1" * 20_000)
    words = ("a-pwd_" * 20_000, "sk-" * 50_000, "&token=1" * 20_000, "x;AccountKey=a" * 20_000, *words)
    before = time.process_time()
    assert redacted_words(words) == words
    assert time.process_time() - before < 5


FULL = RunSpec(
    image=ImageRef.parse(f"tensorflow:18.01-py2@{DIGEST}"),
    command=("python", "a b", "", "--x=é"),
    gpus=GpuRequest("devices", devices=("0",)),
    mounts=(Mount("/data", "/data"), Mount("volume", "/v", True), Mount("/a:b/c:d", "/e", True), Mount("/x:ro", "/y")),
    environment=(("B", "2"), ("A", "=1"), ("HF_TOKEN", "hush")),
    ports=(Port(53, 53, protocol="udp"), Port(None, 80, "::1")),
    shm_bytes=5,
    ulimits=(("nofile", 9),),
    cpu_limit=0.5,
    memory_bytes=6,
    user="1:2",
    workdir="/w",
    tty=True,
    stdin=True,
    workload=Workload("cifar10", 7, 8, 9, "synthetic", "cpu", False, "older"),
    placement=Placement(2, "gpu", time_limit="1:00:00", container="pyxis", options=("--exclusive",)),
    sample_seconds=0.25,
)


PLAIN = RunSpec(None)
HERE = replace(FULL, image=None, workload=None, shm_bytes=PLAIN.shm_bytes, ulimits=PLAIN.ulimits)


@pytest.mark.parametrize("spec", [PLAIN, FULL, HERE])
def test_a_spec_and_its_json_are_each_other_s_inverse(spec: RunSpec) -> None:
    assert RunSpec.from_json(json.loads(json.dumps(spec.as_json(secrets=True)))) == spec


def test_without_an_image_there_is_no_limit_of_a_container() -> None:
    assert (PLAIN.as_json()["shm_bytes"], PLAIN.as_json()["ulimits"]) == (None, {})
    older = HERE.as_json(secrets=True) | {"shm_bytes": 1 << 30, "ulimits": {"memlock": -1, "stack": 67108864}}
    assert RunSpec.from_json(older) == HERE, "an older record had those of a container"


def test_a_record_from_before_cpus_and_memory_could_be_asked_for_has_no_limit_of_them() -> None:
    later = ("cpu_limit", "memory_bytes", "sample_seconds")
    spec = RunSpec.from_json({name: value for name, value in FULL.as_json().items() if name not in later})
    assert (spec.cpu_limit, spec.memory_bytes, spec.sample_seconds) == (None, None, 1.0)


def test_a_record_from_before_there_were_clusters_was_placed_nowhere() -> None:
    old = {name: value for name, value in FULL.as_json().items() if name != "placement"}
    assert RunSpec.from_json(old).placement is None
    assert RunSpec.from_json({**old, "placement": {"nodes": 2, "of_a_later_ngcdl": 1}}).placement == Placement(2)


@pytest.mark.parametrize(
    ("placement", "engine", "named"),
    [
        (Placement(nodes=2), "docker", "--nodes"),
        (Placement(partition="a"), "kubernetes", "--partition: engine kubernetes does not use it; slurm does"),
        (Placement(namespace="a"), "slurm", "--namespace"),
        (Placement(options=("-x",)), "local", "--sbatch"),
        (Placement(nodes=0), "slurm", "--nodes 0"),
        (Placement(container="lxc"), "slurm", "pyxis, docker, podman, apptainer or singularity"),
        (Placement(time_limit="soon"), "slurm", "--time soon"),
        (Placement(partition="a b"), "slurm", "one word"),
        (Placement(account="-x"), "slurm", "one word"),
        (Placement(options=("--comment=x\ntouch /tmp/y",)), "slurm", "--sbatch '--comment=x\\ntouch /tmp/y'"),
        (Placement(patches=("{}",)), "slurm", "--job-patch: engine slurm does not use it; kubernetes does"),
        (Placement(patches=("metadata: {}\n---\nspec: {}\n",)), "kubernetes", "--job-patch: it has several documents"),
        (Placement(patches=("# a\n---\n# b\n---\nspec: {}\n",)), "kubernetes", "--job-patch: it has several documents"),
        (Placement(patches=("a: 1\n" * 20_000,)), "kubernetes", "--job-patch: it is longer than 64 KiB"),
        (
            Placement(patches=(f"a: nvapi-{'x' * 64}",)),
            "kubernetes",
            "--job-patch: something in it looks like a secret",
        ),
        (Placement(gpu_type="h100 y"), "slurm", "one word"),
        (Placement(avoid=("n1", "n2\ntouch /tmp/y")), "slurm", "one word"),
    ],
)
def test_a_placement_that_can_t_be_meant_is_refused(placement: Placement, engine: str, named: str) -> None:
    with pytest.raises(BadOption, match=re.escape(named)):
        placement.check(engine)


@pytest.mark.parametrize("before", ["", "\n", "---\n", "# a site's\n\n  # and more\n--- # it\n", "# a\r\n\r\n---\r\n"])
def test_comments_and_the_line_that_begins_it_may_come_before_a_patch(before: str) -> None:
    Placement(patches=(f"{before}metadata: {{}}\n",)).check("kubernetes")


@pytest.mark.parametrize(
    "odd",
    [
        {"environment": {"X;touch /tmp/y;A": "1"}},
        {"environment": {"A=B": "1"}},
        {"environment": {"": "1"}},
        {"environment": {"A": "a\0b"}},
        {"environment": {"A": 5}},
        {"placement": {"options": ["--comment=x\ntouch /tmp/y"]}},
        {"placement": {"options": [5]}},
        {"placement": {"patches": [5]}},
        {"placement": {"partition": "gpu; touch /tmp/y"}},
        {"placement": {"gpu_type": "h100\ntouch /tmp/y"}},
        {"placement": {"container": "lxc"}},
        {"ulimits": {"memlock": "1; touch /tmp/y"}},
        {"ulimits": {"memlock=1 -v /": 1}},
        {"shm_bytes": "1; touch /tmp/y"},
        {"cpu_limit": "1; touch /tmp/y"},
        {"cpu_limit": 0},
        {"memory_bytes": "1; touch /tmp/y"},
        {"memory_bytes": 0},
        {"sample_seconds": 0.09},
        {"sample_seconds": "nan"},
        {"user": "$(id)"},
        {"workdir": 5},
        {"command": [5]},
        {"mounts": ["/data"]},
    ],
)
def test_a_record_that_says_what_nobody_can_have_typed_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises((BadOption, TypeError, ValueError)):
        RunSpec.from_json({**FULL.as_json(), **odd})


@pytest.mark.parametrize(
    ("limit", "said"),
    [("10", "10m"), ("10:30", "630s"), ("1:00:00", "60m"), ("1-2", "1560m"), ("1-2:30", "1590m"), ("soon", "30m")],
)
def test_where_no_cluster_is_a_time_is_told_as_timeout_takes_it(limit: str, said: str) -> None:
    with pytest.raises(BadOption) as told:
        Placement(time_limit=limit).check("docker")
    assert f"    timeout {said} ngcdl ...  # without --time TIME" in told.value.hint


@pytest.mark.parametrize("time", ["30", "30:00", "1:00:00", "2-12", "2-12:30", "2-12:30:00"])
def test_slurm_s_ways_to_write_a_time_are_taken(time: str) -> None:
    Placement(time_limit=time, nodes=8, qos="high", account="a@b").check("slurm")


def test_a_record_of_a_spec_has_no_secret() -> None:
    assert FULL.as_json()["environment"] == {"B": "2", "A": "=1", "HF_TOKEN": REDACTED}
    assert "hush" not in json.dumps(FULL.as_json())


def test_the_defaults_are_nvidia_s_documented_flags() -> None:
    spec = RunSpec(None)
    assert (spec.shm_bytes, dict(spec.ulimits)) == (1 << 30, {"memlock": -1, "stack": 67108864})
