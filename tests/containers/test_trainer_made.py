"""Synthetic data, and the order in which examples come."""

import hashlib
import importlib

import numpy as np
import pytest

from trainer import epochs, made
from trainer.data import Dataset
from trainer.events import Stop


def numbered(count):
    return Dataset(np.arange(count), np.arange(count, dtype=np.int32), "synthetic", 1)


def of_epoch(source, number):
    return [source(number * source.epoch_steps + at)[1].tolist() for at in range(source.epoch_steps)]


def test_an_epoch_takes_each_example_once_and_its_last_batch_has_the_rest():
    source = epochs.Shuffled(numbered(50), 16, 3, lambda examples: examples)
    first, second = of_epoch(source, 0), of_epoch(source, 1)
    assert [len(batch) for batch in first] == [16, 16, 16, 2]
    for epoch in first, second:
        assert sorted(number for batch in epoch for number in batch) == list(range(50))
    assert first != second
    assert of_epoch(epochs.Shuffled(numbered(50), 16, 3, lambda examples: examples), 1) == second
    assert of_epoch(epochs.Shuffled(numbered(50), 16, 4, lambda examples: examples), 1) != second


@pytest.mark.parametrize(("count", "batch", "sizes"), [(33, 16, [16, 16]), (32, 16, [16, 16]), (10, 16, [10])])
def test_a_rest_of_one_is_left_out_for_it_has_no_variance(count, batch, sizes):
    source = epochs.Shuffled(numbered(count), batch, 0, lambda examples: examples)
    assert [len(labels) for labels in of_epoch(source, 0)] == sizes


def test_keras_steps_an_epoch_are_1563():
    assert epochs.Shuffled(numbered(50000), 32, 0, lambda examples: examples).epoch_steps == 1563


def test_noise_comes_in_turn_and_begins_again():
    source = epochs.in_turn(numbered(10), 4, 0, 0.4)
    assert [source(step)[1].tolist() for step in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]


def test_a_film_is_taken_in_order_and_the_last_batch_of_a_pass_is_smaller():
    source = epochs.in_order(lambda frames: frames)(numbered(7), 3, 0, 0.4)
    assert [source(step)[1].tolist() for step in range(4)] == [[0, 1, 2], [3, 4, 5], [6], [0, 1, 2]]
    assert source.epoch_steps == 3


def test_a_film_lies_in_bytes_and_becomes_floats_a_batch_at_a_time():
    inference = importlib.import_module("trainer.workloads.inference")
    film = inference.load(None)
    assert (film.images.dtype, film.images.nbytes, film.count) == (np.uint8, 222 * 299 * 299 * 3, 222)
    frames, _ = inference.source(film, 32, 0, 0.4)(6)
    assert (frames.dtype, len(frames)) == (np.float32, 30)
    assert (frames.min(), frames.max()) == (-1, 1)
    assert np.abs(inference.source(film, 32, 0, 0.4)(7)[0][0] - (film.images[0] / 127.5 - 1)).max() < 1e-6


def test_a_protein_chain_has_one_residue_at_each_place_and_classes_that_can_be_learnt():
    train, test = made.chains("train"), made.chains("test")
    assert (train.images.shape, test.images.shape) == ((50000, 50, 1, 21), (25000, 50, 1, 21))
    assert train.images.nbytes + test.images.nbytes + 75000 * 3 * 4 == 315_900_000  # the source's 316 MB
    assert (train.images.sum(axis=3) == 1).all()
    learnt, asked = (part.images[:5000, made.NEAR].reshape(5000, -1) for part in (train, test))
    weights, *_ = np.linalg.lstsq(learnt, np.eye(3)[train.labels[:5000]], rcond=None)
    assert 0.7 < ((asked @ weights).argmax(axis=1) == test.labels[:5000]).mean() < 0.9


def test_text_is_read_on_row_by_row_and_foretold_by_one_token():
    text = Dataset(np.arange(100, dtype=np.int32), np.arange(100), "synthetic", 1)
    source = made.text_in_rows(8)(text, 4, 0, 0.4)
    first, second, third, again = (source(step) for step in range(4))
    assert first[0][:, 0].tolist() == [0, 25, 50, 75]
    assert (first[1] == first[0] + 1).all()
    assert (second[0] == first[0] + 8).all()
    assert third[1].max() == 99
    assert (again[0] == first[0]).all()


@pytest.mark.parametrize("batch", [20, 101])
def test_a_text_too_short_for_the_batch_is_told(batch):
    with pytest.raises(Stop, match="more rows than the text"):
        made.text_in_rows(8)(numbered(100), batch, 0, 0.4)


def test_the_penn_treebank_has_226_batches_of_128_sequences():
    text = made.tokens(10000, 32)
    assert (len(text.images), text.images.dtype, text.count) == (929589, np.int32, 29049)
    assert text.images.min() == 0
    assert text.images.max() == 9999
    source = made.text_in_rows(32)(text, 128, 0, 0.4)
    assert (source(226)[0] == source(0)[0]).all()
    assert (source(225)[0] != source(0)[0]).any()


def test_made_up_data_is_the_same_bytes_on_every_python():
    digits = made.digits("test")
    assert (digits.images.shape, digits.images.dtype, set(digits.labels)) == ((10000, 784), np.uint8, set(range(10)))
    noise = made.noise(7, (5, 3), 0.1, 4)
    assert (noise.images.dtype, noise.labels.dtype) == (np.float32, np.int32)
    sums = [hashlib.sha256(part.tobytes()).hexdigest()[:16] for part in (digits.images, noise.images, noise.labels)]
    assert sums == ["be3db3af52a1ccd3", "b9514287e8125a0c", "1f4b774497ee9f02"]


def test_pictures_are_stripes_one_way_or_the_other():
    pictures = made.pictures("test")
    assert (pictures.images.shape, pictures.images.dtype) == ((250, 256, 256, 3), np.uint8)
    along, across = (np.abs(np.diff(pictures.images[:50].astype(float).mean(axis=axis), axis=1)) for axis in (1, 2))
    upright = along.mean(axis=(1, 2)) > across.mean(axis=(1, 2))
    assert (upright == (pictures.labels[:50] == 1)).all()
    assert hashlib.sha256(pictures.images[:9].tobytes()).hexdigest()[:16] == "8c055ff81ef04e51"


def test_no_made_up_data_takes_more_than_2_gb():
    for dataset in made.noise(128, (224, 224, 3), 0.1, 1000), made.noise(512, (26752,), 1.0, 26752):
        assert dataset.images.nbytes < 100e6
    assert 1000 * 256 * 256 * 3 < 2e9
