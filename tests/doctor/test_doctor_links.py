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
    WITHOUT_GPU,
    commands,
    engine,
    found,
    not_in_order,
)
from ngcdl.doctor import chain
from ngcdl.doctor import links as links_package
from ngcdl.doctor.chain import from_error
from ngcdl.doctor.sight import Keys, Programs, Registry, Sight, Trouble
from ngcdl.engines.values import GpuWay
from ngcdl.errors import (
    BadOption,
    EngineAbsent,
    EngineHangs,
    RegistryAnswer,
    RegistryUnreachable,
)
from ngcdl.telemetry.card import Probe

UPGRADE = "sudo apt-get update && sudo apt-get install --only-upgrade"


# -- the chain --------------------------------------------------------------------------------------------------


def test_on_a_healthy_host_every_link_is_ok() -> None:
    assert not_in_order(HEALTHY) == {}


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


def test_without_systemd_the_engine_is_started_in_the_older_way() -> None:
    sight = replace(SICK["engine absent"], programs=Programs(frozenset({"dockerd"})))
    assert commands(found(sight)["engine"]) == ["sudo service docker start"]


RHEL = "sudo curl -fsSL -o /etc/yum.repos.d/docker-ce.repo https://download.docker.com/linux/rhel/docker-ce.repo"
CENTOS = RHEL.replace("/rhel/", "/centos/")
CE = "sudo dnf install docker-ce docker-ce-cli containerd.io"
START = "sudo systemctl enable --now docker"
ENGINES = [
    ("apt-get", ("debian",), ["sudo apt-get install docker.io"]),
    ("dnf", ("fedora",), ["sudo dnf install moby-engine", START]),
    ("dnf", ("amzn", "fedora"), ["sudo dnf install docker", START]),
    ("dnf", ("rhel", "fedora"), [RHEL, CE, START]),
    ("dnf", ("almalinux", "rhel", "centos", "fedora"), [RHEL, CE, START]),
    ("dnf", ("rocky", "rhel", "centos", "fedora"), [RHEL, CE, START]),
    ("dnf", ("centos", "rhel", "fedora"), [CENTOS, CE, START]),
    ("dnf", ("ol", "fedora"), []),  # unknown packages
    ("zypper", ("opensuse-leap", "suse", "opensuse"), ["sudo zypper install docker", START]),
    ("pacman", ("arch",), ["sudo pacman -S docker", START]),
    ("apk", ("alpine",), []),
]


@pytest.mark.parametrize(("manager", "distribution", "typed"), ENGINES)
def test_an_engine_that_is_not_installed_is_installed_as_its_distribution_has_it_and_started(
    manager: str, distribution: tuple[str, ...], typed: list[str]
) -> None:
    programs = Programs(frozenset({manager, "systemctl"}))
    kernel = replace(KERNEL, distribution=distribution)
    finding = found(replace(SICK["engine absent"], programs=programs, kernel=kernel))["engine"]
    assert (commands(finding), finding.source) == (typed, "https://docs.docker.com/engine/install/")
    without = "Without it, ngcdl run --train cifar10 and ngcdl run -- python train.py run on this host"
    assert finding.cause == f"It is not installed. {without}"
    programs_and_podman = replace(programs, names=programs.names | {"podman"})
    finding = found(replace(SICK["engine absent"], programs=programs_and_podman, kernel=kernel))["engine"]
    socket = "export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock"
    assert commands(finding) == ["systemctl --user enable --now podman.socket", socket]
    assert [step.by_hand for step in finding.remedy] == [False, True], "only this shell can set its variable"
    of_snap = replace(engine(is_snap=True), way=GpuWay("none", ""))
    snap = found(replace(HEALTHY, engine=of_snap, programs=programs, kernel=kernel))["gpu-way"]
    instead = ["sudo snap remove docker", *typed] if typed else []
    assert commands(snap) == ["sudo snap refresh docker", *instead], "nothing is removed for nothing"
    assert all(step.by_hand for step in snap.remedy), "images, containers and volumes are lost with it"


@pytest.mark.parametrize(("manager", "distribution", "typed"), [
    ("apt-get", ("ubuntu", "debian"), [f"{UPGRADE} containerd.io", f"{UPGRADE} docker-ce"]),
    ("dnf", ("fedora",), ["sudo dnf upgrade runc", "sudo dnf upgrade moby-engine"]),
    ("dnf", ("amzn", "fedora"), ["sudo dnf upgrade runc", "sudo dnf upgrade docker"]),
    ("dnf", ("rocky", "rhel", "centos", "fedora"), ["sudo dnf upgrade containerd.io", "sudo dnf upgrade docker-ce"]),
    ("zypper", ("opensuse-leap", "suse"), ["sudo zypper update runc", "sudo zypper update docker"]),
])  # fmt: skip
def test_an_upgrade_names_the_packages_of_the_engine_that_is_installed_here(
    manager: str, distribution: tuple[str, ...], typed: list[str]
) -> None:
    sight = replace(
        HEALTHY,
        engine=engine(runc_version="1.1.11", version="28.0.0"),
        programs=replace(PROGRAMS, names=frozenset({manager, "systemctl"})),
        kernel=replace(KERNEL, distribution=distribution),
    )
    links = found(sight)
    assert commands(links["runc"]) + commands(links["docker"]) == typed


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
    late = replace(HEALTHY, engine=Trouble("no answer within 12 s", is_late=True), address=address)
    trouble = Trouble("", error(address, 10) if error else None)
    finding = found(replace(HEALTHY, engine=trouble) if error else late)["engine"]
    assert (finding.state, commands(finding)) == ("broken", typed)
    assert ("where it runs" in (finding.cause or "")) == (not typed)
    if trouble.error is not None:
        assert commands(from_error("engine", trouble.error)) == typed


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "DOCKER_CONTEXT"])
def test_an_address_that_a_variable_names_is_not_mended_by_a_start(variable: str) -> None:
    error = EngineAbsent("tcp://10.0.0.1:2375", "the connection was refused", is_default=False, named_by=variable)
    finding = found(replace(HEALTHY, engine=Trouble("", error), context="gone"))["engine"]
    assert [step.command for step in finding.remedy if step.command.startswith("unset")] == [f"unset {variable}"]
    assert "go back to the default. A bundled training" in (finding.cause or ""), "the commands stand apart"
    assert all(step.by_hand for step in finding.remedy)


@pytest.mark.parametrize(("version", "typed"), [
    ("Podman 4.9.3", []), ("Podman 5.6.0", ["sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"]),
])  # fmt: skip
def test_podman_is_not_told_to_register_a_runtime(version: str, typed: list[str]) -> None:
    podman = replace(engine(version=version), way=GpuWay("none", "by CDI alone", is_final=True))
    finding = found(replace(HEALTHY, engine=podman))["gpu-way"]
    assert (finding.state, finding.found, commands(finding)) == ("broken", "by CDI alone", typed)
    assert ("Update Podman" in (finding.cause or "")) is (not typed)


def test_podman_is_not_judged_by_docker_s_holes() -> None:
    links = found(replace(HEALTHY, engine=engine(version="Podman 4.3.1")))
    assert links["engine"].found.startswith("Podman 4.3.1 at ")
    assert "docker" in found(HEALTHY)
    assert "docker" not in links


def test_rootless_docker_is_configured_as_its_own_user() -> None:
    rootless = replace(engine(is_rootless=True), way=GpuWay("none", ""))
    finding = found(replace(HEALTHY, engine=rootless))["gpu-way"]
    typed = commands(finding)
    assert typed[0] == "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json"
    (of_the_host,) = [step for step in finding.remedy if "no-cgroups" in step.command]
    assert of_the_host.by_hand, "it takes the GPUs from Docker as root: no --fix for that"
    assert typed[-1] == "systemctl --user restart docker"


def test_docker_from_snap_that_hands_over_gpus_is_left_alone_but_what_it_does_not_see_is_said() -> None:
    links = found(replace(HEALTHY, engine=engine(is_snap=True)))
    engine_s = links["engine"]
    assert (engine_s.state, engine_s.source, links["gpu-way"].state) == (
        "warning", "https://docs.docker.com/engine/install/", "ok"
    )  # fmt: skip
    assert commands(engine_s) == ["export XDG_STATE_HOME=$HOME/ngcdl-state XDG_CACHE_HOME=$HOME/ngcdl-cache"]
    assert all(step.by_hand for step in engine_s.remedy)
    # the snap has its own toolkit, whose settings are not known
    assert links["daemon-reload"].state == "unchecked"


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
