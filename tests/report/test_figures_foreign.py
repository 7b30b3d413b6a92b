"""Lines of any shape give figures that a record can hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from made_summaries import summary

from ngcdl.record import Run

LEAF = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
JSON = st.recursive(
    LEAF, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3))
)
_KEYS = ["uuid", "index", "name", "gpu_percent", "memory_used_bytes", "watts", "energy_joules", "sm_mhz",
         "throttle_reasons", "own_processes", "foreign_processes", "sm_active_percent",
         "dram_bandwidth_percent"]  # fmt: skip
GPU = st.dictionaries(st.sampled_from(_KEYS), JSON)
EVENT = st.fixed_dictionaries(
    {"event": st.sampled_from(["start", "step", "eval", "finish", "error", "new"])},
    optional=dict.fromkeys(("t", "step", "loss", "examples_per_second", "precision_at_1"), JSON),
)
SAMPLE = st.fixed_dictionaries(
    {},
    optional={"gpus": st.one_of(JSON, st.lists(st.one_of(GPU, JSON), max_size=2))}
    | dict.fromkeys(("t", "host_cpu_percent", "memory_bytes", "gap", "cpu_percents", "threads_running"), JSON)
    | dict.fromkeys(("memory_limit_bytes", "memory_pressure_percent", "memory_oom_kills"), JSON),
)


@given(st.lists(EVENT, max_size=5), st.lists(SAMPLE, max_size=5))
def test_foreign_lines_give_a_summary_that_a_record_can_hold(events: list[Any], samples: list[Any]) -> None:
    run = Run("x", "lost", 1.0, summary=summary(events, samples, 8))
    assert Run.from_json(json.loads(json.dumps(run.as_json(), allow_nan=False))) == run
