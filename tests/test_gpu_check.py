"""scripts/gpu-check: what it checks of a GPU, and what it says of what it could not check."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clones import cloned, put, scripted


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return cloned(tmp_path)


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (("pytest",), ["the CUDA graphs: python lacks pytest"]),
        (
            ("torch", "numpy"),
            [
                "the CUDA graphs: python lacks numpy, torch",
                "how much of the card works: python lacks torch",
                "the first losses: python lacks numpy, torch",
            ],
        ),
        ((), ["the first losses: python lacks a GPU that PyTorch sees"]),
    ],
)
def test_what_a_python_lacks_for_the_look_at_a_gpu_is_named_and_the_rest_is_done(
    clone: Path, lacking: tuple[str, ...], said: list[str]
) -> None:
    packages = clone.parent / "packages"
    packages.mkdir()
    for name in {"numpy", "pytest", "torch"}.difference(lacking):
        (packages / f"{name}.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    put(clone, "python", f'#!/bin/sh\nPYTHONPATH="{packages}" exec {sys.executable} -S "$@"\n')
    put(clone, "nvidia-smi", "#!/bin/sh\necho cards\n")
    (clone / "scripts/ngcdl").write_text("#!/bin/sh\necho ngcdl $*\n")
    environment = {"PATH": f"{clone.parent}/bin:{os.defpath}", "NGCDL_BENCH_PYTHON": "python"}
    words = [clone / "scripts/gpu-check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert all(f"== {line}\n" in done.stderr for line in said), done.stderr
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "ngcdl gpu"), "what was not checked is no success"
    assert done.stderr.endswith("== not passed: the first losses, not checked\n")


def test_without_a_gpu_only_the_reason_is_said(clone: Path) -> None:
    (clone / "scripts/ngcdl").write_text('#!/bin/sh\n[ "$1" != gpu ] || { echo no driver >&2; exit 125; }\n')
    done = scripted(clone, "gpu-check")
    said = ["no driver", "== no GPU can be read, as said above: nothing was checked"]
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", said)


def test_a_failed_check_of_the_gpu_stops_no_other_and_is_told_at_the_end(clone: Path) -> None:
    packages = clone.parent / "packages"
    packages.mkdir()
    for name in ("numpy", "torch"):
        (packages / f"{name}.py").write_text("class cuda:\n    is_available = staticmethod(lambda: True)\n")
    put(clone, "python", f'#!/bin/sh\nPYTHONPATH="{packages}" exec {sys.executable} -S "$@"\n')
    put(clone, "nvidia-smi", "#!/bin/sh\necho cards\n")
    (clone / "scripts/ngcdl").write_text("#!/bin/sh\necho ngcdl $*\n")
    (clone / "scripts/benchmarks").mkdir(exist_ok=True)
    (clone / "scripts/benchmarks/gpu_apart.py").write_text("raise SystemExit('other losses')\n")
    (clone / "scripts/benchmarks/gpu_worked.py").write_text("raise SystemExit('not given')\n")
    environment = {"PATH": f"{clone.parent}/bin:{os.defpath}", "NGCDL_BENCH_PYTHON": "python"}
    words = [clone / "scripts/gpu-check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "ngcdl gpu")
    assert "other losses\n" in done.stderr
    told = [line for line in done.stderr.splitlines() if "not passed" in line]
    names = ("the CUDA graphs, not checked", "how much of the card works", "the first losses")
    assert told == [f"== not passed: {name}" for name in names]


# Stands for scripts/ngcdl with an image of PyTorch, whose Python prints a banner and computes on a GPU.
NGCDL = """#!/bin/sh
case $*:$PWD in
"run nvcr.io/nvidia/pytorch:26.07-py3 --gpus 1 -- python -c "*:*"/a clone") echo BANNER; echo ;;
"run "*" -- python "*) echo "in the image: $7 $8" ;;
"show last --json:"*) echo "$SHOWN" ;;
"run "*) echo "ngcdl $*" ;;
esac
"""


@pytest.mark.parametrize(
    ("device", "percent", "failed"),
    [
        ("gpu", "47.5", []),
        ("gpu", "null", []),  # a card in MIG mode doesn't report it
        ("gpu", "0", ["the training on the GPU"]),
        ("cpu", "0", ["the training on the GPU"]),
    ],
)
def test_with_an_image_of_pytorch_its_python_makes_the_checks(
    clone: Path, device: str, percent: str, failed: list[str]
) -> None:
    put(clone, "nvidia-smi", "#!/bin/sh\n")
    put(clone, "docker", "#!/bin/sh\n")
    put(clone, "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (clone / "scripts/ngcdl").write_text(NGCDL)
    summary = f'{{"gpu_percent_mean": {percent}, "gpu_memory_bytes_max": null, "examples_per_second": 5.0}}'
    shown = f'{{"device": "{device}", "summary": {summary}}}'
    environment = {"PATH": f"{clone.parent}/bin:{os.defpath}", "SHOWN": shown, "NGCDL_BENCH_PYTHON": "no-python"}
    words = [clone / "scripts/gpu-check", "nvcr.io/nvidia/pytorch:26.07-py3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.count("in the image:") == 3
    assert (done.returncode, done.stderr.splitlines()) == (int(bool(failed)), [f"== not passed: {it}" for it in failed])


CARD = "GPU 0: NVIDIA GeForce RTX 4060 (UUID: GPU-5f1e)"


@pytest.mark.parametrize(("listed", "gpus"), [
    (CARD, "0,"), (f"{CARD}\n{CARD}", "1"), (f"{CARD}\n  MIG 1g.5gb Device 0: (UUID: MIG-41b3)", "1"), ("", "1"),
])  # fmt: skip
def test_an_only_card_is_looked_at_though_a_desktop_keeps_it_busy(clone: Path, listed: str, gpus: str) -> None:
    put(clone, "nvidia-smi", f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n")
    put(clone, "docker", "#!/bin/sh\n")
    (clone / "scripts/ngcdl").write_text('#!/bin/sh\necho "ngcdl $*" >> "$HOME/typed"\n')
    scripted(clone, "gpu-check", "nvcr.io/nvidia/pytorch:26.07-py3")
    typed = (clone.parent / "typed").read_text().splitlines()
    asked = {line.partition("--gpus ")[2].split()[0] for line in typed if "--gpus " in line}
    assert asked == {gpus, "all", "none"}
