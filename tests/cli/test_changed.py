"""An error's advice is the whole line that was typed, with the change, so that it can be pasted."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from ngcdl.cli.changed import as_typed, written_out
from ngcdl.record import Diagnosis, Finding, Image, Run
from ngcdl.spec import RunSpec, Workload


@pytest.mark.parametrize(
    ("typed", "advised", "expected"),
    [
        ("run pytorch --gpus all -- python a.py --gpus 1", "run ... --gpus none",
         "run pytorch --gpus none -- python a.py --gpus 1"),
        ("run --gpus=2 --train cifar10 pytorch", "run ... --gpus none", "run --train cifar10 pytorch --gpus none"),
        ("run --device gpu --train cifar10", "run ... --device cpu", "run --train cifar10 --device cpu"),
        ("run --device gpu --gpus 1 --train cifar10", "run ... --gpus none", "run --train cifar10 --gpus none"),
        ("run pytorch --force", "run ... --force", "run pytorch --force"),
        ("compare --train cifar10 --gpus 2", "compare ... --gpus none", "compare --train cifar10 --gpus none"),
        ("compare pytorch --vary gpus=1,2 --repeat=5 -- python 'a b.py'", "run ... --gpus none -- COMMAND",
         "run pytorch --gpus none -- python 'a b.py'"),
        ("run --train x --batch 8 --resume last", "run ... --train y --batch 4 --no-eval --resume last",
         "run --train y --batch 4 --no-eval --resume last"),
        ("run pytorch -e TOKEN=abc --gpus all -- true", "run ... --gpus none",
         "run pytorch -e TOKEN --gpus none -- true"),
        ("run --train smoke -e CUDA_VISIBLE_DEVICES=1 -eA=1", "run ... --gpus 1", "run --train smoke -eA=1 --gpus 1"),
        ("run --train smoke --env=CUDA_VISIBLE_DEVICES=0,1", "run ... --gpus 2", "run --train smoke --gpus 2"),
        # an option is left out, or the image replaced; the command is the one that was typed
        ("run pytorch --train catdog --feed=resident --data . --seed 3", "...  # without --feed VALUE",
         "run pytorch --train catdog --data . --seed 3"),
        ("compare pytorch --train lstm --epochs 3", "... --steps 9  # without --epochs N --autotune",
         "compare pytorch --train lstm --steps 9"),
        ("run nvidia/tensorflow --train x --seed 3", "... pytorch  # without nvcr.io/nvidia/tensorflow:24.05-tf2-py3",
         "run pytorch --train x --seed 3"),
        ("compare tensorflow pytorch:24.05-py3 --train x", "... pytorch  # without nvcr.io/nvidia/tensorflow:24.05",
         "compare pytorch:24.05-py3 --train x"),
        ("run --name tensorflow tensorflow --train x", "... pytorch  # without nvcr.io/nvidia/tensorflow:24.05",
         "run --name tensorflow pytorch --train x"),
        ("suite table7 --repeat 2 tensorflow:17.05 --gpus 1",
         "... tensorflow:18.01-py2  # without nvcr.io/nvidia/tensorflow:17.05",
         "suite table7 --repeat 2 tensorflow:18.01-py2 --gpus 1"),
        ("suite table7 --gpus 1", "... pytorch  # without nvcr.io/nvidia/tensorflow:24.05",
         "suite table7 --gpus 1 pytorch"),
        ("run tensorflow --train x --name pytorch", "... pytorch  # without nvcr.io/nvidia/tensorflow:24.05",
         "run pytorch --train x --name pytorch"),
        ("run --time 30 pytorch", "...  # without --time TIME", "run pytorch"),
        ("run --engine local --train x", "... pytorch  # without --engine NAME", "run pytorch --train x"),
        ("run -it x:1 -p80:80 --publish=8:8 -ti -- ls -i", "run ...  # without -i --interactive -p PORT --publish PORT",
         "run -t x:1 -t -- ls -i"),
        ("run pytorch -ii --engine slurm", "run ... -- COMMAND  # without -i", "run pytorch --engine slurm -- COMMAND"),
        ("run pytorch --pip x -- true", "run ... -v /a:/a -e A=1", "run pytorch --pip x -v /a:/a -e A=1 -- true"),
        ("run pytorch --gpus 1 -- python a.py --gpus 2", "run ... --root -- sh -c 'pip install x && python train.py'",
         "run pytorch --gpus 1 --root -- sh -c 'pip install x && python train.py'"),
        ("run --engine local -- ./a", "run ... -- python3 -c 'help()'", "run --engine local -- python3 -c 'help()'"),
        ("runs replay last", "run ... pytorch:24.12-py3  # without pytorch:26.08-py3", "run ... pytorch:24.12-py3"),
        # what it replaces is not known, or it is no advice about this command
        ("run pytorch -eB=2", "run ... -e A=1", None),
        ("run pytorch --volume=/a:/data", "run ... -v /another/folder:/data", None),
        ("run pytorch -v /a:/data", "run ... -v /another/folder:/data", None),
        ("compare --train cifar10", "run ... --gpus none", None),
        ("runs replay last", "run ... --gpus none", None),
        ("doctor", "run ... --gpus none", None),
        ("tests/cli", "... --gpus none", None),  # a program that embeds ngcdl
        ("run pytorch", "run ... -v 'a", None),  # a folder with a newline in its name
    ],
)  # fmt: skip
def test_an_advised_change_is_made_in_the_line_that_was_typed(typed: str, advised: str, expected: str | None) -> None:
    shown = written_out(f"Why:\n    ngcdl {advised}\nMore:\n    ngcdl gpu", shlex.split(typed))
    assert shown == f"Why:\n    ngcdl {expected or advised}\nMore:\n    ngcdl gpu"


@pytest.mark.parametrize(
    ("advised", "shown"),
    [
        ("    ngcdl ... --batch 2", "    ngcdl ... --batch 2"),
        ("    ngcdl ...  # without --batch VALUE", "Leave it out."),
        ("    ngcdl ... --seed 1  # without --batch VALUE", "    ngcdl ... --seed 1"),
        ("    ngcdl ... --batch 2  # without --batch 1", "    ngcdl compare --train x --vary batch=2,8"),
        ("    ngcdl ... --batch 8  # without --batch 1", "    ngcdl ... --batch 8"),
    ],
)
def test_what_is_varied_is_changed_there_and_not_also_set(advised: str, shown: str) -> None:
    assert written_out(advised, ["compare", "--train", "x", "--vary", "batch=1,8"]) == shown


@pytest.mark.parametrize(
    ("varied", "newest", "expected"),
    [
        ("pytorch:1,tensorflow:2", "x.io/nvidia/tensorflow:1", "pytorch:1,x.io/nvidia/tensorflow:1"),
        ("nvidia/tensorflow:2,pytorch:1", "x.io/nvidia/tensorflow:1", "x.io/nvidia/tensorflow:1,pytorch:1"),
        ("tensorflow,pytorch:1", "x.io/nvidia/tensorflow:1", "x.io/nvidia/tensorflow:1,pytorch:1"),
        ("tensorflow:1,tensorflow:2", "x.io/nvidia/tensorflow:1", None),  # the other one
    ],
)
def test_an_image_that_is_varied_is_replaced_unless_it_would_be_compared_with_itself(
    varied: str, newest: str, expected: str | None
) -> None:
    shown = written_out(
        f"    ngcdl compare ... {newest}  # without x.io/nvidia/tensorflow:2",
        ["compare", "--train", "x", "--vary", f"image={varied}"],
    )
    assert shown == f"    ngcdl compare {f'--train x --vary image={expected}' if expected else f'... {newest}'}"


def test_what_stands_before_the_line_stays() -> None:
    shown = written_out("    XDG_STATE_HOME=/shared ngcdl run ...", ["run", "pytorch", "--engine", "slurm"])
    assert shown == "    XDG_STATE_HOME=/shared ngcdl run pytorch --engine slurm"
    assert written_out("    timeout 30m ngcdl run ...", ["run", "pytorch"]) == "    timeout 30m ngcdl run pytorch"


def test_an_option_that_the_command_lacks_is_not_advised() -> None:
    assert written_out("Why:\n    ngcdl ... --batch 99", ["suite", "articles", "--gpus", "99"]) == "Why:"


def test_what_a_run_s_record_advises_is_told_after_the_run_as_the_line_that_was_typed() -> None:
    known = Diagnosis("x", "words", "The cause.", "Give it more:\n    ngcdl run ... --shm-size 8g")
    found = (Finding("a", "Small.", {}, "    ngcdl run ... --batch 512"), Finding("b", "Busy.", {}, None))
    run = as_typed(Run("x", "failed", 1.0, diagnosis=known, findings=found), ["run", "--train", "cifar10"])
    assert run.diagnosis
    assert run.diagnosis.remedy == "Give it more:\n    ngcdl run --train cifar10 --shm-size 8g"
    assert [one.advice for one in run.findings or ()] == ["    ngcdl run --train cifar10 --batch 512", None]
    assert as_typed(replace(run, diagnosis=None, findings=None), ["run"]) == Run("x", "failed", 1.0)


def test_what_a_record_advises_is_shown_later_as_a_line_that_requests_the_run() -> None:
    image = Image("nvcr.io/nvidia/pytorch:26.07-py3", "sha256:" + "1" * 64)
    spec = RunSpec(None, workload=Workload("cifar10", batch=32)).as_json()
    found = (Finding("a", "Small.", {}, "    ngcdl run ... --batch 512"),)
    run = Run("x", "finished", 1.0, engine="local", image=image, spec=spec, findings=found)
    (shown,) = as_typed(run, ["show", "x"]).findings or ()
    own = "nvcr.io/nvidia/pytorch:26.07-py3 --train cifar10 --steps 1000 --seed 0 --engine local"
    assert shown.advice == f"    ngcdl run {own} --batch 512"
    assert as_typed(Run("x", "finished", 1.0, findings=found), ["show", "x"]).findings == found, "it has no spec"
