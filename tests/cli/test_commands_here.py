"""`ngcdl run -- COMMAND` and `compare -- COMMAND` without an image: the user's own programs on this host."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
import termios
from pathlib import Path

import pytest
from house import LIKE_OTHERS, House, until
from telemetry.conftest import library as library  # a fixture
from telemetry.stand_in import write_state

from ngcdl.engines import local

RUN = ("run", "--", sys.executable)
REPORT = """
import json, os, sys, time
cards = os.environ.get("CUDA_VISIBLE_DEVICES")
for step in range(1, 7):
    with open(os.environ["NGCDL_RUN"] + "/events.jsonl", "a") as file:
        rate = {"-1": 100.0}.get(cards, 250.0)
        line = {"event": "step", "t": time.time(), "step": step, "examples_per_second": rate, "seconds_per_batch": .1}
        file.write(json.dumps(line) + "\\n")
print("cards", cards)
"""


@pytest.fixture
def cards(library: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a host with the two stand-in cards."""
    state = tmp_path / "nvml.state"
    write_state(state, {"gpu0.utilization": 0})  # free also where not every process is visible
    return {"LD_LIBRARY_PATH": str(library), "NGCDL_NVML_STATE": str(state)}


def test_a_command_runs_here_as_without_ngcdl_and_is_recorded(house: House) -> None:
    folder = house.home / "project"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import os, sys\nprint(os.getcwd(), os.environ['HOME'], os.environ['SETTING'], sys.argv[1:], file=sys.stderr)\n"
        "print(os.environ.get('NGC_API_KEY'))\nsys.exit(3)\n"
    )
    words = (*RUN[:1], "-e", "SETTING=a b", *RUN[1:], "train.py", "--gpus", "2")
    done = house.run(*words, cwd=folder, env={"NGC_API_KEY": "nvapi-hush"})
    assert (done.returncode, done.stdout) == (3, "None\n")
    assert f"{folder} {house.home} a b ['--gpus', '2']\n" in done.stderr
    assert "engine local: no image was named, so the command runs on this host" in done.stderr
    record = house.record()
    assert (record["status"], record["exit_code"], record["engine"]) == ("failed", 3, "local")
    assert record["engine_version"] is None, "it is not this Python that ran"
    assert record["spec"]["command"] == [sys.executable, "train.py", "--gpus", "2"]
    assert record["spec"]["workdir"] == str(folder)
    assert (record["spec"]["shm_bytes"], record["spec"]["ulimits"]) == (None, {}), "nothing set them"
    shown = house.run("show", "last").stdout
    for row in (f"command  {sys.executable} train.py --gpus 2", f"program  {sys.executable}", f"folder   {folder}",
                "engine   local (this host, no container)"):  # fmt: skip
        assert f"\n{row}\n" in shown
    again = house.run("runs", "replay", "last")
    assert (again.returncode, f"{folder} {house.home} a b" in again.stderr) == (3, True), "in the folder that it had"


@pytest.mark.parametrize(("words", "code", "said"), [
    (("run", "--", "no-such-program"), 127, "This host has no such command: no-such-program."),
    (("run", "-v", "/a:/b", "-p", "80:80", "--", "true"), 2, "-v, -p: only for containers, and this run has none.\n"
     "  In an image:\n      ngcdl run pytorch -v /a:/b -p 80:80 -- true\n"),
    (("compare", "--cpus", "2", "--memory=4g", "--", "true"), 2, "--cpus, --memory: only for containers, and this run "
     "has none.\n  In an image:\n      ngcdl compare pytorch --cpus 2 --memory=4g -- true\n"),
    (("run", "-w", "/a b", "--", "pwd"), 2, "none.\n      cd '/a b' && ngcdl run -- pwd\n"),
    (("run", "--workdir=/a", "--root", "--", "pwd"), 2, "      ngcdl run pytorch --workdir=/a --root -- pwd\n"),
    (("compare", "-w/a", "--", "pwd"), 2, "      cd /a && ngcdl compare -- pwd\n"),
    (("run", "-e", "CUDA_VISIBLE_DEVICES=1", "--", "true"), 2, "-e CUDA_VISIBLE_DEVICES: without a container --gpus "
     "chooses the cards.\n      ngcdl run --gpus 1, -- true\n"),
    (("run", "-e", "A=1", "--env=CUDA_VISIBLE_DEVICES=", "--", "true"), 2, " ngcdl run --gpus none -e A=1 -- true\n"),
    (("run", "--gpus", "2", "-eCUDA_VISIBLE_DEVICES=0,1", "--", "true"), 2, "      ngcdl run --gpus 2 -- true\n"),
    (("compare", "-e", "CUDA_VISIBLE_DEVICES=-1", "--", "true"), 2, "      ngcdl compare -- true\n"),
    (("compare", "-e", "CUDA_DEVICE_ORDER=FASTEST_FIRST", "--", "true"), 2, "-e CUDA_DEVICE_ORDER: without a"),
    (("run", "--train", "smoke", "--engine", "local", "-e", "CUDA_VISIBLE_DEVICES=1"), 2,
     "      ngcdl run --train smoke --engine local --gpus 1\n"),
    (("run", "--", "cd", "/tmp"), 127, "cd is a word of the shell's own, so a shell must run it:\n"
     "      ngcdl run -- sh -c 'cd /tmp'\n"),
    (("run", "-d", "--", "A=b c", "D=", "ls", "E=1"), 127, "A variable for the command goes before --:\n"
     "      ngcdl run -d -e 'A=b c' -e D= -- ls E=1\n"),
    (("run", "-d", "--", "echo hi"), 127, "A whole line is for a shell:\n      ngcdl run -d -- sh -c 'echo hi'\n"),
    (("run", "pytorch:25.03-py3", "--engine", "docker", "--", "python", "c.py"), 125,
     "  Without Docker, on this host:\n      ngcdl run -- python c.py\n"),
    (("run", "pytorch:25.03-py3", "--train", "cifar10", "--seed", "3"), 125,
     "  Without Docker, on this host:\n      ngcdl run --train cifar10 --seed 3 --engine local\n"),
    (("run", "pytorch:25.03-py3", "--train", "cifar10-94"), 125, "runs on this host without Docker:\n"),
    (("run", "pytorch:25.03-py3", "-p", "80:80", "--", "true"), 125, "runs on this host without Docker:\n"),
    (("compare", "pytorch:25.03-py3", "--", "true"), 125, "      ngcdl compare -- true\n"),
    (("run", "--engine", "slurm", "--", "true"), 2, "run pytorch --engine slurm -- true\n"),
    (("run", "--engine", "docker", "--", "true"), 2, "With --engine docker a command needs an image."),
    (("run", "sh", "train.sh"), 2, "run -- sh train.sh\n"),
    (("run", "--gpus", "1", "--", "true"), 125, "--gpus 1: this host has no NVIDIA driver"),
    (("run", "--steps", "5", "--", "true"), 2, "type it after --."),
    (("compare", "--gpus", "none", "--", "true"), 2, "    ngcdl run --gpus none -- true\n"),
    (("compare", "--", "true"), 125, "The CPU can't be compared with a GPU: this host has no NVIDIA driver."),
])  # fmt: skip
def test_what_can_t_run_here_is_refused_before_anything_starts(
    house: House, words: tuple[str, ...], code: int, said: str
) -> None:
    done = house.run(*words)
    assert (done.returncode, done.stdout, house.store.ids()) == (code, "", [])
    assert said in done.stderr


def test_a_file_of_the_folder_is_run_by_its_path_or_by_its_language(house: House) -> None:
    for name, mode, line in [
        ("a.py", 0o644, "python3 a.py --x"),
        ("b.py", 0o755, "./b.py --x"),
        ("c", 0o644, "./c --x"),
    ]:
        (house.home / name).touch(mode)
        done = house.run("run", "--", name, "--x")
        assert done.returncode == 127
        assert f"{name} is in this folder, where programs are not looked for by name:\n      ngcdl run -- {line}\n" in (
            done.stderr
        )


def test_a_script_that_is_not_executable_is_run_by_its_language(house: House) -> None:
    (house.home / "a.py").touch(0o644)
    done = house.run("run", "--", "./a.py", "--x")
    assert done.returncode == 126
    assert "./a.py is not executable:\n      ngcdl run -- python3 ./a.py --x\n" in done.stderr


def test_where_nvml_shows_no_card_only_a_typed_none_hides_those_that_cuda_may_see(
    house: House, cards: dict[str, str]
) -> None:
    """CUDA may work where NVML does not."""
    ask = ("--", sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))")
    mine = {"CUDA_VISIBLE_DEVICES": "3"}
    auto = house.run("run", *ask, env=mine)
    assert (auto.stdout, house.record()["gpus"], house.record()["spec"]["gpus"]) == ("3\n", [], "auto")
    assert "GPUs: none\n" in auto.stderr
    assert house.run("run", "--gpus", "none", *ask, env=mine).stdout == "-1\n"
    assert house.record()["spec"]["gpus"] == "none"
    write_state(Path(cards["NGCDL_NVML_STATE"]), {"fail.Init": 999})
    broken = house.run("run", *ask, env=cards | mine)
    assert (broken.stdout, house.record()["gpus"]) == ("3\n", None)
    assert "whether this run computes on a GPU is not known." in broken.stderr
    again = house.run("runs", "replay", "last", env=cards | mine)
    assert (again.stdout, house.record()["spec"]["gpus"]) == ("3\n", "auto")


def test_another_program_of_that_name_is_told_when_it_is_replayed(house: House) -> None:
    for name in ("one", "two"):
        (house.home / name).mkdir()
        (house.home / name / "tool").write_text("#!/bin/sh\n")
        (house.home / name / "tool").chmod(0o755)
    path = {name: {"PATH": f"{house.home / name}:{os.environ['PATH']}"} for name in ("one", "two")}
    house.run("run", "--", "tool", env=path["one"])
    first, second = f"{house.home}/one/tool", f"{house.home}/two/tool"
    assert house.record()["program"] == first
    assert "then, and is" not in house.run("runs", "replay", "last", env=path["one"]).stderr
    assert f"tool was {first} then, and is {second} now\n" in (
        house.run("runs", "replay", "last", env=path["two"]).stderr
    )
    assert house.record()["program"] == second
    differs = json.loads(house.run("runs", "diff", "last-1", "last", "--json").stdout)["differs"]
    assert differs["program"] == [first, second]


def test_a_path_that_was_typed_decides_where_its_program_is_looked_for(house: House) -> None:
    (house.home / "tool").write_text("#!/bin/sh\n")
    (house.home / "tool").chmod(0o755)
    path = ("-e", f"PATH={house.home}:/usr/bin:/bin")
    assert house.run("run", "--dry-run", *path, "--", "tool").stdout.endswith(f" {house.home}/tool\n")
    assert house.run("run", *path, "--", "tool").returncode == 0
    assert house.record()["program"] == f"{house.home}/tool"


def test_one_whose_folder_is_gone_is_not_replayed(house: House) -> None:
    folder = house.home / "gone"
    folder.mkdir()
    house.run("run", "--", "true", cwd=folder)
    (run_id,) = house.store.ids()
    folder.rmdir()
    again = house.run("runs", "replay", "last")
    assert (again.returncode, house.store.ids()) == (125, [run_id])
    assert again.stderr.endswith(
        f"{run_id} can't be repeated: its folder {folder} no longer exists.\n"
        "  To run it in another folder, there:\n      ngcdl run --engine local -- true\n"
    )
    assert f"its folder {folder} no longer exists\n" in house.run("runs", "replay", "--dry-run", "last").stderr


def test_no_script_for_a_cluster_is_made_up_for_it(house: House) -> None:
    house.run("run", "--", "echo", "a b")
    (run_id,) = house.store.ids()
    for form, engine in [("slurm", "slurm"), ("k8s", "kubernetes")]:
        done = house.run("export", form, "last")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{run_id} ran without an image, and --engine {engine} needs one.\n" in done.stderr
        assert f"  ngcdl run pytorch --engine {engine} --gpus none --dry-run -- echo 'a b'\n" in done.stderr


def test_its_report_names_it_once_above_what_was_measured(house: House) -> None:
    house.run("run", "--", "echo", "a b", "--token", "hush")
    page, text = house.home / "x.html", house.home / "x.md"
    done = house.run("report", "last", "--html", str(page), "--markdown", str(text))
    assert done.returncode == 0, done.stderr
    head = page.read_text().partition("<header>")[2].partition("</header>")[0]
    assert head.count("echo") == 1
    assert "<h1>echo &#x27;a b&#x27; --token &#x27;***&#x27; on this host</h1>" in head
    assert "hush" not in page.read_text() + text.read_text()


def test_cards_are_chosen_and_shown_to_it_alone(house: House, cards: dict[str, str]) -> None:
    """With `all`, and by default, the command's environment stays as it is."""
    ask = (sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))")
    both = house.run("run", "--", *ask, env=cards)
    assert both.stdout == "None\n"
    assert len(house.record()["gpus"]) == 2
    assert house.run("run", "--gpus", "0,", "--", *ask, env=cards).stdout == f"{house.record()['gpus'][0]}\n"
    assert len(house.record()["gpus"]) == 1
    assert house.run("run", "--gpus", "none", "--", *ask, env=cards).stdout == "-1\n"
    mine = cards | {"CUDA_VISIBLE_DEVICES": "1"}
    assert house.run("run", "--", *ask, env=mine).stdout == "1\n"
    assert house.record()["gpus"] is None, "CUDA's card 1 may be another than the driver's"
    house.run("run", "--", *ask, env=mine | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert len(house.record()["gpus"]) == 1
    hidden = house.run("run", "--gpus", "0,", "--", *ask, env=mine)
    assert (hidden.returncode, "CUDA_VISIBLE_DEVICES=1 hides" in hidden.stderr) == (125, True)


def test_cpu_and_gpu_are_compared_by_what_the_script_reports(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text(REPORT)
    done = house.run("compare", "--", sys.executable, "train.py", env=cards)
    assert done.returncode == 0, done.stderr
    assert "gpu / cpu: 2.50 times (2.50..2.50), 3 rounds" in done.stdout
    assert len(house.store.ids()) == 6
    assert {tuple(house.store.load(one).gpus or ()) == () for one in house.store.ids()} == {True, False}


def test_more_cards_are_compared_by_what_the_script_does_with_them(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text(
        REPORT.replace('{"-1": 100.0}.get(cards, 250.0)', "90.0 * len(cards.split(','))")
    )
    done = house.run("compare", "--vary", "gpus=1,2", "--", sys.executable, "train.py", env=cards)
    assert done.returncode == 0, done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert verdict == (
        "2 GPUs do 180.0 examples/s, 2.00 times (2.00..2.00) the work of 1 GPU, an efficiency of 100 % (100..100)."
    )
    for words, said in [
        (
            ("--vary", "gpus=1,4"),
            "A comparison of the command with gpus=1 and gpus=4 needs 4 cards: this host has only 2.",
        ),
        (
            ("--vary", "gpus=1,2", "--gpus", "2"),
            "--gpus 2: --vary gpus=1,2 requests the cards itself.\n  Leave it out.",
        ),
        (("--vary", "gpus=1,2", "--scaling", "weak"), "--scaling weak: only a bundled training has that."),
    ]:
        refused = house.run("compare", *words, "--", "true", env=cards)
        assert (refused.returncode, refused.stdout) == (125 if "needs" in said else 2, "")
        assert said in refused.stderr


def test_a_cpu_arm_that_computes_on_a_card_is_not_compared(house: House, cards: dict[str, str]) -> None:
    """A script can override the variable that hides the cards. Here the driver shows the child process on card 1."""
    cards = cards | house.hastened("ngcdl.telemetry.unexpected_use")
    (house.home / "train.py").write_text("""
import os, subprocess, time
state = os.environ["NGCDL_NVML_STATE"]
text = open(state).read()
child = subprocess.Popen(["sleep", "240"], start_new_session=True)
with open(state + ".new", "w") as file:
    file.write(text.replace("gpu1.processes=", "gpu1.processes=%d:1000," % child.pid))
os.replace(state + ".new", state)
is_cpu = os.environ.get("CUDA_VISIBLE_DEVICES") == "-1"
while is_cpu and "its process" not in open("said").read() and child.poll() is None:
    time.sleep(0.05)  # else a look may come too late
child.kill()
with open(state + ".new", "w") as file:
    file.write(text)
os.replace(state + ".new", state)
""")
    stderr = house.home / "said"
    with stderr.open("w") as file:
        done = house.run("run", "--gpus", "none", "--", sys.executable, "train.py", env=cards, stderr=file)
    assert done.returncode == 0, stderr.read_text()
    said = "WARNING: the run was to have no GPU, but its process"
    assert said in stderr.read_text()
    record = house.record()
    assert (len(record["gpus"]), [said in note for note in record["notes"]]) == (1, [True])
    with stderr.open("w") as file:
        compared = house.run("compare", "--repeat", "1", "--", sys.executable, "train.py", env=cards, stderr=file)
    refused = "refused, device: it was to have no GPU, but one of its processes computed on one (cpu, round 1: gpu)"
    assert refused in compared.stdout.replace("\n", " ")


def test_a_source_edited_in_its_folder_ends_the_comparison(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text("import pathlib; path = pathlib.Path('train.py')\n"
                                         "path.write_text(path.read_text() + '# more\\n')\n")  # fmt: skip
    done = house.run("compare", "--", sys.executable, "train.py", env=cards)
    assert "train.py was edited during round 1 of 3, cpu: that run is left out, and no further begins" in done.stderr
    assert len(house.store.ids()) == 1


def test_what_is_piped_in_reaches_the_program_as_without_ngcdl(house: House) -> None:
    (house.home / "lines").write_text("one\ntwo\n")
    line = (
        "echo hello | ngcdl run -i -- cat; echo hello | ngcdl run -- cat; ngcdl run -- wc -l < lines; "
        "{ ngcdl run -- head -c 4 > /dev/null; cat; } < lines; ngcdl run -- wc -c < /dev/null; ngcdl run -- wc -c <&-"
    )
    assert house.shell(line).stdout.split() == ["hello", "hello", "2", "two", "0", "0"]


def test_a_run_that_is_left_or_compared_gets_no_stdin(house: House, cards: dict[str, str]) -> None:
    detached = house.shell("echo hello | ngcdl run -d -- wc -c")
    until(lambda: house.record()["status"] == "finished")
    assert (house.store.folder(detached.stdout.strip()) / "log.txt").read_text() == "0\n"
    (house.home / "lines").write_text("one\ntwo\n")
    with (house.home / "lines").open() as lines:
        house.run("compare", "--repeat", "1", "--", "cat", stdin=lines, env=cards)
        assert lines.read() == "one\ntwo\n"


def test_a_terminal_is_told_that_a_command_was_recorded_and_a_script_s_stderr_is_not(house: House) -> None:
    ours, theirs = pty.openpty()
    with house.popen(*RUN, "-c", "print('result')", stderr=theirs) as process:
        os.close(theirs)
        assert process.communicate(timeout=240)[0] == "result\n"
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while data := os.read(ours, 65536):
            seen += data
    os.close(ours)
    assert seen.decode().endswith(f"ngcdl: recorded: ngcdl show {house.store.find('last')}\r\n")
    assert "recorded" not in house.run(*RUN, "-c", "print('result')").stderr


def test_a_program_sees_the_size_of_the_terminal_from_its_start(house: House) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (33, 77))
    code = "import os; print('size', *os.get_terminal_size())"
    with house.popen("run", "--", sys.executable, "-c", code, stdin=theirs, stdout=theirs) as watcher:
        os.close(theirs)
        shown = b""
        while b"size " not in shown or b"\n" not in shown.partition(b"size ")[2]:
            shown += os.read(ours, 65536)
        watcher.communicate(timeout=240)
    os.close(ours)
    assert b"size 77 33" in shown


def test_the_dry_run_can_be_typed(house: House) -> None:
    done = house.run("run", "--dry-run", "-e", "A=b c", "--", "sh", "-c", 'echo "$A $NGCDL_RUN"; touch "$NGCDL_RUN/x"')
    assert done.returncode == 0, done.stderr
    by_hand = done.stdout.partition("# what ngcdl would start, by hand:\n")[2]
    assert house.shell(by_hand.replace("&& ", "&& env ")).stdout.startswith("b c ")
    assert (house.store.folder("dry-run") / "x").exists()


def test_one_that_was_left_running_is_stopped(house: House) -> None:
    run_id = house.run("run", "-d", "--", "sleep", "3600").stdout.strip()
    assert "interrupted, exit code 143" in house.run("stop", run_id).stderr


def test_one_whose_watcher_was_killed_is_found_and_stopped(house: House) -> None:
    with house.popen("run", "--", "sleep", "3600") as watcher:
        (run_id,) = until(house.store.ids)
        until(lambda: house.store.load(run_id).container)
        watcher.kill()
        watcher.communicate(timeout=240)
    assert "running" in house.run("runs").stdout
    house.run("stop", run_id)
    assert local.LocalEngine(house.home, house.store.root).find(run_id) is None
    assert house.record(run_id)["status"] != "running"


def test_what_lies_in_a_folder_that_may_not_be_entered_can_t_be_invoked_as_in_a_shell(house: House) -> None:
    locked = house.home / "locked"
    (locked / "inner").mkdir(parents=True)
    assert house.run("run", "--", "true", cwd=locked / "inner").returncode == 0
    lock = ("sh", "-c", 'chmod 0 .. && exec "$@"', "sh", *LIKE_OTHERS)
    for words, code, said in [
        (("run", "--", f"{locked}/tool"), 126, "locked/tool: Permission denied.\n"),
        (("runs", "replay", "last"), 125, "locked/inner can't be entered: Permission denied.\n"),
        (("run", "--", "true"), 125, "true can't be started in "),
        (("run", "--", "no-such-program"), 127, "This host has no such command: no-such-program.\n"),
    ]:
        done = house.run(*words, before=lock, cwd=locked / "inner")
        locked.chmod(0o700)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--", "x" * 300), 127), (("--", "./" + "x" * 300), 126), (("-v", "x" * 300 + ":/x", "pytorch"), 125)],
)
def test_a_name_that_is_too_long_for_a_file_is_no_traceback(house: House, words: tuple[str, ...], code: int) -> None:
    assert house.run("run", *words).returncode == code
