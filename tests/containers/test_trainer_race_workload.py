"""cifar10-94 as a workload: what it reports of its trainings, and what it refuses."""

import io
import signal

import numpy as np
import pytest
from trainer_process import events

from trainer import __main__ as entry
from trainer import data
from trainer.arguments import arguments
from trainer.events import Events, Outside, Stop, Voice
from trainer.recipe import Model
from trainer.signals import Signals
from trainer.workloads import cifar10_94

pytestmark = pytest.mark.torch


def network():
    from trainer.frameworks.pytorch import Network

    return Network(Model(cifar10_94.NETWORK, cifar10_94.RECIPE, (32, 32, 3), 16), "cpu")


def few(made):
    return data.Dataset(made.images[:20], made.labels[:20], "synthetic", 1)


def test_two_short_trainings_are_told_and_certified(torch, made, tmp_path):
    said = io.StringIO()
    asked = arguments(
        ["cifar10-94", "--out", str(tmp_path), "--steps", "2", "--batch", "16", "--times", "2", "--seed", "4"]
    )
    asked.framework, outside = "pytorch", Outside(Events(str(tmp_path)), Voice(said), Signals())
    cifar10_94.race_on(made, few(made), asked, network(), outside)
    found = events(tmp_path)
    assert [event["event"] for event in found] == [
        *("start", "step", "step", "eval", "raced"),
        *("step", "step", "eval", "raced", "certified", "finish"),
    ]
    begun, raced, certified = found[0], [event for event in found if event["event"] == "raced"], found[-2]
    assert (begun["steps"], begun["precision"], begun["feed"]) == (2, "float32", "resident")
    assert [event["seed"] for event in raced] == [4, 5]
    assert all(event["seconds"] > 0 and not event["graphs"] for event in raced)
    assert certified["times"] == 2
    assert certified["accuracy_mean"] == pytest.approx(np.mean([event["precision_at_1"] for event in raced]))
    assert "SYNTHETIC" in said.getvalue()
    assert "2 trainings: " in said.getvalue()


def test_a_signal_during_the_test_ends_it(torch, made, tmp_path):
    asked = arguments(["cifar10-94", "--out", str(tmp_path), "--steps", "2", "--batch", "16"])
    signals = Signals()

    class Heard(Voice):
        def say(self, text):
            if ": step 1," in text:  # the last one
                signals.receive(signal.SIGTERM, None)

    outside = Outside(Events(str(tmp_path)), Heard(None), signals)
    asked.framework = "pytorch"
    with pytest.raises(Stop) as stopped:
        cifar10_94.race_on(made, few(made), asked, network(), outside)
    assert (stopped.value.kind, stopped.value.exit_code, stopped.value.step) == ("interrupted", 143, 2)
    assert [event["event"] for event in events(tmp_path)] == ["start", "step", "step"]


def test_other_trainings_are_not_repeated(capsys):
    with pytest.raises(SystemExit):
        arguments(["cifar10", "--out", "x", "--times", "2"])
    assert "--times does not apply to cifar10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--resume", "."), "leaves no checkpoint: leave --resume out"),
        (("--seconds", "3"), "use --steps or --epochs, not --seconds alone"),
        (("--seconds", "3", "--steps", "9"), "leave --seconds out"),
        (("--feed", "plain"), "has its images on the device"),
        (("--precision", "tf32"), "use --precision amp or float32"),
    ],
)
def test_what_a_training_within_seconds_has_not_is_refused_in_a_sentence(typed, said):
    with pytest.raises(Stop, match=f"cifar10-94 .*{said}"):
        cifar10_94.check(arguments(["cifar10-94", "--out", "x", *typed]))


@pytest.mark.parametrize("option", cifar10_94.REFUSES)
def test_what_its_file_refuses_at_its_top_is_what_the_trainer_refuses(option):
    numbers = {"--clip": "5", "--trace": "5", "--resume": ".", "--seconds": "3"}
    typed = [*option.split(), *([numbers[option]] if option in numbers else [])]
    asked = arguments(["cifar10-94", "--out", "x", *typed])

    def try_all():
        entry.by_trying(asked, cifar10_94, None)
        entry.modelled(asked, cifar10_94)
        cifar10_94.check(asked)

    with pytest.raises(Stop, match=r"leave (--[a-z]+|it) out|use --"):
        try_all()


def test_no_largest_batch_is_looked_for():
    asked = arguments(["cifar10-94", "--out", "x", "--batch", "largest"])
    with pytest.raises(Stop, match="--batch largest does not apply to cifar10-94"):
        entry.largest(asked, cifar10_94, None)
