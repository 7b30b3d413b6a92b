"""In which precision TensorFlow 2 computes, and whether it compiles: applies what was asked for."""
import contextlib
import inspect

import tensorflow as tf

from ... import computing, nvml
from ...events import Stop
from ...fits import is_out_of_memory

HALVES = {"float16": tf.float16, "bfloat16": tf.bfloat16}
# bfloat16 kernels for GPUs came one by one, and operations without one were silently computed on the CPU:
# https://github.com/tensorflow/tensorflow/issues/59743
HALF_ON_GPU = "float16"
NO_CHANNELS_FIRST = ("TensorFlow on a CPU convolves images only in channels-last layout, and on a GPU it picks the "
                     "layout that suits the card")


def chosen(asked, gpus):
    """Return what computing.numbers() returns, and switch TF32 on or off for all that stays float32."""
    computing.check_rewriting()
    capability = (details(gpus[0]).get("compute_capability") or nvml.compute_capability()) if gpus else None
    precision = computing.numbers(asked, "gpu" if gpus else "cpu", capability, HALF_ON_GPU)
    if precision in HALVES and not (gpus or computes(HALVES[precision])):
        raise Stop("bad_argument", f"TensorFlow {tf.__version__} computes no images in {precision} on a CPU: leave "
                   "--precision out, or use a later container image")
    switch = getattr(tf.config.experimental, "enable_tensor_float_32_execution", None)  # 2.4 and later
    if switch:
        switch(precision != "float32")
    return precision


def computes(kind):
    """Return whether the CPU convolves and normalises in this dtype. Until about 2.10 it did not in bfloat16: an error,
    or an empty result (https://github.com/tensorflow/tensorflow/issues/57888)."""
    try:
        with tf.device("/CPU:0"):
            one = tf.ones((1, 1, 1, 1), kind)
            said = {name: tf.ones(1) for name in ("scale", "offset", "mean", "variance")}
            found = (tf.nn.conv2d(one, one, strides=1, padding="VALID"),
                     tf.raw_ops.FusedBatchNormV3(x=one, is_training=False, **said)[0])
            return all(int(tf.size(x)) for x in found)
    except tf.errors.OpError:
        return False


def details(gpu):
    """Return what TensorFlow reports of a card: nothing before 2.3."""
    return getattr(tf.config.experimental, "get_device_details", lambda _: {})(gpu)


def compiling():
    """Return the arguments that make tf.function compile with XLA; raise Stop if there are none."""
    known = inspect.signature(tf.function).parameters
    for word in "jit_compile", "experimental_compile":  # from 2.5 on, and before
        if word in known:
            return {word: True}
    raise Stop("bad_argument", f"TensorFlow {tf.__version__} does not compile: leave --compile out, or use a later "
               "container image")


@contextlib.contextmanager
def explained(compiled):
    """Turn an error into a Stop if it is XLA's: it can't compile something, or what it compiled fails."""
    try:
        yield
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError,
            tf.errors.InternalError) as error:
        if not compiled or is_out_of_memory(str(error)):
            raise
        also = isinstance(error, tf.errors.InternalError)  # the GPU driver's errors are of that class, too
        raise Stop("bad_argument", f"XLA can't compile or run this: {error.message[:1000]}\nLeave --compile out"
                   + "; if it fails without it, too, the card or its driver is at fault" * also) from error
