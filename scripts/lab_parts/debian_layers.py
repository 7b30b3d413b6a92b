"""The layers of an image whose programs come from Debian and from pip's own configuration, made in one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lab_parts import packages
from lab_parts.image_writer import MTIME, Layer, layer, tar_of_folder
from lab_parts.where import Lab, LabError, recipe_key, step

RECIPE = Path(__file__)  # part of each layer's key: if this file changes, layers are made anew
# Left out of images: documents, translations, apt's caches, pip's and setuptools' leftovers, headers and tests.
LEFT_OUT = [
    *(f"./usr/share/{name}/*" for name in ("doc", "man", "locale", "info")),
    *("./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*"),
    *("./dev/*", "./proc/*", "./sys/*", "./usr/lib/x86_64-linux-gnu/gconv/*"),
]
LEFT_OUT_OF_PACKAGES = [
    "./bin",
    "./share",
    "./torch/include",
    "./torch/test",
    "./torch/bin/protoc*",
    "./torch/bin/*test*",
    "*.a",
    "./tensorflow/include",
    "*/numpy/*/tests",
]


class Debian:
    """A minimal Debian with some packages, by mmdebstrap, and what pip puts into it: two layers of one folder.

    Each module has its bytecode beside it, as in NGC's images: else each container would compile what it imports.
    """

    def __init__(self, lab: Lab, suite: str, python: str, include: list[str]) -> None:
        self._lab, self._suite, self._python, self._include = lab, suite, python, include
        self._root = lab.cache / f"debian-{suite}"

    def __enter__(self) -> Debian:
        shutil.rmtree(self._root, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def layer(self, repository: str) -> Layer:
        def pieces() -> Iterator[bytes]:
            self._make()
            yield from tar_of_folder(self._root, LEFT_OUT)

        return layer(self._lab, repository, recipe_key(RECIPE, self._suite, self._include), pieces)

    def wheels(self, repository: str, wanted: list[list[str]], target: list[str]) -> Layer:
        """Return the layer of some wheels, which pip unpacks for another interpreter than the one that runs here."""
        place = f"./usr/local/lib/{self._python}/dist-packages"

        def pieces() -> Iterator[bytes]:
            self._make()
            folder = self._root / place
            with step(f"wheels {' '.join(w.split()[0] for group in wanted for w in group)}"):
                folder.mkdir(parents=True, exist_ok=True)
                for group in wanted:
                    _pip(folder, group, target)
            if wanted[0][0].startswith("torch==") and not any(folder.glob("torch-*+cpu.dist-info")):
                raise LabError(
                    "pip's own configuration gave a CUDA build of torch, gigabytes that no machine without a card "
                    "needs: set PIP_FIND_LINKS or PIP_INDEX_URL to where the CPU wheel torch 2.13.0 lies, "
                    "and type `scripts/lab up` again"
                )
            self._compile(place)
            yield from tar_of_folder(folder, LEFT_OUT_OF_PACKAGES, prefix=place)

        return layer(self._lab, repository, recipe_key(RECIPE, place, wanted, target), pieces)

    def _make(self) -> None:
        if self._root.exists():
            return
        if os.geteuid() != 0:
            raise LabError(
                f"Debian {self._suite} in a folder needs root: type `sudo -E scripts/lab up` once; the cache keeps "
                "the result"
            )
        program = packages.unpacked(self._lab, "tools") / "usr/bin/mmdebstrap"  # in half of debootstrap's time
        command = ["perl", str(program), "--quiet", "--mode=root", "--variant=minbase"]
        command += [f"--include={','.join(self._include)}", self._suite, str(self._root), packages.source(self._suite)]
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        with step(f"Debian {self._suite} in a folder"):
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise LabError(
                f"mmdebstrap {self._suite} failed ({done.returncode}):\n{done.stdout[-400:]}{done.stderr[-800:]}"
            )
        self._compile(f"./usr/lib/{self._python}")

    def _compile(self, place: str) -> None:
        """Compile all modules below `place`. Errors are ignored: a module that this Python can't compile could not be
        imported by it either."""
        for module in (self._root / place).rglob("*.py"):
            os.utime(module, (MTIME, MTIME), follow_symlinks=False)  # bytecode holds the time that the layer gives it
        environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        command = ["chroot", str(self._root), self._python, "-m", "compileall", "-q", place.removeprefix(".")]
        with step(f"bytecode of {place.removeprefix('.')}"):
            subprocess.run(command, env=environment, capture_output=True, check=False)


def _pip(folder: Path, wanted: list[str], target: list[str]) -> None:
    requirements = folder.with_name(folder.name + ".txt")
    requirements.write_text("\n".join(wanted) + "\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
        "--no-compile",
    ]
    command += ["--only-binary=:all:", "--target", str(folder), *target, "-r", str(requirements)]
    command += ["--no-deps"] if "--python-version=2.7" in target else []
    done = subprocess.run(command, capture_output=True, text=True)
    requirements.unlink()
    if done.returncode:
        why = done.stderr.strip()[-800:]
        raise LabError(f"pip could not get {' '.join(wanted)} ({done.returncode}), asked of {sys.executable}: {why}")
