"""Convolutions by definition, and a framework's with its gradients."""

import importlib
from types import SimpleNamespace

import numpy as np

from trainer import layers


def word_of(window, padding, inputs=3, outputs=4, stride=1):
    zeros = layers.constant(0.0)
    return layers.conv("conv", window, inputs, outputs, zeros, zeros, padding=padding, stride=stride)


def drawn(word, examples, height, width):
    random = np.random.RandomState(0)
    inputs, outputs = word["shape"][2:]
    after = layers.sides_after(word, (height, width))
    shapes = (examples, height, width, inputs), word["shape"], (outputs,), (examples, *after, outputs)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def slid(word, x, weights, biases, gradient):
    """Return the convolution by definition, in float64, and the gradients of x, weights, biases."""
    x, weights, gradient = (array.astype(np.float64) for array in (x, weights, gradient))
    (up, left), (rows, columns) = word["padding"], word["shape"][:2]
    wide = np.pad(x, [(0, 0), (up, up), (left, left), (0, 0)])
    found, pulled, moved = np.zeros(gradient.shape) + biases, np.zeros(wide.shape), np.zeros(weights.shape)
    height, width = gradient.shape[1:3]
    for row in range(rows):
        for column in range(columns):
            seen = np.s_[:, row : row + height, column : column + width]
            found += wide[seen] @ weights[row, column]
            pulled[seen] += gradient @ weights[row, column].T
            moved[row, column] = np.einsum("nhwi,nhwo->io", wide[seen], gradient)
    inner = pulled[:, up : up + x.shape[1], left : left + x.shape[2]]
    return found, inner, moved, gradient.sum((0, 1, 2))


def joined(word, x, weights, biases, gradient):
    """The same of a joined word (layers.joined): of relu of x if it is "relued", and with the max pool and the relu
    behind it if it is "pooled"."""
    alive = x > 0 if "relued" in word else np.ones(x.shape, bool)
    x = x * alive
    nothing = np.zeros((len(x), *layers.sides_after(word, x.shape[1:3]), weights.shape[3]))
    found = slid(word, x, weights, biases, nothing)[0]
    if "pooled" in word:
        size = word["pooled"][0]["size"]
        most, spread = np.zeros(gradient.shape), np.zeros(found.shape)
        for n, row, column, c in np.ndindex(gradient.shape):
            seen = found[n, 2 * row : 2 * row + size, 2 * column : 2 * column + size, c]
            most[n, row, column, c] = max(seen.max(), 0)
            if seen.max() > 0:
                up, left = np.unravel_index(seen.argmax(), seen.shape)
                spread[n, 2 * row + up, 2 * column + left, c] += gradient[n, row, column, c]
        found, gradient = most, spread
    _, inner, *others = slid(word, x, weights, biases, gradient)
    return found, inner * alive, *others


def led_back(framework, conv, x, weights, biases, gradient, of_x=True):
    """Return what conv gives for them in this framework, then the gradients of x (None if not `of_x`), of weights and,
    unless they are None, of biases."""
    found, *gradients = BY[framework](conv, x, weights, biases, gradient, of_x)
    return found, *([] if of_x else [None]), *gradients


def by_pytorch(conv, x, weights, biases, gradient, of_x):
    import torch

    wanted = [torch.from_numpy(array).requires_grad_() for array in (x, weights, biases) if array is not None]
    wanted[0].requires_grad_(of_x)
    seen, kernel, *last = wanted
    found = conv(seen.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1), last[0] if last else None)
    found = found.permute(0, 2, 3, 1)
    gradients = torch.autograd.grad(found, wanted[not of_x :], torch.from_numpy(gradient))
    return [tensor.detach().numpy() for tensor in (found, *gradients)]


def by_tensorflow(conv, x, weights, biases, gradient, of_x):
    import tensorflow as tf

    given = [tf.constant(array) for array in (x, weights, biases) if array is not None]

    @tf.function(autograph=False)
    def both(*given):
        with tf.GradientTape() as tape:
            tape.watch(given)
            found = conv(*given, *[None] * (3 - len(given)))
        return [found, *tape.gradient(found, given[not of_x :], tf.constant(gradient))]

    return [one.numpy() for one in both(*given)]


def is_tensorflows_own(word, shape, kind=None, library=None):
    """Return whether TensorFlow's own convolution computes a word for images of this shape and dtype."""
    return "Conv2D" in operations(word, shape, kind, library)


def operations(word, shape, kind=None, library=None):
    """Return the names of the operations by which TensorFlow computes it."""
    import tensorflow as tf

    ops = importlib.import_module("trainer.frameworks.tf2.ops")
    kind = kind or tf.float32
    kept = {"weights": tf.ones(word["shape"], kind), "biases": tf.ones(word["shape"][-1:], kind)}
    at = SimpleNamespace(get=lambda _, which: kept[which], library=library)
    traced = tf.function(lambda x: ops.conv(word, x, at), autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec(shape, kind)).graph
    return {one.type for one in graph.get_operations()}


BY = {"pytorch": by_pytorch, "tf2": by_tensorflow}
