"""In which numbers TensorFlow 2 computes, and whether it compiles: what was asked for, made so."""
import contextlib
import inspect

import tensorflow as tf

from ... import computing, nvml
from ...events import Stop

HALVES = {"float16": tf.float16, "bfloat16": tf.bfloat16}
# Kernels for bfloat16 on GPUs came one by one, and what had none was computed on the CPU without a word:
# https://github.com/tensorflow/tensorflow/issues/59743
HALF_ON_GPU = "float16"
NO_CHANNELS_FIRST = ("TensorFlow on a CPU convolves pictures channels last alone, and on a GPU it lays them itself as "
                     "the card is best at")


def chosen(asked, gpus):
    """Give what computing.numbers() gives, and switch TF32 on or off for all that stays float32."""
    capability = compute_capability(gpus[0]) if gpus else None
    precision = computing.numbers(asked, "gpu" if gpus else "cpu", capability, HALF_ON_GPU)
    switch = getattr(tf.config.experimental, "enable_tensor_float_32_execution", None)  # 2.4 and later
    if switch:
        switch(precision != "float32")
    return precision


def compute_capability(gpu):
    """Ask TensorFlow (2.3 and later) or NVML."""
    details = getattr(tf.config.experimental, "get_device_details", lambda gpu: {})(gpu)
    return details.get("compute_capability") or nvml.compute_capability()


def compiling():
    """Give the words with which tf.function has XLA compile; what has none raises Stop."""
    known = inspect.signature(tf.function).parameters
    for word in "jit_compile", "experimental_compile":  # from 2.5 on, and before
        if word in known:
            return {word: True}
    raise Stop("bad_argument", f"TensorFlow {tf.__version__} does not compile: leave --compile away, or take a later "
               "image")


@contextlib.contextmanager
def explained(compiled):
    """Make of what XLA can't compile a Stop."""
    try:
        yield
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        if not compiled:
            raise
        raise Stop("bad_argument", f"XLA can't compile this: {error.message[:1000]}\nLeave --compile away") from error
