"""The links for driver, cards and their descriptions for containers, judged from what was seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doctor.sick import BY_CDI, GTX, NO_LIBRARY, SICK, UNLOADED, silent
from doctor.sights import (
    A100,
    DRIVER,
    ENGINE,
    HEALTHY,
    KERNEL,
    PROGRAMS,
    WITHOUT_GPU,
    commands,
    found,
    not_in_order,
)
from ngcdl.doctor.links import fabric
from ngcdl.doctor.sight import CdiSpec, Kernel, Node, Programs
from ngcdl.engines.values import GpuWay
from ngcdl.telemetry import driver
from ngcdl.telemetry.card import Probe


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
    (
        ("ubuntu", "debian"),
        [
            "sudo apt-get update && sudo apt-get install ubuntu-drivers-common",
            "sudo ubuntu-drivers install",
            "sudo reboot",
        ],
        "A reboot completes",
    ),
    (
        ("debian",),
        [
            "sudo apt-get update && sudo apt-get install nvidia-detect",
            "nvidia-detect | tee /dev/stderr | grep -qx ' *nvidia-driver'",  # fails if a card is too new
            "sudo apt-get install nvidia-driver",
            "sudo reboot",
        ],
        "535 in bookworm, which NVIDIA supported until June 2026",
    ),
    (
        ("almalinux", "rhel", "centos", "fedora"),
        [
            "sudo dnf module enable nvidia-driver:open-dkms"
            "    # not on RHEL 10, its derivatives, Fedora and Azure Linux",
            "sudo dnf install nvidia-open",
            "sudo reboot",
        ],
        "which its guide says how to add first",
    ),
    (("opensuse-leap", "suse"), [], "NVIDIA's guide says how"),
])  # fmt: skip
def test_each_distribution_gets_its_own_driver_and_no_reboot_alone(
    distribution: tuple[str, ...], typed: list[str], text: str, what: str
) -> None:
    sight = replace(SICK[what], kernel=replace(SICK[what].kernel, distribution=distribution))
    finding = found(sight)["driver"]
    assert (commands(finding), text in (finding.cause or "")) == (typed, True)
    assert finding.source == driver.INSTALL


UBUNTU, DEBIAN = ("ubuntu", "debian"), ("debian",)
LIBRARIES = [
    (UBUNTU, {"libnvidia-compute-535", "nvidia-dkms-535"}, "libnvidia-compute-535"),
    (UBUNTU, {"libnvidia-compute-535-server", "nvidia-dkms-535-server"}, "libnvidia-compute-535-server"),
    (UBUNTU, {"linux-modules-nvidia-535-server-open-generic"}, "libnvidia-compute-535-server"),
    (UBUNTU, {"linux-modules-nvidia-535-open-6.8.0-45-generic"}, "libnvidia-compute-535"),
    (UBUNTU, {"libnvidia-compute"}, "libnvidia-compute"),  # from NVIDIA's repository, since 590
    (UBUNTU, {"nvidia-dkms-open"}, "libnvidia-compute"),
    (UBUNTU, {"libnvidia-compute-550", "nvidia-dkms-550"}, None),  # not the loaded module's branch
    (UBUNTU, set(), None),
    (DEBIAN, {"libnvidia-ml1"}, "libnvidia-ml1"),
    (DEBIAN, {"nvidia-kernel-dkms"}, "libnvidia-ml1"),
    (DEBIAN, {"nvidia-open-kernel-dkms"}, "libnvidia-ml1"),
    (DEBIAN, {"nvidia-tesla-535-kernel-dkms"}, "libnvidia-tesla-535-ml1"),
    (("fedora",), set(), None),
]  # fmt: skip


@pytest.mark.parametrize(("distribution", "packages", "library"), LIBRARIES)
def test_a_missing_library_is_installed_in_the_flavour_of_the_driver_that_is_there(
    distribution: tuple[str, ...], packages: set[str], library: str | None
) -> None:
    kernel = replace(KERNEL, distribution=distribution)
    programs = replace(PROGRAMS, driver_packages=frozenset(packages))
    finding = found(replace(SICK["library missing"], kernel=kernel, programs=programs))["driver"]
    assert commands(finding) == ([f"sudo apt-get install --reinstall {library}"] if library else [])
    assert ("NVIDIA's guide" in (finding.cause or "")) == (library is None)
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


@pytest.mark.parametrize(("capability", "driver_version", "newest"), [
    ("6.1", "535.104.05", "tensorflow:24.12-tf2-py3"),
    ("6.1", "390.12", "tensorflow:18.08-py3"),
    ("2.1", "390.12", "No image in ngcdl's catalogue does"),
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


def test_an_old_data_centre_card_is_known_by_its_name_where_the_driver_tells_no_brand_of_it() -> None:
    named, numbered = (replace(GTX, name="Tesla P4", brand=brand) for brand in (None, 2))
    driver = replace(DRIVER, version="470.57.02")
    told = [found(replace(HEALTHY, gpus=Probe((card,), driver)))["cards"].cause for card in (named, numbered)]
    assert told[0] == told[1]
    assert "tensorflow:24.12-tf2-py3" in (told[0] or ""), "its forward compatibility counts"


def test_cards_that_are_given_to_a_virtual_machine_or_hidden_from_a_container_are_no_fault() -> None:
    two = replace(KERNEL, pci=("0000:01:00.0", "0000:41:00.0"), in_container=True)
    assert found(replace(HEALTHY, kernel=two))["cards"].state == "ok"


@pytest.mark.parametrize(("nodes", "state", "text"), [
    ((True, False, False, False), "ok", "; 3 more not given to this job"),
    ((True,), "ok", "; 3 more not given to this job"),
    ((True, True, False, False), "warning", "; 2 more not given to this job (its control group withholds them); "),
    ((True, True, True, True), "warning", "8.0); the PCI bus has 3 more"),
])  # fmt: skip
def test_cards_that_a_job_may_not_open_are_no_fault_and_those_that_do_not_answer_are(
    nodes: tuple[bool, ...], state: str, text: str
) -> None:
    """The driver runs four cards and shows one: the others are another job's, or faulty."""
    four = tuple(f"0000:0{index}:00.0" for index in range(4))
    named = tuple(Node(f"/dev/nvidia{index}", True, can_open) for index, can_open in enumerate(nodes))
    others = (Node("/dev/nvidiactl", True),)
    kernel = replace(KERNEL, pci=four, driven=frozenset(four), nodes=named + others)
    finding = found(replace(HEALTHY, kernel=kernel))["cards"]
    assert (finding.state, text in finding.found) == (state, True), finding
    idle = found(replace(HEALTHY, kernel=replace(kernel, pci=(*four, "0000:09:00.0"))))["cards"]
    assert idle.state == "warning", "one that the driver does not drive stays one"


@pytest.mark.parametrize(("is_open", "text"), [(True, "no Maxwell, Pascal or Volta"), (False, "no Blackwell")])
@pytest.mark.parametrize(("what", "link"), [("no card shown", "driver"), ("a card that is not driven", "cards")])
def test_a_card_that_is_not_shown_may_need_the_other_kernel_module(
    what: str, link: str, is_open: bool, text: str
) -> None:
    sight = replace(SICK[what], kernel=replace(SICK[what].kernel, is_open=is_open))
    assert text in (found(sight)[link].cause or "")


@pytest.mark.parametrize(("spec", "text"), [
    ({"missing": frozenset({"/dev/nvidia1"})}, "names /dev/nvidia1, which is not there"),
    ({"renumbered": frozenset({"/dev/nvidia-uvm"})}, "has an outdated device number for /dev/nvidia-uvm"),
    ({"devices": frozenset({"all", "GPU-gone"})}, "names GPU-gone, but no card has that UUID"),
    ({"devices": frozenset({"all", "MIG-1"})}, "describes MIG devices, but MIG is off"),
])  # fmt: skip
def test_a_description_of_things_that_are_gone_is_stale(spec: dict[str, Any], text: str) -> None:
    one = CdiSpec(Path("/etc/cdi/nvidia.yaml"), frozenset({"535.104.05"}), **spec)
    finding = found(replace(HEALTHY, engine=replace(BY_CDI, specs=(one,))))["cdi"]
    assert finding.state == "broken"
    assert text in finding.found


def test_mig_that_is_on_and_not_described_makes_a_description_stale() -> None:
    one = CdiSpec(Path("/var/run/cdi/nvidia.yaml"), devices=frozenset({"all", "0"}))
    gpus = Probe((replace(A100, mig=True, mig_devices=(replace(A100, uuid="MIG-1"),)),), DRIVER)
    sight = replace(HEALTHY, gpus=gpus, engine=replace(BY_CDI, specs=(one,)))
    finding = found(sight)["cdi"]
    assert "there are MIG devices, but it describes none" in finding.found
    assert commands(finding) == ["sudo systemctl restart nvidia-cdi-refresh"]
    old = replace(sight, programs=replace(sight.programs, toolkit="1.17.9"))  # without that service
    assert commands(found(old)["cdi"]) == ["sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"]
    none_made = replace(sight, gpus=Probe((replace(A100, mig=True),), DRIVER))
    assert found(none_made)["cdi"].state == "ok", "a new description would be the same"


FRESH = frozenset({KERNEL.module or ""})
WSL = replace(UNLOADED, pci=(), has_dxg=True, has_windows_driver=True)
OLD = frozenset({"525.60.13"})


@pytest.mark.parametrize(("specs", "named", "typed"), [
    (
        {"/etc/cdi/nvidia.yaml": FRESH, "/var/run/cdi/nvidia.yaml": OLD},
        ["/var/run/cdi/nvidia.yaml"],
        ["sudo systemctl restart nvidia-cdi-refresh"],
    ),
    (
        {"/etc/cdi/a.yaml": OLD, "/run/cdi/c.json": OLD, "/run/cdi/nvidia.yaml": OLD, "/var/run/cdi/nvidia.yaml": OLD},
        ["/etc/cdi/a.yaml", "/run/cdi/c.json", "/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"],
        [
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/a.yaml",
            "sudo nvidia-ctk cdi generate --output=/run/cdi/c.json",
            "sudo systemctl restart nvidia-cdi-refresh",
        ],
    ),
])  # fmt: skip
def test_every_stale_description_is_named_and_made_anew_and_no_other(
    specs: dict[str, frozenset[str]], named: list[str], typed: list[str]
) -> None:
    all_of_them = tuple(CdiSpec(Path(path), drivers) for path, drivers in specs.items())
    finding = found(replace(HEALTHY, engine=replace(BY_CDI, specs=all_of_them)))["cdi"]
    told = [f"{path}: it is for driver 525.60.13, but 535.104.05 is loaded" for path in named]
    assert finding.found == "; ".join(told)
    assert commands(finding) == typed


def test_a_library_without_a_card_is_no_broken_driver() -> None:
    assert not_in_order(replace(WITHOUT_GPU, gpus=silent(driver.NOT_LOADED))) == {}


def test_where_the_bus_can_not_be_seen_a_library_that_answers_is_a_driver() -> None:
    blind = replace(WITHOUT_GPU, kernel=replace(WITHOUT_GPU.kernel, pci=None), gpus=silent(driver.NOT_LOADED))
    assert not_in_order(blind) == {"driver": "broken", "cards": "unchecked", "gpu-way": "broken"}


def test_windows_own_driver_is_not_missed_under_wsl() -> None:
    links = found(replace(HEALTHY, kernel=WSL))
    assert "WSL" in links["driver"].found
    assert links["wsl"].state == "ok"
    for gpus, text in ((NO_LIBRARY, "install it there"), (silent(driver.BLOCKED), "TCC"), (Probe((), DRIVER), "TCC")):
        assert text in (found(replace(HEALTHY, kernel=WSL, gpus=gpus))["driver"].cause or "")
    assert commands(found(replace(SICK["no binding"], kernel=WSL))["driver"]) == ["pip install nvidia-ml-py"]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_jetson_without_nvml_has_a_gpu_that_is_not_measured(is_loaded: bool) -> None:
    tegra = replace(WITHOUT_GPU.kernel, is_tegra=True, is_loaded=is_loaded)
    sight = replace(WITHOUT_GPU, kernel=tegra, gpus=NO_LIBRARY)
    assert not_in_order(sight) == {"driver": "warning", "cards": "unchecked", "gpu-way": "broken"}
    assert "the GPU all the same" in (found(sight)["driver"].cause or "")
    handed = replace(sight, engine=ENGINE)
    assert not_in_order(handed) == {"driver": "warning", "cards": "unchecked"}


def test_docker_desktop_under_wsl_has_the_cards_and_windows_driver() -> None:
    finding = found(replace(SICK["desktop"], kernel=WSL))["engine"]
    assert (finding.state, finding.found.endswith("Docker Desktop under WSL")) == ("ok", True)


def test_a_card_of_another_maker_under_wsl_is_no_nvidia_card() -> None:
    sight = replace(WITHOUT_GPU, kernel=replace(WITHOUT_GPU.kernel, has_dxg=True))
    links = found(sight)
    assert not_in_order(sight) == {}
    assert not {"cards", "gpu-way", "cdi"} & set(links)
    assert links["driver"].found == "Windows has no NVIDIA driver: trainings run on the CPU"
    assert "install its driver in Windows: https://" in (links["driver"].cause or "")


# -- cards ------------------------------------------------------------------------------------------------------


def test_only_the_card_that_needs_a_reset_is_reset_and_not_by_fix() -> None:
    sick = replace(A100, index=1, uuid="GPU-1", error="the GPU needs a reset: sudo nvidia-smi --gpu-reset -i 1 (16)")
    finding = found(replace(HEALTHY, gpus=Probe((A100, sick), DRIVER)))["cards"]
    assert commands(finding) == ["sudo nvidia-smi --gpu-reset -i 1", "sudo dmesg | grep -i xid"]
    assert all(step.by_hand for step in finding.remedy), "programs may be using the card"


def test_a_card_on_which_no_program_may_compute_is_told_and_not_changed_by_fix() -> None:
    shown = replace(A100, index=1, uuid="GPU-1", compute_mode="Prohibited")
    finding = found(replace(HEALTHY, gpus=Probe((A100, shown), DRIVER)))["cards"]
    assert (finding.state, commands(finding)) == ("warning", ["sudo nvidia-smi -i 1 -c 0"])
    assert all(step.by_hand for step in finding.remedy), "it may be the display's card, and set so on purpose"
    assert "GPU 1" in (finding.cause or "")
    slices = replace(shown, mig=True)
    assert found(replace(HEALTHY, gpus=Probe((A100, slices), DRIVER)))["cards"].state == "ok"


@pytest.mark.parametrize(("change", "way", "is_judged"), [
    ({}, "runtime", True), ({"has_dxg": True}, "runtime", False), ({"is_tegra": True}, "runtime", False),
    ({"in_container": True}, "runtime", False), ({"nodes": ()}, "runtime", False), ({}, "none", False),
    ({}, "device-request", False),  # its hook makes the device
])  # fmt: skip
def test_unified_memory_is_missed_where_containers_get_what_is_there(
    change: dict[str, Any], way: str, is_judged: bool
) -> None:
    sight = replace(SICK["uvm"], engine=replace(ENGINE, way=GpuWay(way, "")))
    assert ("uvm" in found(replace(sight, kernel=replace(sight.kernel, **change)))) is is_judged
    assert "uvm" not in found(replace(sight, gpus=NO_LIBRARY))


def test_a_description_without_unified_memory_is_made_anew_after_the_device() -> None:
    one = CdiSpec(Path("/etc/cdi/nvidia.yaml"), FRESH, devices=frozenset({"all"}), lacks_uvm=True)
    anew = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    sight = replace(SICK["uvm"], engine=replace(BY_CDI, specs=(one,)))
    assert commands(found(sight)["uvm"]) == ["sudo nvidia-modprobe -c 0 -u", anew]
    assert not_in_order(sight) == {"uvm": "warning"}
    links = found(replace(sight, kernel=KERNEL))
    assert (links["uvm"].state, links["cdi"].state, commands(links["cdi"])) == ("ok", "broken", [anew])
    assert "it lacks /dev/nvidia-uvm" in links["cdi"].found


def test_a_fabric_that_is_set_up_is_in_order_and_a_card_without_one_needs_none() -> None:
    done = replace(HEALTHY, gpus=Probe((replace(A100, fabric="completed"),), DRIVER))
    assert found(done)["fabric"].state == "ok"
    assert "fabric" not in found(HEALTHY)


@pytest.mark.parametrize(("machine", "capability", "is_on_trays"), [
    ("aarch64", "10.0", True), ("aarch64", "10.3", True),
    ("x86_64", "10.0", False), ("aarch64", "9.0", False), ("aarch64", None, False),
])  # fmt: skip
def test_where_the_fabric_manager_runs_on_other_machines_none_is_started_here(
    machine: str, capability: str | None, is_on_trays: bool
) -> None:
    card = replace(A100, fabric="in progress", compute_capability=capability)
    sight = replace(HEALTHY, gpus=Probe((card,), DRIVER), kernel=replace(KERNEL, machine=machine))
    said = found(sight)["fabric"]
    assert (said.state, "systemctl status nvidia-imex" in commands(said)) == ("warning", is_on_trays)
    assert ("sudo systemctl enable --now nvidia-fabricmanager" in commands(said)) is not is_on_trays
    assert said.source is not None


FABRIC = {"apt-get": "sudo apt-get install", "dnf": "sudo dnf install"}


@pytest.mark.parametrize(("manager", "driver", "packages", "package"), [
    ("apt-get", "535.104.05", set(), "'nvidia-fabricmanager-535=535.104.05*'"),
    ("apt-get", "580.95.05", {"nvidia-dkms-open"}, "'nvidia-fabricmanager=580.95.05*'"),
    ("apt-get", "580.95.05", {"nvidia-dkms-580-server"}, "'nvidia-fabricmanager-580=580.95.05*'"),
    ("dnf", "570.86.10", set(), "nvidia-fabric-manager-570.86.10"),
    ("dnf", "580.95.05", set(), "nvidia-fabricmanager-580.95.05"),
])  # fmt: skip
def test_a_fabric_manager_that_is_missing_is_installed_in_the_driver_s_own_version(
    manager: str, driver: str, packages: set[str], package: str
) -> None:
    programs = Programs(frozenset({manager, "systemctl"}), driver_packages=frozenset(packages))
    sight = replace(SICK["fabric"], programs=programs, kernel=replace(KERNEL, module=driver))
    assert commands(found(sight)["fabric"])[0] == f"{FABRIC[manager]} {package}"
    there = replace(programs, names=programs.names | {"nv-fabricmanager"})
    for other in (there, replace(programs, names=frozenset({"zypper", "systemctl"}))):
        steps = commands(found(replace(sight, programs=other))["fabric"])
        assert steps[0] == "sudo systemctl enable --now nvidia-fabricmanager"


@pytest.mark.parametrize(
    ("capability", "has_nvlink_5"), [("9.0", False), ("10.0", True), ("10.3", True), (None, False)]
)
def test_with_nvlink_5_the_fabric_manager_gets_its_subnet_manager_and_its_module_before_it_is_started(
    capability: str | None, has_nvlink_5: bool
) -> None:
    card = replace(A100, fabric="in progress", compute_capability=capability)
    said = found(replace(HEALTHY, gpus=Probe((card,), DRIVER)))["fabric"]
    needed = ["sudo apt-get install nvlsm infiniband-diags", fabric.UMAD]
    steps = commands(said)
    start = steps.index("sudo systemctl enable --now nvidia-fabricmanager")
    assert (steps[start - 2 : start] == needed) is has_nvlink_5
    assert ("nvlsm" in (said.cause or "")) is has_nvlink_5


# -- two descriptions -------------------------------------------------------------------------------------------


def test_a_stale_description_that_a_later_folder_replaces_is_no_fault() -> None:
    names = frozenset({"all", "0"})
    old, new = (CdiSpec(Path(path), drivers, devices=names) for path, drivers in (
        ("/etc/cdi/nvidia.yaml", OLD), ("/var/run/cdi/nvidia.yaml", FRESH)
    ))  # fmt: skip
    assert found(replace(HEALTHY, engine=replace(BY_CDI, specs=(old, new))))["cdi"].state == "ok"
    more = replace(old, devices=names | {"GPU-a100"})
    finding = found(replace(HEALTHY, engine=replace(BY_CDI, specs=(more, new))))["cdi"]
    assert finding.found.startswith("/etc/cdi/nvidia.yaml: it is for driver"), "the later one lacks a device"
