"""Famous failures are known by their real texts, and ordinary logs raise no alarm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from failure_texts import BANNER, EXAMPLES, NO_CUDA, NO_DRIVER
from hypothesis import given, settings
from hypothesis import strategies as st

from ngcdl.catalog import failures

GOLDEN_LOG = Path(__file__).parents[1] / "golden/run-format-1/log.txt"
NAMES = tuple(row.name for row in failures.table())
KINDS = [
    frozenset((what, *where))
    for what in ("training", "command")
    for where in (
        ("image", "here", "folders"), ("host", "here", "folders"),
        ("image", "cluster", "folders"), ("image", "cluster", "claims"),
    )
]  # fmt: skip
# Every row of the dossier's table of famous failures.
DOSSIER = {
    "no-gpu-driver-in-docker", "runtime-unknown", "no-driver-at-the-engine", "requirement-unsatisfied",
    "driver-mismatch", "gpu-taken-away", "nvml-permissions", "hook-called-directly", "cdi-off",
    "cdi-devices-unresolvable", "driver-files-in-image", "group-without-name", "shm-too-small", "rlimit-forbidden",
    "no-kernel-image", "gpu-not-for-this-pytorch", "driver-insufficient", "ptx-unsupported", "disk-full",
}  # fmt: skip


def name_of(text: str) -> str | None:
    found = failures.find(text)
    return found.name if found else None


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in EXAMPLES.items() for text in texts])
def test_a_text_that_users_paste_is_known_as_that_failure(name: str, text: str) -> None:
    assert name_of(text) == name
    assert name_of(text.upper()) == name
    assert name_of(f"{BANNER.replace('SHMEM', 'memory')}step 1, loss = 4.1\n{text}\nTraceback:\n") == name


def test_every_row_has_an_example_and_the_dossier_s_are_all_there() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 40
    assert set(NAMES) == EXAMPLES.keys()
    assert set(NAMES) >= DOSSIER


@pytest.mark.parametrize("row", failures.table(), ids=lambda row: row.name)
def test_a_row_has_a_cause_a_remedy_with_a_command_and_a_source(row: failures.Failure) -> None:
    assert failures.WORDS.issuperset(row.needs)
    marks = re.findall(r"^\[(.*?)\]", f"{row.cause}\n{row.remedy}", re.MULTILINE)
    assert failures.WORDS.issuperset(word for mark in marks for word in mark.split())
    assert row.source.startswith("https://")
    assert row.confidence in ("seen", "recalled")
    assert row.rank in failures.RANKS
    for kind in (kind | {device} for kind in KINDS for device in ("gpu", "cpu")):  # each run has one of them
        if kind.issuperset(row.needs):
            told = row.about(kind)
            assert re.fullmatch(r"(?:[A-Z/]|cuDNN)[^\[]+\.", told.cause)
            commands = [line for line in told.remedy.splitlines() if line.startswith(" ")]
            assert (commands == []) == (row.rank == "harmless")
            assert all(line.startswith("    ") and line[4] != " " for line in commands)
    assert all(text.strip() == text and "\n" not in text and len(text) >= 9 for text in (*row.texts, *row.beside))


@pytest.mark.parametrize("name", ["driver-not-detected", "no-driver-in-container", "libcuda-missing"])
def test_a_pod_without_a_driver_is_told_of_the_class_that_some_clusters_need(name: str) -> None:
    """It can't be named where runtime classes may not be listed. GKE needs none, but has the driver elsewhere."""
    row = next(row for row in failures.table() if row.name == name)
    where = [[text in row.about(kind).remedy for kind in KINDS] for text in ("RuntimeClass nvidia", "nvidia/lib64:")]
    assert where == [["claims" in kind for kind in KINDS]] * 2


@pytest.mark.parametrize("text", [
    BANNER,
    BANNER + "Epoch 1/10: train error 0.512, test error: 0.498, 0 errors, error rate 49.8 %\n",
    "step 100, loss = 4.11 (583.9 examples/sec; 0.219 sec/batch)\n",
    "2018-02-16 18:21:26.1: step 0, loss = 4.68 (4.3 examples/sec; 29.7 sec/batch)\nprecision @ 1 = 0.862\n",
    "NOTE: MOFED driver for multi-node communication was not detected.",
    "NOTE: Legacy NVIDIA Driver detected.  Compatibility mode ENABLED.",
    "WARNING: CUDA Minor Version Compatibility mode ENABLED.\n  Using driver version 535.104.05 which has support",
    "The TensorFlow library wasn't compiled to use AVX instructions, but these are available on your machine",
    "successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node",
    "Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been",
    "dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared",
    "Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice. This may result in compilation or runtime failures",
    "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found",
    "NCCL INFO Call to connect returned Connection refused, retrying\nWARN Failed to open libibverbs.so[.1]",
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign",
    "RuntimeWarning: numpy.dtype size changed, may indicate binary incompatibility. Expected 96, got 88",
    "FutureWarning: You are using `torch.load` with `weights_only=False` (the current default value)",
    "Defaulting to user installation because normal site-packages is not writeable",
    "TF-TRT Warning: Could not find TensorRT", "KeyError: 'labels'", "error: 0.1, memory: 3.9 GiB, bus: 0000:01:00.0",
    "Bus error (core dumped)",
    "cp: error writing '/dev/shm/x': Input/output error",
    "The SHMEM allocation limit is set to the default of 64MB. A bus may be late, an error may follow.",
    "",
])  # fmt: skip
def test_an_ordinary_log_is_no_failure(text: str) -> None:
    assert name_of(text) is None


def test_the_log_of_a_run_that_went_well_is_no_failure() -> None:
    assert len(GOLDEN_LOG.read_text()) > 100
    assert name_of(GOLDEN_LOG.read_text()) is None


@pytest.mark.parametrize(("text", "name"), [
    (NO_DRIVER + "CUDA error: no kernel image is available for execution on the device", "no-kernel-image"),
    (NO_DRIVER + "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "no-cuda-device"),
    ("groups: cannot find name for group ID 993\n" + NO_DRIVER, "driver-not-detected"),
    ("OSError: No space left on device\nError 804: forward compatibility was attempted on non supported HW",
     "forward-compatibility-refused"),
    ("NVRM: Xid (PCI:0000:44:00): 79, pid=1, GPU has fallen off the bus.", "gpu-lost"),
    ("RuntimeError: CUDA error: an illegal instruction was encountered\nAborted (core dumped)", "gpu-code-failed"),
    ("inotify_add_watch /work: no space left on device", "inotify-limit"),
    ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired", "certificate-expired"),
    ("NCCL WARN Connect to 10.0.0.4<56849> failed : Connection refused\nunhandled system error", "nccl-network"),
    ("ModuleNotFoundError: No module named 'torch._six'", "written-for-an-older-framework"),
    (NO_CUDA + "[[ System not yet initialized (error 802) ]]", "fabric-manager"),
    ("A module that was compiled using NumPy 1.x cannot be run in\nModuleNotFoundError: No module named 'timm'",
     "python-package-missing"),
    ("reading /dev/shm/data\nOSError: [Errno 28] No space left on device: '/ngcdl/run/x'", "disk-full"),
])  # fmt: skip
def test_what_names_the_cause_counts_before_what_follows_or_only_warns(text: str, name: str) -> None:
    assert name_of(text) == name


def test_of_two_causes_the_earlier_counts_and_at_one_place_the_longer_text() -> None:
    memory, ptx = EXAMPLES["gpu-out-of-memory"][0], EXAMPLES["ptx-unsupported"][0]
    assert name_of(f"{memory}\n{ptx}") == "gpu-out-of-memory"
    assert name_of(f"{ptx}\n{memory}") == "ptx-unsupported"
    assert name_of('could not select device driver "cdi"') == "cdi-off"


@given(st.text(), st.sampled_from([text for texts in EXAMPLES.values() for text in texts]), st.text())
def test_whatever_stands_around_it_a_failure_is_found(before: str, text: str, after: str) -> None:
    assert name_of(f"{before}\n{text}\n{after}") is not None


WORDS = [text for row in failures.table() for text in row.texts]
PIECES = st.tuples(st.sampled_from(WORDS), st.integers(1, 60)).map(lambda pair: pair[0][: pair[1]])


@settings(max_examples=25)  # a backtracking search would not end on any of them
@given(st.lists(PIECES | st.text(max_size=3), min_size=1, max_size=4).map("".join))
def test_a_megabyte_made_of_beginnings_is_searched_to_its_end(piece: str) -> None:
    """The search must not backtrack: the suite's time limit would end one that does."""
    hostile = piece * ((1 << 20) // len(piece) if piece else 0)
    known = failures.find(hostile)
    assert known is None or any(text.lower() in hostile.lower() for text in known.texts)
    assert name_of(hostile + "\n" + EXAMPLES["gpu-out-of-memory"][0]) is not None


def test_who_has_ubuntu_s_podman_is_told_how_the_toolkit_describes_gpus_for_it() -> None:
    row = failures.find("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all")
    assert row is not None
    assert "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes" in row.remedy


def test_persistence_mode_is_never_switched_on_by_enabling_a_daemon_that_ubuntu_starts_without_it() -> None:
    assert not [row.name for row in failures.table() if "nvidia-persistenced" in row.remedy]
