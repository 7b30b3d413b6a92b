"""Which GPUs a host has, and what is said where the driver's library is missing, broken or silent."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .stand_in import Host

PROBE = """
import json
from ngcdl.telemetry import gpu
found = gpu.probe()
print(json.dumps([len(found.cards), found.error and found.error.message, found.absent]))
"""


def test_a_host_without_gpus_has_none(card: Host) -> None:
    card.state.write_text("driver=535.104.05\n")
    assert card.ask(PROBE) == [0, None, False]


def test_a_host_with_gpus_has_them(card: Host) -> None:
    assert card.ask(PROBE) == [2, None, False]


# Hide whatever this host has of NVIDIA's: no trace of a driver, and no library but the test's own.
ALONE = """
import os, sys
from ngcdl.telemetry import driver
driver.has_driver = lambda: False
def find(event, given):
    if event == "ctypes.dlopen" and given[0] == driver.LIBRARY and driver.LIBRARY not in os.listdir(sys.argv[1]):
        raise OSError(f"{driver.LIBRARY}: cannot open shared object file: No such file or directory")
sys.addaudithook(find)
"""


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "There is no NVIDIA driver on this host."), (b"", "file too short"), (b"text\n" * 99, "ELF")],
)
def test_a_library_that_cannot_be_loaded_is_explained(
    card: Host, tmp_path: Path, content: bytes | None, words: str
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    if content is not None:
        (folder / "libnvidia-ml.so.1").write_bytes(content)
    count, message, absent = replace(card, library=folder).ask(ALONE + PROBE, str(folder))
    assert (count, absent) == (0, True)
    assert words in message


def test_another_package_named_pynvml_is_told_apart(card: Host, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("def nvmlInit(): pass\n")
    count, message, _ = card.ask(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROBE}")
    assert count == 0
    assert "not NVIDIA's" in message


def test_a_driver_that_never_answers_does_not_hold_up_a_probe(card: Host) -> None:
    card.set(**{"hang__Init": 1})
    code = "from ngcdl.telemetry import driver\ndriver.within.__defaults__ = (0.2,)\n"
    count, message, _ = card.ask(code + PROBE)
    assert count == 0
    assert message == "The NVIDIA driver gave no answer within 0.2 s."


def test_a_card_is_found_by_its_uuid_or_said_to_be_gone(card: Host) -> None:
    rows = card.ask(
        """
import json
from ngcdl.telemetry import gpu
with gpu.open_nvml() as nvml:
    rows = [nvml.use(which) for which in ("GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100", "GPU-0", 7)]
    print(json.dumps([[values["index"], values["name"], error] for values, error in rows]))
"""
    )
    assert rows[0] == [1, "NVIDIA A100-SXM4-40GB", None]
    assert rows[1] == [None, None, "there is no GPU GPU-0 (any more)"]
    assert rows[2] == [7, None, "there is no GPU 7 (any more)"]


def test_nothing_is_loaded_by_an_import() -> None:
    modules = "ngcdl.telemetry.gpu, ngcdl.telemetry.sampler, ngcdl.cli.gpu"
    code = f"import sys, {modules}; print('pynvml' in sys.modules, 'rich' in sys.modules)"
    toolkit = str(Path(__file__).parents[2] / "toolkit")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": toolkit})
    assert done.stdout == "False False\n", done.stderr
