"""The loop with a network that computes nothing: what is written, saved and refused."""

import argparse
import re
import signal
import threading
import time

import numpy as np
import pytest
from fake_network import FakeNetwork, asked
from own_process import Said
from trainer_process import events, names

from trainer import checkpoint, data, loop, room
from trainer.events import Events, Outside, Stop, Voice, clock
from trainer.group import ALONE, Group, Lost, begin_alike
from trainer.recipe import Model
from trainer.signals import Signals
from trainer.workloads import cifar10

LINE = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?): step (\d+), loss = ([\d.]+|nan) "
    r"\(([\d.]+) examples/sec; ([\d.]+) sec/batch\)$"
)


@pytest.fixture
def run(tmp_path):
    random = np.random.RandomState(0)
    images = random.randint(0, 256, (60, 32, 32, 3)).astype(np.uint8)
    dataset = data.Dataset(images, np.arange(60, dtype=np.int32) % 10, "synthetic", 1, note="for a test")

    def go(network, signals=None, group=ALONE, **changes):
        typed = asked(tmp_path, **changes)
        said, model = Said(), Model(cifar10.NETWORK, cifar10.RECIPE, cifar10.INPUT, typed.batch)
        outside = Outside(Events(str(tmp_path)), Voice(said), signals or Signals())
        loop.train(loop.Training(typed, cifar10, model, dataset, network, outside, group))
        return said

    return go


def test_lines_are_the_tutorials(run):
    length, queue, *said = run(FakeNetwork({10: 3.14159}))
    assert length == "It takes 25 steps of 4 images\n"
    assert queue == "Filling queue with 50 SYNTHETIC images before starting to train.\n"
    found = [LINE.match(line).groups() for line in said]
    assert [(int(step), loss) for _, step, loss, _, _ in found] == [(0, "2.00"), (10, "3.14"), (20, "2.00")]


def test_of_a_training_that_a_time_ends_no_number_of_steps_is_told(run):
    assert not any(line.startswith("It takes") for line in run(FakeNetwork(), steps=None, seconds=1e-9))


def test_a_first_step_that_takes_long_is_told_once(run, monkeypatch):
    told, is_told = [], threading.Event()
    monkeypatch.setattr("trainer.events.QUIET_SECONDS", 0)
    monkeypatch.setattr(Voice, "whisper", lambda _, text: told.append(text) or is_told.set())
    run(FakeNetwork(at={0: lambda: is_told.wait(30)}))
    assert told == ["Still computing the first step"]


def test_the_first_rates_are_unknown_and_later_ones_fit_together(run, tmp_path):
    run(FakeNetwork())
    first, second, _ = events(tmp_path, "step")
    assert (first["examples_per_second"], first["seconds_per_batch"]) == (None, None)
    assert second["examples_per_second"] * second["seconds_per_batch"] == pytest.approx(4)
    assert second["learning_rate"] == 0.1


class SlowlyFed(FakeNetwork):
    """Batches 0 to 10 are slow, the rest instant; took: the seconds for 1 to 10."""

    took = 0.0

    def batches(self, source, first, last, feed):
        for step in range(first, last):
            began = clock()
            time.sleep(0.004 if step < 11 else 0)
            batch = source(step)
            self.took += clock() - began if 0 < step < 11 else 0
            yield batch


def test_how_long_batches_were_waited_for_is_told_beside_the_time_that_they_took(run, tmp_path):
    network = SlowlyFed()
    run(network, feed="plain")
    first, slow, fast = events(tmp_path, "step")
    assert first["input_seconds_per_batch"] is None
    assert network.took / 10 <= slow["input_seconds_per_batch"] <= slow["seconds_per_batch"]
    assert 0 < fast["input_seconds_per_batch"] <= fast["seconds_per_batch"]
    assert slow["input_seconds_per_batch"] >= 0.004


def test_every_event_has_the_keys_of_the_contract(run, tmp_path):
    run(FakeNetwork(), steps=11)
    found = {event["event"]: set(event) - {"event", "t"} for event in events(tmp_path)}
    assert found == {
        "start": {
            "format", "workload", "framework", "framework_version", "python", "device", "devices", "batch", "steps",
            "seed", "parameters", "dataset", "dataset_images", "dataset_sha256", "dataset_note", "resumed_from_step",
            "threads", "dropout", "precision", "compiled", "channels_last", "winograd", "teacher", "feed",
            "epoch_copied_bytes", "flops_per_example", "share_of_3x3", "replicas", "nodes", "autotune", "pid",
        },
        "step": {
            "step", "loss", "learning_rate", "examples_per_second", "seconds_per_batch", "input_seconds_per_batch",
        },
        "checkpoint": {"step", "path", "seconds"},
        "finish": {"step", "seconds"},
    }  # fmt: skip
    assert events(tmp_path, "start")[0]["parameters"] == 1068298


def test_a_loss_that_is_no_number_stops_with_its_step_and_saves_nothing(run, tmp_path):
    for loss in float("nan"), float("inf"):
        with pytest.raises(Stop, match="at step 7") as stop:
            run(FakeNetwork({7: loss}))
        assert (stop.value.kind, stop.value.step) == ("nan", 7)
    assert not (tmp_path / "checkpoints").exists()


def test_a_loss_that_is_not_finite_is_noticed_however_rarely_lines_are_written(run, monkeypatch):
    monkeypatch.setattr("trainer.log.MOST_UNREAD", 10)
    network = FakeNetwork({7: float("nan")})
    with pytest.raises(Stop) as stop:
        run(network, log_frequency=1000)
    assert (stop.value.kind, stop.value.step, len(network.trained)) == ("nan", 7, 11)


def test_a_bad_loss_between_two_lines_is_found_before_a_checkpoint(run, tmp_path):
    with pytest.raises(Stop):
        run(FakeNetwork({24: float("nan")}))
    assert not (tmp_path / "checkpoints").exists()


def test_weights_that_the_last_update_made_no_numbers_are_not_kept(run, tmp_path):
    network = FakeNetwork()
    network.at[24] = lambda: network.kept["conv1/biases"].fill(np.nan)
    with pytest.raises(Stop, match="conv1/biases is not finite after 25 steps") as stop:
        run(network)
    assert (stop.value.kind, stop.value.step) == ("nan", 24)
    assert names(tmp_path) == ["events.jsonl"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_told_to_end_it_finishes_the_step_and_saves(run, tmp_path, number, code):
    signals = Signals()
    with pytest.raises(Stop) as stop:
        run(FakeNetwork(at={12: lambda: signals.receive(number, None)}), signals)
    assert (stop.value.kind, stop.value.step, stop.value.exit_code) == ("interrupted", 13, code)
    assert (tmp_path / "checkpoints" / "step-13.npz").exists()


def test_resumed_steps_go_on_with_the_batches_that_follow(run, tmp_path):
    straight, first, second = FakeNetwork(), FakeNetwork(), FakeNetwork()
    run(straight, steps=9)
    run(first, steps=5)
    run(second, steps=9, resume=str(tmp_path / "checkpoints"))  # step 9 is the newest there: nothing left to do
    assert second.trained == []
    (tmp_path / "checkpoints" / "step-9.npz").unlink()
    said = run(second, steps=9, resume=str(tmp_path), log_frequency=1)
    assert "It takes 9 steps of 4 images, of which 5 are done\n" in said
    assert len(first.trained) + len(second.trained) == 9
    for one, other in zip(straight.trained, first.trained + second.trained, strict=True):
        assert (one[0][0] == other[0][0]).all()
        assert (one[0][1] == other[0][1]).all()
        assert one[1:] == other[1:]
    assert events(tmp_path, "start")[-1]["resumed_from_step"] == 5
    assert [event["step"] for event in events(tmp_path, "step")[-4:]] == [5, 6, 7, 8]
    assert events(tmp_path, "finish")[-1]["step"] == 9


def test_a_checkpoint_beyond_the_steps_asked_for_is_refused(run, tmp_path):
    run(FakeNetwork(), steps=5)
    with pytest.raises(Stop, match="past the 3"):
        run(FakeNetwork(), steps=3, resume=str(tmp_path))


def test_a_checkpoint_whose_arrays_are_another_network_s_is_refused(run, tmp_path):
    run(FakeNetwork(), steps=2)
    about, arrays = checkpoint.read(str(tmp_path / "checkpoints" / "step-2.npz"))
    short = dict(arrays, **{"conv1/weights": arrays["conv1/weights"][1:]})
    missing = {name: array for name, array in arrays.items() if name != "conv1/weights"}
    for step, values, has in (3, short, r"\(4, 5, 3, 64\)"), (4, missing, "missing"):
        checkpoint.save(str(tmp_path), dict(about, step=step), values)
        with pytest.raises(Stop, match=rf"at step {step} is of another network.*: its conv1/weights is {has}") as stop:
            run(FakeNetwork(), resume=str(tmp_path))
        assert stop.value.kind == "checkpoint"


def test_checkpoints_come_by_the_clock(run, tmp_path):
    run(FakeNetwork(), steps=6, checkpoint_seconds=1e-9)
    assert [event["step"] for event in events(tmp_path, "checkpoint")] == [1, 2, 3, 4, 5, 6]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3


def test_a_checkpoint_that_cannot_be_written_stops_the_training_and_names_the_step(run, tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(Stop) as stop:
        run(FakeNetwork(), steps=6)
    assert (stop.value.kind, stop.value.step) == ("checkpoint", 6)


class Unread:
    """Like a loss on a card: reading it waits for the gradients of all replicas."""

    def __init__(self, told):
        self.told = told

    def __float__(self):
        self.told.append("read")
        return 2.0


class Replica(FakeNetwork):
    """One of two; the other is lost before a step."""

    group = Group(0, 2)

    def __init__(self, gone):
        FakeNetwork.__init__(self, right=0)
        self.told, self.gone = [], gone
        self.losses = {step: Unread(self.told) for step in range(9)}

    def agreed(self, number):
        self.told.append("heard")
        if len(self.trained) > self.gone:
            raise Lost("Connection closed by peer")
        return number


def test_replicas_hear_of_each_other_before_any_waits_for_a_loss(run):
    network = Replica(gone=2)
    with pytest.raises(Lost):
        run(network, log_frequency=1, group=network.group)
    begun = ["heard"] * 5  # the same first step and data, and no signal
    assert network.told == [*begun, "heard", "read", "heard", "read", "heard"]


@pytest.mark.parametrize(
    ("first", "other", "said"),
    [
        (10, 20, "begin at steps 10 and 20: is --resume the same"),
        (40, 20, "begin at steps 20 and 40: is --resume the same"),
        (20, 20, "have different data: is --data the same"),
    ],
)
def test_replicas_that_begin_at_different_steps_or_with_different_data_train_nothing(first, other, said):
    """This happens if --resume or --data names a folder that is another one on each machine."""
    network = FakeNetwork()
    network.agreed = lambda number: max(number, other if number > 0 else -other)
    with pytest.raises(Stop, match=said) as stop:
        begin_alike(network, first, "of this machine")
    assert (stop.value.kind, stop.value.step) == ("replicas_differ", None)


KEEPING = {"no_eval": False, "checkpoint_seconds": 1e-9}  # what a training with a result keeps and tests


def test_what_is_no_result_is_neither_kept_nor_tested_and_that_is_said(run, tmp_path):
    said = run(FakeNetwork(), feed="constant", **KEEPING)
    assert [line for line in said if "neither saved nor tested" in line]
    assert not (tmp_path / "checkpoints").exists()
    assert [event["event"] for event in events(tmp_path)] == ["start", "step", "step", "step", "finish"]


def test_batches_that_are_dropped_have_rates_and_no_loss_and_their_stages_follow(run, tmp_path):
    network = FakeNetwork()
    said = run(network, feed="input", steps=11, **KEEPING)
    assert network.trained == []
    assert [line for line in said if "nothing is trained" in line]
    assert not (tmp_path / "checkpoints").exists()
    assert [event["event"] for event in events(tmp_path)] == ["start", "step", "step", "stages", "finish"]
    (_, last), (stages,) = events(tmp_path, "step"), events(tmp_path, "stages")
    assert (last["loss"], last["learning_rate"]) == (None, None)
    assert last["examples_per_second"] > 0
    assert re.match(r"^\S+ \S+: step 10 \([\d.]+ examples/sec; [\d.]+ sec/batch\)$", said[-1])
    names = "choose", "crop", "flip", "float", "brightness", "contrast", "standardise", "batch"
    assert tuple(stage["name"] for stage in stages["stages"]) == names
    assert all(stage["examples_per_second"] > 0 for stage in stages["stages"])


def test_a_batch_beyond_the_machine_s_memory_is_refused_before_it_is_made_and_one_beyond_the_free_is_told(
    run, monkeypatch
):
    """On a CPU the first convolution alone takes its input and its output at once; on a GPU the batch is still made
    here."""
    each = 4 * (24 * 24 * 3 + 24 * 24 * 64)
    memory = {"MemTotal": 9 * each, "SwapTotal": each // 2, "MemAvailable": 4 * each}
    monkeypatch.setattr(room.host, "memory", lambda: memory)
    monkeypatch.setattr(room.host, "Container", lambda: argparse.Namespace(
        memory_limit_bytes=lambda: 9 * each, memory_bytes=lambda: 0))  # fmt: skip
    network = FakeNetwork()
    with pytest.raises(Stop, match="a batch of 10 images takes at least") as stop:
        run(network, batch=10)
    assert (stop.value.kind, network.trained) == ("out_of_memory", [])
    assert [len(run(network, batch=size, steps=1)) for size in (9, 4)] == [4, 3]
    network.device, network.label_bytes = "gpu", 4
    assert len(run(network, batch=10, steps=1)) == 3


def test_a_network_of_another_size_is_never_trained(run):
    model = Model(cifar10.NETWORK[:-1], cifar10.RECIPE, cifar10.INPUT, 128)
    with pytest.raises(Stop, match="1066368 parameters, not 1068298"):
        loop.prepare(None, cifar10, model, FakeNetwork(), {}, None)
    claims = argparse.Namespace(PARAMETERS=cifar10.PARAMETERS, MACS=cifar10.MACS - 1)
    model = Model(cifar10.NETWORK, cifar10.RECIPE, cifar10.INPUT, 128)
    with pytest.raises(Stop, match="18470784 multiply-accumulates, not 18470783"):
        loop.prepare(None, claims, model, FakeNetwork(), {}, None)
