"""What turns the bytes of a JPEG or PNG into pixels: Pillow where it is installed, else the framework's decoder.

NVIDIA's TensorFlow containers did not ship Pillow in every year, but TensorFlow has its own decoder; the PyTorch
containers have Pillow, which torchvision needs. All decoders return the same pixels for a PNG; for a JPEG each returns
those of its own libjpeg, set to be accurate. A decoder takes bytes, returns uint8 [height, width, 3], is thread-safe,
and raises Undecodable.
"""
from __future__ import absolute_import, division, print_function

import io
import re
import sys

import numpy as np

from .events import Stop

TENSORFLOWS = re.compile(r"\{\{.*?\}\} ?| ?\[Op:\w*\]")  # the operation's name, which TensorFlow adds to each error
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


class Undecodable(Exception):
    """These bytes are not an image, or are a truncated image."""


def decoder():
    """Return (function of bytes, its library's name). Raise Stop("data") if there is none."""
    for made in pillow, tensorflow, torchvision:
        try:
            decode, said = made()
            return checked(decode), said
        except (ImportError, AttributeError):
            continue
    raise Stop("data", "nothing here decodes images: neither Pillow nor TensorFlow nor torchvision can be imported. "
                       "Install Pillow (pip install pillow), or use a container image that has it")


def checked(decode):
    """Return a decoder that refuses what is neither JPEG nor PNG, and turns the library's errors into Undecodable."""
    def tried(content):
        if not content.startswith((JPEG, PNG)):
            raise Undecodable("it is empty" if not content else "neither JPEG nor PNG")
        try:
            return decode(content)
        except MemoryError:
            raise
        except Exception as error:  # each library raises its own
            said = TENSORFLOWS.sub("", str(error)).strip().split("\n")[0]
            raise Undecodable(said[:200] or type(error).__name__)
    return tried


def pillow():
    import PIL
    from PIL import Image

    def decode(content):
        picture = Image.open(io.BytesIO(content))
        return np.array(picture.convert("RGB"))  # raises if the file is truncated

    return decode, "Pillow %s" % getattr(PIL, "__version__", getattr(PIL, "PILLOW_VERSION", "of unknown version"))


def tensorflow():
    """Return TensorFlow's decoder, on the CPU, if TensorFlow is the framework that trains: it is not loaded only to
    decode."""
    tf = sys.modules.get("tensorflow")
    if tf is None:
        raise ImportError("TensorFlow is not what trains here")
    return (graph if tf.__version__.startswith("1.") else eager)(tf), "TensorFlow %s" % tf.__version__


def operation(tf, content, is_png):
    if is_png:
        return tf.image.decode_png(content, channels=3)
    return tf.image.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")


def eager(tf):
    def decode(content):
        with tf.device("/CPU:0"):
            return operation(tf, content, content.startswith(PNG)).numpy()
    return decode


def graph(tf):
    made = tf.Graph()
    with made.as_default(), tf.device("/cpu:0"):
        content = tf.placeholder(tf.string, [])
        jpeg, png = (operation(tf, content, is_png) for is_png in (False, True))
    session = tf.Session(graph=made, config=tf.ConfigProto(device_count={"GPU": 0}))
    return lambda data: session.run(png if data.startswith(PNG) else jpeg, {content: data})


def torchvision():
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_image

    def decode(content):
        pixels = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
        return decode_image(pixels, ImageReadMode.RGB).permute(1, 2, 0).numpy()

    return decode, "torchvision %s" % torchvision.__version__
