"""CIFAR-10."""

from __future__ import annotations

from ngcdl.errors.base import NgcdlError


class DatasetError(NgcdlError):
    """CIFAR-10."""


class DatasetUnavailable(DatasetError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"CIFAR-10 could not be downloaded: {why}. What arrived is kept, and the next try goes on from there.",
            "Fetch cifar-10-binary.tar.gz by another way and name its folder, or train on synthetic images:\n"
            "    ngcdl run ... --data DIR\n    ngcdl run ... --data synthetic",
        )


class DatasetWrong(DatasetError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} is not CIFAR-10: {why}.",
            "--data takes a folder with cifar-10-batches-bin/, cifar-10-batches-py/ or the official archive.",
        )
