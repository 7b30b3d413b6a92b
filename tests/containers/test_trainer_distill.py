"""Distillation: the loss is the documented one, and every way to run the teacher has the same."""

import importlib
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from trainer_process import events, train, trainer

from trainer import __main__ as entry
from trainer import data, teacher
from trainer.arguments import arguments
from trainer.epochs import shuffled
from trainer.events import Events, Outside, Stop
from trainer.layers import constant, conv, dense, glorot, relu
from trainer.recipe import Model, recipe, sgd
from trainer.signals import Signals
from trainer.workloads import cifar10_keras, distill, resnet_56

NONE = constant(0.0)
LEARNS = [dense("student", 192, 10, glorot(192, 10), NONE)]
ANSWERS = [
    conv("first", 3, 3, 4, glorot(3, 4, 9), NONE),
    relu("relu"),
    dense("last", 256, 10, glorot(25, 10), NONE),
]
SHAPE = (8, 8, 3)
SMALL = SimpleNamespace(NETWORK=ANSWERS, RECIPE=recipe(sgd(), 0.1), INPUT=SHAPE)
TAUGHT = [way for way in teacher.WAYS if way != "none"]


class Lesson:
    """A small student beside a small teacher, on 44 made-up images in batches of 8, the last of 4."""

    def __init__(self, framework, way, folder, said=None):
        random = np.random.RandomState(1)
        images = random.randint(0, 256, (44, *SHAPE)).astype(np.uint8)
        self.dataset = data.Dataset(images, random.randint(0, 10, 44).astype(np.int32), "synthetic", 1)
        maker = importlib.import_module("trainer.frameworks." + framework)
        self.model = Model(LEARNS, recipe(sgd(), 0.1, loss="distill"), SHAPE, 8)
        self.plain = maker.Network(self.model, "cpu")
        voice = SimpleNamespace(say=(said if said is not None else []).append)
        asked = SimpleNamespace(teacher=way, batch=8, device="cpu", gpu_memory_fraction=None, threads=None, seed=7)
        beside = teacher.beside(maker, SimpleNamespace(TEACHER="small"), {"small": SMALL}.get, asked)
        self.signals = Signals()
        outside = Outside(Events(str(folder)), voice, self.signals)
        self.network = teacher.Student(self.plain, teacher.way(beside, way, outside))
        self.network.load(self.model.first(3))
        self.source = shuffled(data.scaled)(self.dataset, 8, 5, 0.4)

    def losses(self, last, first=0):
        batches = self.network.batches(self.source, first, last)
        try:
            turns = [self.model.turn(step, 0) for step in range(first, last)]
            return [float(self.network.train(batch, turn)[0]) for batch, turn in zip(batches, turns, strict=False)]
        finally:
            self.network.close()


def test_every_way_gives_the_same_losses_over_more_than_an_epoch(framework, tmp_path):
    found = {way: Lesson(framework, way, tmp_path).losses(9) for way in TAUGHT}
    assert len(found["before"]) == 9
    assert len({round(loss, 4) for loss in found["before"]}) > 5
    for way in TAUGHT:
        assert found[way] == pytest.approx(found["before"], abs=1e-5), way


def test_a_training_that_goes_on_gets_the_answers_to_its_own_batches(framework, tmp_path):
    lesson = Lesson(framework, "before", tmp_path)
    lesson.losses(4)
    weights = lesson.plain.values()
    expected = lesson.losses(6, first=4)
    for way in ("ahead", "kept"):
        other = Lesson(framework, way, tmp_path)
        other.network.load(weights)
        assert other.losses(6, first=4) == pytest.approx(expected, abs=1e-5)


def test_the_loss_is_the_one_that_is_told(framework, tmp_path):
    lesson = Lesson(framework, "together", tmp_path)
    examples, labels = lesson.source(0)
    weights = {name: value.astype(np.float64) for name, value in lesson.model.first(3).items()}
    student = examples.reshape(8, -1) @ weights["student/weights"] + weights["student/biases"]
    answers = lesson.network.teacher.network.logits(examples).astype(np.float64)
    hard = -np.log(softmax(student)[np.arange(8), labels]).mean()
    p, q = softmax(answers / 4), softmax(student / 4)
    soft = (p * np.log(p / q)).sum(axis=1).mean()
    assert lesson.losses(1) == [pytest.approx(0.5 * hard + 0.5 * 16 * soft, abs=1e-5)]
    assert soft > 0.001


@pytest.mark.torch
def test_a_pytorch_that_knows_no_divergence_of_a_batch_has_the_same_loss(torch, monkeypatch):
    from trainer.frameworks.pytorch.learning import distill

    known = torch.nn.functional
    logits, answers, labels = torch.randn(8, 10), 3 * torch.randn(8, 10), torch.arange(8)
    soft = known.kl_div((logits / 4).log_softmax(1), (answers / 4).softmax(1), reduction="batchmean")
    monkeypatch.delattr(known, "kl_div")  # until 1.0 it took no reduction="batchmean"
    found = distill(logits, labels, answers)
    assert float(found) == pytest.approx(float(0.5 * known.cross_entropy(logits, labels) + 0.5 * 16 * soft), rel=1e-6)


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_a_teacher_learns_nothing(framework, tmp_path):
    lesson = Lesson(framework, "ahead", tmp_path)
    before = lesson.network.teacher.network.values()
    lesson.losses(3)
    after = lesson.network.teacher.network.values()
    assert all((before[name] == after[name]).all() for name in before)


def test_kept_answers_once_and_says_how_long_it_took(framework, tmp_path):
    said = []
    lesson = Lesson(framework, "kept", tmp_path, said)
    lesson.losses(2)
    (told,) = events(tmp_path, "teacher")
    assert told["examples"] == 44
    assert told["seconds"] > 0
    assert said[-2] == "The teacher computes all 44 examples beforehand", "on a CPU that takes minutes"
    assert said[-1].startswith("The teacher has computed them, in ")
    assert lesson.network.teacher_seconds_per_batch() is None, "it computes nothing while the student learns"
    lesson.signals.receive(signal.SIGTERM, None)
    with pytest.raises(Stop, match="told to stop"):
        lesson.losses(2)
    assert len(events(tmp_path, "teacher")) == 1


@pytest.mark.parametrize("way", ["together", "before", "ahead"])
def test_the_teachers_own_seconds_are_told_and_then_begin_anew(framework, way, tmp_path):
    lesson = Lesson(framework, way, tmp_path)
    lesson.losses(3)
    assert lesson.network.teacher_seconds_per_batch() > 0
    assert lesson.network.teacher_seconds_per_batch() is None


def made(step):
    return np.full(1, step), np.zeros(1)


class Idle:
    """A network that fails unless given logits."""

    device = "gpu"

    def logits(self, examples):
        raise ValueError("broken")

    def answers(self, examples):
        return examples

    def close(self):
        pass


def test_an_error_of_the_thread_ahead_is_raised_where_its_answer_is_waited_for():
    ahead = teacher.Ahead(Idle())
    source = ahead.watching(made, 0, 5)
    source(0)
    with pytest.raises(ValueError, match="broken"):
        ahead.answers(0, None, None)
    ahead.close()


def test_the_teacher_ahead_is_ahead_by_two_batches(monkeypatch):
    made = []
    monkeypatch.setattr(teacher, "ahead", lambda *_, **more: made.append(more))
    teacher.Ahead(Idle()).watching(None, 0, 5)
    assert made == [{"threads": 1, "depth": 2}]


def test_the_thread_ahead_ends_while_it_waits_for_batches_that_never_come():
    before = set(threading.enumerate())  # some of another test's threads may still end
    network = Idle()
    network.logits = lambda examples: examples
    ahead = teacher.Ahead(network)
    ahead.watching(made, 0, 5)(0)
    ahead.answers(0, None, None)
    ahead.close()
    assert not set(threading.enumerate()) - before


def test_the_thread_ahead_waits_without_a_timeout_which_python_2_would_poll_ever_less_often(monkeypatch):
    network, waited = Idle(), []
    network.logits = lambda examples: examples
    ahead = teacher.Ahead(network)

    def wait(*words):
        waited.append(words)
        ahead.seen[0] = "examples"

    monkeypatch.setattr(ahead.changed, "wait", wait)
    assert ahead.answer(0)[0] == "examples"
    assert waited == [()]


def test_before_waits_for_the_students_step():
    waited = []
    network = Idle()
    network.logits = lambda _: waited.append("teacher")
    before = teacher.Before(network)
    source = before.watching(made, 0, 5)
    source(0)

    class Loss:
        def __float__(self):
            waited.append("student")
            return 0.0

    before.answers(0, None, Loss())
    assert waited == ["student", "teacher"]


def test_on_a_gpu_nobody_waits_for_the_teacher_alone():
    assert teacher.Together(Idle()).answers(0, "examples", None) == ("examples", None)


@pytest.mark.parametrize(("way", "feed"), [("before", "resident"), ("ahead", "constant"), ("kept", "constant")])
def test_a_feed_that_makes_no_batches_to_answer_for_is_refused(way, feed):
    with pytest.raises(Stop, match=f"--teacher {way} does not go with --feed {feed}: type --feed ahead"):
        teacher.check(way, feed)
    teacher.check(way, "plain")
    teacher.check("none", feed)
    teacher.check(None, feed)


def test_distill_is_resnet_56_but_for_its_loss_and_its_teacher():
    assert distill.NETWORK == resnet_56.NETWORK
    assert distill.RECIPE == {**resnet_56.RECIPE, "loss": "distill"}
    assert entry.imported(distill.TEACHER) is cifar10_keras
    assert cifar10_keras.INPUT == distill.INPUT
    assert "28,878,848" in distill.__doc__
    assert 2 * cifar10_keras.MACS == 28_878_848


def test_without_a_teacher_the_loss_is_that_of_the_labels():
    asked = arguments(["distill", "--out", "x", "--teacher", "none"])
    assert entry.modelled(asked, distill).loss == "softmax"


@pytest.mark.torch
def test_distill_trains_beside_its_teacher_and_tells_what_it_takes(tmp_path):
    common = "--framework", "pytorch", "--device", "cpu", "--no-eval", "--log-frequency", 1
    out = train("distill", "--out", tmp_path, "--steps", 3, "--batch", 8, *common)
    assert "The teacher is cifar10-keras, untrained, on the CPU (--teacher ahead)" in out
    assert [event["teacher"] for event in events(tmp_path, "start")] == ["ahead"]
    steps = events(tmp_path, "step")
    assert len(steps) == 3
    assert all(event["teacher_seconds_per_batch"] > 0 for event in steps)
    assert 1 < steps[0]["loss"] < 4


@pytest.mark.tensorflow
def test_a_teacher_on_the_cpu_wakes_tensorflow_with_the_limit_of_the_card(monkeypatch):
    import tensorflow
    from trainer.frameworks import tf2

    limited = []
    known = tensorflow.config.experimental
    monkeypatch.setattr(known, "list_physical_devices", lambda _: ["a GPU"])
    monkeypatch.setattr(known, "set_virtual_device_configuration", lambda gpu, parts: limited.append((gpu, *parts)))
    monkeypatch.setattr(known, "set_visible_devices", lambda *_: None)
    monkeypatch.setattr(tf2.driver, "total_bytes", lambda _: 2**30)
    assert tf2.Network(Model(LEARNS, recipe(sgd(), 0.1), SHAPE, 8), "cpu", 0.25).device == "cpu"
    assert [(gpu, part.memory_limit) for gpu, part in limited] == [("a GPU", 256)]


def test_a_teacher_for_a_workload_that_has_none_is_refused(tmp_path):
    code, _, err = trainer("cifar10", "--out", tmp_path, "--teacher", "kept")
    assert code == 1
    assert "cifar10 has no teacher: leave --teacher out" in err


@pytest.mark.torch
def test_a_checkpoint_of_a_student_is_not_taken_for_one_that_learned_alone(tmp_path):
    common = "--framework", "pytorch", "--device", "cpu", "--no-eval", "--batch", 4, "--out", tmp_path
    train("distill", *common, "--steps", 1, "--teacher", "none")
    assert [event["teacher"] for event in events(tmp_path, "start")] == ["none"]
    assert "teacher_seconds_per_batch" not in events(tmp_path, "step")[0]
    code, _, err = trainer("distill", *common, "--steps", 2, "--resume", tmp_path, "--teacher", "kept")
    assert code == 1
    assert "has teacher False, this training has None" in err
