"""NVIDIA's real binding on the stand-in library: every code for every call, and how a broken host is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from .stand_in import Host

CODES = (*range(1, 31), 999)
STARTS = ("Init", "DeviceGetCount")
# Library calls, each with the fields of a reading that come from that call.
CALLS = {
    "DeviceGetName": ("name",),
    "DeviceGetUUID": ("uuid",),
    "DeviceGetCudaComputeCapability": ("compute_capability",),
    "DeviceGetMemoryInfo": ("memory_total_bytes", "memory_used_bytes"),
    "DeviceGetUtilizationRates": ("gpu_percent", "memory_percent"),
    "DeviceGetPowerUsage": ("watts",),
    "DeviceGetEnforcedPowerLimit": ("watts_limit",),
    "DeviceGetTemperatureV": ("celsius",),
    "DeviceGetClockInfo": ("sm_mhz", "memory_mhz"),
    "DeviceGetTotalEnergyConsumption": ("energy_joules",),
    "DeviceGetCurrentClocksEventReasons": ("throttle_reasons",),
    "DeviceGetMaxClockInfo": ("sm_mhz_max",),
    "DeviceGetComputeRunningProcesses": ("processes",),
    "DeviceGetBrand": (),
    "DeviceGetMigMode": (),
}
QUIET = {3, 13, 25, 26, 999}
RENAMED = ("DeviceGetTemperatureV", "DeviceGetCurrentClocksEventReasons")

READ = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from ngcdl.errors import NgcdlError
from ngcdl.telemetry.gpu import open_nvml
path, (call, *codes) = Path(os.environ["NGCDL_NVML_STATE"]), sys.argv[1:]
base, answers = path.read_text(), {}
for code in codes:
    path.write_text(base + (f"fail.{call}={code}\\n" if call else ""))
    try:
        with open_nvml() as nvml:
            answers[code] = {"gpus": [asdict(one) for one in nvml.read()]}
    except NgcdlError as error:
        answers[code] = {"error": [type(error).__name__, error.message, error.hint]}
print(json.dumps(answers))
"""


CHANGED = """
import json, os
from pathlib import Path
from ngcdl.telemetry.gpu import open_nvml
path = Path(os.environ["NGCDL_NVML_STATE"])
with open_nvml() as nvml:
    modes = [[one.compute_mode for one in nvml.read()]]
    path.write_text(path.read_text() + "gpu1.compute_mode=2\\n")
    modes.append([one.compute_mode for one in nvml.read()])
    path.write_text(path.read_text() + "fail.gpu1.DeviceGetUtilizationRates=15\\n")
    modes.append([one.compute_mode for one in nvml.read()])
print(json.dumps(modes))
"""


def test_a_compute_mode_that_is_changed_meanwhile_is_seen(card: Host) -> None:
    card.set(gpu0__compute_mode=0)
    assert card.ask(CHANGED) == [["Default", None], ["Default", "Prohibited"], ["Default", None]]


def read(card: Host, call: str = "", *codes: int) -> Any:
    return card.ask(READ, call, *map(str, codes or (0,)))


def reading(card: Host) -> Any:
    return read(card)["0"]["gpus"][0]


def test_a_card_says_what_it_is_and_does(card: Host) -> None:
    assert reading(card) == {
        "index": 0,
        "uuid": "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050",
        "name": "NVIDIA GeForce GTX 1050 Ti",
        "compute_capability": "6.1",
        "memory_total_bytes": 4235198464,
        "memory_used_bytes": 3145728000,
        "gpu_percent": 87,
        "memory_percent": 41,
        "watts": 61.25,
        "watts_limit": 75.0,
        "energy_joules": 123456.789,
        "celsius": 64,
        "sm_mhz": 1620,
        "sm_mhz_max": 1911,
        "memory_mhz": 3504,
        "throttle_reasons": [],
        "processes": [],
        "mig": None,
        "mig_devices": [],
        "error": None,
        "compute_mode": None,
        "sm_active_percent": None,
        "sm_occupancy_percent": None,
        "tensor_active_percent": None,
        "dram_bandwidth_percent": None,
        "card_index": None,
    }


@pytest.mark.parametrize("call", CALLS)
def test_any_code_of_a_call_costs_its_own_fields_and_no_other(card: Host, call: str) -> None:
    healthy = reading(card)
    for code, answer in read(card, call, *CODES).items():
        number, (found, second) = int(code), answer["gpus"]
        if number == 15:
            assert "GPU is lost" in found["error"]
            assert found["gpu_percent"] is None
            continue
        # If the newer call fails, the older one answers.
        gone = () if call in RENAMED else CALLS[call]
        assert found | {"error": None} == healthy | dict.fromkeys(gone), code
        if number in QUIET or call in RENAMED:
            assert found["error"] is None
        else:
            assert found["error"].startswith(f"{call}")
            assert f"({number})" in found["error"]
        assert len(answer["gpus"]) == 2, second


@pytest.mark.parametrize("call", STARTS)
def test_any_code_at_the_start_is_an_error_with_a_remedy(card: Host, call: str) -> None:
    for code, answer in read(card, call, *CODES).items():
        name, message, hint = answer["error"]
        assert name == "NvmlUnavailable", code
        assert message.endswith(".")
        assert hint


def test_any_code_for_a_handle_is_a_row_that_says_so(card: Host) -> None:
    for code, answer in read(card, "gpu0.DeviceGetHandleByIndex", *CODES).items():
        lost, other = answer["gpus"]
        assert lost["index"] == 0
        assert lost["error"], code
        assert other["error"] is None
        assert other["gpu_percent"] == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "not loaded"), (18, "was updated"), (4, "may not"), (999, "daemon-reload"), (15, "lost"), (12, "loaded now")],
)
def test_the_famous_codes_have_their_own_remedy(card: Host, code: int, words: str) -> None:
    _, message, hint = read(card, "Init", code)[str(code)]["error"]
    assert words in message + hint


def test_a_lost_card_is_not_asked_again(card: Host) -> None:
    card.set(**{"fail_after__gpu0__DeviceGetUtilizationRates": "1:15"})
    rows = card.ask(
        """
import json
from ngcdl.telemetry import gpu
with gpu.open_nvml() as nvml:
    before, _ = nvml.read()
    asked, answers = [], nvml._queries.answers
    nvml._queries.answers = lambda row, questions: (asked.append(row.which), answers(row, questions))[1]
    rows = [nvml.read()[0] for _ in range(3)]
    print(json.dumps([before.gpu_percent, [r.error for r in rows], [r.name for r in rows], asked.count(0)]))
"""
    )
    assert rows[0] == 87
    assert all("GPU is lost" in error for error in rows[1])
    assert rows[2] == ["NVIDIA GeForce GTX 1050 Ti"] * 3
    assert rows[3] == 1


def test_values_that_cannot_be_true_are_unknown(card: Host) -> None:
    none = 0xFFFFFFFF
    card.set(
        gpu0__utilization=101,
        gpu0__memory_utilization=none,
        gpu0__power_mw=none,
        gpu0__temperature=none,
        gpu0__sm_mhz=none,
        gpu0__memory_mhz=none,
        gpu0__energy_mj=2**64 - 1,
        gpu0__clock_reasons=2**64 - 1,
        gpu0__memory_used=2**64 - 1,
        gpu0__processes="1:-",
    )
    first = reading(card)
    unknown = ("gpu_percent", "memory_percent", "watts", "celsius", "sm_mhz", "memory_used_bytes")
    for name in (*unknown, "memory_mhz", "energy_joules", "throttle_reasons"):
        assert first[name] is None, name
    assert first["error"] is None
    assert first["watts_limit"] == 75.0
    assert first["processes"][0]["memory_bytes"] is None


def test_why_the_clocks_are_held_down_is_said_in_nvidia_s_words(card: Host) -> None:
    card.set(gpu0__clock_reasons=4 + 64 + 1024 + 4096)
    assert reading(card)["throttle_reasons"] == ["sw_power_cap", "hw_thermal_slowdown", "reliability", "0x1000"]
    assert read(card)["0"]["gpus"][1]["throttle_reasons"] == ["gpu_idle"]


def test_the_words_are_those_of_nvidia_s_own_binding(card: Host) -> None:
    named = card.ask(
        """
import json, pynvml
from ngcdl.telemetry.card import REASONS
prefixes = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
bits = {getattr(pynvml, name): name for prefix in prefixes for name in dir(pynvml) if name.startswith(prefix)}
words = {bit: "".join(part.title() for part in word.split("_")) for bit, word in REASONS.items()}
print(json.dumps([bits[bit].endswith(words[bit]) or bits[bit].endswith("UserDefinedClocks") for bit in words]))
"""
    )
    assert len(named) == 11
    assert all(named)


def test_limits_are_asked_only_where_they_are_wanted(card: Host) -> None:
    asked = card.ask(
        """
import json
from ngcdl.telemetry.gpu import open_nvml
with open_nvml() as nvml:
    values, _ = nvml.use(0)
    print(json.dumps([values.get(name) for name in ("watts_limit", "sm_mhz_max", "sm_mhz")]))
"""
    )
    assert asked == [None, None, 1620]


def test_a_missing_value_is_unknown_and_never_zero(card: Host) -> None:
    card.set(**{f"gpu0__{key}": None for key in ("utilization", "power_mw", "memory_used", "processes", "cc")})
    first = reading(card)
    assert first["error"] is None
    for name in ("gpu_percent", "watts", "memory_used_bytes", "processes", "compute_capability"):
        assert first[name] is None


@pytest.mark.parametrize(("processes", "used"), [("11:5,12:6", 11), ("11:5,12:-", None), ("", 0), (None, None)])
@pytest.mark.parametrize("capability", ["12.1", "11.0", "8.9"])
def test_of_a_card_that_has_the_machine_s_memory_what_its_processes_take_is_known(
    card: Host, capability: str, processes: str | None, used: int | None
) -> None:
    """A GB10's NVML tells a process's memory, and none of the card's."""
    card.set(gpu0__cc=capability, gpu0__memory_used=None, gpu0__processes=processes)
    first = reading(card)
    assert (first["memory_used_bytes"], first["memory_total_bytes"]) == (None if capability == "8.9" else used, None)
    assert first["error"] is None
    card.set(gpu0__cc=capability, gpu0__processes=processes)
    assert reading(card)["memory_used_bytes"] == 3145728000, "what the driver says of the card counts"


@pytest.mark.parametrize(("capability", "percent", "told"), [("12.1", 0, None), ("11.0", 7, 7), ("8.9", 0, 0)])
def test_no_traffic_on_a_memory_that_is_the_machine_s_is_unknown_traffic(
    card: Host, capability: str, percent: int, told: int | None
) -> None:
    card.set(gpu0__cc=capability, gpu0__memory_utilization=percent)
    first = reading(card)
    assert (first["gpu_percent"], first["memory_percent"]) == (87, told)


def test_what_processes_take_is_not_known_where_some_may_be_hidden(card: Host) -> None:
    hidden = "from ngcdl.telemetry import container\ncontainer.pids_are_the_hosts = lambda: False\n"
    card.set(gpu0__cc="12.1", gpu0__memory_used=None, gpu0__processes="11:5")
    assert card.ask(hidden + READ, "", "0")["0"]["gpus"][0]["memory_used_bytes"] is None


def test_an_old_driver_is_asked_by_its_older_calls(card: Host, old_library: Path) -> None:
    old = replace(card, library=old_library)
    first = reading(old)
    assert first["celsius"] == 64
    assert first["memory_used_bytes"] == 3145728000
    assert (first["throttle_reasons"], first["energy_joules"]) == ([], None)
    done = old.python(
        "from ngcdl.telemetry import gpu\nwith gpu.open_nvml() as n: print(n.driver().cuda, n.read() == n.read())"
    )
    assert done.stdout == "12.2 True\n"
    assert done.stderr == "", "its older calls answer, and what no call answers is shown as n/a"


@pytest.mark.parametrize("is_loaded", [True, False])
def test_why_the_driver_reports_no_version_is_known_also_if_a_fork_asked_it(card: Host, is_loaded: bool) -> None:
    card.set(**{"fail__SystemGetDriverVersion": 999})
    code = "import sys\nfrom ngcdl.telemetry import driver, gpu\ndriver.has_driver = lambda: bool(sys.argv[1])\n"
    done = card.python(f"{code}found = gpu.probe().driver\nprint(found.version, found.error)", "loaded" * is_loaded)
    assert done.stdout == "None SystemGetDriverVersion: unknown error (999)\n"
    assert done.stderr == ""


MIG = {
    "gpu1__mig": 1,
    "gpu1__mig0__uuid": "MIG-41b3",
    "gpu1__mig0__name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "gpu1__mig0__memory_total": 5 << 30,
    "gpu1__mig0__memory_used": 37 << 20,
    "gpu1__mig0__processes": "",
    "gpu1__mig2__uuid": "MIG-6f20",
    "gpu1__mig2__processes": "7:5",
}
# NVML's answers to users other than root for a card with MIG on, and to all users for a MIG device.
OF_ROOT_ALONE = {
    "fail__gpu1__DeviceGetMemoryInfo": 4,
    "fail__gpu1__DeviceGetComputeRunningProcesses": 4,
    "fail__gpu1__mig0__DeviceGetPowerUsage": 2,
}


def test_a_card_with_mig_on_is_not_sick_for_what_it_tells_root_alone(card: Host) -> None:
    card.set(**MIG, **OF_ROOT_ALONE)
    found = read(card)["0"]["gpus"][1]
    assert (found["error"], found["mig"], found["watts"], found["celsius"]) == (None, True, 52.8, 31)
    assert (found["memory_used_bytes"], found["memory_total_bytes"], found["processes"]) == (None, None, None)
    told = card.ask(
        """
import json
from ngcdl.telemetry import gpu
with gpu.open_nvml() as nvml:
    whole = nvml.inventory()[1]
    nvml.use(whole.uuid)
    nvml._described = None  # it is never described anew
    print(json.dumps([whole.error, whole.mig, *nvml.use(whole.uuid)], default=repr))
"""
    )
    assert told[:2] == [None, True]
    assert (told[2]["watts"], told[3]) == (52.8, None)


def test_without_mig_no_permission_is_a_failure(card: Host) -> None:
    card.set(**{"fail__gpu1__DeviceGetMemoryInfo": 4})
    assert "no permission" in read(card)["0"]["gpus"][1]["error"]


def test_the_mig_devices_of_a_card_are_those_that_were_made(card: Host) -> None:
    card.set(**MIG, **OF_ROOT_ALONE)
    first, second = read(card)["0"]["gpus"][1]["mig_devices"]
    assert (first["index"], first["uuid"], first["name"]) == (0, "MIG-41b3", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert (first["memory_used_bytes"], first["memory_total_bytes"]) == (37 << 20, 5 << 30)
    assert (first["watts"], first["processes"], first["error"]) == (None, [], None)
    # the driver would report the whole card's values
    card.set(**MIG, gpu1__mig0__power_mw=52800, gpu1__mig0__power_limit_mw=400000, gpu1__mig0__energy_mj=987654321)
    first, second = read(card)["0"]["gpus"][1]["mig_devices"]
    assert [first[name] for name in ("watts", "watts_limit", "energy_joules")] == [None] * 3
    assert (second["index"], second["uuid"], len(second["processes"])) == (2, "MIG-6f20", 1)
    cards = card.ask(
        """
import json
from dataclasses import asdict
from ngcdl.telemetry import gpu
print(json.dumps([asdict(one) for one in gpu.probe().cards]))
"""
    )
    assert [one["uuid"] for one in cards[1]["mig_devices"]] == ["MIG-41b3", "MIG-6f20"]
    assert [one["card_index"] for one in (cards[1], *cards[1]["mig_devices"])] == [None, 1, 1]
    assert cards[0]["mig_devices"] == []


def test_a_mig_device_that_is_known_by_its_uuid_alone_says_which_card_s_it_is(card: Host) -> None:
    code = """
import json
from ngcdl.telemetry.gpu import open_nvml
with open_nvml() as nvml:
    uuids = "MIG-6f20", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100", "MIG-6f20"
    print(json.dumps([nvml.use(uuid, "brief")[0] for uuid in uuids]))
"""
    card.set(**MIG, fail__gpu0__DeviceGetHandleByIndex=15, fail__gpu1__mig2__DeviceGetIndex=3)
    part, whole, again = card.ask(code)
    assert (part["card_index"], part["index"]) == (again["card_index"], again["index"]) == (1, 2)
    assert (whole["index"], "card_index" in whole) == (1, False)
    card.set(**MIG, fail__DeviceGetMaxMigDeviceCount=999)
    first = card.ask(code)[0]
    assert ("card_index" in first, first["index"]) == (False, None), "which one is not known"
    card.set(**MIG, **{"fail_after__gpu1__mig2__DeviceGetUtilizationRates": "1:15"})
    lost = card.ask(code)[2]
    assert (lost["card_index"], lost["index"], lost["gpu_percent"]) == (1, 2, None)


def test_only_a_card_with_mig_on_is_asked_for_its_mig_devices(card: Host, old_library: Path) -> None:
    card.set(**{"fail__DeviceGetMaxMigDeviceCount": 999})
    assert [found["error"] for found in read(card)["0"]["gpus"]] == [None, None]
    old = replace(card, library=old_library)
    old.set(gpu1__mig=1)
    assert read(old)["0"]["gpus"][1]["mig_devices"] == []
