"""How peers of cifar10-94 are run: their own code unchanged, on the same arrays, in the same process.

A peer is a Python file, cloned by whoever measures. One with CifarNet and main(run, model), like airbench's
(https://github.com/KellerJordan/cifar10-airbench), is called as its own last lines do, and its seconds are those that
it reports: whitening, steps and test, without its tests after each epoch; it needs torchvision. Any other must have

    prepare(images, labels, test_images, test_labels)     NumPy uint8 [n, 32, 32, 3] and int32 [n]; returns
    train(seed)                                           returns seconds, accuracy

which for other kinds of peers takes a wrapper file of a few lines. No code of a peer is in this project.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

Once = Callable[[int], tuple[float, float]]


def loaded(path: Path, train: Any, test: Any) -> Once:
    """Return a function that trains once, already warmed up. Raise whatever the peer raises."""
    module = imported(path.resolve())
    if hasattr(module, "prepare"):
        once: Once = module.prepare(train.images, train.labels, test.images, test.labels)
    else:
        once = as_airbench(module, train, test)
    _took, _accuracy = map(float, once(0))  # one that returns something else would end the whole benchmark later
    return once


def imported(path: Path) -> ModuleType:
    """Import a file by its path: some peers read their own source from sys.argv[0] and import files beside it.

    It stays in sys.modules, named by its whole path as peers may share a file name: torch.compile imports a function's
    module by name, in later calls too (https://github.com/pytorch/pytorch/issues/181243)."""
    name = "peer" + re.sub(r"\W", "_", str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module, argv = importlib.util.module_from_spec(spec), sys.argv
    sys.path.append(str(path.parent))
    sys.argv, sys.modules[name] = [str(path)], module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.argv = argv
    return module


def as_airbench(module: ModuleType, train: Any, test: Any) -> Once:
    import torch

    folder = tempfile.mkdtemp(prefix="ngcdl-peer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Path(folder, "cifar10").mkdir()
    for name, part in (("train", train), ("test", test)):
        labels = torch.from_numpy(part.labels).long()
        kept = {"images": torch.from_numpy(part.images), "labels": labels, "classes": list("0123456789")}
        torch.save(kept, f"{folder}/cifar10/{name}.pt")
    model = module.CifarNet().cuda().to(memory_format=torch.channels_last)
    model.compile(mode="max-autotune")
    with within(folder), contextlib.redirect_stdout(io.StringIO()):
        module.main("warmup", model)

    def once(seed: int) -> tuple[float, float]:
        torch.manual_seed(seed)
        with within(folder), contextlib.redirect_stdout(io.StringIO()) as told:
            accuracy = module.main(seed, model)
        return seconds_of(told.getvalue()), accuracy

    return once


def seconds_of(table: str) -> float:
    """Read the last column of the line that airbench prints after its test."""
    (line,) = [line for line in table.splitlines() if re.search(r"\beval\b", line)]
    return float(re.findall(r"\d+\.\d+", line)[-1])


@contextlib.contextmanager
def within(folder: str) -> Iterator[None]:
    """Change to a folder: airbench reads its images from there."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
