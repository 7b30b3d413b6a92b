"""Which GPUs a run asks for."""

from __future__ import annotations

import re
from typing import Self

from ngcdl.errors import BadGpuRequest
from ngcdl.frozen import dataclass

# An index, one of its MIG devices, a UUID or its beginning, or a whole UUID without GPU-, as a Jetson's:
# https://github.com/NVIDIA/go-nvlib/blob/main/pkg/nvlib/info/property-extractor.go
_DEVICE = re.compile(
    r"[0-9]{1,6}(:[0-9]{1,6})?|(GPU|MIG)-[0-9A-Za-z/-]+|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
)


@dataclass(frozen=True)
class GpuRequest:
    """Which GPUs: `kind` is auto, none, all, count or devices. `count` >= 1; `devices` are indices or UUIDs.

    auto = the GPUs that exist or, if there are none, the CPU with a loud warning. All kinds but auto and none require
    GPUs. Once the cards are known, a request of auto or all has them as `devices`: the chosen card, or all that may
    compute.
    """

    kind: str = "auto"
    count: int | None = None
    devices: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse auto, none, all, N, a list of indices or UUIDs, or Docker's own forms. Raise BadGpuRequest."""
        value = text.strip()
        if value in ("auto", "none", "all"):
            return cls(value)
        kind, colon, cards = value.partition(":")
        if colon and kind in ("auto", "all"):  # how a record stores the cards that were chosen for auto or all
            return cls(kind, devices=cls._devices(cards))
        if value in ("-1", "count=all", "count=-1"):
            return cls("all")
        if value.startswith("count="):
            value = value.removeprefix("count=")
        if re.fullmatch(r"0+", value):
            raise BadGpuRequest(
                f"--gpus {value}: a number of cards must be 1 or more.",
                "The card with index 0:\n    --gpus 0,\nOne free card:\n    --gpus 1\nNone:\n    --gpus none",
            )
        if re.fullmatch(r"[0-9]{1,6}", value):
            return cls("count", count=int(value))
        return cls("devices", devices=cls._devices(value))

    @staticmethod
    def _devices(value: str) -> tuple[str, ...]:
        quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
        inner = value[1:-1] if quoted else value
        if "capabilities=" in inner or "driver=" in inner:
            raise BadGpuRequest(
                f"--gpus {value}: driver= and capabilities= are not accepted here.",
                "Say which cards; capabilities go in a variable:\n    --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all",
            )
        if inner.startswith("device="):
            inner = inner.removeprefix("device=")
            if "," in inner and not quoted:
                raise BadGpuRequest(
                    f"--gpus {value}: without inner quotes Docker reads what follows the comma as a count.",
                    f"    --gpus {inner}",
                )
        items = tuple(item.strip() for item in inner.split(",") if item.strip())
        if not items or not all(_DEVICE.fullmatch(item) for item in items) or len(set(items)) != len(items):
            raise BadGpuRequest(
                f"--gpus {value!r} is not understood.",
                "auto, none, all, a number of free cards (2), indices (0,2 or 0,; 0:1 is a MIG device) or UUIDs "
                "(GPU-..., MIG-...)",
            )
        return items

    @property
    def demanded(self) -> bool:
        """Whether the run must have a GPU; auto also accepts none."""
        return self.kind in ("all", "count", "devices")

    @property
    def per_node(self) -> int:
        """The GPUs of each node of a cluster, of which they are asked for by number; 0 for none."""
        return self.count or 0

    def __str__(self) -> str:
        if self.kind == "count":
            return str(self.count)
        if self.kind == "devices":
            lonely_index = len(self.devices) == 1 and self.devices[0].isdecimal()
            return self.devices[0] + "," if lonely_index else ",".join(self.devices)
        return f"{self.kind}:{','.join(self.devices)}" if self.devices else self.kind
