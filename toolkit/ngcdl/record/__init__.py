"""What happened: one run as kept in run.json, and the figures read from it.

run.json, written whole (temporary file, fsync, rename), FORMAT 1:
    format, id, status (running | finished | failed | interrupted | lost), started, finished (s since the epoch),
    exit_code, oom_killed, reason, engine, engine_version, engine_id (the Docker engine's own ID: the container is
    looked for only in that engine), gpu_way, container, image {reference, digest, id (the engine's image ID, for an
    image without a digest)}, dataset, dataset_note,
    device (cpu | gpu: what the framework said it computed on), gpus [uuid], machine, spec,
    owner {pid, ticks, boot, namespace} (the process that watches a running run; it stays in the record of a run that
    has lost its engine, or was given up before the engine had answered its start; null on a cluster, where `container`
    names the job: slurm:ID or kubernetes:NAMESPACE/NAME),
    notes [], summary {},
    diagnosis {name, text, cause, remedy, source, confidence} (a known failure, recognised in the run's output),
    findings [{rule, text, numbers, advice}] (what held a training back, by report/measured/bottleneck.py; null: not
    examined),
    ngcdl (the version that wrote the record),
    program (for a command without an image: the path of the program that its first word named on this host),
    packages [name==version] (what --pip added to the image, dependencies included; null: nothing was to be added)
Unknown is null, never 0. Unknown keys are ignored and missing ones are null, so old and new records load.

History of the format: 1 = ngcdl 0.1; diagnosis, findings, ngcdl, program, packages, and every key after `gaps` in the
summary (after `index` for a card, after `gpus` for a machine, after `boot` for an owner) were added later. If no ngcdl
watches the run (docker compose, Slurm), the trainer itself writes the same file: containers/trainer/events.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any, Self

from ngcdl.errors import BadOption
from ngcdl.frozen import dataclass
from ngcdl.record.shape import known_of, make
from ngcdl.spec import USUAL_SAMPLE_SECONDS, Kind, Placement, Workload, kind_of, parse_sample_seconds

FORMAT = 1
_MOST_LEVELS = 32  # of a spec; ngcdl's own have four
STATUSES = ("running", "finished", "failed", "interrupted", "lost")


@dataclass(frozen=True)
class Image:
    reference: str | None = None
    digest: str | None = None
    id: str | None = None

    @property
    def identity(self) -> str | None:
        """The digest, else the id: it is the same only for the same image."""
        return self.digest or self.id


@dataclass(frozen=True)
class Gpu:
    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None


@dataclass(frozen=True)
class Machine:
    """The host of a run. `cores` counts logical processors, mostly two for each of the `physical_cores`; `driver` is
    the NVIDIA driver's version, such as 535.104.05. `gpus`: () if there are none, None if unknown. `usable_cores`: how
    many processors' time CPU affinity and cgroup quota leave to ngcdl, and so to what it runs without a container."""

    hostname: str | None = None
    cpu: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    kernel: str | None = None
    driver: str | None = None
    gpus: tuple[Gpu, ...] | None = None
    physical_cores: int | None = None
    usable_cores: float | None = None


@dataclass(frozen=True)
class Owner:
    """The process that watches a run. `ticks` (its start, /proc/PID/stat field 22) and `boot` distinguish it from a
    later process with the same PID. `namespace` is that of its PIDs: what runs there can't be seen from another one."""

    pid: int
    ticks: int | None = None
    boot: str | None = None
    namespace: str | None = None


# How much of a card worked, by fields of a sample (telemetry/sample.py); a summary has the mean of each.
ACTIVITY = ("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent")


@dataclass(frozen=True)
class GpuSummary:
    uuid: str | None = None
    name: str | None = None
    gpu_percent_mean: float | None = None
    memory_bytes_max: int | None = None
    watts_mean: float | None = None
    index: int | None = None
    joules: float | None = None
    energy_from: str | None = None
    sm_mhz_mean: float | None = None
    throttled_share: Mapping[str, float] | None = None
    sm_active_percent_mean: float | None = None
    sm_occupancy_percent_mean: float | None = None
    tensor_active_percent_mean: float | None = None
    dram_bandwidth_percent_mean: float | None = None
    node: str | None = None  # whose card it is, if the run has several nodes
    is_used: bool | None = None  # the run's processes were seen on it; False: on another of its cards only
    card_index: int | None = None  # of a MIG device's card; `index` is then that on this card


@dataclass(frozen=True)
class Summary:
    """The figures of a run: medians over the logged steps after warm-up, means over the samples taken during training.

    `examples_per_second` and `seconds_per_batch` exclude the first logged interval, in which the framework starts.
    For several trainings from scratch `precision_at_1` is their mean, and `steps` is their total.
    A sample tells the use of the processors, and how much of a GPU worked, since the sample before: their means weigh
    it by that time.
    `cpu_percent_mean` is over all cores, 0..100; in `container_cpu_percent_mean` 100 is one core. `cores_busy` counts
    the host's busy processors, `threads_running_mean` the host's runnable threads; `cpu_busiest_core_percent_mean` is
    the mean of whichever core was busiest in each sample. `memory_limit_bytes` and `memory_pressure_percent` (0..100,
    the maximum) are the container's; `memory_oom_kills` counts the container's processes that the kernel killed for
    lack of memory. `gpu_percent_mean` and `gpu_memory_bytes_max` are over the run's GPUs; None if no GPU was read.
    `sm_active_percent_mean`, `sm_occupancy_percent_mean`, `tensor_active_percent_mean` and
    `dram_bandwidth_percent_mean` likewise: how much of these GPUs worked, None if they don't have the counters for it.
    Over several nodes `cpu_percent_mean`, `cores_busy` and `threads_running_mean` are means,
    `container_cpu_percent_mean` and `memory_oom_kills` are sums, and the other memory figures are of the node with the
    highest use and pressure, and with the lowest limit. `training_samples` counts the samples in which the host was
    read during training, and a GPU if any was; for a command without steps, the complete samples of the whole run.
    `gap_reason`: why most of the samples in `gaps` lack a reading; None if they only came after missed ones.

    `energy_joules` is what the GPUs used during training, in `energy_seconds`; for another `energy_gap_seconds` they
    were not read. `energy_from` is counter, or power integrated. `examples_per_joule` is the mean rate over that time,
    with all pauses between steps, over the GPUs' mean power. `throttled_share` is the share (0..1) of the samples in
    which clocks were held down, by reason in NVIDIA's words, {} if they never were. A training's energy and clocks are
    those of the GPUs that it computed on, as far as that is known; all these figures are those of the GPUs that the
    run's processes were seen on, if they were seen on any. `shared_gpu`: whether other processes computed on these
    GPUs, too, or on any if a command's own were seen on none; None if unknown.

    `latency_p50_seconds` and `latency_p95_seconds` are for single whole batches, forward only: from requesting a batch
    to having its result in the host's memory, as nearest-rank percentiles; None for fewer than 20 batches.

    `teacher_seconds_per_batch` is the median time per batch that a teacher beside the training computed on the CPU.

    `flops_per_second` counts the operations of convolutions and matrix products, as the workload states them;
    `peak_share` is that rate's share of what the card can do in that precision, at its rated clock, or at its own if
    that was higher: above 1 something is wrong. `peak_source` is the source of the card's peak; `peak_recalled`:
    whether the peak is written from memory, not read in any source.
    """

    steps: int | None = None
    examples_per_second: float | None = None
    seconds_per_batch: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    precision_at_1: float | None = None
    cpu_percent_mean: float | None = None
    container_cpu_percent_mean: float | None = None
    memory_bytes_max: int | None = None
    gpu_percent_mean: float | None = None
    gpu_memory_bytes_max: int | None = None
    gpus: tuple[GpuSummary, ...] = ()
    samples: int | None = None
    gaps: int | None = None
    training_samples: int | None = None
    cores_busy: float | None = None
    cpu_busiest_core_percent_mean: float | None = None
    threads_running_mean: float | None = None
    energy_joules: float | None = None
    energy_from: str | None = None
    energy_seconds: float | None = None
    energy_gap_seconds: float | None = None
    examples_per_joule: float | None = None
    sm_mhz_mean: float | None = None
    throttled_share: Mapping[str, float] | None = None
    shared_gpu: bool | None = None
    memory_limit_bytes: int | None = None
    memory_pressure_percent: float | None = None
    memory_oom_kills: int | None = None
    flops_per_second: float | None = None
    peak_share: float | None = None
    peak_source: str | None = None
    peak_recalled: bool | None = None
    latency_p50_seconds: float | None = None
    latency_p95_seconds: float | None = None
    teacher_seconds_per_batch: float | None = None
    sm_active_percent_mean: float | None = None
    sm_occupancy_percent_mean: float | None = None
    tensor_active_percent_mean: float | None = None
    dram_bandwidth_percent_mean: float | None = None
    gap_reason: str | None = None

    @property
    def used_gpus(self) -> tuple[GpuSummary, ...]:
        """The GPUs without those that are known to be used by others only."""
        return tuple(gpu for gpu in self.gpus if gpu.is_used is not False)


@dataclass(frozen=True)
class Diagnosis:
    """A known failure, a row of catalog/failures.py. `text`: the words in the output that identified it; `remedy`:
    lines of text, each command on a line of its own."""

    name: str
    text: str | None = None
    cause: str | None = None
    remedy: str | None = None
    source: str | None = None
    confidence: str | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that held a training back. `numbers` are those that decided the rule."""

    rule: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    advice: str | None = None


@dataclass(frozen=True)
class Run:
    id: str
    status: str
    started: float
    finished: float | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    reason: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    engine_id: str | None = None
    gpu_way: str | None = None
    container: str | None = None
    image: Image = field(default_factory=Image)
    dataset: str | None = None
    dataset_note: str | None = None
    device: str | None = None
    gpus: tuple[str, ...] | None = None
    machine: Machine = field(default_factory=Machine)
    spec: Mapping[str, Any] | None = None
    owner: Owner | None = None
    notes: tuple[str, ...] = ()
    summary: Summary = field(default_factory=Summary)
    diagnosis: Diagnosis | None = None
    findings: tuple[Finding, ...] | None = None
    ngcdl: str | None = None
    program: str | None = None
    packages: tuple[str, ...] | None = None

    @property
    def seconds(self) -> float | None:
        """The run's duration, including time in which the host was suspended; None if unknown. If ngcdl followed the
        run to its end, not on a cluster, `finished` is by its own clock, corrected if that was set meanwhile. For
        others the duration is unknown if the clock was set back to before the start."""
        return None if self.finished is None or self.finished < self.started else self.finished - self.started

    @property
    def kind(self) -> Kind:
        """What kind of engine the run is on."""
        return kind_of(self.engine)

    @property
    def is_open(self) -> bool:
        """Whether more may become known about the run: it is running, or still has an owner, because the run lost its
        engine, which may come back, or because its start was given up and may have left a container."""
        return self.status == "running" or self.owner is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the run waits, in a cluster's queue or for GPUs of this host. Its `reason` says so."""
        return self.status == "running" and self.reason is not None

    @property
    def workload(self) -> Mapping[str, Any]:
        """The requested bundled training, as in the spec; {} for a command."""
        return (self.spec or {}).get("workload") or {}

    @property
    def placement(self) -> Mapping[str, Any]:
        """The requested placement on a cluster, as in the spec; {} for a run on one host."""
        return (self.spec or {}).get("placement") or {}

    @property
    def sample_seconds(self) -> float:
        """The time between two samples; the usual one if the record does not say, or says something impossible."""
        try:
            return parse_sample_seconds(float((self.spec or {}).get("sample_seconds", USUAL_SAMPLE_SECONDS)))
        except (BadOption, TypeError, ValueError):
            return USUAL_SAMPLE_SECONDS

    @property
    def allowed_cores(self) -> float | None:
        """How many of the machine's processors the run was allowed to use; None if all of them, or if unknown, as for a
        container."""
        usable, cores = self.machine.usable_cores, self.machine.cores
        is_limited = usable is not None and 0 < usable < (cores or 0) and not self.kind.has_containers
        return usable if is_limited else None

    @property
    def is_synthetic(self) -> bool:
        return "synthetic" in (self.dataset or "").lower()

    def noting(self, *notes: str) -> Run:
        """Return this run with `notes` added, each once."""
        return replace(self, notes=self.notes + tuple(note for note in notes if note not in self.notes))

    def closed(self, status: str, code: int | None, reason: str | None, finished: float | None) -> Run:
        """Return this run as ended, without an owner. `finished` is in s since the epoch, None if unknown."""
        return replace(self, status=status, exit_code=code, reason=reason, finished=finished, owner=None)

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse a run. Raise ValueError if `data` is not a record, or has a later format."""
        if not isinstance(data, Mapping) or not isinstance(data.get("id"), str):
            raise ValueError("it has no id")
        if not isinstance(data.get("format"), int):
            raise ValueError("it has no format")
        if data["format"] > FORMAT:
            raise ValueError(f"it has format {data['format']}, this ngcdl reads up to {FORMAT}: update ngcdl")
        known = {name: value for name, value in data.items() if value is not None}
        if known.get("status") not in STATUSES or known.get("started") is None:
            raise ValueError("status or started is missing")
        try:
            return make(cls, known | _parts(known))
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"a part has the wrong shape: {error}") from error


def _parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the nested objects that are present into their types."""
    made: dict[str, Any] = {}
    if isinstance(data.get("spec"), Mapping):  # `make` rejects anything else
        _check_spec(data["spec"])
    for name, kind in (("image", Image), ("owner", Owner), ("diagnosis", Diagnosis)):
        if name in data:
            made[name] = make(kind, data[name])
    if "machine" in data:
        cards = data["machine"].get("gpus")
        gpus = None if cards is None else tuple(make(Gpu, gpu) for gpu in cards)
        made["machine"] = make(Machine, {**data["machine"], "gpus": gpus})
    if "summary" in data:
        gpus_read = tuple(make(GpuSummary, gpu) for gpu in data["summary"].get("gpus") or ())
        made["summary"] = make(Summary, {**data["summary"], "gpus": gpus_read})
    if "findings" in data:
        made["findings"] = tuple(make(Finding, one) for one in data["findings"])
    for name in ("notes", "gpus", "packages"):
        if name in data:
            made[name] = tuple(str(item) for item in data[name])
    return made


def _check_spec(spec: Mapping[str, Any]) -> None:
    """Raise TypeError if a part that others read has the wrong type, and ValueError if a number is NaN or infinite, or
    the whole too deep."""
    for name in ("workload", "placement", "environment", "ulimits"):
        if not isinstance(spec.get(name), Mapping | None):
            raise TypeError(f"spec.{name} is {str(spec[name])[:60]!r}")
    known_of(Workload, spec.get("workload") or {})
    known_of(Placement, spec.get("placement") or {})
    json.dumps(spec, allow_nan=False)  # NaN and the infinities are not JSON, but some programs write them
    _check_depth(spec, _MOST_LEVELS)


def _check_depth(value: Mapping[str, Any] | list[Any], levels: int) -> None:
    """Raise ValueError if `value` has more levels: Python itself calls a thousand functions within each other at most,
    of which asdict takes two for each level. A run can write anything into its record."""
    if levels == 0:
        raise ValueError(f"the spec has more than {_MOST_LEVELS} levels")
    for one in value.values() if isinstance(value, Mapping) else value:
        if isinstance(one, dict | list):
            _check_depth(one, levels - 1)
