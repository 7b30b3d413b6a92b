import json
import os
import re

import pytest

from trainer import host, nvml, record, sampler
from trainer.arguments import arguments


def container(folder, files):
    """Write these files: m is a process's membership, and g the file system of control groups."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return host.Container(str(folder / "g"), str(folder / "m"))


V2 = {
    "m": "0::/\n",
    "g/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "g/memory.current": "1000\n",
    "g/memory.stat": "anon 5\ninactive_file 300\nactive_file 150\nshmem 90\n",
}
V1 = {
    "m": "4:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n1:name=systemd:/docker/ab\n",
    "g/cpu,cpuacct/cpuacct.usage": "1500000000\n",
    "g/memory/memory.usage_in_bytes": "900\n",
    "g/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 250\n",
}
TOPMOST = {"m": "0::/\n", "g/cpu.stat": "usage_usec 2500000\n"}
OF_SLURM = {
    "m": "0::/system.slice/job_1\n",
    "g/cpu.stat": "usage_usec 9000000\n",
    "g/system.slice/job_1/cpu.stat": "usage_usec 1000000\n",
    "g/system.slice/job_1/memory.current": "50\n",
    "g/system.slice/job_1/memory.stat": "inactive_file 0\nactive_file 0\n",
}


@pytest.mark.parametrize(
    ("files", "used"),
    [
        pytest.param(V2, (2.5, 550), id="version 2: its own group is at the top"),
        pytest.param(TOPMOST, (None, None), id="the topmost group of a machine is no container"),
        pytest.param(V1, (1.5, 550), id="version 1: it reads a path that it does not see"),
        pytest.param(OF_SLURM, (1.0, 50), id="a job's own path lies below the machine's"),
        pytest.param({}, (None, None), id="what can't be read is unknown and not zero"),
        pytest.param(
            dict(V2, **{"g/memory.stat": "anon 5\n"}), (2.5, None), id="nor is memory known without its file cache"
        ),
    ],
)
def test_a_container_s_processors_and_memory_are_read_where_they_are_told(tmp_path, files, used):
    found = container(tmp_path, files)
    assert (found.cpu_seconds(), found.memory_bytes()) == used


def pressed(found):
    return found.memory_limit_bytes(), found.memory_pressure_percent(), found.memory_oom_kills()


def test_a_container_of_version_2_says_its_limit_its_pressure_and_who_was_killed(tmp_path):
    files = {
        "m": "0::/\n",
        "g/memory.current": "1000\n",
        "g/memory.max": "4096\n",
        "g/memory.pressure": "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=3.00 avg60=0.00\n",
        "g/memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n",
    }
    assert pressed(container(tmp_path, files)) == (4096, 12.5, 1)


def test_a_container_without_a_limit_has_the_machine_s(tmp_path):
    files = {
        "m": "3:memory:/docker/ab\n",
        "g/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "g/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }
    assert pressed(container(tmp_path, files)) == (host.machine()["memory_bytes"], None, 3)
    assert pressed(container(tmp_path / "empty", {})) == (None, None, None), "unknown and not zero"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"m": "0::/\n", "g/memory.current": "", "g/cpu.max": "150000 100000\n"}, 1.5),
        ({"m": "0::/\n", "g/memory.current": "", "g/cpu.max": "max 100000\n"}, None),
        ({"m": "3:cpu:/a\n", "g/cpu/cpu.cfs_quota_us": "50000\n", "g/cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"m": "3:cpu:/a\n", "g/cpu/cpu.cfs_quota_us": "-1\n", "g/cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_a_containers_share_of_the_processor_is_read_in_both_versions(tmp_path, files, cores):
    assert container(tmp_path, files).cpu_limit() == cores


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
            "t", "seconds", "host_cpu_percent", "cpu_percents", "threads_running", "container_cpu_percent",
            "memory_bytes", "memory_limit_bytes", "memory_pressure_percent", "memory_oom_kills", "host_memory_bytes",
            "gpus", "gap",
        }  # fmt: skip
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
    return arguments(["cifar10", "--out", str(folder), "--steps", "30", "--feed", "plain", "--replicas", "2"])


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
    last = json.loads((tmp_path / "run.json").read_text())
    assert (last["status"], last["exit_code"], last["reason"]) == (status, code, "why")


@pytest.mark.parametrize("text", ["{", "3", '{"workload": 3}'])
def test_a_spec_that_is_no_json_object_is_noted(tmp_path, monkeypatch, text):
    monkeypatch.setenv("NGCDL_SPEC", text)
    record.Record(asked(tmp_path)).close(0, None)
    last = json.loads((tmp_path / "run.json").read_text())
    assert last["spec"]["workload"]["steps"] == 30
    assert "NGCDL_SPEC is not a JSON object" in last["notes"][0]


def test_the_docstring_names_all_that_run_json_says_of_a_workload(tmp_path):
    spec, _ = record.specified(arguments(["cifar10", "--out", str(tmp_path)]))
    (named,) = re.findall(r"workload \{(.*?)\}", record.__doc__, re.DOTALL)
    assert set(re.findall(r"\w+", named)) == set(spec["workload"])
