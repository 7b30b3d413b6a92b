"""The looks: files below a root, programs on a PATH, the key and the registry; none of them delays the others."""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ngcdl import settings
from ngcdl.doctor import look
from ngcdl.doctor.hands import Hands, output, space
from ngcdl.doctor.look import engine, image, kernel, keys, programs
from ngcdl.doctor.sight import UVM, Node, ToolkitConfig, Trouble
from ngcdl.errors import EngineAbsent, NoGpu
from ngcdl.registry.kept import KeptAnswers, Said

NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (dvs)\n"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is slow, but does not hang."""
    monkeypatch.setattr(programs, "_SECONDS", 240.0)


def put(root: Path, files: dict[str, str]) -> Hands:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Hands(root, {"PATH": str(root / "bin"), "HOME": "/home/me"})


def card(root: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> Path:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text(kind + "\n")
    return folder


@pytest.mark.parametrize(("text", "version", "is_open"), [
    (NVRM, "535.104.05", False), (OPEN, "560.35.03", True), ("NVRM version: ?\n", None, None),
])  # fmt: skip
def test_the_loaded_modules_version_and_kind_are_read_in_both_of_their_forms(
    tmp_path: Path, text: str, version: str | None, is_open: bool | None
) -> None:
    seen = kernel.look(put(tmp_path, {"proc/driver/nvidia/version": text}), "x86_64")
    assert (seen.module, seen.is_loaded, seen.is_open) == (version, True, is_open)


def test_of_the_bus_only_nvidias_display_devices_count_that_are_not_handed_on(tmp_path: Path) -> None:
    card(tmp_path, "0000:01:00.0", kind="0x030000")
    card(tmp_path, "0000:01:00.1", kind="0x040300")  # the same card's audio
    card(tmp_path, "0000:02:00.0", vendor="0x1002", kind="0x030000")
    given = card(tmp_path, "0000:03:00.0")
    (tmp_path / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True)
    (given / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/vfio-pci")
    driven = card(tmp_path, "0000:04:00.0")
    (tmp_path / "sys/bus/pci/drivers/nvidia").mkdir()
    (driven / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/nvidia")
    seen = kernel.look(Hands(tmp_path, {}), "x86_64")
    assert (seen.pci, seen.driven) == (("0000:01:00.0", "0000:04:00.0"), {"0000:04:00.0"})


def test_a_bus_that_can_not_be_seen_is_unknown_and_one_without_cards_is_not(tmp_path: Path) -> None:
    assert kernel.look(Hands(tmp_path, {}), "x86_64").pci is None
    card(tmp_path, "0000:00:01.0", vendor="0x1af4", kind="0x020000")
    assert kernel.look(Hands(tmp_path, {}), "x86_64").pci == ()


def test_the_rest_of_the_kernels_word_is_read(tmp_path: Path) -> None:
    hands = put(tmp_path, {
        "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu avx avx2\n", "sys/fs/selinux/enforce": "1",
        "etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE="debian"\n', "sys/module/nouveau/version": "",
        "run/.containerenv": "", "dev/dxg": "",
    })  # fmt: skip
    seen = kernel.look(hands, "x86_64")
    assert seen.cpu_flags == {"fpu", "avx", "avx2"}
    assert (seen.enforces_selinux, seen.has_nouveau, seen.in_container, seen.has_dxg) == (True, True, True, True)
    assert seen.distribution == ("ubuntu", "debian")


@pytest.mark.parametrize(("text", "is_within"), [
    ("         0          0 4294967295\n", False), ("         0     100000      65536\n", True), (None, False),
    ("0 1000 1\n1 100000 65536\n", True),
])  # fmt: skip
def test_a_user_namespace_is_known_by_the_user_ids_that_it_lacks(
    tmp_path: Path, text: str | None, is_within: bool
) -> None:
    hands = put(tmp_path, {"proc/self/uid_map": text} if text else {})
    assert kernel.look(hands, "x86_64").in_user_namespace is is_within


@pytest.mark.parametrize(("files", "has_driver"), [
    ({"dev/dxg": ""}, False), ({"dev/dxg": "", "usr/lib/wsl/lib/libnvidia-ml.so.1": ""}, True),
])  # fmt: skip
def test_windows_driver_is_seen_by_its_library(tmp_path: Path, files: dict[str, str], has_driver: bool) -> None:
    seen = kernel.look(put(tmp_path, files), "x86_64")
    assert (seen.has_dxg, seen.has_windows_driver) == (True, has_driver)


def test_device_nodes_are_looked_for_in_dev_char(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev/char").mkdir(parents=True)
    try:
        for name, minor in (("nvidia0", 0), ("nvidiactl", 255)):
            os.mknod(tmp_path / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(195, minor))
    except PermissionError:
        pytest.skip("device nodes are root's to make")
    (tmp_path / "dev/char/195:255").symlink_to("../nvidiactl")
    # As in a job's control group: this process may open one device and not the other.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name == "nvidiactl" and mode == os.R_OK | os.W_OK)
    assert kernel.look(Hands(tmp_path, {}), "x86_64").nodes == (
        Node("/dev/nvidia0", False, False), Node("/dev/nvidiactl", True, True),
    )  # fmt: skip


@pytest.mark.parametrize(("program", "said", "version"), [
    ("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 9b69590c7428470a\n", "1.17.4"),
    ("nvidia-container-cli", "cli-version: 1.13.5\nlib-version: 1.13.5\nbuild date: 2023\n", "1.13.5"),
    ("nvidia-ctk", "what?\n", None),
])  # fmt: skip
def test_the_toolkit_is_asked_for_its_version(tmp_path: Path, program: str, said: str, version: str | None) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
    (tmp_path / "bin" / program).chmod(0o755)
    seen = programs.look(Hands(tmp_path, {"PATH": str(tmp_path / "bin")}))
    assert seen.toolkit == version
    assert program in seen.names


def test_the_packages_of_the_driver_are_asked_for_where_its_module_is_loaded(tmp_path: Path) -> None:
    lines = ("installed libnvidia-ml1", "config-files nvidia-dkms-525", "installed bash", "installed nvidia-dkms")
    hands = put(tmp_path, {"bin/dpkg-query": f"#!/bin/sh\nprintf '%s\\n' {' '.join(map(repr, lines))}\n"})
    (tmp_path / "bin/dpkg-query").chmod(0o755)
    assert programs.look(hands).driver_packages == frozenset()
    put(tmp_path, {"proc/driver/nvidia/version": NVRM})
    assert programs.look(hands).driver_packages == {"libnvidia-ml1", "nvidia-dkms"}


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no Debian")
def test_dpkg_lists_packages_in_the_words_that_are_read(tmp_path: Path) -> None:
    listed = programs.listed(Hands()) or ""
    assert "installed dpkg\n" in listed


def test_a_program_that_hangs_or_fails_says_nothing(tmp_path: Path) -> None:
    assert output(["sleep", "600"], 0.1) is None
    assert output(["false"], 240) is None
    assert output([str(tmp_path / "nosuch")], 240) is None
    assert output(["echo", "so"], 240) == "so\n"


def test_a_program_that_no_signal_ends_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi in a driver that hangs: here no signal reaches it."""
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    left: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr("ngcdl.processes.abandoned", left)
    assert output(["sleep", "30"], 0.1) is None
    (process,) = left
    assert (process.poll(), process.stdout and process.stdout.closed) == (None, True)
    process.kill()
    process.wait(240)


def test_systemctl_counts_only_where_systemd_runs(tmp_path: Path) -> None:
    hands = put(tmp_path, {"bin/systemctl": "#!/bin/sh\n"})
    (tmp_path / "bin/systemctl").chmod(0o755)
    assert "systemctl" not in programs.look(hands).names
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert "systemctl" in programs.look(hands).names


def test_free_space_of_a_folder_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert space(tmp_path / "nosuch") is None
    found = space(tmp_path)
    assert found is not None
    assert 0 < found.free_bytes <= found.total_bytes


@pytest.mark.parametrize(("text", "config"), [
    (None, ToolkitConfig()),
    ("", ToolkitConfig()),
    ("#accept-nvidia-visible-devices-envvar-when-unprivileged = false\n[nvidia-container-cli]\n", ToolkitConfig()),
    ("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n", ToolkitConfig(takes_variable=False)),
    ("[nvidia-container-cli]\nno-cgroups = true\n[nvidia-container-runtime]\nmode = \"legacy\"\n",
     ToolkitConfig("legacy", no_cgroups=True)),
    ("nvidia-container-runtime = 1\n", None),
    ("[", None),
])  # fmt: skip
def test_the_toolkits_settings_are_read_with_its_defaults(
    tmp_path: Path, text: str | None, config: ToolkitConfig | None
) -> None:
    file = "etc/nvidia-container-runtime/config.toml"
    hands = Hands(tmp_path, {}) if text is None else put(tmp_path, {file: text})
    assert programs.look(hands).toolkit_config == config


def test_settings_that_can_not_be_read_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "etc/nvidia-container-runtime/config.toml").mkdir(parents=True)
    assert programs.toolkit_config(Hands(tmp_path, {})) is None


@pytest.mark.parametrize("file", ["etc/nv_tegra_release", "sys/devices/soc0/family"])
def test_a_jetson_is_known_by_its_files(tmp_path: Path, file: str) -> None:
    assert not kernel.look(Hands(tmp_path, {}), "aarch64").is_tegra
    assert kernel.look(put(tmp_path, {file: "Tegra\n"}), "aarch64").is_tegra


# -- the engine's files -----------------------------------------------------------------------------------------

YAML = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: GPU-5f1e2d3c
containerEdits:
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05
  - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.104.05
"""
JSON = {
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}, {"name": "GPU-5f1e2d3c"}],
    "containerEdits": {"mounts": [{"hostPath": "/usr/lib64/libcuda.so.535.104.05"}]},
}


@pytest.mark.parametrize(("name", "text"), [("nvidia.yaml", YAML), ("nvidia.json", json.dumps(JSON))])
def test_a_cdi_description_is_read_in_both_of_its_formats(tmp_path: Path, name: str, text: str) -> None:
    hands = put(tmp_path, {f"etc/cdi/{name}": text, "etc/cdi/other.yaml": "kind: vendor.com/net\n"})
    (spec,) = engine.cdi_specs(hands, ("/etc/cdi", "/var/run/cdi"))
    assert spec.path == Path("/etc/cdi") / name
    assert spec.drivers == {"535.104.05"}
    assert spec.devices == {"0", "GPU-5f1e2d3c"}
    assert spec.missing == {"/dev/nvidia0"}


@pytest.mark.parametrize(("numbers", "is_other"), [
    ({}, False),  # as the toolkit wrote it before 1.19: the engine looks the number up
    ({"major": 1, "minor": 3}, False), ({"major": 2, "minor": 3}, True), ({"major": 1}, True),
    ({"type": "c", "major": 509, "minor": 1, "fileMode": 438, "permissions": "rwm"}, True),
])  # fmt: skip
@pytest.mark.parametrize("is_yaml", [True, False])
def test_a_device_with_another_number_than_described_is_known(
    tmp_path: Path, numbers: dict[str, Any], is_other: bool, is_yaml: bool
) -> None:
    node = {"path": UVM} | numbers
    text = json.dumps(JSON | {"containerEdits": {"deviceNodes": [node, {"path": "/dev/nvidiactl", "major": 195}]}})
    if is_yaml:
        fields = "\n".join(f"      {name}: {value}" for name, value in node.items()).strip()
        text = YAML.replace("  mounts:\n", f"  deviceNodes:\n    - {fields}\n  mounts:\n")
    hands = put(tmp_path, {"etc/cdi/nvidia.yaml": text, "dev/nvidiactl": "no device"})
    (tmp_path / "dev/nvidia-uvm").symlink_to("/dev/null")  # 1:3, https://docs.kernel.org/admin-guide/devices.html
    (spec,) = engine.cdi_specs(hands, ("/etc/cdi",))
    assert spec.renumbered == ({UVM} if is_other else set())


def test_a_description_of_another_kind_is_none_of_gpus(tmp_path: Path) -> None:
    management = YAML.replace("nvidia.com/gpu", "management.nvidia.com/gpu")
    hands = put(
        tmp_path, {"etc/cdi/a.yaml": management, "etc/cdi/b.json": json.dumps(JSON | {"kind": "nvidia.com/gds"})}
    )
    assert engine.cdi_specs(hands, ("/etc/cdi",)) == ()


def test_a_description_with_cards_and_without_unified_memory_is_known(tmp_path: Path) -> None:
    whole = YAML.replace("    - path: /dev/nvidia0\n", "    - path: /dev/nvidia0\n    - path: /dev/nvidia-uvm\n")
    hands = put(tmp_path, {"etc/cdi/a.yaml": YAML, "etc/cdi/b.yaml": whole})
    assert [spec.lacks_uvm for spec in engine.cdi_specs(hands, ("/etc/cdi",))] == [True, False]


@pytest.mark.parametrize(("path", "there", "is_missing"), [
    ("nvidia-container-runtime", None, True),
    ("nvidia-container-runtime", "usr/bin", False),
    ("nvidia-container-runtime", "usr/local/bin", False),
    ("nvidia-container-runtime", "bin", False),  # on PATH
    ("/usr/bin/nvidia-container-runtime", "usr/bin", False),
    ("/usr/bin/nvidia-container-runtime", None, True),
    ("", None, False),  # a runtime of containerd's, without a program
])  # fmt: skip
def test_the_runtimes_program_is_looked_for_by_path_and_by_name(
    tmp_path: Path, path: str, there: str | None, is_missing: bool
) -> None:
    hands = put(tmp_path, {f"{there}/nvidia-container-runtime": ""} if there else {})
    for file in tmp_path.rglob("nvidia-container-runtime"):
        file.chmod(0o755)
    assert engine.missing_program(hands, path) == (path if is_missing else None)


@pytest.mark.parametrize(
    ("rootless", "file"), [(False, "etc/docker/daemon.json"), (True, "home/me/.config/docker/daemon.json")]
)
def test_a_runtime_that_is_registered_in_the_engines_file_is_found(tmp_path: Path, rootless: bool, file: str) -> None:
    hands = put(tmp_path, {file: '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'})
    assert engine.registered(hands, is_rootless=rootless) == Path("/") / file
    assert engine.registered(hands, is_rootless=not rootless) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"runtimes": null}', '{"runtimes": []}'])
def test_a_daemon_json_that_is_broken_or_empty_registers_nothing(tmp_path: Path, text: str) -> None:
    assert engine.registered(put(tmp_path, {"etc/docker/daemon.json": text}), is_rootless=False) is None


@pytest.mark.parametrize(("capabilities", "limit", "can_raise"), [
    ("000001ffffffffff", "8388608", True), ("000001fffeffffff", "8388608", False), ("0", "unlimited", True),
])  # fmt: skip
def test_a_daemon_may_raise_limits_with_the_capability_or_with_none_of_its_own(
    tmp_path: Path, capabilities: str, limit: str, can_raise: bool
) -> None:
    limits = f"Limit  Soft Limit  Hard Limit  Units\nMax locked memory         {limit}   {limit}    bytes\n"
    hands = put(tmp_path, {"proc/7/status": f"Name: dockerd\nCapEff:\t{capabilities}\n", "proc/7/limits": limits})
    assert engine.can_raise_limits(hands, 7) is can_raise
    assert engine.memlock_limit(hands, 7)[1] == (None if limit == "unlimited" else 8388608)
    assert engine.can_raise_limits(hands, 8) is None


def test_without_ngcdls_settings_no_limit_is_known_to_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGCDL_REGISTRY", "x")
    known: Any = SimpleNamespace(info={})
    assert not engine._memlock_forbidden(known)


@pytest.mark.parametrize(("environ", "config", "name"), [
    ({}, '{"currentContext": "desktop-linux"}', "desktop-linux"), ({}, '{"currentContext": "default"}', None),
    ({"DOCKER_CONTEXT": "far"}, "{}", "far"), ({"DOCKER_HOST": "tcp://x"}, '{"currentContext": "far"}', None),
    ({}, "{", None),
])  # fmt: skip
def test_dockers_own_context_is_named_where_it_leads_elsewhere(
    tmp_path: Path, environ: dict[str, str], config: str, name: str | None
) -> None:
    (tmp_path / "config.json").write_text(config)
    assert keys.context(Hands(Path("/"), {"DOCKER_CONFIG": str(tmp_path), **environ})) == name


# -- all together -----------------------------------------------------------------------------------------------


def test_the_size_of_the_default_image_is_the_one_that_was_kept_for_this_hosts_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HOME": str(tmp_path), "NGCDL_DEFAULT_IMAGE": "pytorch:26.07-py3"}
    known, digest = settings.load(environ), "sha256:" + "0" * 64
    kept = KeptAnswers(known.cache, f"{known.registry}/nvidia/pytorch")
    kept.keep_tagged("26.07-py3", digest)
    kept.keep_image("arm64", Said(digest, "arm64", ("amd64", "arm64"), 1000, False, {}))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert image.look(Hands(tmp_path, environ), known) == 3500
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert image.look(Hands(tmp_path, environ), known) is None


def test_a_look_that_hangs_fails_or_knows_why_takes_nothing_from_the_others() -> None:
    forever = threading.Event()

    def refuses() -> None:
        raise NoGpu("all", "there is none")

    looks = {"hangs": forever.wait, "fails": lambda: {}["x"], "refuses": refuses, "works": lambda: 42}
    seen = look.together(looks, {"hangs": 0.2} | dict.fromkeys(["fails", "refuses", "works"], 240.0))
    forever.set()
    assert seen["works"] == 42
    assert seen["hangs"] == Trouble("no answer within 0.2 s", is_late=True)
    assert seen["fails"].why == "ngcdl could not look: KeyError: 'x'"
    assert isinstance(seen["refuses"].error, NoGpu)


def test_without_ngcdls_settings_all_else_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    seen = look.gather(Hands(put(tmp_path, {"dev/shm/x": ""}).root, {"HOME": str(tmp_path), "NGCDL_REGISTRY": "x"}))
    assert seen.settings_error is not None
    assert seen.settings_error.message.startswith("NGCDL_REGISTRY = x: must be a host")
    needing = Trouble("needs settings")
    assert (seen.keys, seen.registry, seen.dataset, seen.wanted_bytes) == (needing,) * 4
    assert isinstance(seen.engine, Trouble)
    assert isinstance(seen.engine.error, EngineAbsent)
    assert seen.shm is not None


def test_where_the_engine_was_looked_for_is_known_though_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    seen = look.gather(Hands(tmp_path, {"HOME": str(tmp_path), "NGCDL_REGISTRY": "127.0.0.1:1"}))
    assert (seen.address, isinstance(seen.engine, Trouble)) == ("tcp://127.0.0.1:1", True)
