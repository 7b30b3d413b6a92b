"""Each link judged from what was seen: pure values in, a finding with cause and command out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doctor.sights import (
    A100,
    DRIVER,
    ENGINE,
    HEALTHY,
    KERNEL,
    PROGRAMS,
    WITHOUT_GPU,
    commands,
    engine,
    found,
    not_in_order,
)
from ngcdl.doctor import chain
from ngcdl.doctor import links as links_package
from ngcdl.doctor.chain import from_error
from ngcdl.doctor.sight import CdiSpec, Dataset, Kernel, Keys, Node, Programs, Registry, Sight, Space, Trouble
from ngcdl.engines.base import GpuWay
from ngcdl.errors import (
    BadKey,
    BadOption,
    ConfigBroken,
    DriverHangs,
    EngineAbsent,
    EngineForbidden,
    EngineHangs,
    KeyRejected,
    LibraryMissing,
    NvmlUnavailable,
    RegistryUnreachable,
)
from ngcdl.errors.engine import CONFIG
from ngcdl.telemetry import driver
from ngcdl.telemetry.card import Card, Probe


def silent(code: int) -> Probe:
    """A driver whose library answers this code when it is started."""
    return Probe(error=driver.unavailable(code))


UPGRADE = "sudo apt-get update && sudo apt-get install --only-upgrade"
NO_LIBRARY = Probe(error=LibraryMissing("There is no NVIDIA driver on this host.", ""), absent=True)
UNLOADED = replace(KERNEL, module=None, is_loaded=False)


# -- the chain --------------------------------------------------------------------------------------------------


def test_on_a_healthy_host_every_link_is_ok() -> None:
    assert not_in_order(HEALTHY) == {}


def test_a_host_without_an_nvidia_card_is_no_wall_of_red() -> None:
    assert not_in_order(WITHOUT_GPU) == {}
    links = found(WITHOUT_GPU)
    assert "trainings run on the CPU" in links["driver"].found
    assert not {"cards", "gpu-way", "cdi", "daemon-reload", "toolkit"} & set(links)


def test_no_two_links_have_the_same_name_or_place() -> None:
    links = chain.links()
    assert len({link.name for link in links}) == len({link.place for link in links}) == len(links) > 20


def test_every_file_in_links_is_found_by_being_there() -> None:
    files = {path.stem for path in Path(links_package.__path__[0]).glob("*.py")} - {"__init__"}
    assert {link.judge.__module__.rpartition(".")[2] for link in chain.links()} == files


def test_every_finding_that_is_not_ok_names_a_cause_or_says_why_it_was_not_checked() -> None:
    for sight in SICK.values():
        for finding in found(sight).values():
            assert finding.found
            if finding.state in ("warning", "broken"):
                assert finding.cause or finding.remedy, finding


def test_what_is_counted_is_what_is_listed() -> None:
    tree = chain.document(chain.examine(SICK["a lost card"]))
    assert (tree["broken"], tree["warnings"]) == (1, 0)
    assert [link["name"] for link in tree["links"] if link["state"] == "broken"] == ["cards"]


# -- one thing broken: exactly that link is named ---------------------------------------------------------------

LOST = replace(A100, error="GPU is lost: it fell off the bus; reboot the host (15)")
STALE = CdiSpec(Path("/etc/cdi/nvidia.yaml"), frozenset({"525.60.13"}), devices=frozenset({"all", "0"}))
GTX = Card(0, "GPU-1050", "NVIDIA GeForce GTX 1050 Ti", "6.1", 4 << 30, 5)
BY_CDI = replace(ENGINE, way=GpuWay("cdi", "CDI is there"))

SICK: dict[str, Sight] = {
    "no driver": replace(HEALTHY, kernel=UNLOADED, gpus=NO_LIBRARY),
    "nouveau": replace(HEALTHY, kernel=replace(UNLOADED, has_nouveau=True), gpus=NO_LIBRARY),
    "module not loaded": replace(HEALTHY, kernel=UNLOADED, gpus=silent(driver.NOT_LOADED)),
    "mismatch": replace(HEALTHY, gpus=silent(driver.MISMATCH)),
    "library missing": replace(HEALTHY, gpus=NO_LIBRARY),
    "half an update": replace(HEALTHY, kernel=replace(KERNEL, module="550.54.14")),
    "driver hangs": replace(HEALTHY, gpus=Trouble("no answer within 21 s")),
    "driver gives no answer": replace(HEALTHY, gpus=Probe(error=DriverHangs("No answer within 20 s.", "Look:"))),
    "no binding": replace(HEALTHY, gpus=Probe(error=NvmlUnavailable("It is missing.", "    pip install nvidia-ml-py"))),
    "no card shown": replace(HEALTHY, gpus=Probe((), DRIVER)),
    "a lost card": replace(HEALTHY, gpus=Probe((A100, replace(LOST, index=1)), DRIVER)),
    "an old card": replace(HEALTHY, gpus=Probe((GTX,), DRIVER)),
    "a card that is not driven": replace(HEALTHY, kernel=replace(KERNEL, pci=("0000:01:00.0", "0000:41:00.0"))),
    "engine absent": replace(HEALTHY, engine=Trouble("", EngineAbsent("the default socket", "there is no socket"))),
    "engine forbidden": replace(HEALTHY, engine=Trouble("", EngineForbidden("the default socket"))),
    "engine hangs": replace(HEALTHY, engine=Trouble("", EngineHangs("the default socket", 10))),
    "engine late": replace(HEALTHY, engine=Trouble("no answer within 12 s")),
    "desktop": replace(HEALTHY, engine=engine(is_desktop=True)),
    "snap": replace(HEALTHY, engine=engine(is_snap=True)),
    "context": replace(
        HEALTHY, context="gone", engine=Trouble("", EngineAbsent("x", "no socket", is_default=False, named_by=CONFIG))
    ),
    "not registered": replace(HEALTHY, engine=replace(ENGINE, way=GpuWay("none", ""))),
    "not restarted": replace(
        HEALTHY, engine=replace(ENGINE, way=GpuWay("none", ""), registered=Path("/etc/docker/daemon.json"))
    ),
    "runtime gone": replace(HEALTHY, engine=replace(ENGINE, missing_runtime="/usr/bin/nvidia-container-runtime")),
    "stale spec in use": replace(HEALTHY, engine=replace(BY_CDI, specs=(STALE,))),
    "stale spec aside": replace(HEALTHY, engine=replace(ENGINE, specs=(STALE,))),
    "daemon-reload": replace(HEALTHY, kernel=replace(KERNEL, nodes=(Node("/dev/nvidia0", 195, 0, False),))),
    "toolkit": replace(HEALTHY, programs=replace(PROGRAMS, toolkit="1.17.4")),
    "runc": replace(HEALTHY, engine=engine(runc_version="1.1.11")),
    "docker": replace(HEALTHY, engine=engine(version="28.0.0")),
    "memlock learned": replace(HEALTHY, engine=replace(ENGINE, memlock_forbidden=True)),
    "memlock": replace(HEALTHY, engine=replace(ENGINE, can_raise_limits=False, memlock_bytes=8 << 20)),
    "shm": replace(HEALTHY, shm=Space(64 << 20, 64 << 20)),
    "disk full": replace(HEALTHY, engine=engine(free_bytes=10**9)),
    "disk small": replace(HEALTHY, engine=engine(free_bytes=40 * 10**9)),
    "no key": replace(HEALTHY, keys=Keys()),
    "config broken": replace(HEALTHY, keys=Keys(error=ConfigBroken("config.json", "it is not JSON at byte 3"))),
    "config exposed": replace(
        HEALTHY, keys=Keys("config.json", True, None, "Others can read config.json: chmod 600 x")
    ),
    "registry away": replace(HEALTHY, registry=Registry(error=RegistryUnreachable("nvcr.io", "no answer"))),
    "registry late": replace(HEALTHY, registry=Trouble("no answer within 5 s")),
    "key refused": replace(
        HEALTHY, registry=Registry(takes_key=False, key_error=KeyRejected("nvcr.io"), skew_seconds=0)
    ),
    "clock": replace(HEALTHY, registry=Registry(takes_key=True, skew_seconds=-7200.0)),
    "proxy here": replace(HEALTHY, proxies={"https_proxy": "http://me:secret@proxy:3128"}),
    "proxy there": replace(HEALTHY, engine=engine(https_proxy="http://proxy:3128")),
    "dataset": replace(HEALTHY, dataset=Dataset(False, "data_batch_1.bin has changed", Path("/c"))),
    "dataset that is named": replace(HEALTHY, dataset=Dataset(False, None, Path("/c"), "/nosuch", False)),
    "a variable that holds no key": replace(HEALTHY, keys=Keys(error=BadKey("NGC_API_KEY is set, but it is empty"))),
    "a certificate file": replace(
        HEALTHY, registry=Trouble("NGCDL_CA_FILE=/x: nothing.", BadOption("NGCDL_CA_FILE=/x: nothing."))
    ),
    "a way that is none": replace(
        HEALTHY, engine=replace(ENGINE, way=Trouble("NGCDL_GPU_WAY=x: no.", BadOption("NGCDL_GPU_WAY=x: no.")))
    ),
    "cpu": replace(HEALTHY, kernel=replace(KERNEL, cpu_flags=frozenset({"sse2"}))),
}
NAMED: dict[str, tuple[str, str]] = {
    "no driver": ("driver", "broken"), "nouveau": ("driver", "broken"), "module not loaded": ("driver", "broken"),
    "mismatch": ("driver", "broken"), "library missing": ("driver", "broken"), "half an update": ("driver", "warning"),
    "driver hangs": ("driver", "broken"), "driver gives no answer": ("driver", "broken"),
    "no binding": ("driver", "broken"), "no card shown": ("driver", "broken"), "a lost card": ("cards", "broken"),
    "an old card": ("cards", "warning"), "a card that is not driven": ("cards", "warning"),
    "engine absent": ("engine", "broken"), "engine forbidden": ("engine", "broken"),
    "engine hangs": ("engine", "broken"), "engine late": ("engine", "broken"), "desktop": ("engine", "warning"),
    "snap": ("engine", "warning"), "context": ("engine", "broken"), "not registered": ("gpu-way", "broken"),
    "not restarted": ("gpu-way", "broken"), "runtime gone": ("gpu-way", "broken"),
    "stale spec in use": ("cdi", "broken"), "stale spec aside": ("cdi", "warning"),
    "daemon-reload": ("daemon-reload", "warning"), "toolkit": ("toolkit", "warning"), "runc": ("runc", "warning"),
    "docker": ("docker", "warning"), "memlock learned": ("memlock", "warning"), "memlock": ("memlock", "warning"),
    "shm": ("shm", "warning"), "disk full": ("disk", "broken"), "disk small": ("disk", "warning"),
    "no key": ("credentials", "warning"), "config broken": ("credentials", "broken"),
    "config exposed": ("credentials", "warning"), "registry away": ("registry", "broken"),
    "registry late": ("registry", "broken"), "key refused": ("key", "broken"), "clock": ("clock", "broken"),
    "proxy here": ("proxy", "warning"), "proxy there": ("proxy", "warning"), "dataset": ("dataset", "warning"),
    "dataset that is named": ("dataset", "broken"), "a variable that holds no key": ("credentials", "broken"),
    "a certificate file": ("registry", "broken"), "a way that is none": ("gpu-way", "broken"),
    "cpu": ("cpu", "warning"),
}  # fmt: skip


@pytest.mark.parametrize("what", SICK)
def test_exactly_the_link_that_is_sick_is_named(what: str) -> None:
    name, state = NAMED[what]
    changed = not_in_order(SICK[what])
    assert changed.pop(name) == state
    # What can't be told without it is not checked, and says so.
    links = found(SICK[what])
    assert {other: links[other].found for other in changed} == dict.fromkeys(changed, f"needs {name}")


def test_a_hole_of_authorization_plugins_is_none_where_there_is_no_such_plugin() -> None:
    assert found(replace(HEALTHY, engine=engine(version="29.2.0", authorization_plugins=())))["docker"].state == "ok"
    plugged = found(replace(HEALTHY, engine=engine(version="29.2.0", authorization_plugins=("opa",))))["docker"]
    assert (plugged.state, "CVE-2026-34040" in (plugged.cause or "")) == ("warning", True)


def test_an_engine_that_docker_s_context_names_is_the_one_that_ngcdl_uses() -> None:
    links = found(replace(HEALTHY, context="rootless"))
    assert (links["engine"].state, "by Docker's context rootless" in links["engine"].found) == ("ok", True)


# -- causes and commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "command", "text"), [
    ("no driver", "sudo ubuntu-drivers install", "1 NVIDIA card, but no driver"),
    ("nouveau", "sudo ubuntu-drivers install", "nouveau"),
    ("module not loaded", "sudo modprobe nvidia", "not loaded"),
    ("mismatch", "sudo reboot", "differ"),
    ("library missing", "sudo apt-get install --reinstall libnvidia-compute-535", "535.104.05"),
    ("a lost card", "sudo reboot", "GPU 1: GPU is lost"),
    ("an old card", "ngcdl images", "24.12"),
    ("engine absent", "sudo systemctl start docker", "installed, but does not run"),
    ("engine forbidden", "sudo usermod -aG docker $USER", "as good as root"),
    ("engine hangs", "sudo systemctl restart docker", "within 10 s"),
    ("context", "docker context use default", "context gone leads there"),
    ("not registered", "sudo nvidia-ctk runtime configure --runtime=docker", "not registered"),
    ("not restarted", "sudo systemctl restart docker", "/etc/docker/daemon.json names the runtime nvidia"),
    ("runtime gone", "sudo apt-get install nvidia-container-toolkit", "/usr/bin/nvidia-container-runtime is not there"),
    ("stale spec in use", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "for driver 525.60.13"),
    ("daemon-reload", "sudo nvidia-ctk system create-dev-char-symlinks --create-all", "/dev/nvidia0"),
    ("toolkit", f"{UPGRADE} nvidia-container-toolkit", "CVE-2025-23266"),
    ("runc", f"{UPGRADE} containerd.io", "CVE-2024-21626"),
    ("shm", "sudo mount -o remount,size=50% /dev/shm", "64.0 MiB"),
    ("disk full", "docker image prune", "953.7 MiB free in /var/lib/docker"),
    ("no key", "ngcdl login", "no key for nvcr.io"),
    ("config broken", "mv config.json config.json.broken && ngcdl login", "not JSON at byte 3"),
    ("config exposed", "chmod 600 config.json", "Others can read"),
    ("registry away", "curl -sI https://nvcr.io/v2/", "can't be reached"),
    ("key refused", "ngcdl login", "refused the key"),
    ("clock", "sudo timedatectl set-ntp true", "2 hours behind nvcr.io"),
    ("a variable that holds no key", "unset NGC_API_KEY && ngcdl login", "goes before every key"),
    ("a certificate file", "unset NGCDL_CA_FILE", "NGCDL_CA_FILE=/x"),
    ("a way that is none", "unset NGCDL_GPU_WAY", "NGCDL_GPU_WAY=x"),
    ("dataset", "rm -r /c/cifar-10 /c/cifar-10.json", "data_batch_1.bin has changed"),
])  # fmt: skip
def test_what_is_sick_is_told_with_its_cause_and_the_command_to_type(what: str, command: str, text: str) -> None:
    finding = found(SICK[what])[NAMED[what][0]]
    assert command in commands(finding)
    assert text in f"{finding.found} {finding.cause}"


def test_a_reboot_and_a_mere_look_are_never_run_by_fix() -> None:
    steps = [step for sight in SICK.values() for finding in found(sight).values() for step in finding.remedy]
    by_hand = {step.command for step in steps if step.by_hand}
    assert {"sudo reboot", "sudo dmesg | grep -iE 'nvrm|xid'", "curl -sI https://nvcr.io/v2/"} <= by_hand
    assert not [step for step in steps if "reboot" in step.command and not step.by_hand]


@pytest.mark.parametrize("kernel", [KERNEL, UNLOADED])
@pytest.mark.parametrize(("what", "typed"), [
    ("driver gives no answer", ["sudo dmesg | grep -iE 'nvrm|xid'", "sudo reboot"]),
    ("driver hangs", ["sudo dmesg | grep -iE 'nvrm|xid'", "sudo reboot"]),
    ("no binding", ["pip install nvidia-ml-py"]),
])  # fmt: skip
def test_a_driver_that_has_its_library_is_not_installed_again(what: str, typed: list[str], kernel: Kernel) -> None:
    assert commands(found(replace(SICK[what], kernel=kernel))["driver"]) == typed


@pytest.mark.parametrize("what", ["no driver", "nouveau"])
@pytest.mark.parametrize(("distribution", "typed", "text"), [
    (("ubuntu", "debian"), ["sudo ubuntu-drivers install", "sudo reboot"], "A reboot ends"),
    (("debian",), ["sudo apt-get update && sudo apt-get install nvidia-driver", "sudo reboot"], "non-free-firmware"),
    (("fedora",), [], "NVIDIA's guide says how"),
])  # fmt: skip
def test_each_distribution_gets_its_own_driver_and_no_reboot_alone(
    distribution: tuple[str, ...], typed: list[str], text: str, what: str
) -> None:
    sight = replace(SICK[what], kernel=replace(SICK[what].kernel, distribution=distribution))
    finding = found(sight)["driver"]
    assert (commands(finding), text in (finding.cause or "")) == (typed, True)
    assert finding.source == driver.INSTALL


@pytest.mark.parametrize(("manager", "before", "install"), [
    ("apt-get", ["gnupg", "gpg --dearmor --yes", "signed-by=", "sudo apt-get update"], "apt-get install"),
    ("dnf", ["-o /etc/yum.repos.d/nvidia-container-toolkit.repo"], "dnf install"),
    ("zypper", ["-o /etc/zypp/repos.d/nvidia-container-toolkit.repo"], "zypper install"),
    ("pacman", [], "pacman -S"),
])  # fmt: skip
def test_nvidias_toolkit_is_installed_after_its_repository_was_added(
    manager: str, before: list[str], install: str
) -> None:
    sight = replace(SICK["runtime gone"], programs=Programs(frozenset({manager, "nvidia-ctk"}), "1.19.1"))
    typed = commands(found(sight)["gpu-way"])
    at = typed.index(f"sudo {install} nvidia-container-toolkit")
    assert [part in command for part, command in zip(before, typed[:at], strict=True)] == [True] * len(before)
    assert typed[at + 1] == "sudo nvidia-ctk runtime configure --runtime=docker"


def test_without_systemd_the_engine_is_started_in_the_older_way() -> None:
    sight = replace(SICK["engine absent"], programs=Programs(frozenset({"dockerd"})))
    assert commands(found(sight)["engine"]) == ["sudo service docker start"]


def test_an_engine_that_is_not_installed_is_installed_first() -> None:
    sight = replace(SICK["engine absent"], programs=Programs(frozenset({"apt-get"})))
    assert commands(found(sight)["engine"]) == ["sudo apt-get install docker.io"]


@pytest.mark.parametrize("error", [EngineHangs, None])
@pytest.mark.parametrize(("address", "typed"), [
    ("unix:///srv/docker.sock", ["sudo journalctl -u docker -n 50", "sudo systemctl restart docker"]),
    (
        "unix:///run/user/1000/docker.sock",
        ["journalctl --user -u docker -n 50", "systemctl --user restart docker"],
    ),
    ("unix:///home/me/.docker/desktop/docker.sock", []),
    ("unix:///run/user/1000/docker-gpubox.sock", []),  # a tunnel's end
    ("tcp://gpubox:2376", []),
    ("gpubox:2375", []),
    ("http+docker://ssh", []),
])  # fmt: skip
def test_only_a_daemon_of_this_machine_is_restarted_when_it_hangs(
    address: str, typed: list[str], error: type[EngineHangs] | None
) -> None:
    late = replace(HEALTHY, engine=Trouble("no answer within 12 s"), address=address)
    trouble = Trouble("", error(address, 10) if error else None)
    finding = found(replace(HEALTHY, engine=trouble) if error else late)["engine"]
    assert (finding.state, commands(finding)) == ("broken", typed)
    assert ("where it runs" in (finding.cause or "")) == (not typed)
    if trouble.error is not None:
        assert commands(from_error("engine", "broken", trouble.error)) == typed


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "DOCKER_CONTEXT"])
def test_an_address_that_a_variable_names_is_not_mended_by_a_start(variable: str) -> None:
    error = EngineAbsent("tcp://10.0.0.1:2375", "the connection was refused", is_default=False, named_by=variable)
    finding = found(replace(HEALTHY, engine=Trouble("", error), context="gone"))["engine"]
    assert [step.command for step in finding.remedy if step.command.startswith("unset")] == [f"unset {variable}"]
    assert "leave it out. Without Docker" in (finding.cause or ""), "the commands stand apart"
    assert all(step.by_hand for step in finding.remedy)


def test_rootless_docker_is_configured_as_its_own_user() -> None:
    rootless = replace(engine(is_rootless=True), way=GpuWay("none", ""))
    typed = commands(found(replace(HEALTHY, engine=rootless))["gpu-way"])
    assert typed[0] == "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json"
    assert typed[-1] == "systemctl --user restart docker"


@pytest.mark.parametrize(("capability", "driver_version", "newest"), [
    ("6.1", "535.104.05", "tensorflow:24.12-tf2-py3"),
    ("6.1", "390.12", "tensorflow:18.08-py3"),
    ("2.1", "390.12", "No image that does"),
])  # fmt: skip
def test_an_old_card_is_told_the_newest_image_that_runs_on_it_with_this_driver(
    capability: str, driver_version: str, newest: str
) -> None:
    card = replace(GTX, compute_capability=capability)
    kernel = replace(KERNEL, module=driver_version)
    finding = found(replace(HEALTHY, kernel=kernel, gpus=Probe((card,), replace(DRIVER, version=driver_version))))[
        "cards"
    ]
    assert finding.state == "warning"
    assert newest in (finding.cause or "")


def test_cards_that_are_given_to_a_virtual_machine_or_hidden_from_a_container_are_no_fault() -> None:
    two = replace(KERNEL, pci=("0000:01:00.0", "0000:41:00.0"), in_container=True)
    assert found(replace(HEALTHY, kernel=two))["cards"].state == "ok"


@pytest.mark.parametrize(("nodes", "state", "text"), [
    ((True, False, False, False), "ok", "; 3 more not given to this job"),
    ((True,), "ok", "; 3 more not given to this job"),
    ((True, True, False, False), "warning", "; 2 more not given to this job (its control group keeps them from it); "),
    ((True, True, True, True), "warning", "8.0); the PCI bus has 3 more"),
])  # fmt: skip
def test_cards_that_a_job_may_not_open_are_no_fault_and_those_that_do_not_answer_are(
    nodes: tuple[bool, ...], state: str, text: str
) -> None:
    """The driver drives four, and shows one of them: the others are another job's, or sick."""
    four = tuple(f"0000:0{index}:00.0" for index in range(4))
    named = tuple(Node(f"/dev/nvidia{index}", 195, index, True, can_open) for index, can_open in enumerate(nodes))
    others = (Node("/dev/nvidiactl", 195, 255, True),)
    kernel = replace(KERNEL, pci=four, driven=frozenset(four), nodes=named + others)
    finding = found(replace(HEALTHY, kernel=kernel))["cards"]
    assert (finding.state, text in finding.found) == (state, True), finding
    idle = found(replace(HEALTHY, kernel=replace(kernel, pci=(*four, "0000:09:00.0"))))["cards"]
    assert idle.state == "warning", "one that the driver does not drive stays one"


@pytest.mark.parametrize(("spec", "text"), [
    ({"missing": frozenset({"/dev/nvidia1"})}, "names /dev/nvidia1, which is not there"),
    ({"devices": frozenset({"all", "GPU-gone"})}, "names GPU-gone, and no card is called so"),
    ({"devices": frozenset({"all", "MIG-1"})}, "describes MIG devices, and MIG is off"),
])  # fmt: skip
def test_a_description_of_things_that_are_gone_is_stale(spec: dict[str, Any], text: str) -> None:
    one = CdiSpec(Path("/etc/cdi/nvidia.yaml"), frozenset({"535.104.05"}), **spec)
    finding = found(replace(HEALTHY, engine=replace(BY_CDI, specs=(one,))))["cdi"]
    assert finding.state == "broken"
    assert text in finding.found


def test_mig_that_is_on_and_not_described_makes_a_description_stale() -> None:
    one = CdiSpec(Path("/var/run/cdi/nvidia.yaml"), devices=frozenset({"all", "0"}))
    gpus = Probe((replace(A100, mig=True),), DRIVER)
    finding = found(replace(HEALTHY, gpus=gpus, engine=replace(BY_CDI, specs=(one,))))["cdi"]
    assert "MIG is on" in finding.found
    assert commands(finding) == ["sudo systemctl restart nvidia-cdi-refresh"]


FRESH = frozenset({KERNEL.module or ""})
OLD = frozenset({"525.60.13"})


@pytest.mark.parametrize(("specs", "named", "typed"), [
    (
        {"/etc/cdi/nvidia.yaml": FRESH, "/var/run/cdi/nvidia.yaml": OLD},
        ["/var/run/cdi/nvidia.yaml"],
        ["sudo systemctl restart nvidia-cdi-refresh"],
    ),
    (
        {"/etc/cdi/a.yaml": OLD, "/etc/cdi/b.json": OLD, "/run/cdi/c.yaml": OLD, "/var/run/cdi/d.yaml": OLD},
        ["/etc/cdi/a.yaml", "/etc/cdi/b.json", "/run/cdi/c.yaml", "/var/run/cdi/d.yaml"],
        [
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/a.yaml",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/b.json",
            "sudo systemctl restart nvidia-cdi-refresh",
        ],
    ),
])  # fmt: skip
def test_every_stale_description_is_named_and_made_anew_and_no_other(
    specs: dict[str, frozenset[str]], named: list[str], typed: list[str]
) -> None:
    all_of_them = tuple(CdiSpec(Path(path), drivers) for path, drivers in specs.items())
    finding = found(replace(HEALTHY, engine=replace(BY_CDI, specs=all_of_them)))["cdi"]
    told = [f"{path}: it is for driver 525.60.13, and 535.104.05 is loaded" for path in named]
    assert finding.found == "; ".join(told)
    assert commands(finding) == typed


@pytest.mark.parametrize("change", [{"cgroup_driver": "cgroupfs"}, {}])
def test_the_daemon_reload_bug_needs_systemds_driver_and_the_runtime(change: dict[str, Any]) -> None:
    way = GpuWay("cdi", "") if not change else ENGINE.way
    sight = replace(SICK["daemon-reload"], engine=replace(engine(**change), way=way))
    assert found(sight)["daemon-reload"].state == "ok"


@pytest.mark.parametrize(("name", "sight"), [
    ("toolkit", replace(HEALTHY, programs=replace(PROGRAMS, toolkit="1.13.5-1~deb12u1"))),
    ("runc", replace(HEALTHY, engine=engine(runc_version="1.1.5+ds1"))),
    ("docker", replace(HEALTHY, engine=engine(version="26.1.5+dfsg1"))),
])  # fmt: skip
def test_a_distributions_own_version_can_not_be_told(name: str, sight: Sight) -> None:
    finding = found(sight)[name]
    assert finding.state == "unchecked"
    assert "can't tell" in finding.found


def test_dockers_own_name_of_a_runc_is_understood() -> None:
    assert found(replace(HEALTHY, engine=engine(runc_version="1.4.3-0-g51d5e94")))["runc"].state == "ok"


@pytest.mark.parametrize(("proxies", "state"), [
    ({"https_proxy": "http://proxy:3128", "no_proxy": "localhost,.nvcr.io"}, "ok"),
    ({"https_proxy": "http://proxy:3128", "no_proxy": "other.example"}, "warning"),
    ({"all_proxy": "socks5://proxy:1080"}, "warning"),
])  # fmt: skip
def test_a_registry_that_no_proxy_names_needs_none(proxies: dict[str, str], state: str) -> None:
    assert found(replace(HEALTHY, proxies=proxies))["proxy"].state == state


def test_a_proxy_that_is_no_address_is_told_without_its_password() -> None:
    finding = found(replace(HEALTHY, proxies={"https_proxy": "http://me:secret@[proxy"}))["proxy"]
    assert "[proxy" in (finding.cause or "")
    assert "secret" not in str(finding)


def test_a_proxys_password_is_not_shown() -> None:
    finding = found(SICK["proxy here"])["proxy"]
    assert "http://proxy:3128" in (finding.cause or "")
    assert "secret" not in str(finding)


def test_the_size_of_the_default_image_decides_whether_there_is_room_for_it() -> None:
    small = replace(HEALTHY, engine=engine(free_bytes=30 * 10**9))
    assert found(small)["disk"].state == "warning"
    assert found(replace(small, wanted_bytes=35 * 10**9))["disk"].state == "broken"
    assert found(replace(small, wanted_bytes=Trouble("no answer within 4 s")))["disk"].state == "warning"


def test_persistence_mode_and_live_restore_that_are_off_are_hints_with_what_they_cost() -> None:
    sight = replace(HEALTHY, gpus=Probe((replace(A100, persistence=False),), DRIVER), engine=engine(live_restore=False))
    links = found(sight)
    assert not_in_order(sight) == {}
    assert "1 to 3 s" in (links["persistence"].cause or "")
    assert commands(links["persistence"]) == ["sudo nvidia-smi -pm 1"]
    assert "ends every training" in (links["live-restore"].cause or "")


def test_an_engine_on_another_machine_is_not_judged_by_this_ones_driver() -> None:
    elsewhere = replace(ENGINE, is_here=False, name="cluster7", way=GpuWay("none", ""))
    links = found(replace(HEALTHY, engine=elsewhere))
    assert "cluster7" in links["engine"].found
    assert "gpu-way" not in links
    there = replace(WITHOUT_GPU, engine=replace(ENGINE, is_here=False, name="cluster7"))
    assert found(there)["gpu-way"].state == "ok"


def test_a_limit_on_locked_memory_matters_to_gpus_alone() -> None:
    limited = replace(ENGINE, way=GpuWay("none", ""), can_raise_limits=False, memlock_bytes=8 << 20)
    assert not_in_order(replace(WITHOUT_GPU, engine=limited)) == {}


def test_a_library_without_a_card_is_no_broken_driver() -> None:
    assert not_in_order(replace(WITHOUT_GPU, gpus=silent(driver.NOT_LOADED))) == {}


def test_where_the_bus_can_not_be_seen_a_library_that_answers_is_a_driver() -> None:
    blind = replace(WITHOUT_GPU, kernel=replace(WITHOUT_GPU.kernel, pci=None), gpus=silent(driver.NOT_LOADED))
    assert not_in_order(blind) == {"driver": "broken", "cards": "unchecked", "gpu-way": "broken"}


def test_windows_own_driver_is_not_missed_under_wsl() -> None:
    wsl = replace(UNLOADED, pci=(), has_dxg=True, has_windows_driver=True)
    links = found(replace(HEALTHY, kernel=wsl))
    assert "WSL" in links["driver"].found
    assert links["wsl"].state == "ok"
    assert "install it there" in (found(replace(HEALTHY, kernel=wsl, gpus=NO_LIBRARY))["driver"].cause or "")
    assert commands(found(replace(SICK["no binding"], kernel=wsl))["driver"]) == ["pip install nvidia-ml-py"]


def test_a_card_of_another_maker_under_wsl_is_no_nvidia_card() -> None:
    sight = replace(WITHOUT_GPU, kernel=replace(WITHOUT_GPU.kernel, has_dxg=True))
    links = found(sight)
    assert not_in_order(sight) == {}
    assert not {"cards", "gpu-way", "cdi"} & set(links)
    assert links["driver"].found == "Windows has no NVIDIA driver: trainings run on the CPU"
    assert "install its driver in Windows: https://" in (links["driver"].cause or "")


def test_selinux_is_only_spoken_of_where_it_enforces() -> None:
    links = found(replace(HEALTHY, kernel=replace(KERNEL, enforces_selinux=True)))
    assert "label=disable" in (links["selinux"].cause or "")
    assert "selinux" not in found(HEALTHY)


def test_a_certificate_out_of_date_is_taken_for_a_wrong_clock() -> None:
    error = RegistryUnreachable("nvcr.io", "its certificate is not trusted (certificate is not yet valid)")
    assert found(replace(HEALTHY, registry=Registry(error=error)))["clock"].state == "broken"


def test_a_key_in_clear_is_a_hint() -> None:
    finding = found(replace(HEALTHY, keys=Keys("/home/me/.docker/config.json", in_clear=True)))["credentials"]
    assert finding.state == "ok"
    assert "unencrypted" in (finding.cause or "")
