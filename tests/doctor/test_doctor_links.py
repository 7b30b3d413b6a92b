"""Each link, judged from what was seen: values in, a finding with cause and command out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from doctor.sick import NAMED, SICK
from doctor.sights import (
    A100,
    DRIVER,
    ENGINE,
    HEALTHY,
    KERNEL,
    PROGRAMS,
    UPGRADE,
    WITHOUT_GPU,
    commands,
    engine,
    found,
    not_in_order,
)
from ngcdl.doctor import chain
from ngcdl.doctor import links as links_package
from ngcdl.doctor.sight import Keys, Registry, Sight, Trouble
from ngcdl.engines.values import GpuWay
from ngcdl.errors import (
    BadOption,
    RegistryAnswer,
    RegistryUnreachable,
)
from ngcdl.telemetry.card import Probe

# -- the chain --------------------------------------------------------------------------------------------------


def test_on_a_healthy_host_every_link_is_ok() -> None:
    assert not_in_order(HEALTHY) == {}


def test_a_driver_that_does_not_tell_its_version_is_shown_with_the_reason() -> None:
    silent = replace(DRIVER, version=None, error="SystemGetDriverVersion: unknown error (999)")
    finding = found(replace(HEALTHY, gpus=Probe((A100,), silent)))["driver"]
    assert finding.found == f"version unknown, for CUDA up to 12.2 ({silent.error})"


def test_a_host_without_an_nvidia_card_is_no_wall_of_red() -> None:
    assert not_in_order(WITHOUT_GPU) == {}
    links = found(WITHOUT_GPU)
    assert "trainings run on the CPU" in links["driver"].found
    assert not {"cards", "gpu-way", "cdi", "daemon-reload", "toolkit"} & set(links)


def test_that_nvcr_io_gets_no_key_is_no_warning_as_its_best_known_images_need_none() -> None:
    finding = found(replace(SICK["no key"], registry_host="nvcr.io"))["credentials"]
    assert (finding.state, finding.found, finding.remedy) == ("ok", "no key for nvcr.io", ())
    assert "need none" in (finding.cause or "")


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


@pytest.mark.parametrize("what", SICK)
def test_exactly_the_link_that_is_sick_is_named(what: str) -> None:
    name, state = NAMED[what]
    changed = not_in_order(SICK[what])
    assert changed.pop(name) == state
    # Links that depend on the sick one are not checked, and say so.
    links = found(SICK[what])
    assert {other: links[other].found for other in changed} == dict.fromkeys(changed, f"needs {name}")


@pytest.mark.parametrize(("error", "cause", "typed"), [
    (BadOption("c.toml is not TOML: x", "Fix it, or move it away."), "Fix it, or move it away.", []),
    (BadOption("HOME is not set.", "Name a folder:\n    export HOME=DIR"), "Name a folder", ["export HOME=DIR"]),
    (BadOption("NGCDL_REGISTRY = x: must be a host."), "Until this is mended, other commands end with it, too", []),
])  # fmt: skip
def test_settings_that_can_t_be_read_are_a_link_of_the_chain(error: BadOption, cause: str, typed: list[str]) -> None:
    unseen = Trouble("needs settings")
    links = found(replace(HEALTHY, settings_error=error, keys=unseen, registry=unseen, dataset=unseen))
    told = links["settings"]
    assert (told.state, told.found, told.cause, commands(told)) == ("broken", error.message, cause, typed)
    needing = {name for name, one in links.items() if one.found == "needs settings" and one.state == "unchecked"}
    assert needing == {"credentials", "registry", "proxy", "dataset"}
    assert "settings" not in found(HEALTHY), "there is nothing to say about them"


def test_a_hole_of_authorization_plugins_is_none_where_there_is_no_such_plugin() -> None:
    for plugins, is_open in (((), False), (("opa",), True)):
        told = found(replace(HEALTHY, engine=engine(version="29.2.0", authorization_plugins=plugins)))["docker"]
        assert (told.state, "CVE-2026-34040" in (told.cause or "")) == ("warning", is_open)


def test_an_engine_that_docker_s_context_names_is_the_one_that_ngcdl_uses() -> None:
    links = found(replace(HEALTHY, context="rootless"))
    assert (links["engine"].state, "from Docker's context rootless" in links["engine"].found) == ("ok", True)


# -- causes and commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "command", "text"), [
    ("no driver", "sudo apt-get update && sudo apt-get install ubuntu-drivers-common", "1 NVIDIA card, but no driver"),
    ("nouveau", "sudo apt-get update && sudo apt-get install ubuntu-drivers-common", "nouveau"),
    ("module not loaded", "sudo modprobe nvidia", "not loaded"),
    ("mismatch", "sudo reboot", "differ"),
    ("library missing", "sudo apt-get install --reinstall libnvidia-compute-535", "535.104.05"),
    ("a lost card", "sudo reboot", "GPU 1: GPU is lost"),
    ("an old card", "ngcdl images", "24.12"),
    ("engine absent", "sudo systemctl start docker", "not running. Without it, ngcdl run --train cifar10 and"),
    ("engine forbidden", "sudo usermod -aG docker $USER", "as good as root"),
    ("engine hangs", "sudo systemctl restart docker", "within 10 s"),
    ("context", "docker context use default", "context gone points there"),
    ("not registered", "sudo nvidia-ctk runtime configure --runtime=docker", "not registered"),
    ("not restarted", "sudo systemctl restart docker", "/etc/docker/daemon.json names the runtime nvidia"),
    ("runtime gone", "sudo apt-get install nvidia-container-toolkit", "/usr/bin/nvidia-container-runtime is not there"),
    ("stale spec in use", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "for driver 525.60.13"),
    ("daemon-reload", "sudo nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place", "legacy mode"),
    ("unprivileged", "export NGCDL_GPU_WAY=cdi", "start, but without GPUs"),
    ("no-cgroups", "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place", "no-cgroups is on"),
    ("rootless with a hook", "sudo nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place", "rootless"),
    ("uvm", "sudo nvidia-modprobe -c 0 -u", "nvidia-smi works without it"),
    ("fabric", "sudo systemctl enable --now nvidia-fabricmanager", "GPU 0: not started"),
    ("two descriptions", "sudo rm /etc/cdi/gpus.json    # or /etc/cdi/nvidia.yaml", "both describe 0, all"),
    ("toolkit", f"{UPGRADE} nvidia-container-toolkit", "CVE-2025-23266"),
    ("runc", f"{UPGRADE} containerd.io", "CVE-2024-21626"),
    ("shm", "sudo mount -o remount,size=50% /dev/shm", "64.0 MiB"),
    ("disk full", "docker image prune", "953.7 MiB free in /var/lib/docker"),
    ("no key", "ngcdl login", "no key for mirror.example"),
    ("config broken", "mv config.json config.json.broken && ngcdl login", "not JSON at byte 3"),
    ("config exposed", "chmod 600 config.json", "Others can read"),
    ("config of another", 'sudo chown "$(id -u)" config.json', "belongs to another user"),
    ("registry away", "curl -sI https://nvcr.io/v2/", "can't be reached"),
    ("key refused", "ngcdl login", "refused the key"),
    ("clock", "sudo timedatectl set-ntp true", "2 hours behind nvcr.io"),
    ("a variable that holds no key", "unset NGC_API_KEY && ngcdl login", "takes precedence over every stored key"),
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
    assert not [step for step in steps if ("reboot" in step.command or "chown" in step.command) and not step.by_hand]


@pytest.mark.parametrize(("name", "sight"), [
    ("toolkit", replace(HEALTHY, programs=replace(PROGRAMS, toolkit="1.13.5-1~deb12u1"))),
    ("runc", replace(HEALTHY, engine=engine(runc_version="1.1.5+ds1"))),
    ("docker", replace(HEALTHY, engine=engine(version="26.1.5+dfsg1"))),
])  # fmt: skip
def test_a_distributions_own_version_can_not_be_told(name: str, sight: Sight) -> None:
    finding = found(sight)[name]
    assert finding.state == "unchecked"
    assert finding.found.startswith("can't tell whether known security holes are closed")


def test_dockers_own_name_of_a_runc_is_understood() -> None:
    assert found(replace(HEALTHY, engine=engine(runc_version="1.4.3-0-g51d5e94")))["runc"].state == "ok"


@pytest.mark.parametrize(("proxies", "state"), [
    ({"https_proxy": "http://proxy:3128", "no_proxy": "localhost,.nvcr.io"}, "ok"),
    ({"https_proxy": "http://proxy:3128", "no_proxy": "other.example"}, "warning"),
    ({"all_proxy": "socks5://proxy:1080"}, "warning"),
])  # fmt: skip
def test_a_registry_that_no_proxy_names_needs_none(proxies: dict[str, str], state: str) -> None:
    assert found(replace(HEALTHY, proxies=proxies))["proxy"].state == state


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "[::1]:5000"])
def test_a_registry_on_this_machine_needs_no_proxy(host: str) -> None:
    sight = replace(HEALTHY, registry_host=host, proxies={"https_proxy": "http://proxy:3128"})
    assert found(sight)["proxy"].found == f"{host} needs none"


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
    assert found(replace(small, wanted_bytes=Trouble("no answer within 4 s", is_late=True)))["disk"].state == "warning"


def test_persistence_mode_and_live_restore_that_are_off_are_hints_with_what_they_cost() -> None:
    sight = replace(HEALTHY, gpus=Probe((replace(A100, persistence=False),), DRIVER), engine=engine(live_restore=False))
    links = found(sight)
    assert not_in_order(sight) == {}
    assert "1 to 3 s" in (links["persistence"].cause or "")
    assert commands(links["persistence"]) == ["sudo nvidia-smi -pm 1"]
    # Ubuntu's unit starts nvidia-persistenced with --no-persistence-mode, and can't be enabled
    with_daemon = replace(sight, programs=replace(PROGRAMS, names=PROGRAMS.names | {"nvidia-persistenced"}))
    assert commands(found(with_daemon)["persistence"]) == ["sudo nvidia-smi -pm 1"]
    assert "ends every training" in (links["live-restore"].cause or "")


def test_an_engine_on_another_machine_is_not_judged_by_this_ones_driver() -> None:
    elsewhere = replace(engine(name="cluster7"), is_here=False, way=GpuWay("none", ""))
    links = found(replace(HEALTHY, engine=elsewhere))
    assert "cluster7" in links["engine"].found
    assert "gpu-way" not in links
    there = replace(WITHOUT_GPU, engine=replace(engine(name="cluster7"), is_here=False))
    assert found(there)["gpu-way"].state == "ok"


def test_a_limit_on_locked_memory_matters_to_gpus_alone() -> None:
    limited = replace(ENGINE, way=GpuWay("none", ""), can_raise_limits=False, memlock_bytes=8 << 20)
    assert not_in_order(replace(WITHOUT_GPU, engine=limited)) == {}


def test_selinux_is_only_spoken_of_where_it_enforces() -> None:
    links = found(replace(HEALTHY, kernel=replace(KERNEL, enforces_selinux=True)))
    assert "ngcdl runs its containers with label=disable" in (links["selinux"].cause or "")
    assert "selinux" not in found(HEALTHY)


def test_a_certificate_out_of_date_is_taken_for_a_wrong_clock() -> None:
    error = RegistryUnreachable("nvcr.io", "its certificate is not valid now", is_invalid=True, by_clock=True)
    assert found(replace(HEALTHY, registry=Registry(error=error)))["clock"].state == "broken"
    page = RegistryAnswer("nvcr.io", "200 OK: Your session has expired, sign in to this network")
    assert found(replace(HEALTHY, registry=Registry(error=page)))["clock"].state == "unchecked"


def test_a_key_in_clear_is_a_hint() -> None:
    finding = found(replace(HEALTHY, keys=Keys("/home/me/.docker/config.json", in_clear=True)))["credentials"]
    assert finding.state == "ok"
    assert "unencrypted" in (finding.cause or "")
