"""What the trainer reads of the cards, by a stand-in for the driver's library."""

import json
import shutil
import subprocess

import pytest
from trainer_process import CONTAINERS, python

STAND_IN = CONTAINERS.parent / "scripts" / "lab_parts" / "nvml.c"


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
            "sm_active_percent": None,
            "sm_occupancy_percent": None,
            "tensor_active_percent": None,
            "dram_bandwidth_percent": None,
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


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("utilization", 2**32 - 1, "gpu_percent"),
        ("utilization", 101, "gpu_percent"),
        ("memory_utilization", 2**32 - 1, "memory_percent"),
        ("memory_used", 2**64 - 1, "memory_used_bytes"),
        ("memory_used", 4235198465, "memory_used_bytes"),
        ("memory_total", 2**64 - 1, "memory_total_bytes"),
        ("memory_total", 0, "memory_total_bytes"),
        ("power_mw", 2**32 - 1, "watts"),
        ("energy_mj", 2**64 - 1, "energy_joules"),
        ("temperature", 2**32 - 1, "celsius"),
        ("sm_mhz", 2**32 - 1, "sm_mhz"),
        ("memory_mhz", 2**32 - 1, "memory_mhz"),
        ("clock_reasons", 2**64 - 1, "throttle_reasons"),
    ],
)
def test_a_value_that_no_card_has_is_unknown(stand_in, key, value, name):
    state = "".join(line for line in CARD.splitlines(True) if not line.startswith(f"gpu0.{key}="))
    (card,) = answered(stand_in, "nvml.read()", f"{state}gpu0.{key}={value}\n")
    assert (card[name], card["error"]) == (None, None)


SAMPLED = """
import os, time
from trainer.sampler import Sampler
path = os.environ["SAMPLES"]
taking, until = Sampler(path, 0.01), time.time() + 20
taking.start()
while time.time() < until and not (os.path.exists(path) and open(path).read().count("\\n") > 2):
    pass
taking.stop()
"""


def test_a_sample_says_what_it_lacks_of_a_card(stand_in, tmp_path):
    (stand_in / "state").write_text(CARD + "fail_after.DeviceGetUtilizationRates=1:15\n")
    path = tmp_path / "samples.jsonl"
    there = {"LD_LIBRARY_PATH": str(stand_in), "NGCDL_NVML_STATE": str(stand_in / "state")}
    code, _, err = python(SAMPLED, SAMPLES=str(path), **there)
    assert code == 0, err
    first, *others = map(json.loads, path.read_text().splitlines())
    assert others
    assert ((first["gap"] or "").count("GPU"), first["gpus"][0]["gpu_percent"]) == (0, 87)
    assert {(one["gap"] or "").split("; ")[-1] for one in others} == {"GPU GPU-1: nvmlDeviceGetUtilizationRates 15"}


WORKED = "gpu0.gpm=1\ngpu0.gpm_sm=12.5\ngpu0.gpm_occupancy=7\ngpu0.gpm_tensor=code:21\ngpu0.gpm_dram=100.04\n"
NAMES = ("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent")
NONE = [None] * 4


def worked(stand_in, state, times=2):
    """Return what is read of the only card, one reading after the other, and how many samples stay allocated."""
    read = f"[n.readings() for _ in range({times})], n.close()"
    held = "nvml.ctypes.c_int.in_dll(n.library, 'ngcdl_gpm_samples').value"
    code = f"(lambda n: [{read}, {held}])(nvml.Library.open())[::2]"
    readings, held = answered(stand_in, code, state)
    assert [card["error"] for (card,) in readings] == [None] * times
    assert all(card["gpu_percent"] == 87 for (card,) in readings)
    return [[card[name] for name in NAMES] for (card,) in readings], held


def test_how_much_of_a_card_worked_since_the_reading_before_is_read_where_the_card_has_counters(stand_in):
    assert worked(stand_in, CARD + WORKED, 3) == ([NONE, *[[12.5, 7.0, None, 100.0]] * 2], 0)
    assert worked(stand_in, CARD + WORKED.replace("12.5", "nan").replace("=7", "=100.06"))[0][1] == [
        None, None, None, 100.0,
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [
    "gpu0.gpm=0", "gpu0.mig=1", "fail.GpmQueryDeviceSupport=3", "fail.GpmSampleAlloc=20",
    "fail_after.GpmSampleAlloc=1:20", "fail.GpmSampleGet=4", "fail.GpmMetricsGet=21",
])  # fmt: skip
def test_how_much_of_a_card_worked_is_unknown_where_a_call_fails_and_nothing_else_is(stand_in, fault):
    assert worked(stand_in, f"{fault}\n{CARD}{WORKED}") == ([NONE, NONE], 0)


def test_a_reading_of_the_counters_that_fails_does_not_cost_the_next(stand_in):
    states = [CARD + WORKED, CARD + WORKED + "fail.GpmSampleGet=21\n", CARD + WORKED]
    read = "(open(os.environ['NGCDL_NVML_STATE'], 'w').write(state), n.readings())[1]"
    code = f"[{read} for n in [nvml.Library.open()] for state in {states!r}]"
    found = [card["sm_active_percent"] for (card,) in answered(stand_in, code, CARD)]
    assert found == [None, None, 12.5]


CARDS = CARD + "gpu1.name=A card\ngpu1.uuid=GPU-2a\ngpu2.name=A card\ngpu2.uuid=GPU-2b\n"


@pytest.mark.parametrize(
    ("variables", "indices"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2b"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2b, GPU-1"}, [0, 2]),
        ({"CUDA_VISIBLE_DEVICES": "2", "SLURM_JOB_ID": "7"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "1,GPU-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0, 1]),
        # an entry that does not surely name one card: all cards count
        ({"CUDA_VISIBLE_DEVICES": "2"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "0,5", "SLURM_JOB_ID": "7"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-9"}, [0, 1, 2]),
        # an entry that is neither an index nor a UUID ends the list
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


PARTS = """gpu0.mig=1
gpu0.energy_mj=123456789
gpu0.mig0.uuid=MIG-a
gpu0.mig0.memory_total=5368709120
gpu0.mig0.memory_used=2000
"""
ANOTHER = "gpu0.mig2.uuid=MIG-b\ngpu0.mig2.memory_total=1000\ngpu0.mig2.memory_used=30\n"


@pytest.mark.parametrize(
    ("more", "visible", "memory"),
    [
        ("", {}, [2000, 5368709120]),
        (ANOTHER, {"CUDA_VISIBLE_DEVICES": "MIG-b"}, [30, 1000]),
        (ANOTHER, {}, [None, None]),
        (ANOTHER, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, [None, None]),
    ],
)
def test_with_mig_on_the_memory_is_the_part_s_and_the_whole_card_s_power_is_not_told(stand_in, more, visible, memory):
    (card,) = answered(stand_in, "nvml.read()", CARD + PARTS + more, **visible)
    assert [card["memory_used_bytes"], card["memory_total_bytes"]] == memory
    assert (card["watts"], card["energy_joules"], card["celsius"], card["error"]) == (None, None, 64, None)
    (card,) = answered(stand_in, "record.graphics()", CARD + PARTS + more, **visible)["gpus"]
    assert (card["memory_bytes"], card["uuid"]) == (memory[1], "GPU-1")


@pytest.mark.parametrize("code", [3, 13, 25, 999])
def test_the_older_question_about_the_memory_is_asked_if_that_of_today_fails(stand_in, code):
    (card,) = answered(stand_in, "nvml.read()", CARD + f"fail.DeviceGetMemoryInfo_v2={code}\n")
    assert (card["memory_used_bytes"], card["memory_total_bytes"], card["error"]) == (1000, 4235198464, None)


@pytest.mark.parametrize(
    ("capability", "processes", "used"),
    [
        ("12.1", "processes=11:5,12:6\ngpu0.graphics_processes=12:6,13:7", 18),
        ("11.0", "processes=11:5", 5),
        ("12.1", "processes=11:5,12:-", None),
        ("12.1", "processes=", None),
        ("8.9", "processes=11:5", None),
    ],
)
def test_of_a_card_that_has_the_machine_s_memory_what_its_processes_take_is_read(stand_in, capability, processes, used):
    state = CARD.replace("gpu0.memory_used=1000\n", "").replace("gpu0.memory_total=4235198464\n", "")
    state = state.replace("cc=6.1", f"cc={capability}") + f"gpu0.{processes}\n"
    (card,) = answered(stand_in, "nvml.read()", state)
    assert (card["memory_used_bytes"], card["memory_total_bytes"], card["error"]) == (used, None, None)


def test_what_the_driver_reserves_does_not_count_as_used(stand_in):
    reserve = "gpu0.memory_reserved=400\n"
    (card,) = answered(stand_in, "nvml.read()", CARD + reserve)
    assert card["memory_used_bytes"] == 1000
    (card,) = answered(stand_in, "nvml.read()", CARD + reserve + "fail.DeviceGetMemoryInfo_v2=13\n")
    assert card["memory_used_bytes"] == 1400, "an older driver tells the sum"


def test_without_mig_no_permission_is_a_failure(stand_in):
    (card,) = answered(stand_in, "nvml.read()", CARD + MIG.replace("mig=1", "mig=0"))
    assert card["error"] == "nvmlDeviceGetMemoryInfo 4, nvmlDeviceGetPowerUsage 2"


def test_a_lost_card_is_told_with_nothing_but_its_code(stand_in):
    (card,) = answered(stand_in, "nvml.read()", CARD + "fail.DeviceGetHandleByIndex=15\n")
    assert card.pop("error") == "nvmlDeviceGetHandleByIndex_v2 15"
    assert card.pop("index") == 0
    assert set(card.values()) == {None}


def test_a_card_that_is_lost_later_is_still_the_same_card(stand_in):
    code = "(lambda n: [n.readings()[0] for _ in range(3)])(nvml.Library.open())"
    found = answered(stand_in, code, CARD + "fail_after.DeviceGetHandleByIndex=2:15\n")
    before, *_, after = [[one[name] for name in ("uuid", "name", "gpu_percent", "error")] for one in found]
    assert before == ["GPU-1", "GeForce GTX 1050 Ti", 87, None]
    assert after == ["GPU-1", "GeForce GTX 1050 Ti", None, "nvmlDeviceGetHandleByIndex_v2 15"]


def test_a_driver_that_is_not_loaded_is_no_gpu(stand_in):
    assert answered(stand_in, "nvml.read()", CARD + "fail.Init=9\n") == []
