import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CONTAINERS, python

from trainer import host, nvml, record, sampler

STAND_IN = CONTAINERS.parent / "scripts" / "lab_parts" / "nvml.c"


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


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """The folder of an NVML stand-in that reads a text file."""
    if not STAND_IN.exists() or shutil.which("gcc") is None:
        pytest.skip("needs gcc and scripts/lab_parts/nvml.c")
    folder = tmp_path_factory.mktemp("nvml")
    library = str(folder / "libnvidia-ml.so.1")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, str(STAND_IN)], check=True)
    return folder


def answered(stand_in, code, state, **more):
    (stand_in / "state").write_text(state)
    environment = {"LD_LIBRARY_PATH": str(stand_in), "NGCDL_NVML_STATE": str(stand_in / "state"), **more}
    program = f"import json, os\nfrom trainer import nvml, record\nprint(json.dumps({code}))"
    code, out, err = python(program, **environment)
    assert code == 0, err
    return json.loads(out)


CARD = """driver=384.111
gpu0.name=GeForce GTX 1050 Ti
gpu0.uuid=GPU-1
gpu0.cc=6.1
gpu0.memory_total=4235198464
gpu0.memory_used=1000
gpu0.utilization=87
gpu0.memory_utilization=41
gpu0.power_mw=61250
gpu0.temperature=64
gpu0.sm_mhz=1620
gpu0.memory_mhz=3504
"""


def test_a_card_is_read(stand_in):
    assert answered(stand_in, "nvml.read()", CARD) == [
        {
            "index": 0,
            "uuid": "GPU-1",
            "name": "GeForce GTX 1050 Ti",
            "gpu_percent": 87,
            "memory_percent": 41,
            "memory_used_bytes": 1000,
            "memory_total_bytes": 4235198464,
            "watts": 61.25,
            "celsius": 64,
            "sm_mhz": 1620,
            "memory_mhz": 3504,
            "energy_joules": None,
            "throttle_reasons": None,
            "error": None,
        }
    ]
    assert answered(stand_in, "record.graphics()", CARD) == {
        "driver": "384.111",
        "gpus": [
            {
                "index": 0,
                "name": "GeForce GTX 1050 Ti",
                "uuid": "GPU-1",
                "memory_bytes": 4235198464,
                "compute_capability": "6.1",
            }
        ],
    }


def test_a_card_of_today_has_a_counter_of_its_energy_and_says_why_its_clocks_are_low(stand_in):
    state = CARD + "gpu0.energy_mj=123456789\ngpu0.clock_reasons=2084\n"
    (card,) = answered(stand_in, "nvml.read()", state)
    assert (card["energy_joules"], card["error"]) == (123456.789, None)
    assert card["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown", "0x800"]
    (free,) = answered(stand_in, "nvml.read()", CARD + "gpu0.clock_reasons=0\n")
    assert (free["throttle_reasons"], free["energy_joules"]) == ([], None)


def test_a_driver_that_knows_the_older_name_of_the_reasons_is_asked_by_it(stand_in):
    state = CARD + "gpu0.clock_reasons=64\nfail.DeviceGetCurrentClocksEventReasons=3\n"
    (card,) = answered(stand_in, "nvml.read()", state)
    assert (card["throttle_reasons"], card["error"]) == (["hw_thermal_slowdown"], None)


def test_a_counter_that_fails_says_with_which_code(stand_in):
    (card,) = answered(stand_in, "nvml.read()", CARD + "fail.DeviceGetTotalEnergyConsumption=999\n")
    assert (card["energy_joules"], card["error"]) == (None, "nvmlDeviceGetTotalEnergyConsumption 999")


def test_a_reading_that_fails_is_unknown_and_keeps_its_code(stand_in):
    (card,) = answered(
        stand_in, "nvml.read()", CARD.replace("gpu0.power_mw=61250\n", "") + "fail.DeviceGetTemperature=999\n"
    )
    assert (card["watts"], card["celsius"], card["gpu_percent"]) == (None, None, 87)
    assert card["error"] == "nvmlDeviceGetTemperature 999"


def test_what_a_card_does_not_offer_is_unknown_and_no_failure(stand_in):
    state = CARD.replace("gpu0.power_mw=61250\n", "") + "fail.DeviceGetClockInfo=13\nfail.DeviceGetTemperature=25\n"
    (card,) = answered(stand_in, "nvml.read()", state)
    assert (card["watts"], card["sm_mhz"], card["celsius"], card["error"]) == (None, None, None, None)


CARDS = CARD + "gpu1.name=A card\ngpu1.uuid=GPU-2a\ngpu2.name=A card\ngpu2.uuid=GPU-2b\n"


@pytest.mark.parametrize(
    ("variables", "indices"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2b"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2b, GPU-1"}, [0, 2]),
        ({"CUDA_VISIBLE_DEVICES": "2", "SLURM_JOB_ID": "7"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "1,GPU-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0, 1]),
        # nothing is certain of these
        ({"CUDA_VISIBLE_DEVICES": "2"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "0,5", "SLURM_JOB_ID": "7"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-9"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1", "SLURM_JOB_ID": "7"}, []),
        ({"CUDA_VISIBLE_DEVICES": "void"}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,-1,GPU-2b"}, [0]),
    ],
)
def test_of_all_cards_that_the_driver_shows_those_that_cuda_shows_are_read(stand_in, variables, indices):
    assert [card["index"] for card in answered(stand_in, "nvml.read()", CARDS, **variables)] == indices


def test_a_card_that_is_lost_later_is_still_the_one_that_cuda_shows(stand_in):
    state = CARDS + "fail_after.gpu1.DeviceGetHandleByIndex=3:15\n"
    twice = "(lambda it: [[card[::2] for card in it.handles()] for _ in range(2)])(nvml.Library.open())"
    assert answered(stand_in, twice, state, CUDA_VISIBLE_DEVICES="GPU-2a") == [[[1, 0]], [[1, 15]]]


def test_an_abbreviated_uuid_of_a_card_is_enough(stand_in):
    assert [card["index"] for card in answered(stand_in, "nvml.read()", CARDS, CUDA_VISIBLE_DEVICES="GPU-1")] == [0]
    long = CARDS.replace("GPU-1", "GPU-5f1e2d3c-0a1b")
    assert [card["index"] for card in answered(stand_in, "nvml.read()", long, CUDA_VISIBLE_DEVICES="GPU-5f1e")] == [0]


def test_a_part_of_a_card_stands_for_the_card(stand_in):
    state = CARDS + "gpu1.mig=1\ngpu1.mig0.uuid=MIG-a\ngpu1.mig2.uuid=MIG-b\n"
    assert [card["index"] for card in answered(stand_in, "nvml.read()", state, CUDA_VISIBLE_DEVICES="MIG-b")] == [1]


def test_the_cards_stay_the_same_when_the_trainer_hides_them_from_its_framework(stand_in):
    twice = "(lambda it: (it.handles(), os.environ.update(CUDA_VISIBLE_DEVICES='-1'), it.handles()))"
    code = f"[len(one) for one in {twice}(nvml.Library.open())[::2]]"
    assert answered(stand_in, code, CARDS, CUDA_VISIBLE_DEVICES="GPU-2a") == [1, 1]


MIG = "gpu0.mig=1\nfail.DeviceGetMemoryInfo=4\nfail.DeviceGetUtilizationRates=3\nfail.DeviceGetPowerUsage=2\n"


def test_a_card_with_mig_on_is_not_sick_for_what_it_tells_root_alone(stand_in):
    (card,) = answered(stand_in, "nvml.read()", CARD + MIG)
    assert (card["memory_used_bytes"], card["gpu_percent"], card["watts"], card["celsius"]) == (None, None, None, 64)
    assert card["error"] is None


def test_without_mig_no_permission_is_a_failure(stand_in):
    (card,) = answered(stand_in, "nvml.read()", CARD + MIG.replace("mig=1", "mig=0"))
    assert card["error"] == "nvmlDeviceGetMemoryInfo 4, nvmlDeviceGetPowerUsage 2"


def test_a_lost_card_is_told_with_nothing_but_its_code(stand_in):
    (card,) = answered(stand_in, "nvml.read()", CARD + "fail.DeviceGetHandleByIndex=15\n")
    assert card.pop("error") == "nvmlDeviceGetHandleByIndex_v2 15"
    assert card.pop("index") == 0
    assert set(card.values()) == {None}


def test_a_driver_that_is_not_loaded_is_no_gpu(stand_in):
    assert answered(stand_in, "nvml.read()", CARD + "fail.Init=9\n") == []


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
