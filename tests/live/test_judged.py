"""Before the pull: check, images and resolve in the lab, and what run and pull refuse before downloading anything."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front, front_in
from ngcdl_child import User, told, user_in
from own_engine import engine_of_ones_own

pytestmark = pytest.mark.lab

SEED = ("--host", "driver=390.12,cc=6.1,brand=geforce,name=GTX 1050 Ti")
KEYS = {"image", "verdict", "mode", "reasons", "compressed_bytes", "newest"}


@pytest.fixture
def asker(user: User, front: Front) -> User:
    """A user whose registry is this test's front."""
    user.environment["NGCDL_REGISTRY"] = front.host
    user.login()
    return user


@pytest.fixture
def seed_host(user: User) -> User:
    """The host of an article of 2018: one GeForce GTX 1050 Ti (the first card of the stand-in) and driver 390.12."""
    state = user.has_gpus(driver="390.12")
    lines = state.read_text().splitlines(keepends=True)
    state.write_text("".join(line for line in lines if not line.startswith("gpu1.")))
    return user


def test_the_card_of_the_seed_runs_the_seed_s_image_and_the_newest_for_it_is_named(asker: User) -> None:
    old = told(asker.run("check", "tensorflow:18.01-py2", *SEED, "--json"), 0)
    assert set(old) >= KEYS
    assert (old["verdict"], old["mode"], old["compressed_bytes"] > 10**8) == ("runs", "native", True)
    assert old["newest"].endswith("nvidia/tensorflow:18.08-py2")
    for name in ("tensorflow:25.02-tf2-py3", "pytorch:26.07-py3", "pytorch:26.10-py3"):
        new = told(asker.run("check", name, *SEED, "--json"), 2)
        assert (new["verdict"], new["mode"]) == ("no", None)
        assert {"rule", "found", "needed", "source"} <= set(new["reasons"][0])
    assert told(asker.run("check", "tensorflow:25.02-tf2-py3", *SEED, "--json"), 2)["newest"].endswith(":18.08-py3")


def test_a_check_costs_a_few_kilobytes_once_and_nothing_again(asker: User, front: Front) -> None:
    cold = told(asker.run("check", "pytorch:25.03-py3", "--host", "driver=570.1,cc=9.0,brand=nvidia", "--json"), 0)
    asked = len(front.requests())
    assert 0 < cold["request_bytes"] <= sum(line["bytes"] for line in front.requests()) < 64 << 10
    assert cold["requests"] <= asked <= 12, "the image, the list of tags, and a newer tag that no table knows"
    warm = told(asker.run("check", "pytorch:25.03-py3", "--host", "driver=570.1,cc=9.0,brand=nvidia", "--json"), 0)
    assert (warm["requests"], len(front.requests())) == (0, asked)
    assert warm["digest"] == cold["digest"]


def test_the_exit_code_is_the_verdict(asker: User) -> None:
    assert asker.run("check", "pytorch:25.03-py3", "--host", "driver=570.124.06,gpu=H100").code == 0
    assert asker.run("check", "pytorch:22.12-py3", "--host", "driver=570.124.06,cc=12.0,brand=geforce").code == 1
    assert asker.run("check", "pytorch:25.03-py3", "--host", "driver=470.57.02,gpu=T4").code == 0, "forward"
    assert asker.run("check", "pytorch:25.03-py3", "--host", "driver=470.57.02,gpu=RTX2080").code == 2
    assert asker.run("check", "pytorch:99.99-py3").code == 125
    assert asker.run("check", "pytorch:25.03-py3", "--host", "driver=new").code == 125, "2 is a verdict"


def test_images_lists_the_newest_first_with_this_host_s_verdict(asker: User) -> None:
    done = asker.run("images", "pytorch", "--host", "driver=470.57.02,gpu=T4", "--json")
    assert done.code == 0, done
    rows = json.loads(done.out)
    tags = [row["image"].rpartition(":")[2] for row in rows]
    assert tags == sorted(tags, reverse=True)
    verdicts = {tag: row["verdict"] for tag, row in zip(tags, rows, strict=True)}
    assert verdicts["26.10-py3"] == "no", "of no table: read out of its own configuration"
    assert (verdicts["25.03-py3"], verdicts["24.12-py3"], verdicts["22.12-py3"]) == ("runs", "runs", "runs")
    table = asker.run("images", "--host", "driver=470.57.02,gpu=T4").out
    assert re.search(
        r"^tensorflow:24\.05-tf2-py3 +2\.15\.0 +3\.10 +12\.4\.1\S* +\S+ MiB +runs \(forward\)", table, re.M
    )


def test_resolve_prints_one_reference_that_docker_takes(asker: User, lab: dict[str, Any]) -> None:
    host = "driver=535.54.03,cc=8.6,brand=geforce"
    done = asker.run("resolve", "pytorch", "--host", host)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"127\.0\.0\.1:\d+/nvidia/pytorch@sha256:[0-9a-f]{64}\n", done.out)
    shown = told(asker.run("resolve", "pytorch", "--host", host, "--json"), 0)
    assert shown["image"].endswith(":25.07-py3")
    config = {**asker.environment, "DOCKER_CONFIG": str(asker.home / ".docker")}
    line = f"{lab['docker_cli']} pull --quiet $({' '.join(asker.words)} resolve pytorch --host {host})"
    pulled = subprocess.run(["sh", "-c", line], env=config, cwd=asker.here, capture_output=True, text=True, timeout=240)
    assert pulled.stdout == done.out, pulled.stderr
    asker.docker("image", "rm", done.out.strip())


def test_resolve_says_where_nothing_runs(asker: User) -> None:
    done = asker.run("resolve", "pytorch", "--host", "driver=304.1,cc=2.0,brand=geforce")
    assert (done.code, done.out) == (125, "")
    assert "No tag of" in done.err


def test_where_no_tag_is_a_month_s_resolve_says_so_and_claims_nothing(asker: User) -> None:
    done = asker.run("resolve", "busybox")
    assert (done.code, done.out) == (125, "")
    assert "nothing shows which one is the newest" in done.err
    assert f"ngcdl images {asker.environment['NGCDL_REGISTRY']}/nvidia/busybox --all" in done.err


def test_an_engine_elsewhere_that_does_not_answer_is_not_judged_by_the_cards_of_this_host(asker: User) -> None:
    asker.has_gpus()
    shown = told(asker.run("check", "pytorch:25.03-py3", "--json", DOCKER_HOST="tcp://127.0.0.1:1"), 1)
    assert [reason["rule"] for reason in shown["reasons"]] == ["elsewhere"]
    assert (shown["gpus"], shown["newest"], shown["host"]["driver"]) == ([], None, None)


def test_the_table_marks_what_nobody_has_read(asker: User) -> None:
    done = asker.run("images", "tensorflow", "--host", "driver=470.57.02,gpu=T4")
    row = next(line for line in done.out.splitlines() if "22.12-tf2-py3" in line)
    assert " 3.8* " in row
    assert "11.8.0*" not in row, "the registry told it"
    assert "* from memory" in done.err


def test_resolve_gives_no_reference_for_an_engine_that_it_can_t_judge(asker: User) -> None:
    done = asker.run("resolve", "pytorch", DOCKER_HOST="tcp://127.0.0.1:1")
    assert (done.code, done.out) == (125, ""), done
    assert "ngcdl resolve pytorch --host driver=" in done.err


def test_an_image_that_can_t_run_here_is_refused_before_the_pull_with_the_one_to_take(
    seed_host: User, front: Front
) -> None:
    seed_host.environment["NGCDL_REGISTRY"] = front.host
    refused = ("run", "pytorch:26.08-py3", "--", "true"), ("pull", "pytorch:26.08-py3")
    for words in (*refused, ("compare", "pytorch:26.08-py3", "--train", "cifar10", "--data", "synthetic")):
        done = seed_host.run(*words)
        assert done.code == 125, done
        assert "can't run here" in done.err
        instead = shlex.join([words[0], f"{front.host}/nvidia/pytorch:18.08-py3", *words[2:]])
        assert f"The newest one that can:\n      ngcdl {instead}\n" in done.err
        assert re.search(rf"    ngcdl {words[0]} pytorch:26\.08-py3 .*--force", done.err)
    assert not seed_host.ids()
    assert front.requests()
    assert sum(line["bytes"] for line in front.requests()) < 64 << 10, "no layer"


def test_force_goes_on_and_says_what_it_overrides(seed_host: User) -> None:
    seed_host.login()
    done = seed_host.run("pull", "pytorch:26.08-py3", "--force")
    assert done.code == 0, done
    assert "can't run here" in done.err
    assert "because of --force" in done.err
    seed_host.docker("image", "rm", done.out.strip())


def test_the_same_image_trains_on_the_cpu_of_that_host(seed_host: User) -> None:
    done = seed_host.run("run", "pytorch:26.07-py3", "--gpus", "none", "--", "true")
    assert done.code == 0, done
    assert "can't run here" not in done.err


def test_an_image_that_is_here_starts_though_its_registry_is_down(
    lab: dict[str, Any], images: dict[str, str], tmp_path: Path
) -> None:
    with user_in(tmp_path, lab) as user:
        with front_in(tmp_path / "gone", lab) as gone:
            user.environment["NGCDL_REGISTRY"] = gone.host
            assert user.run("pull", "busybox:1").code == 0
        done = user.run("run", "busybox:1", "--", "echo", "here")
        assert (done.code, done.out) == (0, "here\n"), done
        user.docker("image", "rm", f"{gone.host}/nvidia/busybox:1")


def test_a_registry_that_is_down_is_answered_from_the_catalogue_and_that_is_said(user: User) -> None:
    user.environment["NGCDL_REGISTRY"] = "127.0.0.1:1"
    done = user.run("check", "tensorflow:24.05-tf2-py3", "--host", "driver=550.54.15,gpu=RTX 4090")
    assert done.code == 0, done
    assert "ngcdl's own catalogue: 127.0.0.1:1 can't be reached" in done.out
    assert "from memory" in done.out
    assert user.run("resolve", "tensorflow").code == 125, "a digest is the registry's word alone"


def test_an_image_that_the_engine_has_is_not_refused_for_a_disk_that_is_full_since(
    lab: dict[str, Any], front: Front, tmp_path: Path
) -> None:
    with engine_of_ones_own(lab, tmpfs_bytes=50_000_000) as engine, user_in(tmp_path, lab, engine.host) as user:
        user.environment["NGCDL_REGISTRY"] = front.host
        user.login()
        assert user.run("pull", "busybox:1").code == 0
        free_bytes = shutil.disk_usage(engine.folder / "data").free
        (engine.folder / "data/more").write_bytes(bytes(free_bytes - 300_000))
        other = told(user.run("check", "pytorch:25.03-py3", "--json"), 2)
        assert [reason["rule"] for reason in other["reasons"] if reason["level"] == "no"] == ["disk"]
        judged = json.loads(user.run("check", "busybox:1", "--json").out)
        assert judged["compressed_bytes"] > 300_000
        assert "disk" not in [reason["rule"] for reason in judged["reasons"]]
        for words in (("pull", "busybox:1"), ("run", "busybox:1", "--pull", "always", "--", "true")):
            done = user.run(*words)
            assert done.code == 0, done
