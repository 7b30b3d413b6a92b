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

from ngcdl.engines import local

RUN = ("run", "--", sys.executable)


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
    (("run", "--", ""), 127, "This host has no such command: ''."),
    (("run", "--engine", "local", "-v", "/a:/b", "-p", "80:80", "--", "true"), 2, "-v, -p: only for containers, and "
     "this run has none.\n  In an image:\n      ngcdl run pytorch -v /a:/b -p 80:80 -- true\n"),
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
    (("compare", "pytorch:25.03-py3", "--train", "lstm"), 125, "runs on this host without Docker:\n"),
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


def test_python_where_only_python3_is_here_leads_on_to_it(house: House, tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    done = house.run("run", "--", "python", "a.py", "--x", env={"PATH": str(tmp_path)})
    assert done.returncode == 127
    assert "no such command: python.\n  python3 is here:\n      ngcdl run -- python3 a.py --x\n" in done.stderr


def test_a_script_that_is_not_executable_is_run_by_its_language(house: House) -> None:
    (house.home / "a.py").touch(0o644)
    done = house.run("run", "--", "./a.py", "--x")
    assert done.returncode == 126
    assert "./a.py is not executable:\n      ngcdl run -- python3 ./a.py --x\n" in done.stderr


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


def test_a_replay_does_not_say_that_somebody_typed_what_the_run_before_had(house: House) -> None:
    assert "engine local: no image was named" in house.run("run", "--gpus", "none", "--", "true").stderr
    again = house.run("runs", "replay", "last").stderr
    assert "ngcdl: engine local: as in the run that is repeated; GPUs: none (that run had none)\n" in again
    assert "named" not in again
    typed = house.run("run", "--engine", "local", "--gpus", "none", "--", "true").stderr
    assert "engine local: it was named; GPUs: none (no GPU was asked for)\n" in typed


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


def test_what_is_piped_in_reaches_the_program_as_without_ngcdl(house: House) -> None:
    (house.home / "lines").write_text("one\ntwo\n")
    line = (
        "echo hello | ngcdl run -i -- cat; echo hello | ngcdl run -- cat; ngcdl run -- wc -l < lines; "
        "{ ngcdl run -- head -c 4 > /dev/null; cat; } < lines; ngcdl run -- wc -c < /dev/null; ngcdl run -- wc -c <&-"
    )
    assert house.shell(line).stdout.split() == ["hello", "hello", "2", "two", "0", "0"]


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
