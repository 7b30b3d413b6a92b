"""The GPU chain without a card: stand-in NVML and nvidia-smi, and the three ways Docker puts a GPU into a container,
each failing on demand."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

from lab_parts import packages
from lab_parts.where import PARTS, Lab, step, write_whole


def up(lab: Lab) -> dict[str, object]:
    """Write the runtime, the hooks, the CDI spec and the state file; build the library. An existing state file is
    kept. Return the paths for lab.json."""
    state = lab.dir / "nvml/nvml.state"
    if not state.exists():
        write_whole(state, (PARTS / "nvml.state").read_text())
    _build_library(lab)
    write_whole(lab.dir / "gpu/nvidia-smi", (PARTS / "nvidia_smi.sh").read_text(), 0o755)
    write_whole(lab.dir / "gpu/gpu_inject.py", (PARTS / "gpu_inject.py").read_text())
    runc = packages.unpacked(lab, "tools") / "usr/sbin/runc"
    _program(lab, "nvidia-container-runtime", "runtime", str(runc))
    _program(lab, "nvidia-container-runtime-hook", "gpus")
    _program(lab, "nvidia-container-runtime-hook-of-the-runtime", "runtime-hook")
    _program(lab, "nvidia-cdi-hook-of-the-lab", "cdi")
    write_cdi_spec(lab)
    rlimits = lab.dir / "rlimits.jsonl"
    rlimits.touch()
    return {
        "nvml": {
            "library_dir": str(lab.dir / "gpu/nvml"),
            "state_file": str(state),
            "default_state": str(PARTS / "nvml.state"),
        },
        "nvidia_smi": str(lab.dir / "gpu/nvidia-smi"),
        "cdi_spec": str(lab.dir / "gpu/cdi/nvidia.json"),
        "rlimits_log": str(rlimits),
    }


def write_cdi_spec(lab: Lab) -> None:
    """Describe the cards of the state file as CDI devices: `all`, each index, each UUID."""
    text = (lab.dir / "nvml/nvml.state").read_text()
    names = ["all"]
    for number in re.findall(r"^gpu(\d+)\.name=", text, re.M):
        names += [number, *re.findall(rf"^gpu{number}\.uuid=(\S+)", text, re.M)]
    hook = str(lab.dir / "gpu/bin/nvidia-cdi-hook-of-the-lab")
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        # Each device sets a variable of its own, so that a container can have several; one hook mounts what they name.
        "devices": [
            {"name": n, "containerEdits": {"env": [f"NGCDL_LAB_CDI_{position}={n}"]}}
            for position, n in enumerate(names)
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "hooks": [{"hookName": "createRuntime", "path": hook, "args": [hook, "prestart"]}],
        },
    }
    write_whole(lab.dir / "gpu/cdi/nvidia.json", json.dumps(spec, indent=1))


def _build_library(lab: Lab) -> None:
    source, library = PARTS / "nvml.c", lab.dir / "gpu/nvml/libnvidia-ml.so.1"
    text, copy = source.read_text(), lab.dir / "gpu/nvml.c"
    if library.exists() and copy.exists() and copy.read_text() == text:
        return
    packages.ensure_installed(packages.COMPILER)
    with step("stand-in libnvidia-ml.so.1"):
        library.parent.mkdir(parents=True, exist_ok=True)
        draft = library.with_name("draft.so")
        packages.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(draft), str(source)])
        draft.replace(library)
        write_whole(copy, text)


def _program(lab: Lab, name: str, *way: str) -> None:
    """Write a small wrapper script under the name that Docker looks for."""
    program = [str(Path(sys.executable).resolve()), "-I", "-S", f"{lab.dir}/gpu/gpu_inject.py", str(lab.dir), *way]
    write_whole(lab.dir / "gpu/bin" / name, f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n', 0o755)
