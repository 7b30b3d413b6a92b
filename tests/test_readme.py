"""The README's commands are what ngcdl understands: each is really planned against the lab, none is started."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from house import House
from made_runs import Made

from ngcdl.engines.local.engine import SIZES
from ngcdl.record import Finding, Image
from ngcdl.trainings import bundled

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
REFERENCE = (ROOT / "docs/reference.md").read_text()
# What a plan contains, by engine.
PLANS = {
    "docker": "# what ngcdl would start, by hand:",
    "slurm": "#SBATCH --nodes=2",
    "kubernetes": "completionMode: Indexed",
}


def commands() -> list[str]:
    """Every code-block line that starts ngcdl, without its comment."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.match(r"(\./scripts/)?ngcdl ", line)]


def test_the_readme_has_the_commands_that_the_user_asked_for() -> None:
    assert "./scripts/ngcdl run --train cifar10" in commands()
    assert "ngcdl run tensorflow:18.01-py2 --train cifar10" in commands()
    assert "ngcdl login" in commands()
    assert "./scripts/test" in README


def test_what_is_installed_without_a_container_is_as_large_as_ngcdl_says() -> None:
    wheels = [int(size) for said in SIZES.values() for size in re.findall(r"(\d+) MB", said)]
    (told,) = (" ".join(part.split()) for part in README.split("\n\n") if "installs TensorFlow once" in part)
    assert re.findall(r"some (\d+) MB", told) == [f"{round(size, -2)}" for size in wheels]
    assert "and 2.8 GB of CUDA" in told
    assert "and 2.8 GB of CUDA" in SIZES["local.txt"]


def test_the_images_of_the_examples_run_on_the_cards_of_today_unless_their_comment_says_otherwise(
    tmp_path: Path,
) -> None:
    from ngcdl.cli.app import app

    lines = "\n".join([README, *(command.epilog or "" for command in app.registered_commands)]).splitlines()
    typed = [
        line for line in lines if re.search(r"ngcdl (run|pull|compare|suite) ", line) and "cards up to" not in line
    ]
    images = {found for line in typed for found in re.findall(r"\b(?:pytorch|tensorflow)(?::[\w.-]+)?(?= |$)", line)}
    assert images >= {"pytorch", "tensorflow:24.05-tf2-py3"}
    nobody = {"HTTPS_PROXY": "http://127.0.0.1:1"}
    for image in images:
        done = House(tmp_path).run("check", image, "--host", "driver=580.95.05,gpu=H100", env=nobody)
        assert done.returncode < 2, f"{image}\n{done.stdout}{done.stderr}"


def test_the_first_table_has_the_rows_that_a_training_on_a_cpu_shows_and_they_fit(
    tmp_path: Path,
) -> None:
    house, made = House(tmp_path), Made("cpu")
    summary = replace(made.story().run.summary, flops_per_second=1e11, gaps=0)
    made.keep(
        house.store, "20260101-000000-cifar10-0000", engine="local", image=Image(), summary=summary,
        findings=(Finding("cpu", "It is the CPU."),), notes=("WARNING",),
    )  # fmt: skip
    table = re.findall(r"^```\n(run  .*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    shown = house.run("show").stdout
    row = re.compile(r"^(\S.*?)  ", re.MULTILINE)
    assert row.findall(table) == row.findall(shown)
    rate, gflops = (float(found.replace(",", "")) for found in re.findall(r"([\d.,]+) (?:examples|GFLOP)/s", table))
    assert gflops == pytest.approx(rate * bundled("cifar10").flops_per_example / 1e9, rel=1e-4)


@pytest.fixture(scope="module")
def own_image(lab: dict[str, Any]) -> Iterator[str]:
    """The image in the lab's engine that the README takes for one of the reader's own: an empty one."""
    import docker

    name, empty = "mine:v2", io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    client = docker.APIClient(base_url=lab["engine"]["host"])
    client.import_image_from_data(empty.getvalue(), *name.split(":"))
    yield name
    client.remove_image(name)
    client.close()


@pytest.mark.lab
@pytest.mark.parametrize("line", [line for line in commands() if " run " in line])
def test_every_run_line_of_the_readme_can_be_planned(
    line: str, lab: dict[str, Any], own_image: str, tmp_path: Path
) -> None:
    words = shlex.split(line)[1:]
    at = words.index("--") if "--" in words else len(words)
    # There is no card, and what is started does not matter.
    asked = [word if word != "all" else "auto" for word in words[:at]]
    argv = [*asked, "--dry-run", *(["--data", "synthetic"] if "--train" in asked else []), *words[at:]]
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "DOCKER_HOST": lab["engine"]["host"],
        "NGCDL_REGISTRY": lab["registry"]["host"],
        "PATH": "/usr/local/bin:/usr/bin:/bin",  # no virtual environment: Debian itself has no `python`
    }
    (tmp_path / "requirements.txt").write_text("einops\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ngcdl", *argv],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (own_image in line) == (f"{own_image}: this engine's own image" in done.stderr)
    engine = asked[asked.index("--engine") + 1] if "--engine" in asked else "docker"
    assert PLANS[engine] in done.stdout


@pytest.mark.lab
@pytest.mark.parametrize("line", [line for line in commands() if re.search(r" (check|images|resolve|doctor)\b", line)])
def test_every_question_of_the_readme_has_an_answer(line: str, lab: dict[str, Any], tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "DOCKER_HOST": lab["engine"]["host"],
        "NGCDL_REGISTRY": lab["registry"]["host"],
    }
    argv = [sys.executable, "-P", "-m", "ngcdl", *shlex.split(line)[1:]]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`ngcdl ([a-z]+)", README + REFERENCE))))
def test_every_command_that_readme_and_reference_name_exists(name: str) -> None:
    from ngcdl.cli.app import app

    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert name in names | {group.name for group in app.registered_groups}


def anchors(page: Path) -> set[str]:
    """A page's headings, as the addresses that GitHub makes of them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_every_link_of_the_markdown_files_leads_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text())
        assert links or page.name in ("CONTRIBUTING.md", "ARCHITECTURE.md"), page.name
        for target, anchor in links:
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(there), f"{page.name}: {target}#{anchor}"


def test_the_sample_of_a_check_begins_and_ends_as_a_check_does(tmp_path: Path) -> None:
    (typed,) = re.findall(r'`(--host driver=\S+ .*?")`', README)
    sample = re.findall(r"^```\n(image  .*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    nobody = {"HTTPS_PROXY": "http://127.0.0.1:1"}
    shown = House(tmp_path).run("check", "tensorflow:24.05-tf2-py3", *shlex.split(typed), env=nobody).stdout
    assert sample.splitlines()[:2] == shown.splitlines()[:2]
    row = re.compile(r"^(\S.{11}) ", re.MULTILINE)
    after = row.findall(sample.partition("\n...\n")[2])
    assert after == row.findall(shown)[-len(after) :]
    assert len(after) == 2


def test_the_reference_has_every_variable_that_the_command_reads() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "toolkit/ngcdl").rglob("*.py"))
    scripts = "\n".join((ROOT / "scripts" / name).read_text() for name in ("ngcdl", "environment"))
    read = {*re.findall(r"(?:environ.*?| = )\"(NGCDL_\w+)\"", sources), *re.findall(r"\$\{(NGCDL_\w+)", scripts)}
    assert {"NGCDL_BROWSER", "NGCDL_IMAGES", "NGCDL_PYTHON", "NGCDL_VENV"} <= read
    own = {"NGCDL_HOST", "NGCDL_TYPED"}  # set by ngcdl itself for what it starts
    assert {name for name in read - own if f"`{name}`" not in REFERENCE} == set()
