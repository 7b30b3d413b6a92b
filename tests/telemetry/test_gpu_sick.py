"""Cards and drivers that answer some calls only, and servers on which a card or the NVLink fabric is dead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .stand_in import Host
from .test_gpu import CALLS, MIG, reading


def test_a_dead_card_does_not_hide_the_healthy_ones(card: Host) -> None:
    """A look-up of any card by UUID fails with 15, or another code, if some card is dead."""
    wanted = ("GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100", "MIG-6f20", "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050")
    code = """
import json, os, sys
from pathlib import Path
from ngcdl.telemetry.gpu import open_nvml
path, (code, *wanted) = Path(os.environ["NGCDL_NVML_STATE"]), sys.argv[1:]
base = path.read_text()
with open_nvml() as nvml:
    path.write_text(base + f"fail.DeviceGetHandleByUUID={code}\\n")
    sick = [nvml.use(uuid) for uuid in wanted]
    path.write_text(base.replace("fail.", "was."))
    print(json.dumps([[one.get("celsius"), error] for one, error in (*sick, nvml.use(wanted[2]))]))
"""
    for number in (8, 11, 15, 999):
        card.set(**MIG, fail__gpu0__DeviceGetHandleByIndex=15)
        first, _, dead, again = card.ask(code, str(number), *wanted)
        assert first == [31, None], number
        assert dead[0] is None
        assert dead[1].endswith(f"({number})")
        assert again == [64, None], "nothing was told by its own handle"
    card.set(**MIG, gpu1__mig2__temperature=40)
    assert card.ask(code, "15", *wanted)[1] == [40, None]


def test_a_call_that_fails_is_answered_by_the_older_one(card: Host) -> None:
    card.set(**{"fail__DeviceGetMemoryInfo_v2": 999, "fail__DeviceGetTemperatureV": 999})
    first = reading(card)
    assert (first["memory_used_bytes"], first["celsius"], first["error"]) == (3145728000, 64, None)
    card.set(**{"fail__DeviceGetMemoryInfo_v2": 999, "fail__DeviceGetMemoryInfo": 10})
    assert "DeviceGetMemoryInfo: the driver timed out (10)" in reading(card)["error"]


def test_a_card_that_answers_nothing_is_out_of_order(card: Host) -> None:
    older = ("DeviceGetTemperature", "DeviceGetCurrentClocksThrottleReasons")
    state = ("DeviceGetPersistenceMode", "DeviceGetIndex")
    card.set(**{f"fail__gpu0__{call}": 999 for call in (*CALLS, *older, *state)})
    assert "unknown error (999)" in reading(card)["error"]


def test_a_card_s_place_in_the_nvlink_fabric_is_told_if_it_has_one(card: Host, old_library: Path) -> None:
    code = "import json\nfrom ngcdl.telemetry import gpu\nprint(json.dumps([one.fabric for one in gpu.probe().cards]))"
    for host in (card, replace(card, library=old_library)):
        for state, said in ((0, None), (1, "not started"), (2, "in progress"), (3, "completed"), (9, None)):
            host.set(gpu1__fabric=state)
            assert host.ask(code) == [None, said]
        host.set(gpu1__fabric=3, gpu1__fabric_status=10)
        assert host.ask(code) == [None, "failed"]
    card.set(gpu1__fabric=2, gpu1__fabric_version=2, fail__DeviceGetGpuFabricInfo=13)
    assert card.ask(code) == [None, "in progress"], "a driver that does not know the newest record"
    card.set(gpu1__fabric=2, gpu1__fabric_version=3, fail__DeviceGetGpuFabricInfo=13)
    assert card.ask(code) == [None, "in progress"], "a driver that has dropped the older ones"
    card.set(gpu1__fabric=2, gpu1__fabric_version=2, fail__DeviceGetGpuFabricInfo=13)
    older = f"import pynvml\ndel pynvml.c_nvmlGpuFabricInfo_v3_t\n{code}"
    assert card.ask(older) == [None, "in progress"], "a binding that does not know the newest record"
    card.set(gpu1__fabric=1, fail__DeviceGetGpuFabricInfo=999, fail__DeviceGetGpuFabricInfoV=999)
    assert card.ask(code) == [None, None]
