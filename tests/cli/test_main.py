"""How ngcdl handles argv, its streams and its errors before any run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from house import LIKE_OTHERS, TRAIN, House

from ngcdl import __version__
from ngcdl.command_lines import COMMANDS
from ngcdl.folder import EVENTS
from ngcdl.record import Run

HEAVY = {"docker", "requests", "typer", "rich", "pynvml", "psutil"}


def imported(house: House, *argv: str) -> set[str]:
    """The top-level names of all imported modules."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ngcdl", *argv], capture_output=True, text=True,
        env=house.environment(), check=True,
    )  # fmt: skip
    return {name.split(".")[0] for name in re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE)}


def test_the_version_is_told_at_once(house: House) -> None:
    assert house.run("--version").stdout == f"ngcdl {__version__}\n"
    assert not imported(house, "--version") & HEAVY


def test_help_loads_nothing_heavy(house: House) -> None:
    assert not imported(house, "--help") & (HEAVY - {"typer", "psutil"})


def test_help_begins_with_the_way_in_and_names_every_command_once_in_the_order_of_use(house: House) -> None:
    text = house.run("--help", env={"COLUMNS": "80"}).stdout
    sections = dict(re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", text, re.MULTILINE))
    assert list(sections) == ["Start here", "Run", "This machine", "Images", "What was run", "More", "Options"]
    assert [line.split("  ")[1] for line in sections["Start here"].splitlines()] == [
        "ngcdl doctor", "ngcdl run --train cifar10", "ngcdl compare --train cifar10"
    ]  # fmt: skip
    commands = "".join(text for heading, text in sections.items() if heading not in ("Start here", "Options"))
    assert tuple(line.split()[0] for line in commands.splitlines()) == COMMANDS
    narrow = house.run("--help", env={"COLUMNS": "50"}).stdout
    assert not re.search(r"\.\.\.$", commands + narrow.partition("Run:")[2], re.MULTILINE), "no description is cut"
    assert "125" in text


@pytest.mark.parametrize("command", ["run", "check", "report"])
def test_the_examples_of_a_command_stand_one_below_the_other(house: House, command: str) -> None:
    for typed in ("ngcdl", "./scripts/ngcdl"):  # the latter where ngcdl is not on PATH
        told = house.run(command, "--help", env={"NGCDL_TYPED": typed, "PATH": ""}).stdout
        examples = told.partition("\n  Examples:\n")[2].splitlines()
        assert len(examples) > 1
        assert all(line.startswith(f"    {typed} ") for line in examples)


def test_nothing_typed_shows_the_help_as_a_usage_error(house: House) -> None:
    done = house.run()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", house.run("--help").stdout)


def test_a_folder_for_runs_that_can_t_be_written_leads_on_with_a_line_that_a_shell_takes(house: House) -> None:
    house.bring_trainer()
    done = house.run(*TRAIN, env={"XDG_STATE_HOME": "/proc/x"})
    assert done.returncode == 125
    assert done.stderr.endswith("    export XDG_STATE_HOME=DIR\n")


def test_a_key_in_a_variable_never_shows_in_a_dry_run(house: House) -> None:
    options = ("-e", "TOKEN=hush-1", "-e", "EPOCHS=3", "-e", "X=nvapi-hush-2", "--dry-run")
    for more in ((), ("--json",)):
        done = house.run(*TRAIN, *options, *more)
        assert done.returncode == 0, done.stderr
        assert "hush" not in done.stdout + done.stderr
        assert "EPOCHS" in done.stdout
    assert not house.store.root.exists(), "a dry run records nothing"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("-e", "HF_TOKEN=hush", "-e", "EPOCHS=3", "x:1", "ls"), "-e HF_TOKEN -e EPOCHS=3 x:1 -- ls"),
        (("--env=MY_KEYS=hush", "x:1", "ls"), "--env=MY_KEYS x:1 -- ls"),
        (("-eX=nvapi-hush", "--pull-secret", "ngc", "x:1", "ls"), "-eX --pull-secret ngc x:1 -- ls"),
        (("x:1", "login", "PASSWORD=hush"), "x:1 -- login 'PASSWORD=***'"),
    ],
)
def test_a_line_that_is_told_again_has_no_secret(house: House, typed: tuple[str, ...], told: str) -> None:
    done = house.run("run", *typed)
    assert done.returncode == 2
    assert f"    ngcdl run {told}\n" in done.stderr
    assert "hush" not in done.stderr


def test_the_same_by_hand_makes_the_folders_that_it_names(house: House) -> None:
    head, *by_hand = house.run(*TRAIN, "--autotune", "--dry-run").stdout.splitlines()
    assert head == "# what ngcdl would start, by hand:"
    state = house.home / "state/ngcdl"
    assert by_hand[0] == f"mkdir -p {state}/runs/dry-run/home {state}/autotune/+host"
    assert f"--choices {state}/autotune/+host" in by_hand[1]


def test_a_dry_run_says_that_the_python_it_names_is_made_by_the_first_run(house: House) -> None:
    done = house.run(*TRAIN, "--dry-run")
    (told,) = [line for line in done.stderr.splitlines() if "is not here yet" in line]
    python = json.loads(house.run(*TRAIN, "--dry-run", "--json").stdout)["request"]["argv"][0]
    assert told.startswith(f"ngcdl: {python} is not here yet: the run itself installs it first (a ")
    assert told.endswith(" and its dependencies).") or told.endswith(" and CUDA).")
    house.bring_trainer()
    assert "is not here yet" not in house.run(*TRAIN, "--dry-run").stderr


def test_a_dry_run_as_json_is_one_document(house: House) -> None:
    document = json.loads(house.run(*TRAIN, "--dry-run", "--json").stdout)
    assert document["engine"] == "local"
    python, *words = document["request"]["argv"]
    assert python.endswith("/bin/python"), "the local Python that it would be, whether it is there yet or not"
    assert words[:3] == ["-m", "trainer", "cifar10"]


@pytest.mark.parametrize(
    "argv", [("--version",), ("--help",), ("run", "--help"), ("show", "--json"), ("runs", "--json")]
)
def test_a_full_disk_behind_stdout_is_an_error(trained: House, argv: tuple[str, ...]) -> None:
    if argv[0] in ("show", "runs"):
        assert trained.run(*TRAIN).returncode == 0
    with Path("/dev/full").open("w") as full:
        done = trained.run(*argv, stdout=full)
    assert done.returncode == 125
    assert "No space left" in done.stderr


@pytest.mark.parametrize("argv", ["--version", "--help", "runs --json", "show", "logs"])
def test_a_reader_that_goes_early_gets_no_complaint(trained: House, argv: str) -> None:
    assert trained.run(*TRAIN).returncode == 0
    assert trained.shell(f"ngcdl {argv} | head -1").stderr == ""
    done = trained.shell(f"ngcdl {argv} | true; exit ${{PIPESTATUS[0]}}")
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize(
    "argv", ["--version", "--help", "runs --json", "show", "logs", "run --dry-run --train cifar10"]
)
def test_closed_streams_are_no_fault_of_ngcdl(trained: House, argv: str) -> None:
    assert trained.run(*TRAIN).returncode == 0
    done = trained.shell(f"ngcdl {argv} >&-")
    if argv not in ("--version", "--help"):
        assert done.returncode == 125
        assert "stdout is closed" in done.stderr
    assert trained.shell(f"ngcdl {argv} 2>&-").returncode == 0
    assert trained.shell(f"ngcdl {argv} <&-").returncode == 0


@pytest.mark.parametrize("settings", [{"LANG": "C"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
                                      {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}])  # fmt: skip
def test_a_terminal_without_unicode_can_show_every_record(tmp_path: Path, settings: dict[str, str]) -> None:
    house = House(tmp_path / "Müller \udcff")
    house.home.mkdir()
    house.bring_trainer()
    for argv in (TRAIN, ("runs",), ("show",), ("show", "--json"), ("logs",), (*TRAIN, "--dry-run")):
        done = house.run(*argv, env=settings)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("warnings", ["error", "ignore", ""])
def test_a_file_that_can_t_be_read_is_told_once_by_a_line_of_ngcdl_s_own(house: House, warnings: str) -> None:
    folder = house.store.create(Run("x", "failed", 1.0, exit_code=1))
    (folder / EVENTS).mkdir()
    done = house.run("show", "x", env={"PYTHONWARNINGS": warnings})
    assert (done.returncode, done.stderr) == (
        0,
        f"ngcdl: {folder}/events.jsonl can't be read: it is not a regular file\n",
    )


def test_bytes_that_are_no_text_are_a_usage_error(house: House) -> None:
    done = house.run("run", os.fsdecode(b"tensorflow:\xff"))
    assert done.returncode == 2


def test_the_help_of_a_command_with_many_options_has_headings(house: House) -> None:
    told = house.run("run", "--help").stdout
    headings = re.findall(r"^\w[\w ]*:$", told, re.MULTILINE)
    assert headings == [
        "Arguments:", "Training:", "Where it runs:", "On Slurm or Kubernetes:", "Container:", "Options:"
    ]  # fmt: skip
    assert re.search(r"^Training:\n  --train .*^Where it runs:\n  --gpus ", told, re.MULTILINE | re.DOTALL)


def test_an_archive_of_doctor_s_in_a_folder_that_may_not_be_entered_is_refused_at_once(house: House) -> None:
    (house.home / "locked").mkdir(mode=0)
    done = house.run("doctor", "--bundle", f"{house.home}/locked/x.tar.gz", before=LIKE_OTHERS)
    assert (done.returncode, done.stdout) == (2, "")
    assert "locked/x.tar.gz: it can't be written: Permission denied." in done.stderr


def test_doctor_looks_at_what_needs_no_home_where_the_home_may_not_be_entered(house: House) -> None:
    home = house.home / "locked"
    home.mkdir(mode=0)
    done = house.run("doctor", "--json", env={"HOME": str(home)}, before=LIKE_OTHERS)
    links = {link["name"]: link for link in json.loads(done.stdout)["links"]}
    found = f"{home}/.config/ngcdl/config.toml can't be read: Permission denied."
    assert (done.returncode, links["settings"]["state"], links["settings"]["found"]) == (1, "broken", found)
    assert (links["engine"]["state"], links["registry"]["found"]) == ("broken", "needs settings")
    assert {"driver", "shm", "cpu"} < set(links)


@pytest.mark.parametrize("error", ["RuntimeError('a bug')", "OSError(2, 'a bug', 'file')"])
def test_a_bug_of_ngcdl_s_own_is_shown_and_is_no_verdict(house: House, error: str) -> None:
    broken = f"import ngcdl.cli.images as it\ndef check(*_): raise {error}\nit.check = check\n"
    start = "import sys\nsys.argv[1:] = ['check', 'pytorch']\nfrom ngcdl.__main__ import main\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", broken + start], capture_output=True, text=True, env=house.environment(), check=False
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert "Traceback" in done.stderr
    assert "a bug" in done.stderr


def test_a_system_that_lets_it_start_no_thread_is_told_of(house: House) -> None:
    # a stand-in: a real limit is not enforced for root
    none = 'def none(*_, **__): raise RuntimeError("can\'t start new thread")\n'
    full = f"import threading\n{none}threading._start_new_thread = threading._start_joinable_thread = none\n"
    start = "import sys\nsys.argv[1:] = ['doctor']\nfrom ngcdl.__main__ import main\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", full + start],
        capture_output=True, text=True, env=house.environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.endswith("    ulimit -u\n")


@pytest.mark.parametrize(
    ("words", "environ", "code"),
    [
        (("run", "--train", "cifar10", "--engine", "local", "--data", "~nosuch/x"), {}, 125),
        (("run", "--train", "cifar10", "--engine", "local"), {"NGCDL_DATA": "~nosuch/x"}, 125),
        (("run", "--train", "catdog", "--engine", "local", "--data", "~nosuch/x"), {}, 2),
        (("doctor", "--bundle", "~nosuch/x"), {"NGCDL_DATA": "~nosuch/x"}, 2),
    ],
)
def test_the_home_of_nobody_is_a_folder_that_is_not_there(
    trained: House, words: tuple[str, ...], environ: dict[str, str], code: int
) -> None:
    done = trained.run(*words, env=environ)
    assert done.returncode == code
    assert "~nosuch/x" in done.stderr
    assert re.search("there is no such folder|No such file", done.stderr)
    assert "could not look" not in done.stdout


def test_shell_completion_that_can_t_be_installed_is_told_with_what_to_do_by_hand(house: House) -> None:
    (house.home / ".bashrc").mkdir()
    done = house.shell("ngcdl --install-completion; echo $?")
    assert done.stdout == "125\n"
    assert done.stderr.startswith(f"ngcdl: {house.home}/.bashrc can't be changed: ")
    assert done.stderr.endswith("\n      ngcdl --show-completion\n")


def test_an_image_for_a_file_in_a_folder_that_is_gone_is_not_fetched(house: House) -> None:
    done = house.shell("mkdir gone; cd gone; rmdir ../gone; ngcdl pull pytorch:24.05-py3 --to x.tar; echo $?")
    assert done.stdout == "2\n"
    assert "The current folder no longer exists." in done.stderr


def test_a_limit_of_open_files_that_does_not_do_is_told(house: House) -> None:
    done = house.shell("ulimit -n 6; ngcdl images pytorch")
    assert (done.returncode, done.stdout) == (125, "")
    told = "ngcdl: This process may open no more files at once.\n      ulimit -n 1024\n"
    assert done.stderr.endswith(told)


def test_a_file_in_the_place_of_the_state_s_folder_is_told(house: House) -> None:
    file = house.home / "file"
    file.touch()
    for words in (("show", "last"), ("compare", "--show", "last"), ("runs",)):
        done = house.run(*words, env={"XDG_STATE_HOME": str(file)})
        assert (done.returncode, done.stdout) == (125, "")
        assert f"{file}/ngcdl/" in done.stderr
        assert "which can't be written: Not a directory." in done.stderr


def test_only_what_is_wrong_with_a_typed_word_leads_to_the_command_s_help(house: House) -> None:
    for command, word in (("check", "x!"), ("pull", "x!"), ("check", "pytorch:-1"), ("pull", "pytorch:-1")):
        told = house.run(command, word).stderr
        assert told.startswith(f"ngcdl: {word}: ")
        assert told.endswith(f"\n      ngcdl {command} --help\n")
    of_a_setting = house.run("images", env={"NGCDL_REGISTRY": "a b"}).stderr
    assert of_a_setting == "ngcdl: NGCDL_REGISTRY = a b: must be a host, such as nvcr.io or 127.0.0.1:5443.\n"
