"""Small real images: PNGs encoded by hand to the standard, and one JPEG from TensorFlow's encoder."""

import base64
import struct
import zlib

import numpy as np


def png(pixels):
    """Encode uint8 [height, width, 3], its lines unfiltered."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def unpng(content):
    """Decode what png() wrote, and nothing else."""
    width, height = struct.unpack(">II", content[16:24])
    at, data = 8, b""
    while at < len(content):
        (size,) = struct.unpack(">I", content[at : at + 4])
        if content[at + 4 : at + 8] == b"IDAT":
            data += content[at + 8 : at + 8 + size]
        at += size + 12
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 3 * width)
    return lines[:, 1:].reshape(height, width, 3)


def flat(colour, height=5, width=7):
    return np.full((height, width, 3), colour, np.uint8)


def pets(folder, count=12):
    """Draw red cats and blue dogs of uneven sizes in folder/train and /test."""
    for split, many in ("train", count), ("test", 2):
        for name, colour in ("cats", (250, 10, 10)), ("dogs", (10, 10, 250)):
            place = folder / split / name
            place.mkdir(parents=True)
            for k in range(many):
                (place / f"{name}.{k}.png").write_bytes(png(flat(colour, 20 + k, 31 - k)))
    return folder


_ROWS, _COLUMNS = np.mgrid[0:6, 0:8]
JPEG_PIXELS = np.stack([30 * _COLUMNS, 40 * _ROWS, 255 - 20 * _COLUMNS], axis=2)
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQEBLAEsAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoK"
    "CgoKBggLDAsKDAkKCgr/2wBDAQICAgICAgUDAwUKBwYHCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoK"
    "CgoKCgoKCgr/wAARCAAGAAgDAREAAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAABP/EAB0QAAECBwAAAAAAAAAAAAAAAAEABwQJ"
    "EyNBQ9H/xAAVAQEBAAAAAAAAAAAAAAAAAAAGCP/EAB0RAAAGAwEAAAAAAAAAAAAAAAAFBwghQQECI+H/2gAMAwEAAhEDEQA/ADML"
    "KwbWyakHjUeKhXEq+a9ozdgI2heDrjG1X6P/2Q=="
)
