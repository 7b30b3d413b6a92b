"""The trainer is a separate program: its tests put it on the path with PYTHONPATH, as an image does."""

import shutil
import sys
import tempfile
from importlib.util import find_spec

import pytest
from trainer_process import CONTAINERS, FEW, forks

sys.path.insert(0, str(CONTAINERS))


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory):
    """At the end, stop the forking processes and remove what frameworks leave in the temporary folder."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        # else PyTorch's compiler builds and runs a test program for each of this processor's vector extensions
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its workers each load PyTorch, for a kernel or two
        yield
        while forks:
            forks.popitem()[1].close()
    shutil.rmtree(folder, ignore_errors=True)  # workers of PyTorch's compiler may still write there


def pytest_runtest_setup(item):
    """Skip a test whose mark names a framework that is not installed."""
    for module in "tensorflow", "torch":
        if item.get_closest_marker(module):
            found = find_spec(module)
            if found is None or found.origin is None:  # the folder containers/tensorflow is not a package
                pytest.skip(f"{module} is not installed in this Python")


@pytest.fixture
def torch():
    import torch

    torch.manual_seed(3)
    return torch


@pytest.fixture(scope="module")
def made():
    """Few images: enough for two steps of 60 per epoch."""
    from trainer import data

    whole = data.synthetic("train")
    return data.Dataset(whole.images[:120], whole.labels[:120], "synthetic", 1, note="made")


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """Return a PYTHONPATH with which the trainer makes few images: making all takes each process two seconds."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "sitecustomize.py").write_text(f"from trainer import data\ndata.SYNTHETIC = {FEW}\n")
    return f"{folder}:{CONTAINERS}"


@pytest.fixture
def without_tensorflow(tmp_path_factory):
    """Return a PYTHONPATH that hides TensorFlow from the trainer: loading it unused takes seconds."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "tensorflow.py").write_text("raise ImportError(\"No module named 'tensorflow'\")\n")
    return f"{folder}:{CONTAINERS}"


@pytest.fixture(
    params=[pytest.param("tf2", marks=pytest.mark.tensorflow), pytest.param("pytorch", marks=pytest.mark.torch)]
)
def framework(request):
    return request.param


# as for AVX2 and NEON, and as for AVX-512, which any processor with AVX2 computes by two registers for one
BUILDS = {"8 lanes": ("-DLANES=8", "-DROWS=6"), "16 lanes": ("-DLANES=16", "-DROWS=12")}


@pytest.fixture(scope="module", params=BUILDS)
def library(request):
    """The kernels.Library; the framework must be loaded."""
    from trainer import kernels, native

    found = kernels.opened(native.compiled(kernels.SOURCES, *BUILDS[request.param]))
    assert found, "gcc, and a processor with AVX2 or NEON, are needed"
    return found
