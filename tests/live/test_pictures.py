"""A training in a container on a folder of the user's own images, decoded with what the image has."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from ngcdl_child import User

pytestmark = pytest.mark.lab

BROKEN_EARLY = "4"  # a seed that puts the last of the 25 images, the broken one, into the first batch of three


def png(red: int, green: int, blue: int, side: int) -> bytes:
    """Return a PNG file of one colour."""
    lines = (b"\0" + bytes((red, green, blue)) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def pets(folder: Path) -> Path:
    for split, count in ("train", 12), ("test", 1):
        for name, colour in ("cats", (200, 30, 30)), ("dogs", (30, 30, 200)):
            (folder / split / name).mkdir(parents=True)
            for k in range(count):
                (folder / split / name / f"{k}.png").write_bytes(png(*colour, 16 + k))
    (folder / "train" / "dogs" / "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    return folder


def test_tensorflow_1_4_trains_on_a_folder_of_pictures_and_leaves_the_broken_one_out(user: User) -> None:
    folder = pets(user.home / "pets")
    done = user.run(
        "run", "tensorflow:18.01-py2", "--train", "catdog", "--data", "~/pets", "--gpus", "none", "--batch", "3",
        "--seed", BROKEN_EARLY, "--steps", "1", seconds=400,
    )  # fmt: skip
    assert done.code == 0, done
    (start,) = [line for line in user.lines("events.jsonl") if line["event"] == "start"]
    assert (start["dataset"], start["dataset_images"], len(start["dataset_sha256"])) == ("pictures", 25, 64)
    assert "12 in cats, 13 in dogs" in start["dataset_note"]
    assert "decoded by TensorFlow 1.4.0" in start["dataset_note"]
    assert "broken.jpg is not an image" in user.log()
    assert "SYNTHETIC" not in done.out + done.err
    record = user.record()
    assert record["dataset"] == "pictures"
    assert f"{folder}:/ngcdl/data:ro" in record["spec"]["mounts"]


def test_an_image_without_any_decoder_says_what_is_missing(user: User) -> None:
    pets(user.home / "pets")
    words = ("--train", "catdog", "--data", "~/pets", "--gpus", "none", "--batch", "2", "--steps", "1")
    done = user.run("run", "pytorch:26.07-py3", *words, seconds=200)
    assert done.code == 1
    assert "neither Pillow nor TensorFlow nor torchvision can be imported" in done.out + done.err
    assert user.record()["reason"].startswith("data: nothing here decodes images")


def test_a_folder_that_is_not_there_is_said_before_anything_runs(user: User) -> None:
    done = user.run("run", "tensorflow:18.01-py2", "--train", "catdog", "--data", "nowhere", "--gpus", "none")
    assert done.code == 2
    assert "--data nowhere: there is no such folder." in done.err
