"""The trainer as a process of its own or a fork of one with the framework loaded, and what it leaves in its folder."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTAINERS = Path(__file__).parents[2] / "containers"
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}
FEW = {"train": (1000, 1), "test": (1000, 2)}


def start(*argv, **environment):
    """Start `python -m trainer` as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "trainer", *map(str, argv)],
        env={**os.environ, "PYTHONPATH": str(CONTAINERS), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def python(source, **environment):
    """Run source in its own process; return (exit code, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": str(CONTAINERS), **environment},
        capture_output=True,
        text=True,
        timeout=250,
    )
    return done.returncode, done.stdout, done.stderr


class Forks:
    """A process that has loaded this framework and forks trainers; see forked.py."""

    def __init__(self, framework):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forked.py")), framework],
            env={**os.environ, "PYTHONPATH": str(CONTAINERS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def trainer(self, words, images):
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            print(json.dumps([words, images, out.name, err.name]), file=self.process.stdin, flush=True)
            return int(self.process.stdout.readline()), out.read(), err.read()

    def close(self):
        self.process.kill()
        self.process.communicate()


forks = {}


def trainer(*argv, images=None, **environment):
    """Train to the end; return (exit code, stdout, stderr). Without a GPU, --autotune and an environment of its own, a
    training in TensorFlow 2 or PyTorch, if named, runs in a fork of a process with the framework loaded. Every other
    one is `python -m trainer`. images: {"train": n, "test": m}, how many synthetic ones a fork makes."""
    words = [str(word) for word in argv]
    if "--framework" in words and "--autotune" not in words:
        framework = words[words.index("--framework") + 1]
        if framework != "tf1" and (environment == HIDDEN or ("cpu" in words and not environment)):
            forks[framework] = forks.get(framework) or Forks(framework)
            return forks[framework].trainer(words, images or {})
    process = start(*words, **environment)
    out, err = process.communicate(timeout=250)
    return process.returncode, out, err


def train(*argv, **more):
    """Train to the end, which must succeed; return stdout."""
    code, out, err = trainer(*argv, **more)
    assert code == 0, err
    return out


def events(folder, kind=None):
    found = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in found if kind in (None, event["event"])]


def until(found, what, seconds=120):
    """Wait until found() is true, or fail."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def losses(folder):
    return [event["loss"] for event in events(folder, "step")]


def trained(folder, *words, **more):
    """Train on one CPU thread; return (losses, stdout)."""
    words = ("--no-eval", "--log-frequency", "1", "--threads", "1", "--device", "cpu", *words)
    out = train(*words, "--out", folder, **more)
    return losses(folder), out
