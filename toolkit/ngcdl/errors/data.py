"""The data set CIFAR-10 is unavailable, or not what it should be."""

from __future__ import annotations

from ngcdl.errors.base import NgcdlError

_NAME_ITS_CA = (
    "A mirror, or a company's proxy that intercepts TLS, has its own CA. Name its file:\n"
    "    export NGCDL_CA_FILE=/path/to/ca.crt\n"
    "Or, without a download: "
)


class DatasetError(NgcdlError):
    """CIFAR-10 is unavailable, or not what it should be."""


class DatasetUnavailable(DatasetError):
    def __init__(self, why: str, *, is_kept: bool = False, is_untrusted: bool = False) -> None:
        """`is_kept`: a part has arrived, and is kept. `is_untrusted`: a server's certificate is not trusted here."""
        kept = " What arrived is kept, and the next try resumes there." if is_kept else ""
        super().__init__(
            f"CIFAR-10 could not be downloaded: {why}.{kept}",
            f"{_NAME_ITS_CA if is_untrusted else ''}"
            "Fetch cifar-10-binary.tar.gz some other way and name its folder, or train on synthetic images:\n"
            "    ngcdl run ... --data DIR\n    ngcdl run ... --data synthetic",
        )


class DatasetWrong(DatasetError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} is not CIFAR-10: {why}.",
            "--data takes a folder with cifar-10-batches-bin/, cifar-10-batches-py/ or the official archive.",
        )
