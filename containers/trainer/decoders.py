"""Who turns the bytes of a JPEG or PNG into pixels: Pillow where it is installed, else what the framework has.

NVIDIA's images of TensorFlow have no Pillow in all years, but TensorFlow decodes itself; those of PyTorch have Pillow,
which torchvision wants. All give the same pixels of a PNG; of a JPEG those of their own libjpeg, told to be accurate.
A decoder takes bytes and gives uint8 [height, width, 3], is safe in many threads, and raises Undecodable.
"""
from __future__ import absolute_import, division, print_function

import io
import re
import sys

import numpy as np

from .events import Stop

TENSORFLOWS = re.compile(r"\{\{.*?\}\} ?| ?\[Op:\w*\]")  # which of its operations it was, about each error
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


class Undecodable(Exception):
    """These bytes are no picture, or a torn one."""


def decoder():
    """Give (function of bytes, who it is). None at hand raises Stop("data")."""
    for made in pillow, tensorflow, torchvision:
        try:
            decode, said = made()
            return checked(decode), said
        except (ImportError, AttributeError):
            continue
    raise Stop("data", "nothing here decodes pictures: neither Pillow nor TensorFlow nor torchvision can be imported. "
                       "Install Pillow (pip install pillow), or take an image that has it")


def checked(decode):
    """Give the same decoder, to which no other bytes come, and of whose errors each means that they are broken."""
    def tried(content):
        if not content.startswith((JPEG, PNG)):
            raise Undecodable("it is empty" if not content else "neither JPEG nor PNG")
        try:
            return decode(content)
        except MemoryError:
            raise
        except Exception as error:  # each library has its own
            said = TENSORFLOWS.sub("", str(error)).strip().split("\n")[0]
            raise Undecodable(said[:200] or type(error).__name__)
    return tried


def pillow():
    import PIL
    from PIL import Image

    def decode(content):
        picture = Image.open(io.BytesIO(content))
        return np.array(picture.convert("RGB"))  # a torn one raises here

    return decode, "Pillow %s" % getattr(PIL, "__version__", getattr(PIL, "PILLOW_VERSION", "of unknown version"))


def tensorflow():
    """Decode on the CPU by the framework that trains; one that isn't loaded yet is not loaded for this."""
    tf = sys.modules["tensorflow"] if "tensorflow" in sys.modules else None
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
