import threading

import numpy as np
import pytest

from trainer import data
from trainer.ahead import ahead
from trainer.workloads import cifar10


def test_threads_ahead_give_the_batches_in_order():
    source = cifar10.source(data.Dataset(np.zeros((300, 32, 32, 3), np.uint8), np.arange(300), "x", 1), 8, 0, 0.001)
    alone = cifar10.source(data.Dataset(np.zeros((300, 32, 32, 3), np.uint8), np.arange(300), "x", 1), 8, 0, 0.001)
    made = [labels.tolist() for _, labels in ahead(source, 0, 30, threads=4)]
    assert made == [alone(step)[1].tolist() for step in range(30)]


def test_threads_ahead_hand_on_errors_and_end():
    before = threading.active_count()

    def source(step):
        if step == 3:
            raise OSError("disk gone")
        return step

    made = ahead(source, 0, 10)
    assert [next(made), next(made), next(made)] == [0, 1, 2]
    with pytest.raises(OSError, match="disk gone"):
        next(made)
    early = ahead(lambda step: step, 0, 10**9)
    assert next(early) == 0
    early.close()
    assert threading.active_count() == before
