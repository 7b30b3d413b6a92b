from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.telemetry.sample import GpuSample, Sample

percents = st.none() | st.floats(0, 100)
counts = st.none() | st.integers(0, 2**50)
gpus = st.builds(
    GpuSample,
    index=counts,
    uuid=st.none() | st.text(),
    gpu_percent=percents,
    watts=percents,
    throttle_reasons=st.none() | st.lists(st.text(), max_size=3).map(tuple),
    error=st.none() | st.text(),
)


@given(
    st.builds(
        Sample,
        t=st.floats(0, 1e10),
        seconds=st.floats(0, 1e7),
        host_cpu_percent=percents,
        cpu_percents=st.none() | st.lists(st.floats(0, 100)).map(tuple),
        memory_bytes=counts,
        gpus=st.lists(gpus).map(tuple),
        gap=st.none() | st.text(),
    )
)
def test_a_sample_is_read_as_it_was_written_and_is_one_line(sample: Sample) -> None:
    line = sample.as_json()
    assert "\n" not in line
    assert Sample.from_json(line) == sample


def test_the_fields_of_a_line_are_these() -> None:
    data = json.loads(Sample(1.5, 0.5, gpus=(GpuSample(0),)).as_json())
    assert list(data) == [
        "t",
        "seconds",
        "host_cpu_percent",
        "cpu_percents",
        "threads_running",
        "host_memory_bytes",
        "container_cpu_percent",
        "memory_bytes",
        "memory_limit_bytes",
        "memory_pressure_percent",
        "memory_oom_kills",
        "gpus",
        "gap",
    ]
    assert list(data["gpus"][0]) == [
        "index",
        "uuid",
        "name",
        "gpu_percent",
        "memory_percent",
        "watts",
        "memory_used_bytes",
        "memory_total_bytes",
        "energy_joules",
        "celsius",
        "sm_mhz",
        "memory_mhz",
        "throttle_reasons",
        "foreign_processes",
        "error",
    ]


def test_unknown_and_missing_fields_are_no_trouble() -> None:
    assert Sample.from_json('{"t": 1, "later": [], "gpus": [{"index": 3, "fan": 1}, 7]}') == Sample(
        1, 0.0, gpus=(GpuSample(3),)
    )


@pytest.mark.parametrize("line", ["", '{"t": 1, "sec', "[]", "7", '{"seconds": 1}', b"\xff"])
def test_what_is_no_sample_is_refused(line: str | bytes) -> None:
    with pytest.raises(ValueError):
        Sample.from_json(line)
