"""What Tab completes: ngcdl is asked as a shell asks it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from house import House
from stand_ins import stand_in

from ngcdl.catalog import releases
from ngcdl.record import Run
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison

IDS = [f"20261121-1432{second}-cifar10-a665ad" for second in range(10, 70)]


def offered(house: House, line: str, **env: str) -> list[str]:
    """Return what bash is told to offer at the end of `line`; nothing else is written anywhere."""
    words = line.split(" ")
    asked = {"_NGCDL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = house.run(env=asked | env)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    "line", ["show ", "logs -f ", "stop ", "report last ", "runs rm ", "runs diff last ", "run --resume "]
)
def test_a_run_is_the_last_or_one_of_the_newest_fifty(house: House, line: str) -> None:
    for run_id in IDS:
        house.store.create(Run(run_id, "finished", 1.0))
        (house.store.folder(run_id) / "run.json").write_text("no record is read")
    assert offered(house, f"ngcdl {line}") == ["last", *IDS[::-1][:50]]
    assert offered(house, f"ngcdl {line}l") == ["last"]
    house.store.create(Run("20261121-150000-cifar10-bb3803", "finished", 1.0))
    assert offered(house, f"ngcdl {line}bb") == ["bb3803"], "as ngcdl runs shows it"
    assert offered(house, f"ngcdl {line}ci") == ["cifar10"], "as --name was"
    for strange in ("a b", "a\nb", "a\x1b]0;x\a", "a$(x)", "a'b", "a\udcff"):
        house.store.create(Run(f"20261121-160000-{strange}-cc3803", "finished", 1.0))
    assert offered(house, f"ngcdl {line}20261121-16") == []


def test_only_a_run_that_goes_on_is_offered_to_be_entered(house: House) -> None:
    for run_id, status in zip(IDS, ("finished", "running", "finished"), strict=False):
        house.store.create(Run(run_id, status, 1.0))
    assert offered(house, "ngcdl exec ") == [IDS[1]]
    house.store.create(Run(IDS[3], "running", 1.0))
    assert offered(house, "ngcdl exec ") == ["last", IDS[3], IDS[1]]
    assert offered(house, "ngcdl exec last -- py") == []


@pytest.mark.parametrize("line", ["report ", "runs export ", "compare --show ", "stop "])
def test_a_comparison_is_offered_where_one_can_be_named(house: House, line: str) -> None:
    house.store.create(Run(IDS[0], "finished", 1.0))
    arms = (("cpu", "cpu"), ("gpu", "gpu"))
    for kept in ("20261121-140000-compare-aa0001", "20261121-150000-compare-lr3-bb0002"):
        comparisons.save(StoredComparison(kept, "device", 1, arms, 1.0), house.store)
    runs = [] if "compare" in line else [IDS[0]]
    newest_first = ["20261121-150000-compare-lr3-bb0002", "20261121-140000-compare-aa0001"]
    assert offered(house, f"ngcdl {line}") == ["last", *runs, *newest_first]
    # of one that can stand for a run, too, only the whole id is read as a comparison's
    assert offered(house, f"ngcdl {line}aa") == (["aa0001"] if "compare" in line else [])
    assert offered(house, f"ngcdl {line}compare-") == ["compare-lr3"]
    assert offered(house, f"ngcdl {line}lr") == (["lr3"] if "compare" in line else [])


@pytest.mark.parametrize(
    "line", ["run ", "check ", "pull ", "images ", "resolve ", "compare pytorch ", "suite articles "]
)
def test_an_image_is_a_framework_of_the_catalogue_and_then_one_of_its_tags(house: House, line: str) -> None:
    tags = [f"pytorch:{tag}" for tag in releases.tags("pytorch")]
    assert offered(house, f"ngcdl {line}") == list(releases.frameworks())
    assert offered(house, f"ngcdl {line}pyt") == ["pytorch"]
    assert offered(house, f"ngcdl {line}pytorch") == ["pytorch", *tags]
    assert offered(house, f"ngcdl {line}me/mine:") == []


def test_bash_takes_what_follows_a_colon_for_a_word_and_gets_the_tag_alone(house: House) -> None:
    tags = list(releases.tags("pytorch"))
    assert offered(house, f"ngcdl run pytorch : {tags[0][:4]}") == [tag for tag in tags if tag.startswith(tags[0][:4])]


def test_a_training_is_one_of_those_that_are_bundled(house: House) -> None:
    assert "smoke" in offered(house, "ngcdl run --train ")
    assert offered(house, "ngcdl compare --train cifar10-9") == ["cifar10-94"]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("run --engine ", "auto docker local slurm kubernetes"),
        ("suite articles --engine l", "local"),
        ("run --gpus ", "auto none all"),
        ("run --data ", "auto synthetic"),
        ("run --data ./", ""),  # the shell's own completion then offers files
        ("run --batch ", "largest"),
        ("pull pytorch --arch ", "amd64 arm64"),
        ("suite ", "articles table7"),
        ("export ", "slurm k8s compose"),
        ("compare --vary th", "threads=1,2"),
        ("compare --vary no", "nodes=1,2"),
        ("compare --vary im", ""),  # bash splits a word at its colons
    ],
)
def test_of_an_option_with_certain_values_these_are_offered(house: House, line: str, values: str) -> None:
    assert offered(house, f"ngcdl {line}") == values.split()


def test_the_line_for_another_shell_is_about_that_one(house: House) -> None:
    refused = house.run("--show-completion", "bash")
    assert (refused.returncode, "it is for the shell that it is typed in.\n" in refused.stderr) == (2, True)
    line = refused.stderr.splitlines()[-1].strip()
    stand_in(house.home, "ngcdl", f'exec "{sys.executable}" -m ngcdl "$@"')
    environment = house.environment(PATH=f"{house.home}:/usr/bin:/bin")
    done = subprocess.run(["sh", "-c", f"{line}; true"], env=environment, capture_output=True, text=True, check=True)
    assert "complete -o" in done.stdout, done.stderr


def test_zsh_gets_apostrophes(house: House) -> None:
    asked = {"_NGCDL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "ngcdl run --no-e"}
    assert house.run(env=asked).stdout == (
        """_arguments '*: :(("--no-eval":"Don'\\''t evaluate the trained network."))'\n"""
    )


def test_what_can_t_be_read_completes_nothing_and_says_nothing(house: House) -> None:
    assert offered(house, "ngcdl show ") == []
    (house.home / "file").touch()
    assert offered(house, "ngcdl show ", XDG_STATE_HOME=f"{house.home}/file") == []
    (house.home / ".config/ngcdl").mkdir(parents=True)
    (house.home / ".config/ngcdl/config.toml").write_text("registry = [")
    assert offered(house, "ngcdl show ") == []


def test_after_two_dashes_no_image_is_offered_for_the_words_of_a_command(house: House) -> None:
    assert offered(house, "ngcdl run py") == ["pytorch"]
    for line in ("ngcdl run -- ", "ngcdl run -- py", "ngcdl run pytorch -- py", "ngcdl compare -- py"):
        assert offered(house, line) == []
    assert offered(house, "ngcdl check -- py") == ["pytorch"]
