"""What is requested when a run is repeated, and when it is refused."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeShow
from made_runs import DIGEST, UUID, Made

from ngcdl import __version__, settings
from ngcdl.errors import NotRepeatable
from ngcdl.folder import EVENTS, IMPORTED, RECORD
from ngcdl.record import Image, Run
from ngcdl.report.measured import retyped
from ngcdl.running import repeat
from ngcdl.running.context import Context
from ngcdl.running.owner import this_process
from ngcdl.spec import GpuRequest, ImageRef, Workload
from ngcdl.storing.store import Store

SYNTHETIC = Made(steps=10, seed=3, dataset="synthetic")


@pytest.fixture
def config(tmp_path: Path) -> settings.Settings:
    return settings.load({"HOME": str(tmp_path)})


def again(run: Run, config: settings.Settings, **how: Any) -> repeat.Repetition:
    store = Store(config.runs)
    store.folder(run.id).mkdir(parents=True, exist_ok=True)
    store.save(run)
    return repeat.request_again(run, Context(config, store, FakeShow()), **how)


def with_spec(run: Run, **changed: Any) -> Run:
    return replace(run, spec={**(run.spec or {}), **changed})


def test_a_training_is_asked_for_by_digest_with_its_cards_its_seed_and_its_data(config: settings.Settings) -> None:
    asked = again(SYNTHETIC.run("x"), config).asked
    assert str(asked.image) == f"nvcr.io/nvidia/tensorflow@{DIGEST}"
    assert asked.gpus == GpuRequest("devices", devices=(UUID,))
    assert asked.workload
    assert (asked.workload.steps, asked.workload.seed, asked.workload.data) == (10, 3, "synthetic")
    assert (asked.engine, asked.device) == ("docker", "gpu")


def test_an_engine_s_own_image_is_asked_for_by_its_id(config: settings.Settings) -> None:
    run = replace(SYNTHETIC.run("x"), image=Image("docker.io/library/mine:latest", None, DIGEST))
    image = again(run, config).asked.image
    assert image == replace(ImageRef.parse("docker.io/library/mine:latest"), id=DIGEST)
    with pytest.raises(NotRepeatable, match="a tag may be another image by now"):
        again(replace(run, image=Image("docker.io/library/mine:latest")), config)


def test_how_it_was_fed_and_computed_and_how_long_is_asked_for_once_more(config: settings.Settings) -> None:
    run = SYNTHETIC.run("x")
    asked = Workload(
        "distill", None, 8, feed="plain", precision="amp", compile=True, channels_last=False, seconds=30.0,
        teacher="kept", data="synthetic",
    )  # fmt: skip
    for workload in (asked, replace(asked, seconds=None, epochs=2, largest_batch=True)):
        assert again(with_spec(run, workload=vars(workload)), config).asked.workload == workload


def test_what_a_trial_chose_is_asked_for_outright(config: settings.Settings) -> None:
    before = with_spec(SYNTHETIC.run("x"), workload=vars(Workload("cifar10", 9, autotune=True, feed=None)))
    folder = Store(config.runs).folder("x")
    folder.mkdir(parents=True)
    assert (again(before, config).asked.workload or Workload("")).autotune, "no training began"
    chosen = {"threads": 1, "onednn": False}
    (folder / EVENTS).write_text(json.dumps({"event": "start", "autotune": {"chosen": chosen}}) + "\n")
    found = again(before, config)
    assert found.asked.workload == Workload("cifar10", 9, threads=1, data="synthetic")
    assert found.asked.extra
    assert found.asked.extra.environment == (("TF_ENABLE_ONEDNN_OPTS", "0"),)
    assert "--autotune is left out: what it chose then is set explicitly" in found.remarks


def test_what_may_be_otherwise_this_time_is_said(config: settings.Settings) -> None:
    assert again(replace(SYNTHETIC.run("x"), ngcdl=__version__), config).remarks == ()
    (remark,) = again(replace(SYNTHETIC.run("x"), ngcdl="0.0.1"), config).remarks
    assert remark == f"ngcdl 0.0.1 recorded it and this is {__version__}: the trainer may differ"


def test_a_run_without_a_gpu_gets_none_whatever_is_there_today(config: settings.Settings) -> None:
    run = replace(SYNTHETIC, device="cpu").run("x")
    asked = again(with_spec(run, gpus="auto"), config).asked
    assert (asked.gpus, asked.device) == (GpuRequest("none"), "cpu")


def test_all_that_was_typed_beside_the_plan_is_asked_for_once_more(config: settings.Settings) -> None:
    run = with_spec(
        SYNTHETIC.run("x"),
        mounts=["/opt/trainer:/ngcdl/trainer:ro", "/data:/data:ro", "/big:/ngcdl/cache"],
        environment={"EPOCHS": "3"},
        ports=["8888:8888"],
        shm_bytes=1 << 31,
        ulimits={"stack": 5},
        cpu_limit=0.5,
        memory_bytes=1 << 32,
    )
    extra = again(run, config).asked.extra
    assert extra
    assert [str(mount) for mount in extra.mounts] == ["/data:/data:ro", "/big:/ngcdl/cache"]
    assert extra.environment == (("EPOCHS", "3"),)
    assert ([str(port) for port in extra.ports], extra.shm_bytes, extra.ulimits) == (
        ["8888:8888"], 1 << 31, (("stack", 5),),
    )  # fmt: skip
    assert (extra.cpu_limit, extra.memory_bytes) == (0.5, 1 << 32)
    own = again(with_spec(run, workload=None, command=["ls"]), config).asked.own
    assert own
    assert (own.cpu_limit, own.memory_bytes) == (0.5, 1 << 32)


def test_a_command_of_ones_own_keeps_its_words_and_its_folder(config: settings.Settings) -> None:
    run = with_spec(SYNTHETIC.run("x"), workload=None, command=["ls", "-l"], mounts=["/home/me:/work"], workdir="/work")
    asked = again(run, config).asked
    assert asked.own
    assert asked.own.command == ("ls", "-l")
    assert ([str(mount) for mount in asked.own.mounts], asked.own.workdir) == (["/home/me:/work"], "/work")
    assert asked.workload is None


def test_stdin_that_was_no_terminal_is_said_to_be_missing(config: settings.Settings) -> None:
    run = with_spec(replace(SYNTHETIC.run("x"), ngcdl=__version__), workload=None, command=["cat"], stdin=True)
    assert again(run, config).remarks == ("its stdin was not recorded",)
    assert again(with_spec(run, tty=True), config).remarks == (), "a terminal is given anew, or said to be missing"


def test_a_value_that_was_redacted_is_the_caller_s_own_or_a_refusal(
    config: settings.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_spec(SYNTHETIC.run("x"), environment={"API_KEY": "***", "EPOCHS": "3"})
    monkeypatch.delenv("API_KEY", raising=False)
    with pytest.raises(NotRepeatable, match="the value of API_KEY looked like a secret") as caught:
        again(run, config)
    assert "API_KEY=... ngcdl runs replay x" in caught.value.hint
    monkeypatch.setenv("API_KEY", "mine")
    given = again(run, config)
    assert given.asked.extra
    assert dict(given.asked.extra.environment) == {"API_KEY": "mine", "EPOCHS": "3"}
    assert any("API_KEY was not recorded" in remark for remark in given.remarks)
    assert "mine" not in repr(given.remarks)


@pytest.mark.parametrize("is_set", [True, False])
def test_what_starts_nothing_gets_no_value_of_the_caller_s(
    config: settings.Settings, monkeypatch: pytest.MonkeyPatch, is_set: bool
) -> None:
    monkeypatch.delenv("API_KEY", raising=False)
    if is_set:
        monkeypatch.setenv("API_KEY", "mine")
    run = with_spec(SYNTHETIC.run("x"), environment={"API_KEY": "***", "EPOCHS": "3"})
    found = again(run, config, dry=True)
    assert found.asked.extra
    assert dict(found.asked.extra.environment) == {"API_KEY": "***", "EPOCHS": "3"}


@pytest.fixture
def imported(config: settings.Settings) -> Run:
    """A stranger's command, which was imported from an archive."""
    store = Store(config.runs)
    spec = {
        "image": "evil.example/x:1", "command": ["sh", "-c", "env; ls /x"], "gpus": "none", "user": None,
        "environment": {"HF_TOKEN": "***", "EPOCHS": "3"}, "mounts": ["/:/ngcdl/x", "models:/m"],
        "ports": ["22222:22"], "packages": ["evil"],
        "placement": {"options": ["--comment=x"], "patches": ["a:\n  b: c\n"]},
    }  # fmt: skip
    made = Made("cpu")
    made.keep(store, "x", spec=spec, image=Image("evil.example/x:1", DIGEST))
    (store.folder("x") / IMPORTED).touch()
    return store.load("x")


def test_a_stranger_s_run_is_refused_with_all_that_it_would_get(
    imported: Run, config: settings.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "mine")
    with pytest.raises(NotRepeatable, match="it was imported") as refused:
        again(imported, config)
    said = refused.value.hint
    assert f"    image      evil.example/x@{DIGEST}\n" in said
    assert "    command    sh -c 'env; ls /x'\n" in said
    assert "    variables  HF_TOKEN as it is set here, EPOCHS\n" in said
    assert "    folders    /:/ngcdl/x, models:/m\n" in said
    assert "    packages   evil\n" in said
    assert "    ports      22222:22\n" in said
    assert "    user       root, if the image names no other\n" in said
    assert "    sbatch     --comment=x\n" in said
    assert "    job patch  a:\\n  b: c\\n\n" in said
    assert said.endswith("    ngcdl runs replay x --trust")
    assert "mine" not in said
    trusted = again(imported, config, trust=True).asked
    assert trusted.own
    assert dict(trusted.own.environment) == {"HF_TOKEN": "mine", "EPOCHS": "3"}
    looked_at = again(imported, config, dry=True)
    assert looked_at.asked.own, "to look at it needs no trust"
    assert "WARNING: it was imported, and nobody here has checked what it would do. It would get:" in str(looked_at)


def test_a_record_that_ngcdl_did_not_write_is_repeated_only_if_trusted(config: settings.Settings) -> None:
    store, run = Store(config.runs), replace(SYNTHETIC.run("x"), ngcdl=__version__)
    store.create(run)
    assert again(store.load("x"), config).remarks == ()
    record = store.folder("x") / RECORD
    record.write_text(record.read_text().replace('"seed": 3', '"seed": 4'))  # as the run could
    changed = store.load("x")
    with pytest.raises(NotRepeatable, match="nothing shows that its record is as ngcdl wrote it: the run") as refused:
        repeat.request_again(changed, Context(config, store, FakeShow()))
    assert "    training   cifar10\n" in refused.value.hint
    store.save(changed.noting("stopped"), store.is_known(changed))
    with pytest.raises(NotRepeatable, match="nothing shows that its record is as ngcdl wrote it"):
        repeat.request_again(store.load("x"), Context(config, store, FakeShow()))
    trusted = repeat.request_again(store.load("x"), Context(config, store, FakeShow()), trust=True).asked.workload
    assert trusted
    assert trusted.seed == 4


def here(**changed: Any) -> Run:
    """A command that ran on this host without an image."""
    spec = {"image": None, "command": ["true"], "gpus": "auto", "workdir": "/", "workload": None}
    run = replace(SYNTHETIC.run("x"), engine="local", image=Image(), gpus=(), gpu_way="none", ngcdl=__version__)
    return with_spec(replace(run, device=None, dataset=None), **(spec | changed))


def test_a_stranger_s_command_for_this_host_is_refused_with_the_folder_it_would_run_in(
    config: settings.Settings,
) -> None:
    store = Store(config.runs)
    store.create(here())
    (store.folder("x") / IMPORTED).touch()
    with pytest.raises(NotRepeatable, match="it was imported") as refused:
        again(here(workdir="/home/me"), config)
    assert "    command    true\n    folder     /home/me\n" in refused.value.hint
    with pytest.raises(NotRepeatable, match="its folder /no such/one no longer exists") as gone:
        again(here(workdir="/no such/one"), config, trust=True)
    assert gone.value.hint.endswith("    ngcdl run --engine local -- true")


def test_a_record_without_a_command_is_a_refusal(config: settings.Settings) -> None:
    with pytest.raises(NotRepeatable, match="does not say which command it was"):
        again(here(command=[]), config)


def test_cards_of_this_host_that_were_not_known_are_left_open_once_more(config: settings.Settings) -> None:
    assert again(here(), config).asked.gpus == GpuRequest("none")
    assert again(replace(here(), gpus=None), config).asked.gpus == GpuRequest()
    assert again(with_spec(replace(here(), gpus=None), gpus="none"), config).asked.gpus == GpuRequest("none")


def test_a_stranger_s_training_is_refused_with_the_folder_of_its_data(config: settings.Settings) -> None:
    made, store = replace(SYNTHETIC, dataset="pictures"), Store(config.runs)
    training = {**(made.run("x").spec or {})["workload"], "name": "catdog", "data": "/home/me"}
    made.keep(store, "x", spec={**(made.run("x").spec or {}), "workload": training})
    (store.folder("x") / IMPORTED).touch()
    with pytest.raises(NotRepeatable, match="it was imported") as refused:
        again(store.load("x"), config)
    assert "    training   catdog\n" in refused.value.hint
    assert "    folders    /home/me\n" in refused.value.hint


@pytest.mark.parametrize("digest", ["sha256:x; touch /tmp/y", "sha256:" + "5" * 63, "latest"])
def test_a_digest_that_is_none_is_a_refusal(config: settings.Settings, digest: str) -> None:
    with pytest.raises(NotRepeatable, match="its record names no valid image"):
        again(replace(SYNTHETIC, digest=digest).run("x"), config)


def test_a_word_that_was_redacted_is_a_refusal(config: settings.Settings) -> None:
    run = with_spec(SYNTHETIC.run("x"), workload=None, command=["serve", "--token", "***"])
    with pytest.raises(NotRepeatable, match="a word of its command"):
        again(run, config)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (replace(SYNTHETIC.run("x"), spec=None, engine="compose"), "compose started it"),
        (replace(SYNTHETIC, digest=None).run("x"), "digest of its image was not recorded"),
        (with_spec(SYNTHETIC.run("x"), ports=["no"]), "not say what was requested"),
        (with_spec(SYNTHETIC.run("x"), mounts=7), "not say what was requested"),
        (with_spec(SYNTHETIC.run("x"), gpus="a few"), "not say what was requested"),
        (with_spec(SYNTHETIC.run("x"), workload={"name": "cifar10", "later": 5}), "does not know its later"),
        (with_spec(SYNTHETIC.run("x"), workload={"name": "cifar10", "resume": "gone"}), "resumed from gone"),
        (with_spec(SYNTHETIC.run("x"), workload={"steps": 5}), "does not say which training"),
        (with_spec(SYNTHETIC.run("x"), environment={"X;touch /tmp/y;A": "1"}), "not say what was requested"),
        (with_spec(SYNTHETIC.run("x"), placement={"options": ["--a\ntouch /tmp/y"]}), "not say what was requested"),
    ],
)
def test_what_can_t_be_the_same_is_a_refusal(config: settings.Settings, run: Run, why: str) -> None:
    with pytest.raises(NotRepeatable, match=why):
        again(run, config)


def test_without_a_digest_the_command_with_the_tag_is_named(config: settings.Settings) -> None:
    run = replace(SYNTHETIC, digest=None).run("x")
    with pytest.raises(NotRepeatable) as refused:
        again(run, config)
    lines = refused.value.hint.splitlines()
    assert lines == ["With the image that its tag is today:", f"    {retyped.command(run)}"]
    (config.runs / "x" / IMPORTED).touch()
    with pytest.raises(NotRepeatable) as refused:
        again(run, config)
    said = "WARNING: it was imported, and nobody here has checked what it would do."
    assert refused.value.hint.splitlines() == [said, *lines]


def test_a_run_that_went_on_from_one_that_runs_again_is_refused_as_run_refuses_it(config: settings.Settings) -> None:
    store = Store(config.runs)
    source = replace(SYNTHETIC.run("source"), status="running", started=time.time(), owner=this_process())
    (store.create(source) / EVENTS).touch()
    run = with_spec(SYNTHETIC.run("x"), workload=vars(Workload("cifar10", 9, resume="source", data="synthetic")))
    for dry in (False, True):
        with pytest.raises(NotRepeatable, match="it resumed from source, which is still running") as refused:
            again(run, config, dry=dry)
        assert refused.value.hint.splitlines()[1:] == ["    ngcdl logs -f source", "    ngcdl stop source"]
    store.save(replace(source, status="finished", owner=None))
    with pytest.raises(NotRepeatable, match="it resumed from source, whose checkpoints are not here"):
        again(run, config)
    (store.folder("source") / "checkpoints").mkdir()
    (store.folder("source") / "checkpoints/step-9.npz").touch()
    assert again(run, config).asked.workload
    (store.folder("source") / RECORD).write_text("torn")
    assert again(run, config).asked.workload, "the checkpoints beside it may be whole"


def test_a_pod_that_went_on_from_one_whose_events_never_arrived_does_so_again(config: settings.Settings) -> None:
    """The checkpoints are on the volume claim."""
    store = Store(config.runs)
    store.create(replace(SYNTHETIC.run("source"), engine="kubernetes"))
    workload = vars(Workload("cifar10", 9, resume="source", data="synthetic"))
    run = with_spec(replace(SYNTHETIC.run("x"), engine="kubernetes"), workload=workload)
    assert again(run, config).asked.workload == Workload("cifar10", 9, resume="source", data="synthetic")
    with pytest.raises(NotRepeatable, match="it resumed from source, which is not here"):
        again(replace(run, engine="docker"), config)
    (store.folder("source") / RECORD).unlink()
    with pytest.raises(NotRepeatable, match="it resumed from source, which is not here"):
        again(run, config)


@pytest.mark.parametrize(("name", "dataset"), [("cifar10", "cifar10"), ("catdog", "pictures")])
def test_a_pod_gets_the_data_of_its_claim_and_nothing_is_looked_for_here(
    config: settings.Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, dataset: str
) -> None:
    monkeypatch.setenv("NGCDL_DATA", str(tmp_path / "missing"))
    run = replace(SYNTHETIC.run("x"), engine="kubernetes", dataset=dataset)
    asked = again(with_spec(run, workload=vars(Workload(name, 9)), placement={"data_pvc": "mine"}), config).asked
    assert asked.workload == Workload(name, 9)
    assert asked.placement
    assert asked.placement.data_pvc == "mine"


def test_a_pod_that_ran_as_the_image_s_own_user_does_so_again(config: settings.Settings) -> None:
    run = replace(SYNTHETIC.run("x"), engine="kubernetes")
    assert again(with_spec(run, user=None), config).asked.root
    assert not again(with_spec(run, user="1000:1000"), config).asked.root
    assert not again(with_spec(replace(run, engine="local"), user=None), config).asked.root


def test_the_smoke_test_has_no_data_that_could_be_another(config: settings.Settings) -> None:
    run = replace(SYNTHETIC.run("x"), dataset=None)
    asked = again(with_spec(run, workload={"name": "smoke", "steps": 1, "batch": 1}), config).asked
    assert asked.workload
    assert (asked.workload.name, asked.workload.data) == ("smoke", "auto")


def test_another_data_set_than_it_had_is_a_refusal(config: settings.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(SYNTHETIC, dataset="cifar10")
    store = Store(config.runs)
    folder = made.keep(store, "x")
    run = with_spec(made.run("x"), workload={**made.run("x").spec["workload"], "data": "synthetic"})  # type: ignore[index]
    with pytest.raises(NotRepeatable, match="it trained on cifar10, which is not available now"):
        again(run, config)
    assert again(run, config, dry=True).asked.workload
    assert json.loads((folder / "events.jsonl").read_text().splitlines()[0])["dataset"] == "cifar10"
