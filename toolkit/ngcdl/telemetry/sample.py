"""One line of samples.jsonl: what a run and its machine used at one moment.

    {"t": s since the epoch, "seconds": since the sampler started (monotonic), "host_cpu_percent": 0..100,
     "cpu_percents": [0..100 of each logical processor of the host, in its order, at most 512],
     "threads_running": threads on the host, without the sampler's, that run or wait for a processor at this moment,
     "host_memory_bytes", "container_cpu_percent": 100 = one core, "memory_bytes": of the container or process tree,
     "memory_limit_bytes": the most it can get, "memory_pressure_percent": 0..100, the share of the last 10 s in which
     at least one of its threads waited for memory, "memory_oom_kills": how many of its processes the kernel has killed,
     "gpus": [{"index", "uuid", "name", "gpu_percent", "memory_percent", "watts", "memory_used_bytes",
               "memory_total_bytes", "energy_joules": a counter since the driver was loaded, "celsius", "sm_mhz",
               "memory_mhz", "throttle_reasons": [why its clocks are limited now, in NVIDIA's terms: card.REASONS],
               "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent": 0..100,
               means since the full sample before, of cards that have the counters for it (gpm.py);
               of a card that uses the machine's memory, "memory_used_bytes" is what its processes take of that,
               "own_processes", "foreign_processes": how many of the run's and of others compute there, "error",
               of a MIG device, whose "index" is that on its card, that card's "card_index"}],
     "gap": null, or why something is missing in this sample or before it}

null means unknown, never 0. Unknown fields are ignored and missing ones read as null, so that old and new files load.
If the interval is shorter than 0.5 s, full samples are 0.5 s apart, and those in between have only the GPUs'
utilization and power: the fields from host_cpu_percent to memory_oom_kills, and a GPU's from memory_used_bytes to
foreign_processes, are omitted because they were not read.
History: cpu_percents, threads_running, memory_limit_bytes, memory_pressure_percent, memory_oom_kills and the GPUs'
energy_joules, memory_mhz, throttle_reasons, card_index, and sm_active_percent to own_processes were added later in
format 1.
"""

from __future__ import annotations

from ngcdl.record import ACTIVITY

# What the driver reports about a GPU; the sampler adds own_processes, foreign_processes and error.
MEASURED = (
    *("index", "uuid", "name", "gpu_percent", "memory_percent", "watts", "memory_used_bytes", "memory_total_bytes"),
    *("energy_joules", "celsius", "sm_mhz", "memory_mhz", "throttle_reasons"),
    *ACTIVITY,
)
