import collections
import hashlib
import os
import pickle
import signal

import numpy as np
import pytest

from trainer import data
from trainer.events import Stop
from trainer.signals import Signals
from trainer.workloads import cifar10

PLANES = [(9, (0, 128, 255)), (3, (255, 0, 1)), (0, (254, 255, 0))]


@pytest.fixture(scope="module")
def images():
    return np.random.RandomState(7).randint(0, 256, (40, 32, 32, 3)).astype(np.uint8)


def test_three_records_come_back_as_images_with_the_channels_last():
    content = b"".join(bytes([label]) + b"".join(bytes([value]) * 1024 for value in planes) for label, planes in PLANES)
    found, labels = data.unpack(content, "three", records=3)
    assert found.shape == (3, 32, 32, 3)
    assert labels.tolist() == [9, 3, 0]
    for image, (_, planes) in zip(found, PLANES, strict=True):
        assert (image == np.array(planes)).all()


def test_rows_of_a_plane_stay_rows():
    plane = bytes(range(256)) * 4
    found, _ = data.unpack(b"\1" + plane * 3, "one", records=1)
    assert found[0, 1, 2].tolist() == [34, 34, 34]


def test_a_short_file_is_refused_with_its_size():
    with pytest.raises(Stop, match="part has 3072 bytes") as stop:
        data.unpack(b"\0" * 3072, "part", records=1)
    assert stop.value.kind == "data"


def test_a_label_above_nine_is_refused():
    with pytest.raises(Stop, match="labels outside"):
        data.unpack(b"\x0a" + b"\0" * 3072, "part", records=1)


def test_both_forms_hold_the_same_images():
    rows = np.random.RandomState(1).randint(0, 256, (3, 3072)).astype(np.uint8)
    binary = b"".join(bytes([label]) + row.tobytes() for label, row in zip([1, 2, 3], rows, strict=True))
    for protocol in 2, 4:
        pickled = pickle.dumps({"data": rows, "labels": [1, 2, 3], "batch_label": "x"}, protocol)
        one, other = data.unpack(binary, "b", records=3), data.unpickle(pickled, "p", records=3)
        assert (one[0] == other[0]).all()
        assert (one[1] == other[1]).all()


def test_a_pickle_that_would_run_a_program_is_refused_and_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    for harmful in Evil(), {"data": Evil(), "labels": [1]}:
        with pytest.raises(Stop, match="not a batch of CIFAR-10") as stop:
            data.unpickle(pickle.dumps(harmful, 2), "p", records=1)
        assert stop.value.kind == "data"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x02}q\0.", b"cos\nsystem\n.", pickle.dumps(5), pickle.dumps({"data": [1]})]
)
def test_no_pickle_but_a_batch_is_taken(content):
    with pytest.raises(Stop):
        data.unpickle(content, "p", records=1)


@pytest.mark.parametrize("under", ["cifar-10-batches-bin", "."])
def test_the_files_are_found_below_the_folder_or_in_it(tmp_path, under):
    place = tmp_path / under
    place.mkdir(exist_ok=True)
    for k in range(1, 6):
        (place / f"data_batch_{k}.bin").write_bytes((bytes([k]) + b"\0" * 3072) * 10000)
    dataset = data.training(str(tmp_path))
    assert (dataset.name, dataset.files, len(dataset.images)) == ("cifar10", 5, 50000)
    assert dataset.labels[::10000].tolist() == [1, 2, 3, 4, 5]
    whole = hashlib.sha256(b"".join((place / f"data_batch_{k}.bin").read_bytes() for k in range(1, 6)))
    assert dataset.sha256 == whole.hexdigest()
    with pytest.raises(Stop, match=r"Failed to find file: .*test_batch\.bin"):
        data.testing(str(tmp_path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Stop, match=r"^Failed to find file: .*cifar-10-batches-bin/data_batch_1\.bin$") as stop:
        data.training(str(tmp_path))
    assert stop.value.kind == "data"


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "data_batch_1.bin")
    with pytest.raises(Stop, match=r"data_batch_1\.bin cannot be read: it is not a regular file$") as stop:
        data.training(str(tmp_path))
    assert stop.value.kind == "data"


def test_the_synthetic_set_is_the_same_bytes_on_every_python():
    dataset = data.synthetic("train")
    assert (dataset.images.shape, dataset.images.dtype, dataset.labels.dtype) == (
        (20000, 32, 32, 3),
        np.uint8,
        np.int32,
    )
    whole = hashlib.sha256(dataset.images.tobytes()).hexdigest()  # seen on Python 2.7 with numpy 1.16 and 3.11 with 2.4
    assert whole == "003ef6bdb0cfecbefd3b46f51a81fa2346ec24be6c9ab2ccbfeffb73621c1ea9"
    assert set(dataset.labels) == set(range(10))


def test_distortions_are_the_tutorials_one_after_the_other(images):
    chosen = np.array([3, 0, 39, 7])
    made = data.distorted(images, chosen, np.random.RandomState(5), 24)
    random = np.random.RandomState(5)
    tops, lefts = random.randint(0, 9, 4), random.randint(0, 9, 4)
    flips, brightness, contrast = random.rand(4) < 0.5, random.uniform(-63, 63, 4), random.uniform(0.2, 1.8, 4)
    assert flips.any()
    assert not flips.all()
    for k, index in enumerate(chosen):
        x = images[index, tops[k] : tops[k] + 24, lefts[k] : lefts[k] + 24].astype(np.float64)
        x = (x[:, ::-1] if flips[k] else x) + brightness[k]
        mean = x.mean(axis=(0, 1))
        x = (x - mean) * contrast[k] + mean
        x = (x - x.mean()) / max(x.std(), 1 / np.sqrt(1728))
        assert np.abs(made[k] - x).max() < 1e-4
    assert made.dtype == np.float32


def test_distorting_leaves_the_images_as_they_were(images):
    before = images.copy()
    data.distorted(images, np.arange(40), np.random.RandomState(1), 24)
    assert (images == before).all()


def test_evaluation_sees_rows_and_columns_4_to_27(images):
    made = data.central(images, 24)
    x = images[:, 4:28, 4:28].astype(np.float64)
    x = (x - x.mean(axis=(1, 2, 3), keepdims=True)) / x.std(axis=(1, 2, 3), keepdims=True)
    assert np.abs(made - x).max() < 1e-4


def test_a_flat_image_becomes_zeros_and_no_nan():
    assert (data.central(np.full((1, 32, 32, 3), 200, np.uint8), 24) == 0).all()


def test_a_nearly_flat_image_is_divided_by_the_floor():
    x = np.zeros((1, 1728), np.float32)
    x[0, 0] = 0.1
    assert data.standardized(x.copy())[0, 0] == pytest.approx((0.1 - 0.1 / 1728) / 0.0240563, rel=1e-4)


def test_the_order_is_a_function_of_the_seed_and_the_step():
    first, second = (data.Order(1000, 5, 400, 16, seed=3) for _ in range(2))
    straight = [first.indices(step).tolist() for step in range(300)]
    assert [second.indices(step).tolist() for step in (2, 0, 1, 5, 4, 3)] == [straight[k] for k in (2, 0, 1, 5, 4, 3)]
    resumed, draws = data.Order(1000, 5, 400, 16, seed=3), []
    resumed.draw = lambda draw=resumed.draw: draws.append(len(draw()))
    resumed.skip(298)
    assert len(draws) < 10, "but for one at the end of each epoch, many steps are skipped at once"
    del resumed.draw
    assert [resumed.indices(step).tolist() for step in (298, 299)] == straight[298:]
    assert data.Order(1000, 5, 400, 16, seed=4).indices(0).tolist() != straight[0]


def test_what_is_skipped_can_be_stopped():
    told = Signals()
    told.receive(signal.SIGTERM, None)
    with pytest.raises(Stop, match="told to stop"):
        data.Order(1000, 1, 1000, 500, seed=3).skip(10**9, lambda: told.check(0))


def test_images_are_mixed_within_the_buffer_and_taken_equally_often():
    order = data.Order(1000, 5, 400, 20, seed=0)
    parts = {index // 200 for index in order.indices(0)}
    assert len(parts) == 2  # the first epoch's 400: two of the five files
    count = collections.Counter(index for step in range(1, 500) for index in order.indices(step))
    assert len(count) == 1000
    assert max(count.values()) <= 14  # ten epochs, plus the buffer's shift


@pytest.mark.parametrize(
    ("images", "buffered", "batch"), [(50, 20, 20), (10, 5, 64), (300, 384, 128), (20000, 23072, 1024)]
)
def test_a_batch_never_holds_a_place_of_the_buffer_twice(images, buffered, batch):
    order = data.Order(images, 1, buffered, batch, seed=1)
    assert len(order.indices(0)) == batch


def test_the_recipe_is_the_tutorials():
    assert cifar10.learning_rate(136717, 128) == 0.1
    assert cifar10.learning_rate(136718, 128) == pytest.approx(0.01)
    assert cifar10.keep(0) == 0.1
    assert cifar10.keep(10**6) == 0.9999
    assert (cifar10.queued(0.4), cifar10.queued(0.1)) == (20000, 5000)
