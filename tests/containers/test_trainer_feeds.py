"""Every feed trains the same; what a feed can't do, it refuses."""

import argparse

import numpy as np
import pytest
from own_process import on_cpu
from trainer_process import events, train, trainer

from trainer import __main__ as entry
from trainer import data, feed, layers, room
from trainer.epochs import Shuffled
from trainer.events import Stop
from trainer.recipe import Model
from trainer.workloads import cifar10, cifar10_keras, lstm


def images(count):
    random = np.random.RandomState(3)
    pixels = random.randint(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    return data.Dataset(pixels, random.randint(0, 10, count).astype(np.int32), "synthetic", 1, note="for a test")


def losses(framework, name, way, steps=6, batch=16):
    """Train without dropout on 40 images: each epoch's third batch has 8."""
    workload = entry.imported(name)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, batch)
    network = on_cpu(framework, model)
    network.load(model.first(1))
    source = workload.source(images(40), batch, 2, 0.001)
    found, sizes = [], []
    for step, given in enumerate(network.batches(source, 0, steps, way)):
        found.append(float(network.train(given, model.turn(step, 0))[0]))
        sizes.append(len(given[-1]))
    return found, sizes


@pytest.mark.torch
@pytest.mark.parametrize("way", ["ahead", "plain"])
def test_no_batch_waits_for_what_a_gpu_still_computes(way, monkeypatch):
    """An ordinary copy would wait for all steps so far. Pinned stands for memory that is copied to a GPU: it returns
    the arguments of the copy. It has no to(), which knows no non_blocking in PyTorch 0.4.0."""
    import torch

    from trainer.frameworks.pytorch import feeding

    class Pinned:
        def cuda(self, on, **how):
            return on, how

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda _: Pinned())
    gpu = argparse.Namespace(device="gpu", on="cuda:0")
    batch = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
    found = [*feeding.FEEDS[way](gpu, lambda _: batch, 0, 2)]
    assert found == [(("cuda:0", {"non_blocking": True}),) * 2] * 2


@pytest.mark.torch
def test_each_epochs_order_is_copied_without_a_wait_for_what_a_gpu_still_computes(monkeypatch):
    import torch

    from trainer.frameworks.pytorch import feeding

    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(len(tensor)) or tensor)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, _, **__: tensor)
    gpu = argparse.Namespace(device="gpu", on="cpu")
    assert len([*feeding.FEEDS["resident"](gpu, Shuffled(images(10), 4, 7, data.scaled), 0, 6)]) == 6
    assert pinned == [10, 10]


@pytest.mark.tensorflow
def test_tensorflow_2_leaves_the_copy_of_a_batch_to_the_step(monkeypatch):
    from trainer.frameworks.tf2 import feeding

    monkeypatch.setattr(feeding, "put", None)  # makes a copy fail, which would go unnoticed without a GPU
    gpu = argparse.Namespace(device="gpu", on="/GPU:0")  # there is no such device here
    batch = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
    found = [*feeding.FEEDS["plain"](gpu, lambda _: batch, 0, 2)]
    assert {tensor.device[-5:] for one in found for tensor in one} == {"CPU:0"}


@pytest.mark.tensorflow
def test_no_training_waits_for_tensorflow_2_to_tune_its_batches():
    """After the last of them it would, now and then, for as long as the training took, or a minute."""
    from trainer.frameworks.tf2 import feeding

    network = argparse.Namespace(model=argparse.Namespace(tokens=False, shape=(3,), labels=()))
    handed_out = feeding.FEEDS["ahead"](network, None, 0, 2)
    assert handed_out.gi_frame.f_locals["batches"]._dataset.options().autotune.enabled is False


@pytest.mark.tensorflow
def test_tensorflow_2_copies_an_epochs_order_to_a_gpu_once(monkeypatch):
    from trainer.frameworks.tf2 import feeding

    source, put, copied = Shuffled(images(10), 4, 7, data.scaled), feeding.put, []
    monkeypatch.setattr(feeding, "put", lambda network, array: copied.append(array.shape[1:]) or put(network, array))
    networks = [argparse.Namespace(device=device, on="/CPU:0") for device in ("gpu", "cpu")]
    on_gpu, on_cpu = ([*feeding.FEEDS["resident"](network, source, 0, 6)] for network in networks)
    assert copied == [(32, 32, 3), (), (), (), (32, 32, 3), ()], "the examples, the labels and two epochs' orders"
    assert [list(one[1].numpy()) for one in on_gpu] == [list(one[1].numpy()) for one in on_cpu]


@pytest.mark.parametrize("name", ["cifar10-keras", "alexnet-r"])
def test_resident_and_plain_train_on_the_same_batches_as_ahead(framework, name):
    ahead, sizes = losses(framework, name, "ahead")
    assert sizes == [16, 16, 8, 16, 16, 8]
    assert len(set(ahead)) == 6
    for way in "plain", "resident":
        assert losses(framework, name, way) == (pytest.approx(ahead, abs=1e-5), sizes)


@pytest.mark.parametrize("name", ["cifar10-keras", "alexnet-r"])
def test_what_is_resident_is_to_the_bit_what_is_fed_ahead(framework, name):
    workload = entry.imported(name)
    model = Model(workload.NETWORK, workload.RECIPE, workload.INPUT, 16)
    network = on_cpu(framework, model)
    ahead, resident = (
        [[np.asarray(part) for part in batch] for batch in network.batches(source, 0, 4, feed)]
        for feed, source in ((feed, workload.source(images(40), 16, 2, 0.001)) for feed in ("ahead", "resident"))
    )
    for one, other in zip(ahead, resident, strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_constant_is_the_first_batch_again_and_again(framework):
    ahead, _ = losses(framework, "cifar10-keras", "ahead", steps=2)
    again, sizes = losses(framework, "cifar10-keras", "constant", steps=3)
    assert sizes == [16] * 3
    assert again[0] == pytest.approx(ahead[0], abs=1e-5)
    assert again[0] > again[1] > again[2]


def test_a_constant_batch_of_tokens_is_trained_on(framework):
    model = Model(lstm.NETWORK, lstm.RECIPE, lstm.INPUT, 2)
    network = on_cpu(framework, model)
    network.load(model.first(1))
    source = lstm.source(lstm.load(None), 2, 0, 0.4)
    first, second = (
        float(network.train(batch, model.turn(0, 0))[0]) for batch in network.batches(source, 0, 2, "constant")
    )
    assert second < first


def test_a_resumed_resident_training_goes_on_in_the_middle_of_an_epoch():
    source = Shuffled(images(10), 4, 7, data.scaled)
    every, rest = (list(feed.chosen(source, first, 7, np.asarray)) for first in (0, 4))
    assert [list(chosen) for chosen in every[4:]] == [list(chosen) for chosen in rest]
    assert sorted(np.concatenate(every[:3])) == list(range(10))


@pytest.mark.parametrize("name", ["cifar10", "lstm"])
def test_batches_that_are_made_in_their_turn_cannot_be_resident(name):
    workload = entry.imported(name)
    dataset = images(40) if name == "cifar10" else workload.load(None)
    with pytest.raises(Stop, match=rf"each batch of {name} is made on the CPU.*--feed ahead") as stop:
        feed.check_resident(name, workload.source(dataset, 4, 0, 0.001), None, 1)
    assert stop.value.kind == "bad_argument"


@pytest.mark.torch
def test_what_is_free_for_a_resident_data_set_is_the_machine_s_where_the_gpu_has_no_memory_of_its_own(
    tmp_path, monkeypatch
):
    """NVML then tells none, and a data set that fills the machine would hang it."""
    told = []
    monkeypatch.setattr(entry, "train", lambda _, free: told.append(free))
    monkeypatch.setattr(room.nvml, "read", lambda: [{"memory_total_bytes": None, "memory_used_bytes": None}])
    monkeypatch.setattr(room.driver, "is_integrated", lambda _: True)
    monkeypatch.setattr(room.host, "memory", lambda: {"MemAvailable": 5})
    words = "cifar10-keras", "--framework", "pytorch", "--device", "cpu", "--out", str(tmp_path)
    assert entry.main([*words, "--feed", "resident"]) == entry.main(list(words)) == 0
    assert told == [5, None]


def test_a_data_set_of_more_than_half_the_free_memory_is_not_resident():
    source, size = Shuffled(images(40), 4, 0, data.scaled), 40 * (32 * 32 * 3 + 8)
    feed.check_resident("x", source, 2 * size, 1)
    feed.check_resident("x", source, None, 1)
    with pytest.raises(Stop, match=r"more than half .* --feed ahead"):
        feed.check_resident("x", source, 2 * size - 1, 1)
    floats = Shuffled(images(40), 4, 0, lambda images: images / np.float32(2))
    with pytest.raises(Stop, match="more than half"):
        feed.check_resident("x", floats, 2 * size, 1)
    with pytest.raises(Stop, match="more than half"):
        feed.check_resident("x", source, 2 * size, scaled_bytes=4)
    feed.check_resident("x", source, 8 * size, scaled_bytes=4)


@pytest.mark.tensorflow
def test_an_early_tensorflow_2_that_gathers_no_bytes_on_a_gpu_holds_floats_beside_them(monkeypatch):
    from trainer.frameworks.tf2 import feeding

    model = Model(cifar10_keras.NETWORK, cifar10_keras.RECIPE, cifar10_keras.INPUT, 16)
    network = on_cpu("tf2", model)
    assert network.scaled_bytes == 1
    images = feeding.put(network, np.zeros((2, 32, 32, 3), np.uint8))
    assert feeding.gatherable(network, images).dtype == np.uint8
    monkeypatch.setattr(feeding, "gathers_bytes", lambda _: False)
    assert feeding.gatherable(network, images).dtype == np.float32
    network.device = "gpu"  # what it gathers is on the CPU then
    assert network.scaled_bytes == 5


def test_the_free_memory_is_that_of_the_cards_computed_on_and_unknown_where_one_does_not_tell():
    def card(total, used):
        return {"memory_total_bytes": total, "memory_used_bytes": used}

    cards = [card(10, 2), card(10, 9), card(10, 0), card(10, None)]
    assert [room.on_cards(cards, replicas) for replicas in (1, 2, 3, 4)] == [8, 1, 1, None]
    assert room.on_cards([card(None, 1)]) is None
    assert room.on_cards([]) is None


@pytest.mark.parametrize(
    ("way", "copied"),
    [
        ("ahead", 1000 * (4 * 3072 + 4)),
        ("plain", 1000 * (4 * 3072 + 4)),
        ("resident", 8000),
        ("constant", 0),
        ("input", 0),
    ],
)
def test_what_an_epoch_copies_to_a_gpu_is_counted(way, copied):
    model = Model(cifar10_keras.NETWORK, cifar10_keras.RECIPE, cifar10_keras.INPUT, 32)
    gpu, cpu = (argparse.Namespace(device=device, label_bytes=4) for device in ("gpu", "cpu"))
    assert feed.epoch_copied_bytes(way, gpu, model, 1000) == copied
    assert feed.epoch_copied_bytes(way, cpu, model, 1000) == 0


def test_the_labels_of_a_sequence_are_copied_too():
    model = Model(lstm.NETWORK, lstm.RECIPE, lstm.INPUT, 2)
    network = argparse.Namespace(device="gpu", label_bytes=8)
    assert feed.epoch_copied_bytes("ahead", network, model, 10) == 10 * (4 * 32 + 8 * 32)


def test_the_tutorials_stages_end_in_what_its_source_gives():
    dataset = images(60)
    named = dict(cifar10.stages(dataset, 4, 5))
    order = data.Order(60, 1, 20000 + 12, 4, 5)
    chosen = [order.indices(step) for step in range(4)]
    whole = data.distorted(dataset.images, chosen[0], data.generator(5, 0), cifar10.SIDE)
    assert (named["standardise"](0) == whole).all()
    assert (named["crop"](1).dtype, named["float"](2).dtype) == (np.uint8, np.float32)
    assert (named["batch"](3) == dataset.labels[chosen[3]]).all()


def test_stages_of_a_plain_pipeline_are_gathering_and_scaling():
    dataset = images(10)
    source = Shuffled(dataset, 4, 0, data.scaled)
    for workload, made, names in (cifar10_keras, source, ["gather", "scale"]), (lstm, len, ["read"]):
        assert [name for name, _ in feed.stages(workload, dataset, made, 4, 0)] == names


def test_a_stage_is_timed_for_its_seconds_after_one_call_that_warms_up():
    time, asked = iter(range(100)), []

    def stage(step):
        asked.append(step)
        return [0] * 8

    checked = []
    found = feed.rates([("one", stage), ("two", stage)], lambda: checked.append(1), seconds=3, now=lambda: next(time))
    # starts at 0 and checks the time at 1, 2 and 3: three calls; then it reads the time once more
    assert found == [{"name": "one", "examples_per_second": 6.0}, {"name": "two", "examples_per_second": 6.0}]
    assert asked == list(range(8))
    assert len(checked) == 6


def test_a_run_on_a_constant_batch_cannot_be_resumed_nor_go_on_from_one(framework, tmp_path):
    common = "cifar10-keras", "--out", tmp_path, "--framework", framework, "--device", "cpu", "--feed", "constant"
    out = train(*common, "--steps", 3, "--batch", 8, "--threads", 1)
    assert "neither saved nor tested" in out
    assert [event["event"] for event in events(tmp_path)] == ["start", "step", "finish"]
    assert [event["feed"] for event in events(tmp_path, "start")] == ["constant"]
    code, _, err = trainer(*common, "--resume", tmp_path)
    assert (code, "leave --resume out" in err) == (1, True)
    code, _, err = trainer(*common[:-1], "ahead", "--resume", tmp_path)
    assert (code, "No checkpoint file found" in err) == (1, True)
