import argparse
import json
import os
from pathlib import Path

import pytest

from trainer import host, nvml, record, sampler


def tree(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_a_container_of_control_groups_version_2_sees_its_own_group_at_the_top(tmp_path):
    tree(
        tmp_path,
        {
            "m": "0::/\n",
            "g/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            "g/memory.current": "1000\n",
            "g/memory.stat": "anon 5\ninactive_file 300\n",
        },
    )
    container = host.Container(str(tmp_path / "g"), str(tmp_path / "m"))
    assert (container.cpu_seconds(), container.memory_bytes()) == (2.5, 700)


def test_the_topmost_group_of_a_machine_is_no_container(tmp_path):
    tree(tmp_path, {"m": "0::/\n", "g/cpu.stat": "usage_usec 2500000\n"})
    container = host.Container(str(tmp_path / "g"), str(tmp_path / "m"))
    assert (container.cpu_seconds(), container.memory_bytes()) == (None, None)


def test_a_container_of_version_1_reads_a_path_it_does_not_see(tmp_path):
    tree(
        tmp_path,
        {
            "m": "4:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n1:name=systemd:/docker/ab\n",
            "g/cpu,cpuacct/cpuacct.usage": "1500000000\n",
            "g/memory/memory.usage_in_bytes": "900\n",
            "g/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
        },
    )
    container = host.Container(str(tmp_path / "g"), str(tmp_path / "m"))
    assert (container.cpu_seconds(), container.memory_bytes()) == (1.5, 800)


def test_a_job_of_slurm_reads_its_own_path_below_the_machines(tmp_path):
    tree(
        tmp_path,
        {
            "m": "0::/system.slice/job_1\n",
            "g/cpu.stat": "usage_usec 9000000\n",
            "g/system.slice/job_1/cpu.stat": "usage_usec 1000000\n",
            "g/system.slice/job_1/memory.current": "50\n",
        },
    )
    container = host.Container(str(tmp_path / "g"), str(tmp_path / "m"))
    assert (container.cpu_seconds(), container.memory_bytes()) == (1.0, 50)


def pressed(container):
    return container.memory_limit_bytes(), container.memory_pressure_percent(), container.memory_oom_kills()


def test_a_container_of_version_2_says_its_limit_its_pressure_and_who_was_killed(tmp_path):
    files = {
        "m": "0::/\n",
        "g/memory.current": "1000\n",
        "g/memory.max": "4096\n",
        "g/memory.pressure": "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=3.00 avg60=0.00\n",
        "g/memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n",
    }
    tree(tmp_path, files)
    assert pressed(host.Container(str(tmp_path / "g"), str(tmp_path / "m"))) == (4096, 12.5, 1)


def test_a_container_without_a_limit_has_the_machine_s(tmp_path):
    tree(
        tmp_path,
        {
            "m": "3:memory:/docker/ab\n",
            "g/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "g/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        },
    )
    limit, pressure, kills = pressed(host.Container(str(tmp_path / "g"), str(tmp_path / "m")))
    assert (limit, pressure, kills) == (host.machine()["memory_bytes"], None, 3)


def test_nothing_to_read_is_unknown_and_not_zero(tmp_path):
    container = host.Container(str(tmp_path), str(tmp_path / "missing"))
    assert (container.cpu_seconds(), container.memory_bytes()) == (None, None)
    assert pressed(container) == (None, None, None)


def test_the_machine_is_described():
    assert host.machine()["cores"] == os.cpu_count()
    assert 0 < host.memory_used() < host.machine()["memory_bytes"]
    (whole, *cores), running = host.jiffies()
    assert 0 < whole[0] < whole[1]
    assert len(cores) == os.cpu_count()
    assert running >= 0


def test_samples_have_all_keys_and_stand_on_their_seconds(tmp_path):
    path = tmp_path / "samples.jsonl"
    taking = sampler.Sampler(str(path), seconds=0.05)
    taking.start()
    while not path.exists() or path.read_text().count("\n") < 4:
        assert taking.failure is None
    taking.stop()
    taking.stop()
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    for sample in samples:
        assert set(sample) == {
            "t",
            "seconds",
            "host_cpu_percent",
            "cpu_percents",
            "threads_running",
            "container_cpu_percent",
            "memory_bytes",
            "memory_limit_bytes",
            "memory_pressure_percent",
            "memory_oom_kills",
            "host_memory_bytes",
            "gpus",
            "gap",
        }
        assert sample["seconds"] >= 0.05
        assert sample["host_cpu_percent"] is None or 0 <= sample["host_cpu_percent"] <= 100


def test_a_sampler_that_cannot_write_says_so_and_ends(tmp_path):
    taking = sampler.Sampler(str(tmp_path / "missing" / "samples.jsonl"), seconds=0.01)
    taking.start()
    taking.stop()
    assert "sampling stopped" in taking.failure


def test_without_a_driver_there_are_no_gpus():
    if nvml.Library.open() is not None:
        pytest.skip("this host has a GPU's driver")
    assert nvml.read() == []


def asked(folder):
    return argparse.Namespace(
        out=str(folder),
        data=None,
        workload="cifar10",
        teacher=None,
        times=1,
        clip=None,
        trace=None,
        steps=30,
        batch=128,
        seed=0,
        device="auto",
        no_eval=False,
        threads=None,
        feed="plain",
        largest=False,
        autotune=False,
        seconds=None,
        epochs=None,
        precision="auto",
        compile=False,
        channels_last=None,
        replicas=2,
        nodes=1,
    )


def test_the_record_is_written_at_the_start_and_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv("NGCDL_ENGINE", "slurm")
    monkeypatch.setenv("NGCDL_IMAGE", "nvcr.io/nvidia/tensorflow:18.01-py2")
    monkeypatch.setenv("NGCDL_SPEC", '{"gpus": "all", "workload": {"data": "/data/cifar-10"}}')
    monkeypatch.delenv("NGCDL_IMAGE_DIGEST", raising=False)
    kept = record.Record(asked(tmp_path))
    first = json.loads((tmp_path / "run.json").read_text())
    assert (first["status"], first["finished"], first["exit_code"], first["reason"]) == ("running", None, None, None)
    assert (first["format"], first["id"], first["engine"], first["dataset"]) == (1, tmp_path.name, "slurm", "synthetic")
    assert first["image"] == {"reference": "nvcr.io/nvidia/tensorflow:18.01-py2", "digest": None}
    assert first["spec"] == {
        "image": "nvcr.io/nvidia/tensorflow:18.01-py2",
        "gpus": "all",
        "replicas": 2,
        "nodes": 1,
        "workload": {
            **{"name": "cifar10", "steps": 30, "batch": 128, "seed": 0, "device": "auto", "evaluate": True},
            **{"threads": None, "seconds": None, "epochs": None, "precision": "auto", "compile": False},
            **{"channels_last": None, "feed": "plain", "largest_batch": False, "teacher": None, "times": 1},
            **{"clip": None, "trace": None, "autotune": False},
            "data": "/data/cifar-10",
        },
    }
    assert set(first["machine"]) == {"hostname", "cpu", "cores", "memory_bytes", "kernel", "driver", "gpus"}
    kept.voice.say("a line")
    assert kept.close(0, None) == 0
    last = json.loads((tmp_path / "run.json").read_text())
    assert (last["status"], last["exit_code"]) == ("finished", 0)
    assert last["finished"] >= last["started"]
    assert (tmp_path / "log.txt").read_text() == "a line\n"


@pytest.mark.parametrize(("code", "status"), [(1, "failed"), (143, "interrupted"), (130, "interrupted")])
def test_how_it_ended_is_recorded_with_the_reason(tmp_path, code, status):
    assert record.Record(asked(tmp_path)).close(code, "why") == code
    last = json.loads((Path(tmp_path) / "run.json").read_text())
    assert (last["status"], last["exit_code"], last["reason"]) == (status, code, "why")


@pytest.mark.parametrize("text", ["{", "3", '{"workload": 3}'])
def test_a_spec_that_is_no_json_object_is_noted(tmp_path, monkeypatch, text):
    monkeypatch.setenv("NGCDL_SPEC", text)
    record.Record(asked(tmp_path)).close(0, None)
    last = json.loads((tmp_path / "run.json").read_text())
    assert last["spec"]["workload"]["steps"] == 30
    assert "NGCDL_SPEC is not a JSON object" in last["notes"][0]
