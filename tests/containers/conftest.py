"""The trainer is a separate program: its tests put it on the path with PYTHONPATH, as an image does."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

CONTAINERS = Path(__file__).parents[2] / "containers"
sys.path.insert(0, str(CONTAINERS))
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory):
    """At the end, stop the forking processes and remove what frameworks leave in the temporary folder."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        # else PyTorch's compiler builds and runs a test program for each of this processor's vector extensions
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its workers each load PyTorch, for a kernel or two
        yield
        while forks:
            forks.popitem()[1].close()
    shutil.rmtree(folder, ignore_errors=True)  # workers of PyTorch's compiler may still write there


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
    one is `python -m trainer`. images: {"train": n, "test": m}, to which a fork cuts the synthetic splits."""
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


def trained(folder, *words, **environment):
    """Train on one CPU thread; return (losses, stdout)."""
    words = ("--no-eval", "--log-frequency", "1", "--threads", "1", "--device", "cpu", *words)
    out = train(*words, "--out", folder, **environment)
    return losses(folder), out


def places():
    """Return the devices on which PyTorch can compute here."""
    try:
        import torch
    except ImportError:
        return ["cpu"]
    return ["cpu", "gpu"] if torch.cuda.is_available() else ["cpu"]


def on_cpu(framework, model, **said):
    """Return a framework's network on the CPU."""
    return importlib.import_module("trainer.frameworks." + framework).Network(model, "cpu", **said)


class Played:
    """A stand-in for a recorder of CUDA graphs, without a GPU: a replay calls the step. refusing: why it records
    nothing."""

    def __init__(self, refusing=None, tight=False):
        self.refusing, self.tight, self.ordinary, self.recordings = refusing, tight, 0, 0

    def is_tight(self):
        return self.tight

    def ahead(self, step):
        self.ordinary += 1
        return step()

    def recorded(self, step):
        self.recordings += 1
        if self.refusing:
            raise RuntimeError(self.refusing)
        return step


def pytest_runtest_setup(item):
    """Skip a test whose mark names a framework that is not installed."""
    for module in "tensorflow", "torch":
        if item.get_closest_marker(module):
            found = find_spec(module)
            if found is None or found.origin is None:  # the folder containers/tensorflow is not a package
                pytest.skip(f"{module} is not installed in this Python")


@pytest.fixture
def torch():
    import torch

    torch.manual_seed(3)
    return torch


@pytest.fixture(scope="module")
def made():
    """Few images: enough for two steps of 60 per epoch."""
    from trainer import data

    whole = data.synthetic("train")
    return data.Dataset(whole.images[:120], whole.labels[:120], "synthetic", 1, note="made")


FEW = {"train": (1000, 1), "test": (1000, 2)}


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """Return a PYTHONPATH with which the trainer makes few images: making all takes each process two seconds."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "sitecustomize.py").write_text(f"from trainer import data\ndata.SYNTHETIC = {FEW}\n")
    return f"{folder}:{CONTAINERS}"


@pytest.fixture
def without_tensorflow(tmp_path_factory):
    """Return a PYTHONPATH that hides TensorFlow from the trainer: loading it unused takes seconds."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "tensorflow.py").write_text("raise ImportError(\"No module named 'tensorflow'\")\n")
    return f"{folder}:{CONTAINERS}"


@pytest.fixture(
    params=[pytest.param("tf2", marks=pytest.mark.tensorflow), pytest.param("pytorch", marks=pytest.mark.torch)]
)
def framework(request):
    return request.param


class Said(list):
    """A stream that keeps what is written."""

    def write(self, text):
        self.append(text)

    def flush(self):
        pass
