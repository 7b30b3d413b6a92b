"""What the official CIFAR-10 is: the archive's address, size and hash, and the files in it.

Several projects independently pin the archive's sha256 and size, and the md5 of the six batches and the six pickles.
md5 serves only to tell whether a folder that the user names equals the official one.
"""

from __future__ import annotations

from ngcdl.frozen import dataclass

RECORD_BYTES = 1 + 3 * 32 * 32  # label, red, green, blue: https://www.cs.toronto.edu/~kriz/cifar.html
CLASSES = 10
TEXT_BYTES = 64 * 1024  # more than enough for batches.meta.txt and readme.html
BINARY, PICKLED = "cifar-10-batches-bin", "cifar-10-batches-py"  # the folder of each form
# The md5 of each pickle. https://github.com/pytorch/vision/blob/main/torchvision/datasets/cifar.py
PICKLES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


@dataclass(frozen=True)
class Member:
    """A file of the archive. `bytes` is its exact size; None means a short text that nothing reads."""

    name: str
    bytes: int | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Archive:
    """The archive in binary form. Tests pass a small one."""

    url: str
    bytes: int
    sha256: str
    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    @property
    def batches(self) -> tuple[Member, ...]:
        """Return the batches in order, the training ones first."""
        return tuple(member for member in self.members if member.bytes is not None)

    @property
    def unpacked_bytes(self) -> int:
        return sum(TEXT_BYTES if member.bytes is None else member.bytes for member in self.members)


def is_training(name: str) -> bool:
    return name.startswith("data_batch_")


def _batch(name: str, md5: str) -> Member:
    return Member(name, 10_000 * RECORD_BYTES, md5)


CIFAR10 = Archive(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    bytes=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    members=(
        _batch("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        _batch("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
        _batch("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        _batch("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        _batch("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
        _batch("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
        Member("batches.meta.txt"),
        Member("readme.html"),
    ),
)
