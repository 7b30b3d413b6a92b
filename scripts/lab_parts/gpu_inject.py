"""Put the stand-in GPU into a container: the program behind the runtime `nvidia`, the `--gpus` hook and the CDI hook.

    gpu_inject.py LAB_DIR runtime RUNC ...        in place of nvidia-container-runtime: edit the bundle, exec runc
    gpu_inject.py LAB_DIR runtime-hook prestart   the hook that the runtime adds to the bundle
    gpu_inject.py LAB_DIR gpus prestart           in place of nvidia-container-runtime-hook
    gpu_inject.py LAB_DIR cdi prestart            the hook of our CDI devices, which set NGCDL_LAB_CDI_*

The hooks get the container's state on stdin.

As in NVIDIA's toolkit, the runtime only adds the hook to the bundle (mode `legacy`), and the hook mounts files into
the container before it pivots to its root: the NVML library, nvidia-smi, and the folder with the NVML state. A
container that asks for some of the GPUs gets a copy of the state with only those, renumbered; one that asks for all
sees the live file.

Faults are for one container, so that tests don't interfere: `-e NGCDL_LAB_GPU_FAULT=NAME`, where NAME is in FAULTS, or
is itself what the hook says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

# nvidia-container-cli's messages as pasted by users: NVIDIA/nvidia-container-toolkit issues 154, 171, 394.
FAULTS = {
    "driver-not-loaded": "nvidia-container-cli: initialization error: nvml error: driver not loaded",
    "version-mismatch": "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch",
    "library-missing": "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: "
    "cannot open shared object file: no such file or directory",
    "timed-out": "nvidia-container-cli: initialization error: driver rpc error: timed out",
}
BRANDS = {
    "1": "quadro",
    "2": "tesla",
    "5": "geforce",
    "6": "titan",
    "12": "quadrortx",
    "13": "nvidiartx",
    "14": "nvidia",
    "15": "geforcertx",
}
# Longer signs first, because ">=" and "<=" begin with a shorter sign, and "!=" contains one.
SIGNS = {">=": ge, "<=": le, "!=": ne, ">": gt, "<": lt, "=": eq}
LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
STATE_FOLDER = "run/ngcdl-lab"
CDI_VARIABLE = "NGCDL_LAB_CDI_"


def main() -> None:
    lab, way, rest = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if way == "runtime":
        become_runc(lab, rest[0], rest[1:])
    else:
        sys.exit(hook(lab, "runtime" if way == "runtime-hook" else way))


def become_runc(lab: Path, runc: str, arguments: list[str]) -> None:
    """Edit the bundle if a container is being created, then exec runc."""
    if "create" in arguments:
        bundle = Path(arguments[arguments.index("--bundle") + 1]) if "--bundle" in arguments else Path.cwd()
        config = json.loads((bundle / "config.json").read_text())
        note_limits(lab, config)
        if wanted(config, "runtime") not in (None, "", "void"):
            path = str(lab / "gpu/bin/nvidia-container-runtime-hook-of-the-runtime")
            hooks = config.setdefault("hooks", {}).setdefault("prestart", [])
            hooks.append({"path": path, "args": [path, "prestart"]})
        (bundle / "config.json").write_text(json.dumps(config))
    os.execv(runc, [runc, *arguments])


def note_limits(lab: Path, config: dict[str, Any]) -> None:
    """Log the requested limits, and leave them unchanged, as NVIDIA's own runtime does: so a host whose root lacks
    CAP_SYS_RESOURCE refuses memlock=-1 here as elsewhere."""
    limits = config["process"].get("rlimits") or []
    entry = {"t": time.time(), "hostname": config.get("hostname"), "rlimits": limits}
    with (lab / "rlimits.jsonl").open("a") as log:
        log.write(json.dumps(entry) + "\n")


def hook(lab: Path, way: str) -> int:
    """Mount the stand-ins into the container whose state is on stdin, or refuse in NVIDIA's words. Return the exit
    code."""
    state = json.load(sys.stdin)
    config = json.loads((Path(state["bundle"]) / "config.json").read_text())
    visible = wanted(config, way)
    if visible in (None, "", "void"):
        return 0
    if way != "cdi":
        print("Auto-detected mode as 'legacy'", file=sys.stderr)
    try:
        if fault := variables_of(config).get("NGCDL_LAB_GPU_FAULT"):
            raise LookupError(FAULTS.get(fault, fault))
        gpus = read_state(lab / "nvml/nvml.state")
        if way != "cdi":
            check_requirements(config, gpus)
        folder = state_folder(lab, visible, gpus)
    except LookupError as refusal:
        print(refusal.args[0], file=sys.stderr)
        return 1
    root = Path(state["bundle"], config["root"]["path"])
    mounts = [
        (lab / "gpu/nvml/libnvidia-ml.so.1", root / LIBRARY),
        (lab / "gpu/nvidia-smi", root / "usr/bin/nvidia-smi"),
        (folder, root / STATE_FOLDER),
    ]
    return mount(state["pid"], mounts)


def wanted(config: dict[str, Any], way: str) -> str | None:
    """Return which GPUs a container asks for: all, none, void, or comma-separated indices and UUIDs; None if its
    environment does not say."""
    variables = variables_of(config)
    if way == "cdi":
        return ",".join(value for name, value in variables.items() if name.startswith(CDI_VARIABLE)) or None
    return variables.get("NVIDIA_VISIBLE_DEVICES")


def variables_of(config: dict[str, Any]) -> dict[str, str]:
    """Return a container's environment. Of a variable that is set twice the last value counts, which is Docker's
    own."""
    return {name: value for name, _, value in (entry.partition("=") for entry in config["process"].get("env", []))}


def read_state(path: Path) -> dict[str, str]:
    lines = [line.partition("=") for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in lines}


def state_folder(lab: Path, visible: str, state: dict[str, str]) -> Path:
    """Return the folder to mount: the live one for all GPUs, else one whose state has only the requested ones. Raise
    LookupError for an unknown GPU."""
    numbers = [int(key[3:-5]) for key in state if re.fullmatch(r"gpu\d+\.name", key)]
    if "all" in visible.split(","):
        return lab / "nvml"
    by_name = {str(n): n for n in numbers} | {state.get(f"gpu{n}.uuid", ""): n for n in numbers}
    chosen = []
    for name in [] if visible == "none" else visible.split(","):
        if name not in by_name:
            raise LookupError(f"nvidia-container-cli: device error: {name}: unknown device")
        chosen.append(by_name[name])
    position = {number: place for place, number in enumerate(sorted(set(chosen)))}
    lines = []
    for key, value in state.items():
        card = re.search(r"\bgpu(\d+)\.", key)  # gpu1.name, but also fail.gpu1.DeviceGetName
        if card is None:
            lines.append(f"{key}={value}")
        elif int(card[1]) in position:
            lines.append(f"{key[: card.start()]}gpu{position[int(card[1])]}.{key[card.end() :]}={value}")
    folder = lab / "nvml-some" / ("gpus-" + "-".join(str(n) for n in sorted(set(chosen))))
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"nvml.state.{os.getpid()}"
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(folder / "nvml.state")
    return folder


def check_requirements(config: dict[str, Any], state: dict[str, str]) -> None:
    """Check NVIDIA_REQUIRE_* (spaces are OR, commas AND; cuda, driver and brand) as NVIDIA's legacy mode does. Raise
    LookupError if one is not satisfied."""
    variables = variables_of(config)
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true"):
        return
    code = int(state.get("cuda", "0"))
    have = {
        "cuda": f"{code // 1000}.{code % 1000 // 10}",
        "driver": state.get("driver", "0"),
        "brand": BRANDS.get(state.get("gpu0.brand", ""), "unknown"),
    }
    for name, requirement in variables.items():
        ways = requirement.split()
        if (
            name.startswith("NVIDIA_REQUIRE_")
            and ways
            and not any(all(_holds(c, have) for c in w.split(",")) for w in ways)
        ):
            raise LookupError(
                f"nvidia-container-cli: requirement error: unsatisfied condition: {ways[-1]}, "
                "please update your driver to a newer version, or use an earlier cuda container"
            )


def _holds(condition: str, have: dict[str, str]) -> bool:
    for sign, compare in SIGNS.items():
        key, found, value = condition.partition(sign)
        if found and key in have:
            if key == "brand":
                return compare(have[key], value)
            one, two = ([int(n) for n in text.split(".") if n.isdigit()] for text in (have[key], value))
            return compare(one[: len(two)], two)
    return True


def mount(pid: int, mounts: list[tuple[Path, Path]]) -> int:
    """Bind-mount files and folders, read-only, inside the mount namespace of a container that has not pivoted to its
    root yet. Return the exit code."""
    script = """
set -e
while [ $# -gt 0 ]; do
    mkdir -p "$(dirname "$2")"
    if [ -d "$1" ]; then mkdir -p "$2"; else [ -e "$2" ] || : > "$2"; fi
    mount --bind "$1" "$2"
    mount -o remount,bind,ro "$2"
    shift 2
done
"""
    words = [str(path) for pair in mounts for path in pair]
    command = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--", "sh", "-c", script, "sh", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"nvidia-container-cli: mount error: {done.stderr.strip()}", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    main()
