"""The device of unified memory, /dev/nvidia-uvm: without it nvidia-smi works, and CUDA does not."""

from __future__ import annotations

from ngcdl.doctor import injected
from ngcdl.doctor.chain import Finding, Link, Step, ok, warning
from ngcdl.doctor.links.cdi import anew
from ngcdl.doctor.sight import UVM, Sight, Trouble

NAME = "uvm"
# The toolkit leaves out devices that are not there:
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.18.0/pkg/nvcdi/common-nvml.go
_SOURCE = "https://github.com/NVIDIA/nvidia-modprobe"


def judge(sight: Sight) -> Finding | None:
    engine, kernel = sight.engine, sight.kernel
    if isinstance(engine, Trouble) or isinstance(engine.way, Trouble) or engine.way.name == "none":
        return None
    has_nodes = bool(kernel.nodes) and not (kernel.has_dxg or kernel.is_tegra or kernel.in_container)
    if not (engine.is_here and sight.cards and has_nodes):
        return None
    if any(node.path == UVM for node in kernel.nodes):
        return ok(NAME, f"{UVM} is there")
    # In legacy mode the toolkit makes the device: https://github.com/NVIDIA/libnvidia-container/blob/main/src/nvc.c
    if injected.in_spec(engine, sight) is False:
        return None
    cause = (
        "nvidia-smi works without it, CUDA does not, and containers get only the devices that are there. It is made by "
        "hand or by the first CUDA program outside containers, anew after each reboot. Then start containers again"
    )
    lacking = [spec.path for spec in engine.specs if spec.lacks_uvm]
    make = Step("sudo nvidia-modprobe -c 0 -u")
    return warning(NAME, f"{UVM} is not there", cause, make, *anew(lacking, sight), source=_SOURCE)


LINKS = (Link(25, NAME, judge),)
