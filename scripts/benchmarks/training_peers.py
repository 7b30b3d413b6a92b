"""The peers' own way to train, for train_cpu.py: run by a Python that has TensorFlow 2, each in its own process.

    training_peers.py keras WORKLOAD EPOCHS    Keras: compile and fit of the same network, as in its documentation
    training_peers.py tutorial FOLDER STEPS    the CIFAR-10 tutorial of early 2018: a graph, queue runners, summaries
    training_peers.py gemm                     products of 1,024 x 1,024 float32 numbers by NumPy and TensorFlow

`containers` has to be on PYTHONPATH: the images are the trainer's synthetic ones. Prints one JSON object: "moments",
[[examples done, seconds], ...], and "epochs", the same at each epoch's end; or "flops_per_second"; "version".
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import tensorflow as tf
from trainer import data

EVERY = 25  # steps between moments
SIDE, QUEUED, EXAMPLES_PER_EPOCH = 24, 20000, 50000
BATCH = {"cifar10-keras": 32, "cifar10": 128}


def main() -> None:
    kind, *words = sys.argv[1:]
    found = {"keras": keras, "tutorial": tutorial, "gemm": gemm}[kind](*words)
    print(json.dumps({**found, "version": tf.__version__}))


def keras(workload: str, epochs: str) -> dict[str, object]:
    images = data.training(None)
    moments, ends, done = [], [], 0
    batch, count = BATCH[workload], len(images.labels)

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):  # noqa: ARG002  # Keras' names
            if step % EVERY == 0:
                moments.append([done + (step + 1) * batch, time.perf_counter()])

        def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
            nonlocal done
            done += count
            ends.append([done, time.perf_counter()])

    if workload == "cifar10":
        model, fed = tutorial_in_keras(), {"x": distorted(images)}
    else:
        model, fed = article(), {"x": images.images / np.float32(255), "y": images.labels, "batch_size": batch}
    model.fit(**fed, epochs=int(epochs), verbose=0, callbacks=[Watch()])
    return {"moments": moments, "epochs": ends}


def article():
    """Return the article's network, with its optimiser and loss."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return counted(model, 1667594)


def tutorial_in_keras():
    layers, l2 = tf.keras.layers, tf.keras.regularizers.L2(0.002)
    norm = {"depth_radius": 4, "bias": 1.0, "alpha": 0.001 / 9, "beta": 0.75}
    model = tf.keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3)),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(3, 2, "same"),
            layers.Lambda(lambda x: tf.nn.lrn(x, **norm)),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.Lambda(lambda x: tf.nn.lrn(x, **norm)),
            layers.MaxPooling2D(3, 2, "same"),
            layers.Flatten(),
            layers.Dense(384, activation="relu", kernel_regularizer=l2),
            layers.Dense(192, activation="relu", kernel_regularizer=l2),
            layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # with Keras' initial weights the tutorial's rate of 0.1 diverges; the speed of a step does not depend on it
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss=loss)
    return counted(model, 1068298)


def counted(model, parameters: int):
    assert model.count_params() == parameters, model.count_params()
    return model


def distorted(images):
    """Return the tutorial's images as today's documentation would make them, with tf.data."""

    def distort(image, label):
        return distort_one(tf.cast(image, tf.float32), tf.image.random_crop), label

    whole = tf.data.Dataset.from_tensor_slices((images.images, images.labels)).shuffle(QUEUED)
    made = whole.map(distort, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH["cifar10"], drop_remainder=True)
    return made.prefetch(tf.data.AUTOTUNE)


def distort_one(image, crop):
    """Randomly crop to 24 x 24, flip, change brightness and contrast, then standardize, in the tutorial's order."""
    image = tf.image.random_flip_left_right(crop(image, [SIDE, SIDE, 3]))
    image = tf.image.random_contrast(tf.image.random_brightness(image, 63), 0.2, 1.8)
    return tf.image.per_image_standardization(image)


def tutorial(folder: str, steps: str) -> dict[str, object]:
    """Train as the tutorial does: files, two queues, 16 threads filling the second, moving averages, summaries."""
    v1, batch, last = tf.compat.v1, BATCH["cifar10"], int(steps)
    files = written(Path(folder))
    v1.disable_v2_behavior()
    with v1.device("/cpu:0"):
        images, labels = queued(v1, files, batch)
    step = v1.train.get_or_create_global_step()
    loss = v1_loss(v1, v1_logits(v1, images), labels)
    moments = []

    class Watch(v1.train.SessionRunHook):
        done = 0

        def before_run(self, _):
            return v1.train.SessionRunArgs(loss)  # as the tutorial's own hook does

        def after_run(self, _, values):
            assert np.isfinite(values.results)
            if self.done % EVERY == 0:
                moments.append([(self.done + 1) * batch, time.perf_counter()])
            self.done += 1

    hooks = [v1.train.StopAtStepHook(last_step=last), v1.train.NanTensorHook(loss), Watch()]
    train = v1_train(v1, loss, step, batch)
    with v1.train.MonitoredTrainingSession(checkpoint_dir=str(Path(folder, "kept")), hooks=hooks) as session:
        while not session.should_stop():
            session.run(train)
    return {"moments": moments, "epochs": []}


def written(folder: Path) -> list[str]:
    """Write the synthetic images in CIFAR-10's binary format, five files of equal size; return their paths."""
    made = data.training(None)
    rows = np.concatenate(
        [made.labels[:, None].astype(np.uint8), made.images.transpose(0, 3, 1, 2).reshape(len(made.labels), -1)], axis=1
    )
    paths = [folder / f"data_batch_{k}.bin" for k in range(1, 6)]
    for path, part in zip(paths, np.array_split(rows, 5), strict=True):
        path.write_bytes(part.tobytes())
    return [str(path) for path in paths]


def queued(v1, files: list[str], batch: int):
    """Return batches from a queue of distorted images, which 16 threads fill from a queue of files."""
    names = v1.train.string_input_producer(files)
    _, record = v1.FixedLengthRecordReader(record_bytes=data.RECORD).read(names)
    record = tf.io.decode_raw(record, tf.uint8)
    label = tf.reshape(tf.cast(record[:1], tf.int32), [1])
    image = tf.cast(tf.transpose(tf.reshape(record[1:], [3, 32, 32]), [1, 2, 0]), tf.float32)
    image = distort_one(image, v1.random_crop)
    image.set_shape([SIDE, SIDE, 3])
    images, labels = v1.train.shuffle_batch(
        [image, label], batch_size=batch, num_threads=16, capacity=QUEUED + 3 * batch, min_after_dequeue=QUEUED
    )
    v1.summary.image("images", images)
    return images, tf.reshape(labels, [batch])


def v1_logits(v1, images):
    norm = {"depth_radius": 4, "bias": 1.0, "alpha": 0.001 / 9.0, "beta": 0.75}
    first = v1_conv(v1, images, "conv1", 3, 0.0)
    pool1 = tf.nn.max_pool2d(first, 3, 2, "SAME")
    second = v1_conv(v1, tf.nn.lrn(pool1, **norm), "conv2", 64, 0.1)
    pool2 = tf.nn.max_pool2d(tf.nn.lrn(second, **norm), 3, 2, "SAME")
    flat = tf.reshape(pool2, [images.shape[0], -1])
    local3 = seen(v1, tf.nn.relu(v1_dense(v1, flat, "local3", 384, 0.04, 0.1, 0.004)))
    local4 = seen(v1, tf.nn.relu(v1_dense(v1, local3, "local4", 192, 0.04, 0.1, 0.004)))
    return seen(v1, v1_dense(v1, local4, "softmax_linear", 10, 1 / 192, 0.0, None))


def v1_conv(v1, x, name: str, inputs: int, bias: float):
    with v1.variable_scope(name):
        weights = variable(v1, "weights", [5, 5, inputs, 64], v1.truncated_normal_initializer(stddev=5e-2))
        biases = variable(v1, "biases", [64], v1.constant_initializer(bias))
        return seen(v1, tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, weights, 1, "SAME"), biases)))


def v1_dense(v1, x, name: str, outputs: int, deviation: float, bias: float, decay: float | None):
    with v1.variable_scope(name):
        shape = [int(x.shape[1]), outputs]
        weights = variable(v1, "weights", shape, v1.truncated_normal_initializer(stddev=deviation))
        if decay:
            v1.add_to_collection("losses", decay * tf.nn.l2_loss(weights))
        return tf.matmul(x, weights) + variable(v1, "biases", [outputs], v1.constant_initializer(bias))


def variable(v1, name: str, shape: list[int], start):
    with v1.device("/cpu:0"):
        return v1.get_variable(name, shape, initializer=start)


def seen(v1, x):
    """Summarize an activation as the tutorial does: its histogram and its share of zeros."""
    v1.summary.histogram(x.op.name + "/activations", x)
    v1.summary.scalar(x.op.name + "/sparsity", tf.math.zero_fraction(x))
    return x


def v1_loss(v1, logits, labels):
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    v1.add_to_collection("losses", tf.reduce_mean(each))
    return tf.add_n(v1.get_collection("losses"))


def v1_train(v1, loss, step, batch: int):
    """Return the operation of one step: averages of the losses, SGD, moving averages of the weights, histograms."""
    parts = [*v1.get_collection("losses"), loss]
    averaged = v1.train.ExponentialMovingAverage(0.9, name="avg").apply(parts)
    rate = v1.train.exponential_decay(0.1, step, int(EXAMPLES_PER_EPOCH / batch * 350), 0.1, staircase=True)
    with v1.control_dependencies([averaged]):
        descent = v1.train.GradientDescentOptimizer(rate)
        gradients = descent.compute_gradients(loss)
    applied = descent.apply_gradients(gradients, global_step=step)
    for gradient, weights in gradients:
        v1.summary.histogram(weights.op.name, weights)
        v1.summary.histogram(weights.op.name + "/gradients", gradient)
    with v1.control_dependencies([applied]):
        return v1.train.ExponentialMovingAverage(0.9999, step).apply(v1.trainable_variables())


def gemm(side: int = 1024, seconds: float = 2.0) -> dict[str, object]:
    """Return the rate of the fastest product by each library within `seconds`: what this machine can do."""
    a, b = (np.random.RandomState(k).rand(side, side).astype(np.float32) for k in (1, 2))
    left, right = tf.constant(a), tf.constant(b)
    ways = {"numpy": lambda: a @ b, "tensorflow": lambda: tf.matmul(left, right).numpy()}
    return {"flops_per_second": {name: 2 * side**3 / best(way, seconds) for name, way in ways.items()}}


def best(way, seconds: float) -> float:
    way()
    taken, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        way()
        taken.append(time.perf_counter() - began)
    return min(taken)


if __name__ == "__main__":
    main()
