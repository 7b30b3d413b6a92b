"""Each replica's part of a batch and card, and whether all have the same weights."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from trainer import data, epochs, feed, group
from trainer.group import Group
from trainer.workloads import cifar10

LIMIT = 60


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32, 128])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_parts_of_a_batch_are_all_of_it_and_weigh_one(count, size):
    parts = [Group(rank, size) for rank in range(size)]
    seen = [n for one in parts if one.share(count) for n in range(count)[one.part(count)]]
    assert seen == list(range(count))
    assert sum(one.share(count) for one in parts) == pytest.approx(1)
    assert all(len(range(count)[one.part(count)]) for one in parts)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 16])
def test_where_a_batch_norm_needs_two_examples_none_has_one(count):
    parts = [Group(rank, 4) for rank in range(4)]
    for one in parts:
        one.least = 2
    seen = [n for one in parts if one.share(count) for n in range(count)[one.part(count)]]
    assert seen == list(range(count))
    assert sum(one.share(count) for one in parts) == pytest.approx(1)
    assert all(len(range(count)[one.part(count)]) >= min(count, 2) for one in parts)


def test_each_example_comes_once_in_an_epoch_whichever_replica_takes_it():
    labels = np.arange(50)
    dataset = data.Dataset(labels[:, None], labels, "synthetic", 1)
    sources = [group.sliced(epochs.Shuffled(dataset, 8, 0, lambda some: some), Group(rank, 3)) for rank in range(3)]
    shares = [Group(rank, 3).share(sources[rank].size(6)) for rank in range(3)]
    assert shares == [0.5, 0.5, 0.0]  # the last batch has 2
    seen = [
        n
        for step in range(7)
        for rank, source in enumerate(sources)
        if Group(rank, 3).share(source.size(step))
        for n in source(step)[1]
    ]
    assert sorted(seen) == list(range(50))
    gathered = [rows for source in sources for rows in feed.chosen(source, 2, 3, np.asarray)]
    assert np.concatenate(gathered).tolist() == np.concatenate([source.chosen(2) for source in sources]).tolist()


def test_a_part_of_the_tutorials_batch_is_distorted_as_in_the_whole():
    images = np.random.RandomState(0).randint(0, 255, (600, 32, 32, 3)).astype(np.uint8)
    dataset = data.Dataset(images, np.arange(600), "synthetic", 1)
    whole = cifar10.source(dataset, 33, 0, 0.01)(0)
    parts = [group.sliced(cifar10.source(dataset, 33, 0, 0.01), Group(rank, 3))(0) for rank in range(3)]
    for n in range(2):
        assert (np.concatenate([part[n] for part in parts]) == whole[n]).all()


def test_a_replica_without_a_card_of_its_own_is_no_replica():
    assert Group(1, 2, 1, 2).card("X", 2, "auto") == 1
    assert Group(1, 2, 1, 2).card("X", 0, "auto") is None
    assert Group(1, 2, 1, 2).card("X", 4, "cpu") is None
    for count, device in ((1, "auto"), (1, "gpu"), (0, "gpu")):
        with pytest.raises(group.Stop, match="2 replicas on this machine need one each") as caught:
            Group(0, 2, 0, 2).card("X", count, device)
        assert caught.value.kind == "no_gpu"


@pytest.mark.parametrize(
    ("framework", "level", "cards", "more"),
    [
        (
            "TensorFlow 2.9.1",
            "2",
            ["Tesla V100", "Tesla V100"],
            "; the driver shows Tesla V100",
        ),
        ("TensorFlow 1.15.5", None, [None], "; the driver shows a card"),
        ("TensorFlow 2.9.1", "0", ["Tesla V100"], ""),
        ("TensorFlow 2.9.1", "2", [], ""),
        ("PyTorch 2.1.0", "2", ["Tesla V100"], ""),
    ],
)
def test_how_tensorflow_says_why_it_takes_no_card_is_told_where_the_driver_shows_one(
    monkeypatch, framework, level, cards, more
):
    monkeypatch.setattr(group.nvml, "read", lambda: [{"name": name} for name in cards])
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if level:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with pytest.raises(group.Stop) as caught:
        Group().card(framework, 0, "gpu")
    says = ": with -e TF_CPP_MIN_LOG_LEVEL=0 TensorFlow may say why it took none" if more else ""
    assert caught.value.message == f"{framework} sees no GPU{more}{says}"


def compared(*weights):
    """Have replicas compare these weights, one thread each; return what each finds or raises."""
    meeting, told = threading.Barrier(len(weights), timeout=LIMIT), {}

    class Network:
        def __init__(self, rank):
            self.rank = rank

        def agreed(self, number):
            told[self.rank] = number
            meeting.wait()
            largest = max(told.values())
            meeting.wait()
            return largest

    def compare(rank):
        try:
            return group.same(Network(rank), {"weights": weights[rank]}, 7)
        except group.Differ as differ:
            return differ

    with ThreadPoolExecutor(len(weights)) as threads:
        return list(threads.map(compare, range(len(weights))))


def test_all_replicas_find_whether_their_weights_are_the_same():
    ones = np.ones(1000, np.float32)
    alike = {"identical": True, "weights_least": 1000.0, "weights_most": 1000.0}
    assert compared(ones, ones, ones) == [alike] * 3
    rounded = ones.copy()
    rounded[5] += 1e-6
    found = compared(ones, rounded)
    assert found[0] == found[1]
    assert not found[0]["identical"]
    assert found[0]["weights_most"] > 1000
    for other in (ones * 1.01, ones * np.nan):
        assert [(differ.kind, differ.step) for differ in compared(ones, other)] == [("replicas_differ", 7)] * 2
