"""A GPU was asked for and is not available."""

from __future__ import annotations

from typing import Literal

from ngcdl.errors.base import NgcdlError


class GpuError(NgcdlError):
    """A GPU was asked for and is not available. Nothing falls back to the CPU silently."""


class NoGpu(GpuError):
    def __init__(self, asked: str, found: str, *, option: Literal["--gpus", "--device"] = "--gpus") -> None:
        """`option`: the one that asked for it."""
        instead = {
            "--gpus": "To run without a GPU, say so:\n    ngcdl run ... --gpus none",
            "--device": "Leave it out, or, to run without a GPU, say so:\n    ngcdl run ... --device cpu",
        }
        super().__init__(
            f"{option} {asked}: {found}.", f"{instead[option]}\nTo see what the driver reports:\n    ngcdl gpu"
        )
        self.found = found


class NothingToCompare(GpuError):
    def __init__(self, found: str) -> None:
        super().__init__(
            f"The CPU can't be compared with a GPU: {found}.",
            "To measure the command on the CPU alone:\n    ngcdl run IMAGE --gpus none -- COMMAND\n"
            "To see what the driver reports:\n    ngcdl gpu",
        )


class NvmlUnavailable(GpuError):
    def __init__(self, what: str, hint: str, answered: bool = False) -> None:
        """`answered`: the driver's library answered with an error: a driver exists, and something is wrong with it."""
        super().__init__(what, hint)
        self.answered = answered


class DriverHangs(NvmlUnavailable):
    """A call to the driver has not returned."""


class LibraryMissing(NvmlUnavailable):
    """The driver's library is missing, or can't be loaded."""


class NoGpuWay(GpuError):
    def __init__(self, why: str, hint: str) -> None:
        super().__init__(f"Docker has no way to hand a GPU to a container: {why}.", hint)


class GpuHookFailed(GpuError):
    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"NVIDIA's container runtime failed: {what}", hint)


class GpuNotInside(GpuError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"A GPU was asked for, but the run sees none: {why}.",
            "The run was stopped. Compare what the driver reports with what Docker has:\n"
            "    ngcdl gpu\n    docker info --format '{{json .Runtimes}}'\n"
            "The framework may also need a CUDA version that this driver does not run. To run without a GPU, say so:\n"
            "    ngcdl run ... --gpus none",
        )


class GpuUnknown(GpuError):
    """Whether the run sees its GPUs is unknown. This becomes a note; the run goes on."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Which GPUs the run sees is not known: {why}.")
