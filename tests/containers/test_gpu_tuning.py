"""scripts/benchmarks/gpu_tuning.py: which knobs are tried, and what is told of them."""

import contextlib
import functools
import sys
from types import SimpleNamespace

import pytest
from trainer_process import CONTAINERS

from trainer import data, race
from trainer.race import KNOBS
from trainer.workloads.cifar10_94 import BATCH, STEPS

sys.path.append(str(CONTAINERS.parent / "scripts" / "benchmarks"))

pytestmark = pytest.mark.torch


@pytest.fixture
def tuned(torch, monkeypatch, capsys):
    """Run gpu_tuning.py with these words and this accuracy(knobs, held, seed); return its output by lines."""
    import gpu_tuning

    monkeypatch.setattr(gpu_tuning.cut, "by_term", lambda: None)
    monkeypatch.setattr(data, "training", lambda folder: folder)
    monkeypatch.setattr(gpu_tuning.race, "split", lambda folder: (folder, None))
    monkeypatch.setattr(gpu_tuning, "made", lambda way, *_: way)

    def run(accuracy, *words):
        monkeypatch.setattr(gpu_tuning, "accuracy", accuracy)
        monkeypatch.setattr(sys, "argv", ["gpu_tuning.py", *words])
        gpu_tuning.main()
        return capsys.readouterr().out.splitlines()

    return run


def test_knobs_are_read_as_the_script_has_them_in_its_text(tuned):
    words = ["DIR", "--runs", "2", "filter_rate=0.2,0.24", "head_rate=0.01,0.03"]
    told = tuned(lambda way, _, seed: way.knobs.filter_rate + seed / 100, *words)
    names = ["as it is", "filter_rate=0.2", "filter_rate=0.24", "head_rate=0.01", "head_rate=0.03"]
    assert [line.split(" | ")[0].removeprefix("| ") for line in told[-5:]] == names
    assert told[-4] == f"| filter_rate=0.2 | 0.2050 | 0.0050 | {0.2 - KNOBS.filter_rate:.4f} (0.0000) | 2 |"


def test_knobs_that_are_joined_are_tried_together_with_their_batch_and_epochs(tuned):
    seen = {}

    def accuracy(way, _, seed):
        seen[way.batch] = way
        return 0.9

    joined = "batch=2000+epochs=8.5+sides=((28, 0.5), (32, 1.0))+decay=0.01"
    told = tuned(accuracy, "DIR", "--runs", "2", joined)
    usual, other = seen[BATCH], seen[2000]
    assert (usual.knobs, usual.epochs * 50_000) == (KNOBS, pytest.approx(STEPS * BATCH))
    assert other.knobs == KNOBS._replace(sides=((28, 0.5), (32, 1.0)), decay=0.01)
    assert other.epochs == 8.5
    assert told[-1].startswith(f"| {joined} | 0.9000 | 0.0000 |")
    with pytest.raises(SystemExit, match="no such knob: colour"):
        tuned(accuracy, "DIR", "batch=2000+colour=1")


def test_tuning_that_is_cut_short_tells_the_seeds_that_all_knobs_have(tuned, capsys):
    trained = []

    def accuracy(way, _, seed):
        if len(trained) == 5:
            raise KeyboardInterrupt
        trained.append(seed)
        return way.knobs.filter_rate + seed / 100

    with pytest.raises(KeyboardInterrupt):
        tuned(accuracy, "DIR", "filter_rate=0.2")
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert (first[:8], second.split("; ")[1]) == ("seed 0: ", "filter_rate=0.2 0.2100")
    assert last == f"| filter_rate=0.2 | 0.2050 | 0.0050 | {0.2 - KNOBS.filter_rate:.4f} (0.0000) | 2 |"


def test_tuning_begins_no_seed_when_its_time_is_up(tuned):
    assert tuned(lambda *_: 0.9, "DIR", "--seconds", "0", "shift=3") == []


def test_each_kind_of_step_is_timed_and_its_kernels_are_told_by_the_step(torch, monkeypatch, capsys):
    import gpu_steps

    done = []

    class Made:
        recorded, why, losses, at = True, None, torch.ones(3), torch.zeros(1)
        phases = race.phases(KNOBS, 225)

        def __init__(self, *_):
            self.takes = [functools.partial(done.append, phase.side) for phase in self.phases]
            self.prepare = self.reset = self.predict = self.train = self.wait = lambda *_: None

    @contextlib.contextmanager
    def profile(**_):
        span = SimpleNamespace(elapsed_us=lambda: 8.0)
        event = SimpleNamespace(name="conv", device_type=torch.autograd.DeviceType.CUDA, time_range=span)
        yield SimpleNamespace(events=lambda: [event] * 2)

    made = SimpleNamespace(images=None, labels=None)
    monkeypatch.setattr(gpu_steps.gpu, "images", lambda _: (made, made))
    monkeypatch.setattr(gpu_steps.numbers, "chosen", lambda *_: None)
    for name, fake in (("Race", Made), ("put", lambda *_: None), ("profile", profile)):
        monkeypatch.setattr(gpu_steps, name, fake)
    monkeypatch.setattr(sys, "argv", ["gpu_steps.py"])
    gpu_steps.main()
    told = capsys.readouterr().out
    assert [told.count(words) for words in ("CUDA graphs", "a step of 28 pixels", "biases learn:")] == [2, 6, 2]
    assert told.count("       4.0 us  conv\n") == 8
    assert done.count(24) == 2 * (3 * 75 + 2 * 4)
