"""What others measured for a workload on a CPU and on a GPU: pairs.csv, one figure each, as printed or derived."""

from __future__ import annotations

from ngcdl.frozen import dataclass
from ngcdl.report.compared.theirs import SOURCES, read


@dataclass(frozen=True)
class Published:
    """Published figures, one for each device, without spread. `how` says whether they were printed or derived."""

    cpu: str
    cpu_examples_per_second: float
    gpu: str
    gpu_examples_per_second: float
    how: str
    source: str

    @property
    def ratio(self) -> float:
        return self.gpu_examples_per_second / self.cpu_examples_per_second


def published(workload: str | None) -> Published | None:
    """Return what was published about `workload`; None if nothing was."""
    for row in read("pairs.csv", workload):
        speeds = float(row["cpu_examples_per_second"]), float(row["gpu_examples_per_second"])
        return Published(row["cpu"], speeds[0], row["gpu"], speeds[1], row["how"], SOURCES[row["source"]])
    return None
