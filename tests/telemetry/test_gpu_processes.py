"""Which processes a card has, by each driver's own list, and which of them also draw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .stand_in import Host
from .test_gpu import READ, reading


# Under WSL the driver's version is that of Windows' driver, which does not tell the form of the records.
@pytest.mark.parametrize("driver", ["library", "wide_library", "old_library"])
def test_the_processes_are_those_of_any_driver_s_records(
    card: Host, driver: str, request: pytest.FixtureRequest
) -> None:
    card = replace(card, library=request.getfixturevalue(driver))
    card.set(gpu0__processes="11:5,12:6,13:-", gpu0__graphics_processes="9:1,11:2,13:3")
    found = reading(card)["processes"]
    assert [(one["pid"], one["memory_bytes"]) for one in found] == [(11, 5), (12, 6), (13, None), (9, 1)]
    assert [one["draws"] for one in found] == [True, False, True, True]
    assert [one["computes"] for one in found] == [True, True, True, False]


def test_what_only_draws_is_listed_where_nothing_computes(card: Host) -> None:
    card.set(gpu0__graphics_processes="9:1")
    assert [(one["pid"], one["draws"], one["computes"]) for one in reading(card)["processes"]] == [(9, True, False)]


LOOKED_UP = """
import json, sys
from ngcdl.telemetry import container
from ngcdl.telemetry.gpu import open_nvml
pids = []
container.name_of = lambda pid: pids.append(pid) or "it"
container.container_of = lambda pid: pids.append(pid)
with open_nvml() as nvml:
    nvml.use(0)
    sampled = list(pids)
    nvml.read()
print(json.dumps([sampled, pids[len(sampled):]]))
"""


def test_a_sample_looks_up_no_name_of_what_only_draws(card: Host) -> None:
    card.set(gpu0__processes="11:5", gpu0__graphics_processes="9:1,11:2")
    assert card.ask(LOOKED_UP) == [[11, 11], [11, 11, 9, 9]]


MPS = """
from ngcdl.telemetry import container
container.name_of = lambda pid: "nvidia-cuda-mps" if pid == 7 else "python"
"""


@pytest.mark.parametrize("driver", ["library", "wide_library"])
def test_the_clients_of_an_mps_server_are_listed_beside_it(
    card: Host, driver: str, request: pytest.FixtureRequest
) -> None:
    card = replace(card, library=request.getfixturevalue(driver))
    card.set(gpu0__processes="7:5,12:6", gpu0__mps_processes="12:6,21:9", gpu1__processes="7:5")
    first, second = card.ask(MPS + READ, "", "0")["0"]["gpus"]
    assert [(one["pid"], one["memory_bytes"], one["lists_clients"]) for one in first["processes"]] == [
        (7, 5, True), (12, 6, False), (21, 9, False),
    ]  # fmt: skip
    assert [(one["pid"], one["lists_clients"]) for one in second["processes"]] == [(7, False)], "the driver can't tell"
    assert first["error"] is second["error"] is None


ASKED = """
import json
from ngcdl.telemetry.gpu import open_nvml
with open_nvml() as nvml:
    asked, ask = [], nvml._queries.ask
    nvml._queries.ask = lambda row, call, *rest: (asked.append(call), ask(row, call, *rest))[1]
    nvml.use(0, "brief")
    values, error = nvml.use(0)
    draws = [one.draws for one in values["processes"]]
    print(json.dumps([[call for call in asked if "Graphics" in call], draws, error]))
"""


def test_a_driver_that_can_t_tell_who_draws_has_no_error(card: Host) -> None:
    assert card.ask(ASKED) == [["DeviceGetGraphicsRunningProcesses_v3"], [], None]
    card.set(gpu0__processes="11:5", gpu0__graphics_processes=None)
    assert card.ask(ASKED) == [["DeviceGetGraphicsRunningProcesses_v3"], [False], None], "the driver can't tell"
    card.set(gpu0__processes="11:5", fail__DeviceGetGraphicsRunningProcesses=4)
    assert card.ask(ASKED)[1:] == [[False], None], "no error of the card"


def test_an_empty_list_means_none_only_where_every_process_is_visible(card: Host) -> None:
    hidden = "from ngcdl.telemetry import container\ncontainer.pids_are_the_hosts = lambda: False\n"
    found = card.ask(hidden + READ, "", "0")["0"]["gpus"]
    assert [one["processes"] for one in found] == [None, None]
    card.set(gpu0__processes="11:5")
    first = card.ask(hidden + READ, "", "0")["0"]["gpus"][0]
    assert [(one["pid"], one["name"]) for one in first["processes"]] == [(11, None)]
