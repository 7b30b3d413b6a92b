"""`ngcdl runs diff`, `replay`, `export` and `import`, as typed."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from house import TRAIN, House
from made_runs import Made

from ngcdl.cli.past import laid_out
from ngcdl.record import Run
from ngcdl.report.shown.difference import Difference, Figure
from ngcdl.running.owner import this_process
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial

GPU, CPU = "20231114-221320-cifar10-gpu001", "20231114-221320-cifar10-cpu001"
SMALL = "20231114-221320-cifar10-small1"


@pytest.fixture
def kept(house: House) -> House:
    Made(steps=100).keep(house.store, GPU)
    Made("cpu", steps=100, rate=594.0).keep(house.store, CPU)
    return house


def test_runs_by_itself_is_still_the_list(kept: House) -> None:
    assert [line.split()[0] for line in kept.run("runs").stdout.splitlines()] == ["RUN", GPU, CPU]
    assert [run["id"] for run in json.loads(kept.run("runs", "--json").stdout)] == [GPU, CPU]
    assert kept.run("runs", "-a").stdout == kept.run("runs").stdout


def test_a_diff_names_what_differs_and_the_figures_with_their_change(kept: House) -> None:
    done = kept.run("runs", "diff", GPU, CPU)
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:]}
    assert rows["computed"] == ["computed", "on", "gpu", "cpu"]
    assert rows["examples/s"][4].startswith("-87.")
    assert rows["precision"][-2:] == ["the", "same"]
    assert "seed" not in rows
    found = json.loads(kept.run("runs", "diff", GPU, CPU, "--json").stdout)
    assert (found["a"], found["b"], found["differs"]["device"]) == (GPU, CPU, ["gpu", "cpu"])
    assert found["figures"]["gpu_percent_mean"]["b"] is None
    assert (found["refused"], found["data"]) == ([], None)
    assert "Each figure comes from a single run: the spread is unknown." in done.stdout


def test_figures_that_can_t_be_compared_have_no_change_and_made_up_data_is_always_told(kept: House) -> None:
    for name, batch in ((CPU, 128), (SMALL, 64)):
        shutil.rmtree(kept.store.folder(name), ignore_errors=True)
        Made("cpu", steps=100, rate=594.0 * batch, batch=batch, dataset="synthetic").keep(kept.store, name)
    done = kept.run("runs", "diff", CPU, SMALL)
    rows = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    assert rows[1] == ["data", "SYNTHETIC", "SYNTHETIC"]
    assert {len(row) for row in rows if row[0].startswith(("examples/s", "s/batch"))} == {3}
    assert ["The figures can't be compared: different batch (128 / 64)."] in rows
    found = json.loads(kept.run("runs", "diff", GPU, CPU, "--json").stdout)
    assert found["data"] == ["cifar10", "SYNTHETIC"]
    assert found["refused"][0].startswith("different dataset")
    assert found["figures"]["examples_per_second"]["change"] is None
    assert found["figures"]["loss_last"]["change"] is None


def test_a_diff_with_a_run_that_is_not_there_is_told(kept: House) -> None:
    assert kept.run("runs", "diff", GPU, "nothing").returncode == 125


def test_runs_go_from_one_home_to_another(kept: House, tmp_path: Path) -> None:
    done = kept.run("runs", "export", GPU, CPU, GPU, "both.tar")
    assert (done.returncode, done.stdout) == (0, f"{kept.home}/both.tar\n"), done.stderr
    other = House(tmp_path / "other")
    other.home.mkdir()
    done = other.run("runs", "import", str(kept.home / "both.tar"))
    assert (done.returncode, done.stdout.split()) == (0, [GPU, CPU]), done.stderr
    assert other.run("show", GPU, "--json").stdout == kept.run("show", GPU, "--json").stdout
    assert other.run("runs", "import", str(kept.home / "both.tar")).stdout == ""


def test_runs_go_through_a_pipe_and_no_run_s_name_is_taken_for_the_file_s(kept: House) -> None:
    line = "ngcdl runs export {0} {1} - | tee kept.tar | XDG_STATE_HOME={2}/other ngcdl runs import -"
    done = kept.shell(line.format(GPU, CPU, kept.home))
    assert (done.returncode, done.stdout.split()) == (0, [GPU, CPU]), done.stderr
    ours, theirs = socket.socketpair()  # which nobody can open by /dev/stdin
    with ours, theirs:
        ours.sendall((kept.home / "kept.tar").read_bytes())
        ours.shutdown(socket.SHUT_WR)
        done = kept.run("runs", "import", "-", stdin=theirs, env={"XDG_STATE_HOME": f"{kept.home}/third"})
    assert (done.returncode, done.stdout.split()) == (0, [GPU, CPU]), done.stderr
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs) as terminal:
        assert "stdin is a terminal" in kept.run("runs", "import", "-", stdin=terminal).stderr
    for words in ((GPU,), (GPU, CPU), (GPU, "last")):
        refused = kept.run("runs", "export", *words)
        assert f"    ngcdl runs export {' '.join(words)} runs.tar\n" in refused.stderr


def test_a_comparison_goes_along_with_its_runs(kept: House, tmp_path: Path) -> None:
    trials = (Trial("cpu", 1, CPU), Trial("gpu", 1, GPU), Trial("cpu", 2, "20231114-221320-cifar10-gone00"))
    comparison = StoredComparison(
        "20231114-230000-compare-000abc", "device", 2, (("cpu", "cpu"), ("gpu", "gpu")), 1.0, trials=trials
    )
    comparisons.save(comparison, kept.store)
    done = kept.run("runs", "export", comparison.id, "both.tar")
    assert done.returncode == 0, done.stderr
    assert f"20231114-221320-cifar10-gone00, of {comparison.id}, no longer exists" in done.stderr
    other = House(tmp_path / "other")
    other.home.mkdir()
    taken = other.run("runs", "import", str(kept.home / "both.tar"))
    assert taken.stdout.split() == [CPU, GPU, comparison.id], taken.stderr
    shown = [home.run("compare", "--show", comparison.id).stdout for home in (kept, other)]
    assert shown[0] == shown[1].replace(str(other.home), str(kept.home))


def test_what_can_t_be_taken_along_or_in_is_told(kept: House, trained: House) -> None:
    assert kept.run("runs", "export", GPU).returncode == 2
    with tarfile.open(kept.home / "empty.tar", "w"):
        pass
    done = kept.run("runs", "import", "empty.tar")
    assert done.returncode == 125
    assert "Nothing from it was kept" in done.stderr


def test_all_runs_that_still_go_on_are_named_and_none_is_exported(kept: House) -> None:
    going = [f"20231114-22132{number}-cifar10-0a{number}001" for number in (1, 2)]
    for run_id in going:
        kept.store.create(Run(run_id, "running", time.time(), engine="local", owner=this_process()))
    done = kept.run("runs", "export", GPU, *going, "runs.tar")
    assert (done.returncode, done.stderr) == (2, (
        f"ngcdl: {going[0]}, {going[1]} are still running: only ended runs can be exported.\n"
        f"      ngcdl stop {going[0]}\n      ngcdl stop {going[1]}\n"
    ))  # fmt: skip
    assert not (kept.home / "runs.tar").exists()
    done = kept.run("runs", "export", GPU, going[0], "runs.tar")
    assert f"{going[0]} is still running: only ended" in done.stderr


def test_a_training_is_replayed_with_the_same_command_seed_and_data(trained: House) -> None:
    says = trained.home / "says.json"
    typed = (*TRAIN, "--steps", "7", "--batch", "16", "--seed", "3", "--no-eval", "--name", "lr3")
    words = []
    assert trained.run(*typed, env={"STAND_IN_SAYS": str(says)}).returncode == 0
    words.append(json.loads(says.read_text())["argv"])
    first = trained.record()["id"]
    done = trained.run("runs", "replay", "lr3", env={"STAND_IN_SAYS": str(says)})
    assert done.returncode == 0, done.stderr
    words.append(json.loads(says.read_text())["argv"])
    again = trained.record()
    assert again["id"] != first
    assert "-lr3-" in again["id"]
    assert f"ngcdl runs diff {first} {again['id']}" in done.stderr
    assert words[1] == [word.replace(first, again["id"]) for word in words[0]]
    found = json.loads(trained.run("runs", "diff", first, "last", "--json").stdout)
    assert found["differs"] == {}


def test_after_a_replay_what_differs_is_asked_of_its_own_run(trained: House) -> None:
    assert trained.run(*TRAIN).returncode == 0
    first = trained.record()
    other = first["id"].replace(first["id"][:8], "29991231")
    trained.store.create(replace(trained.store.load(first["id"]), id=other))
    done = trained.run("runs", "replay", first["id"])
    assert done.returncode == 0, done.stderr
    (again,) = set(trained.store.ids()) - {first["id"], other}
    assert f"ngcdl runs diff {first['id']} {again}\n" in done.stderr


def test_a_replay_can_be_planned_and_starts_nothing_then(trained: House) -> None:
    assert trained.run(*TRAIN).returncode == 0
    done = trained.run("runs", "replay", "last", "--dry-run")
    assert "# what ngcdl would start, by hand:" in done.stdout
    assert len(trained.store.ids()) == 1


@pytest.mark.parametrize(("stdin", "more", "has_one"), [
    ("a terminal", (), True), ("a terminal", ("--detach",), False), ("nothing", (), False), ("closed", (), False),
])  # fmt: skip
def test_a_command_that_had_a_terminal_gets_one_only_where_there_is_one(
    kept: House, tmp_path: Path, stdin: str, more: tuple[str, ...], has_one: bool
) -> None:
    path = kept.store.folder(CPU) / "run.json"
    record = json.loads(path.read_text())
    spec = record["spec"] | {"workload": None, "command": ["bash"], "tty": True, "stdin": True}
    path.write_text(json.dumps(record | {"spec": spec}))
    ours, theirs = pty.openpty()
    line = ("runs", "replay", CPU, "--dry-run", *more)
    env = {"DOCKER_HOST": f"unix://{tmp_path}/d.sock"}
    with serving(Daemon(tmp_path / "d.sock")):
        before = ("sh", "-c", 'exec "$0" "$@" <&-') if stdin == "closed" else ()
        streams = {"stdin": theirs, "stdout": theirs} if stdin == "a terminal" else {"stdin": subprocess.DEVNULL}
        with kept.popen(*line, env=env, before=before, **streams) as process:
            os.close(theirs)
            out, err = process.communicate(timeout=240)
        out = _read(ours) if stdin == "a terminal" else out
    os.close(ours)
    assert process.returncode == 0, err
    words = re.search(r"docker run [^\n]*", " ".join(out.split()))
    assert words
    assert (" -it " in words[0]) == has_one
    assert ("its command had a terminal; this time it has none" in err) is not has_one


def _read(terminal: int) -> str:
    """Return what was written to the other end, which is now closed."""
    seen = b""
    with contextlib.suppress(OSError):  # EIO: no more data
        while data := os.read(terminal, 65536):
            seen += data
    return seen.decode()


def test_a_run_that_was_imported_is_looked_at_freely_and_replayed_only_where_it_is_trusted(
    trained: House, tmp_path: Path
) -> None:
    assert trained.run(*TRAIN, "-e", "MY_TOKEN=hush").returncode == 0
    assert trained.run("runs", "export", "last", "x.tar").returncode == 0
    other = House(tmp_path / "other")
    other.home.mkdir()
    other.bring_trainer()
    (run_id,) = other.run("runs", "import", str(trained.home / "x.tar")).stdout.split()
    done = other.run("runs", "replay", "last", env={"MY_TOKEN": "mine"})
    assert (done.returncode, done.stdout) == (125, "")
    assert f"{run_id} can't be repeated: it was imported" in done.stderr
    assert "MY_TOKEN as it is set here" in done.stderr
    assert other.run("runs", "replay", "last", "--dry-run").returncode == 0
    assert other.store.ids() == [run_id], "nothing was started"
    done = other.run("runs", "replay", "last", "--trust", env={"MY_TOKEN": "mine"})
    assert done.returncode == 0, done.stderr
    assert other.run("runs", "replay", "last", env={"MY_TOKEN": "mine"}).returncode == 0, "that one is our own"


def test_a_replay_where_its_cards_are_not_names_the_run_with_others(house: House, tmp_path: Path) -> None:
    Made(steps=100, dataset="synthetic").keep(house.store, GPU)
    with serving(Daemon(tmp_path / "d.sock")) as daemon:
        done = house.run("runs", "replay", GPU, "--trust", env={"DOCKER_HOST": daemon.host})
    assert f"{GPU} can't be repeated: its GPUs are not here: " in done.stderr
    assert "With others:\n      ngcdl run " in done.stderr
    assert " --gpus 1\n" in done.stderr


def test_a_run_that_something_else_started_can_t_be_replayed(kept: House) -> None:
    path = kept.store.folder(CPU) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spec": None, "engine": "compose"}))
    done = kept.run("runs", "replay", CPU)
    assert done.returncode == 125
    assert "compose started it" in done.stderr


def test_a_diff_on_a_narrow_terminal_breaks_no_line() -> None:
    long = "registry.example/nvidia/tensorflow:18.01-py2"
    found = Difference(GPU, CPU, {"spec.image": (long, None)}, {"memory_bytes_max": Figure(5.61e8, 1.122e9, 1.0)})
    lines = laid_out(found, 80)
    assert max(map(len, lines)) <= 80
    assert ["image requested", f"    A  {long}", "    B  n/a"] == lines[2:5]
    assert " ".join(lines[-1].split()) == "peak memory 535.0 MiB 1.0 GiB +100.0 %"
    assert laid_out(found, None)[1].split() == ["image", "requested", long, "n/a"]


def test_a_figure_s_long_name_takes_no_column_of_a_terminal_to_the_next_line() -> None:
    figures = {"flops_per_second": Figure(2e12, 1e12, -0.5), "memory_bytes_max": Figure(5.61e8, 1.122e9, 1.0)}
    rows = [re.split(r"  +", line) for line in laid_out(Difference(GPU, CPU, {}, figures), 80)]
    assert ["compute throughput", "2.00 TFLOP/s", "1.00 TFLOP/s", "-50.0 %"] in rows
    assert ["peak memory", "535.0 MiB", "1.0 GiB", "+100.0 %"] in rows


def test_figures_that_look_the_same_are_the_same() -> None:
    figures = {"container_cpu_percent_mean": Figure(2.0, 4.0, 1.0), "seconds_per_batch": Figure(0.5, 0.6, 0.2)}
    rows = [re.split(r"  +", line) for line in laid_out(Difference(GPU, CPU, {}, figures), 80)]
    assert [row[1:] for row in rows[-2:]] == [["0.0 cores", "0.0 cores", "the same"], ["0.5000", "0.6000", "+20.0 %"]]


def test_a_diff_shows_where_long_values_differ() -> None:
    command = ["python", "-m", "trainer", "cifar10", "--checkpoints", "/ngcdl/checkpoints", "--batch"]
    notes = ["the driver is older than what the image asks for", "no network"]
    differs = {
        "spec.command": ([*command, "8"], [*command, "64", "--no eval"]),
        "notes": (notes, [notes[0]]),
        "image.digest": ("sha256:" + "5" * 64, "sha256:" + "5" * 60 + "6666"),
        "reason": ("x" * 60, None),
        "machine.memory_bytes": (67_000_000_000, 67_000_000_001),
        "spec.shm_bytes": (8 << 30, 1 << 30),
        "spec.workload.evaluate": (True, False),
        "spec.mounts": ([], ["/data:/data"]),
    }
    rows = [re.split(r"  +", line) for line in laid_out(Difference(GPU, CPU, differs, {}), None)[1:]]
    assert rows == [
        ["command", "...--batch 8", "...--batch 64 '--no eval'"],
        ["notes", "...asks for; no network", "...asks for"],
        ["image digest", "...5555555555555555555555555555", "...5555555555555555555555556666"],
        ["reason", "x" * 45 + "...", "n/a"],
        ["memory of the machine", "67000000000", "67000000001"],
        ["size of /dev/shm", "8.0 GiB", "1.0 GiB"],
        ["evaluate", "yes", "no"],
        ["mounts", "none", "/data:/data"],
    ]


def test_a_diff_has_the_words_and_units_of_the_other_commands() -> None:
    names = ("flops_per_second", "gpus.0.watts_mean", "throttled_share.hw_slowdown", "gpus.1.throttled_share.x", "new")
    figures = {name: Figure(2e12, None, None) for name in names}
    figures |= {name: Figure(1.0, 2.0, 1.0) for name in ("samples", "gaps", "training_samples", "cores_busy")}
    figures |= {"peak_share": Figure(0.25, 0.5, 1.0), "container_cpu_percent_mean": Figure(150.0, 300.0, 1.0)}
    rows = [re.split(r"  +", line)[:2] for line in laid_out(Difference(GPU, CPU, {}, figures), None)[1:]]
    assert rows[0] == ["compute throughput (convolutions and matrix products)", "2.00 TFLOP/s"]
    assert [name for name, _ in rows] == [
        "compute throughput (convolutions and matrix products)", "GPU 0 power (mean)", "clocks held down (hw_slowdown)",
        "GPU 1 clocks held down (x)", "new", "share of the card's peak", "CPU use of the run",
    ]  # fmt: skip
    assert [value for _, value in rows[-3:]] == ["2,000,000,000,000", "25.0 %", "1.5 cores"]


def test_a_diff_of_a_run_with_itself_says_so(kept: House) -> None:
    done = kept.run("runs", "diff", "last", "last")
    assert (done.returncode, done.stderr) == (0, "ngcdl: both are the same run\n")
