"""What a run is asked to be: an image, GPUs, mounts and a workload, combined in a RunSpec.

Plain frozen values, no I/O. `parse` raises UsageError with the expected form. Equal specs are the same experiment;
`as_json` and `from_json` are inverses, except that the values of variables that look like secrets are kept out of
every record (REDACTED).
"""

from ngcdl.spec.container import LIMITS, Mount, Port, parse_bytes, parse_cpus, parse_environment, whole_cpus
from ngcdl.spec.gpus import GpuRequest
from ngcdl.spec.image import NVCR, ImageRef
from ngcdl.spec.kinds import KINDS, USUAL, Kind, kind_of
from ngcdl.spec.placement import CONTAINERS, Placement
from ngcdl.spec.run import RunSpec
from ngcdl.spec.sampling import (
    FULL_SECONDS,
    MISSED,
    RUN_UNREAD,
    SHORTEST_SAMPLE_SECONDS,
    USUAL_SAMPLE_SECONDS,
    parse_sample_seconds,
    samples_to_full,
)
from ngcdl.spec.secrets import REDACTED, is_secret, redacted, redacted_words
from ngcdl.spec.workload import FEEDS, PRECISIONS, TEACHERS, Workload
