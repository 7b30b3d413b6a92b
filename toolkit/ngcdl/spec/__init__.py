"""What is asked: an image, GPUs, mounts, a workload, and all of them together as a RunSpec.

Plain frozen values, no I/O. `parse` raises UsageError with the form it wanted. Equal specs are the same experiment;
`as_json` and `from_json` are each other's inverse, except that values of variables that look like secrets are kept
from every record (REDACTED).
"""

from ngcdl.spec.container import Mount, Port, parse_bytes, parse_environment
from ngcdl.spec.gpus import GpuRequest
from ngcdl.spec.image import NVCR, ImageRef
from ngcdl.spec.placement import CONTAINERS, QUEUES, USED_BY, Placement
from ngcdl.spec.run import RunSpec
from ngcdl.spec.secrets import REDACTED, redacted, redacted_words
from ngcdl.spec.workload import FEEDS, PRECISIONS, TEACHERS, Workload

__all__ = [
    "CONTAINERS",
    "FEEDS",
    "NVCR",
    "PRECISIONS",
    "QUEUES",
    "REDACTED",
    "TEACHERS",
    "USED_BY",
    "GpuRequest",
    "ImageRef",
    "Mount",
    "Placement",
    "Port",
    "RunSpec",
    "Workload",
    "parse_bytes",
    "parse_environment",
    "redacted",
    "redacted_words",
]
