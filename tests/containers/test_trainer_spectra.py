"""A convolution by spectra equals the direct one, forward and backward; used only where it pays."""

import importlib
from functools import partial
from itertools import product

import numpy as np
import pytest
from convolutions import drawn, is_tensorflows_own, led_back, slid, word_of

from trainer import spectra

SEVERAL = [  # window, padding, height, width
    (5, None, 12, 12),
    (3, 0, 7, 7),
    (3, 1, 5, 8),
    (1, 0, 3, 2),
    ((3, 5), None, 6, 9),
    ((1, 4), (0, 3), 4, 5),
    (7, 3, 4, 4),
    (4, 1, 9, 6),
]


@pytest.mark.parametrize(("window", "padding", "height", "width"), SEVERAL)
def test_a_product_of_spectra_is_the_convolution(window, padding, height, width):
    word = word_of(window, padding)
    x, weights, _, gradient = drawn(word, 2, height, width)
    found = spectra.tables(word, height, width)
    half = [np.split(table.astype(np.float64), 2) for table in found[1:]]
    into, taps, out = (real + 1j * imaginary for real, imaginary in half)
    spectrum = np.einsum("fp,npi->fni", into, x.reshape(2, height * width, -1))
    windows = np.einsum("ft,tio->fio", taps, weights.reshape(len(taps.T), *weights.shape[2:]))
    given = spectrum @ windows.conj()
    given = np.einsum("fp,fno->npo", out.real, given.real) + np.einsum("fp,fno->npo", out.imag, given.imag)
    wanted = slid(word, x, weights, 0, gradient)[0]
    assert found.count == len(into) == spectra.counted(spectra.period(word, (height, width)))
    assert given.reshape(gradient.shape) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("window", "padding", "height", "width"), SEVERAL)
def test_frameworks_lead_gradients_back_through_it(framework, window, padding, height, width, biased):
    word = word_of(window, padding)
    x, weights, biases, gradient = drawn(word, 2, height, width)
    given = by(framework, word, x, weights, biases if biased else None, gradient)
    wanted = slid(word, x, weights, biases if biased else 0, gradient)
    for one, other in zip(given, wanted[: 3 + biased], strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def by(framework, word, *arrays):
    conv = importlib.import_module(f"trainer.frameworks.{framework}.spectral").conv

    def added(x, weights, biases):  # TensorFlow adds biases apart
        return conv(word, x, weights) + (0 if biases is None else biases)

    return led_back(framework, added if framework == "tf2" else partial(conv, word), *arrays)


@pytest.mark.torch
@pytest.mark.parametrize("wants", [True, False])
def test_none_is_led_back_to_pictures_that_want_none(torch, wants):
    spectral = importlib.import_module("trainer.frameworks.pytorch.spectral")
    word = word_of(3, 1)
    x, weights, _, gradient = drawn(word, 2, 5, 5)
    kernel, seen = torch.from_numpy(weights).requires_grad_(), torch.from_numpy(x).requires_grad_(wants)
    given = spectral.conv(word, seen.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1), None)
    pulled, moved, *others = given.grad_fn.apply(torch.from_numpy(gradient).permute(0, 3, 1, 2))
    inner, wanted, _ = slid(word, x, weights, 0, gradient)[1:]
    assert moved.permute(2, 3, 1, 0).detach().numpy() == pytest.approx(wanted, abs=1e-4)
    if wants:
        assert pulled.permute(0, 2, 3, 1).detach().numpy() == pytest.approx(inner, abs=1e-4)
    assert (pulled is not None, others) == (wants, [None, None])


def test_a_dark_part_is_off_by_no_more_than_a_millionth_of_the_bright_one(framework):
    word = word_of(5, None, 16, 16)
    x, weights, _, gradient = drawn(word, 4, 12, 12)
    x[:, :6] *= 1e-3
    given = by(framework, word, x, weights, None, gradient)[0]
    wanted = slid(word, x, weights, 0, gradient)[0]
    assert np.abs(given - wanted).max() < 1e-6 * np.abs(wanted).max()
    assert np.abs(wanted[:, :4]).max() < 1e-2 * np.abs(wanted).max(), "there is a dark part"


@pytest.mark.torch
def test_pytorch_takes_it_where_it_pays_for_32_bits_that_lie_channels_last(torch):
    pytorch = importlib.import_module("trainer.frameworks.pytorch")
    ops = importlib.import_module("trainer.frameworks.pytorch.ops")
    word = word_of(5, None, 64, 64)
    kept = {f"conv/{which}": torch.ones(shape) for which, shape in (("weights", (64, 64, 5, 5)), ("biases", (64,)))}
    kept["conv/weights"].requires_grad_()

    def way(examples, lying=torch.channels_last, **said):
        seen = torch.ones(examples, 64, 12, 12).contiguous(memory_format=lying)
        return ops.conv(word, seen, pytorch.Pass(kept, True, **said)).grad_fn.name()

    assert way(128) == "SpectralBackward"
    others = way(1), way(128, torch.contiguous_format), way(128, half=torch.bfloat16), way(128, is_compiled=True)
    assert set(others) == {"ConvolutionBackward0"}


@pytest.mark.tensorflow
def test_tensorflow_takes_it_where_it_pays_for_32_bits():
    import tensorflow as tf

    word = word_of(5, None, 64, 64)

    def convolves(examples, kind=tf.float32):
        return is_tensorflows_own(word, (examples, 12, 12, 64), kind)

    assert not convolves(128)
    assert convolves(1)
    assert convolves(None), "nobody knows whether it pays"
    assert convolves(128, tf.bfloat16)


def test_it_pays_for_large_windows_on_small_pictures_in_large_batches():
    tutorial = word_of(5, None, 64, 64)
    assert spectra.pays(tutorial, 128, 12, 12)
    assert not spectra.pays(tutorial, 1, 12, 12), "the windows' own spectra are too dear for one picture"
    assert not spectra.pays(tutorial, 128, 24, 24), "transforms grow with the square of the places"
    assert not spectra.pays(word_of(3, 1, 64, 64), 128, 12, 12), "a small window takes little by itself"
    assert not spectra.pays(word_of(5, None, 3, 64), 128, 12, 12), "three channels do not make up for it"
    assert not spectra.pays(word_of(5, None, 64, 64, stride=2), 128, 12, 12)
    assert not spectra.pays(word_of(3, 1, 512, 512), 2000, 7, 7), "spectra of 71 MB are waited for"


def test_frequencies_are_counted_without_being_listed():
    for across in product(range(1, 10), repeat=2):
        assert spectra.counted(across) == len(spectra.frequencies(across))
