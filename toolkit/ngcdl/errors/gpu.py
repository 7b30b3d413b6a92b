"""A GPU was asked for and is not available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ngcdl.errors.base import NgcdlError

ON_CPU_ALONE = "To measure the command on the CPU alone:\n    ngcdl run ... --gpus none -- COMMAND"


class GpuError(NgcdlError):
    """A GPU was asked for and is not available. Nothing falls back to the CPU silently."""


class NoGpu(GpuError):
    def __init__(
        self,
        asked: str,
        found: str,
        *,
        option: Literal["--gpus", "--device"] = "--gpus",
        command: str = "run",
        instead: str | None = None,
        is_busy: bool = False,
    ) -> None:
        """`option` asked for the GPU, in the command `command` of ngcdl. `instead`: what to do without a GPU, if the
        usual advice, to leave out the request, does not fit. `is_busy`: there are enough, but others use them."""
        usual = {
            "--gpus": f"To run without a GPU, say so:\n    ngcdl {command} ... --gpus none",
            "--device": f"Leave it out, or, to run without a GPU, say so:\n    ngcdl {command} ... --device cpu",
        }
        super().__init__(
            f"{option} {asked}: {found}.",
            f"{instead or usual[option]}\nTo see what the driver reports:\n    ngcdl gpu",
        )
        self.found, self.is_busy = found, is_busy

    def leads_on(self) -> None:
        """Put first what waits until the GPUs are free; only `ngcdl run` can."""
        self.hint = f"To wait until they are free:\n    ngcdl run ... --wait\n{self.hint}"


class TooFewToCompare(NoGpu):
    def __init__(self, training: str | None, arms: Sequence[str], most: int, found: str) -> None:
        """`training` is None for a command of the user's own."""
        cards = f"{most} cards" if most > 1 else "a card"
        what = f"A comparison of {training or 'the command'} with {' and '.join(arms)} needs {cards}: {found}."
        other = f"    ngcdl compare --train {training} --gpus none --vary threads=1,2"
        hint = f"Without a GPU, compare something else:\n{other}\n" if training else ""
        GpuError.__init__(self, what, f"{hint}To see what the driver reports:\n    ngcdl gpu")
        self.found, self.is_busy = found, False


class NothingToCompare(GpuError):
    def __init__(self, found: str) -> None:
        super().__init__(
            f"The CPU can't be compared with a GPU: {found}.",
            f"{ON_CPU_ALONE}\nTo see what the driver reports:\n    ngcdl gpu",
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
    def __init__(self, why: str, look: str = "") -> None:
        """`look`: what to type to find out more where it is not Docker that runs it."""
        look = look or (
            "Compare what the driver reports with what Docker has:\n"
            "    ngcdl gpu\n    docker info --format '{{json .Runtimes}}'"
        )
        super().__init__(
            f"A GPU was asked for, but the run sees none: {why}.",
            f"The run was stopped. {look}\n"
            "The framework may also need a CUDA version that this driver does not run. To run without a GPU, say so:\n"
            "    ngcdl run ... --gpus none",
        )
        self.why = why


class GpuUnknown(GpuError):
    """Whether the run sees its GPUs is unknown. This becomes a note; the run goes on."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Which GPUs the run sees is not known: {why}.")
