"""How batches reach the device in TensorFlow 2, for each of feed.py's feeds: iterators of what Network.train takes."""
import itertools
import multiprocessing

import numpy as np
import tensorflow as tf

from ... import feed


def made_ahead(network, source, first, last):
    """Return batches that tf.data makes and prefetches; the step itself copies them to a GPU."""
    model, errors = network.model, []
    kind = tf.int32 if model.tokens else tf.float32

    def made(step):
        try:
            return source(int(step))
        except Exception as error:
            errors.append(error)
            raise

    @tf.autograph.experimental.do_not_convert  # autograph writes a file, which a process that is ended at once leaves
    def take(step):
        examples, labels = tf.numpy_function(made, [step], (kind, tf.int32))
        return tf.ensure_shape(examples, (None, *model.shape)), tf.ensure_shape(labels, (None, *model.labels))

    workers = min(4, multiprocessing.cpu_count())
    with tf.device("/CPU:0"):
        batches = tf.data.Dataset.range(first, last).map(take, num_parallel_calls=workers).prefetch(2)
        return handed_out(iter(batches.with_options(untuned())), errors)


def untuned():
    """Return options by which tf.data tunes nothing. There is nothing to tune here, and the thread that would do it may
    miss the pipeline's end: TensorFlow 2.21 then waits until it would tune again, after up to a minute."""
    options = tf.data.Options()
    if hasattr(options, "autotune"):
        options.autotune.enabled = False
    else:  # earlier releases
        options.experimental_optimization.autotune = False
    return options


def handed_out(batches, errors):
    """Yield the batches; raise the source's own error, where tf.data's would have the source's traceback as its
    text."""
    try:
        yield from batches
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None
        raise


def put(network, array):
    """Copy an array to the device: int32 as int64, because TensorFlow keeps int32 on the host
    (https://github.com/tensorflow/tensorflow/pull/31734)."""
    with tf.device(network.on):
        return tf.constant(array.astype(np.int64) if array.dtype == np.int32 else array)


def plain(network, source, first, last):
    """Leave the copy to the step, as made_ahead does. A copy waits until a GPU has computed what it was given so far,
    which would count here as time that the training waits for its batches
    (https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/common_runtime/gpu/gpu_util.cc:
    CopyCPUTensorToGPU)."""
    for step in range(first, last):
        with tf.device("/CPU:0"):
            examples, labels = (tf.constant(array) for array in source(step))
        yield examples, labels


def resident(network, source, first, last):
    """Gather by single operations: a traced function of them takes ten times as long for a batch of 8 on a CPU. On a
    CPU the order stays in numpy, because slicing a tensor takes longer than copying so few indices; a GPU gets an
    epoch's order at once, because each copy would wait for the GPU."""
    held = feed.held(source)
    examples, labels = gatherable(network, put(network, held.examples)), put(network, held.labels)
    axis, gather = tf.constant(0), tf.raw_ops.GatherV2
    there = np.asarray if network.device == "cpu" else lambda order: put(network, order)
    for chosen in feed.chosen(source, first, last, there):
        with tf.device(network.on):
            rows = tf.convert_to_tensor(chosen)
            batch = gather(params=examples, indices=rows, axis=axis), gather(params=labels, indices=rows, axis=axis)
            if held.divisor:
                batch = tf.cast(batch[0], tf.float32) / held.divisor, batch[1]
        yield batch


def gatherable(network, examples):
    """Return the examples in a dtype that this release can gather on the device."""
    if examples.dtype != tf.uint8 or gathers_bytes(network):
        return examples
    with tf.device(network.on):
        return tf.cast(examples, tf.float32)


def gathers_bytes(network):
    """Return whether this release gathers bytes on the device; early releases silently do it on the CPU."""
    with tf.device(network.on):
        return network.device.upper() in tf.gather(tf.zeros((1, 1), tf.uint8), [0]).device


def constant(network, source, first, last):
    examples, labels = source(first)
    return itertools.repeat((put(network, examples), put(network, labels)), last - first)


FEEDS = {"ahead": made_ahead, "plain": plain, "resident": resident, "constant": constant, "input": made_ahead}
