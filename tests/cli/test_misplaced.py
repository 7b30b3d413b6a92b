"""A command in an image's place, without --, or beside --train is answered by the lines to type."""

from __future__ import annotations

import pytest
from house import House


@pytest.mark.parametrize(
    ("argv", "in_an_image", "here"),
    [
        ("run train.py", "run pytorch -- python train.py", "run -- python3 train.py"),
        ("run ./go.sh", "run pytorch -- bash ./go.sh", "run -- bash ./go.sh"),
        ("run ./tool x", "run pytorch -- ./tool x", "run -- ./tool x"),
        ("run -e A_KEY=hush train.py --gpus none a b", "run -e A_KEY pytorch --gpus none -- python train.py a b",
         "run -e A_KEY --gpus none -- python3 train.py a b"),
        ("run train.py -- --n 3", "run pytorch -- python train.py --n 3", "run -- python3 train.py --n 3"),
        ("compare train.py", "compare pytorch -- python train.py", "compare -- python3 train.py"),
        ("run ../out.py", None, "run -- python3 ../out.py"),
    ],
)  # fmt: skip
def test_a_file_in_an_image_s_place_leads_on_to_the_commands_that_start_it(
    house: House, argv: str, in_an_image: str | None, here: str
) -> None:
    folder = house.home / "project"
    folder.mkdir()
    for name in ("train.py", "go.sh", "tool", "../out.py"):
        (folder / name).touch()
    done = house.run(*argv.split(), cwd=folder)
    name = next(word for word in argv.split() if (folder / word).is_file())
    lines = [f"      ngcdl {in_an_image}", "  On this host, without an image:"] if in_an_image else []
    assert done.stderr.splitlines() == [
        f"ngcdl: {name} is a file here, not an image.", *lines, f"      ngcdl {here}",
    ]  # fmt: skip
    assert done.returncode == 2


def test_a_name_with_such_an_ending_that_is_no_file_is_an_image_s(house: House) -> None:
    assert "which release" in house.run("run", "train.py").stderr


@pytest.mark.parametrize(
    ("argv", "in_an_image", "here"),
    [
        ("run python a.py 3", "run pytorch -- python a.py 3", "run -- python3 a.py 3"),
        ("run torchrun --gpus 1 a.py", "run pytorch --gpus 1 -- torchrun a.py", "run --gpus 1 -- torchrun a.py"),
        ("run nvidia-smi", "run pytorch -- nvidia-smi", "run -- nvidia-smi"),
        ("compare nvidia-smi", "compare pytorch -- nvidia-smi", "compare -- nvidia-smi"),
    ],
)
def test_a_program_in_an_image_s_place_leads_on_to_an_image_and_to_this_host(
    house: House, argv: str, in_an_image: str, here: str
) -> None:
    """Also one that this host lacks, as Debian does `python`."""
    done = house.run(*argv.split(), env={"PATH": ""})
    assert done.stderr.splitlines() == [
        f"ngcdl: {argv.split()[1]} is a program, not an image.",
        f"      ngcdl {in_an_image}",
        "  On this host, without an image:",
        f"      ngcdl {here}",
    ]


def test_an_option_of_a_command_in_an_image_s_place_leads_on_to_both_too(house: House) -> None:
    (house.home / "a.py").touch()
    for argv in ("run python a.py --lr 3", "run a.py --lr 3"):
        assert house.run(*argv.split(), env={"PATH": ""}).stderr.splitlines()[1:] == [
            "  If it belongs to your command, that goes after --, with its options:",
            "      ngcdl run pytorch -- python a.py --lr 3",
            "  On this host, without an image:",
            "      ngcdl run -- python3 a.py --lr 3",
        ]


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        ("run x:1 --train cifar10 -- python a.py", ["run x:1 --train cifar10", "run x:1 -- python a.py"]),
        (
            "run --train=cifar10 --gpus 1 -- python a.py",
            ["run --train=cifar10 --gpus 1", "run --gpus 1 -- python3 a.py"],
        ),
        ("run --train cifar10 python a.py", ["run --train cifar10", "run -- python3 a.py"]),
        ("run --train cifar10 --steps 9 -- python a.py", ["run --train cifar10 --steps 9"]),
        ("run --train cifar10 -- --steps 9", ["run --train cifar10 --steps 9"]),
        ("compare --train cifar10 --vary threads=1,2 -- ls", ["compare --train cifar10 --vary threads=1,2"]),
    ],
)
def test_a_command_beside_a_training_leads_on_to_either(house: House, argv: str, lines: list[str]) -> None:
    said = house.run(*argv.split()).stderr.splitlines()
    assert said[0] == "ngcdl: --train runs a bundled training: no command can follow --."
    assert [line.strip() for line in said if line.startswith("      ")] == [f"ngcdl {line}" for line in lines]
