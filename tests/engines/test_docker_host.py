"""ngcdl.engines.docker.host: what `docker info` says, from several kinds of daemons."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ngcdl.engines.docker import host
from ngcdl.engines.docker.host import Files, read
from ngcdl.engines.values import EngineFacts, architecture

PLAIN: dict[str, Any] = {
    "Name": "vm",
    "ServerVersion": "26.1.5+dfsg1",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "Architecture": "x86_64",
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]],
    "DockerRootDir": "/var/lib/docker",
    "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
    "DefaultRuntime": "runc",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "LiveRestoreEnabled": False,
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin"],
    "HttpProxy": "",
    "RuncCommit": {"ID": "v1.1.12-0-g51d5e94", "Expected": ""},
    "CDISpecDirs": None,
}
CONTAINERD = {"Driver": "overlayfs", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
# As `nvidia-ctk cdi generate` 1.17 writes it, shortened.
YAML = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    - name: not-a-device
    hookName: createContainer
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      name: nor-this
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050
- name: all
  containerEdits: {}
kind: nvidia.com/gpu
"""


def files(texts: dict[str, str] | None = None, free: dict[str, int] | None = None) -> Files:
    texts = texts or {}

    def listed(folder: str) -> list[str] | None:
        return sorted(path for path in texts if path.rpartition("/")[0] == folder) or None

    return Files(texts.get, listed, (free or {}).get)


def test_an_ordinary_engine_tells_all_of_itself() -> None:
    assert read(PLAIN, files(free={"/var/lib/docker": 10**12})) == EngineFacts(
        version="26.1.5+dfsg1", name="vm", architecture="amd64", images_folder="/var/lib/docker", free_bytes=10**12,
        default_runtime="runc", cgroup_driver="systemd", live_restore=False, runc_version="1.1.12",
    )  # fmt: skip


def test_an_engine_that_tells_nothing_is_unknown_in_everything() -> None:
    assert read({}) == read({"DriverStatus": None, "Runtimes": None, "SecurityOptions": None}) == EngineFacts()


def test_another_machine_s_disk_and_descriptions_are_unknown() -> None:
    facts = read({**PLAIN, "CDISpecDirs": ["/etc/cdi"]}, None)
    assert (facts.images_folder, facts.free_bytes) == ("/var/lib/docker", None)
    assert (facts.cdi_dirs, facts.cdi_devices) == (("/etc/cdi",), ())


@pytest.mark.parametrize(("more", "folder"), [
    ({}, "/var/lib/containerd"),
    ({"Containerd": {"Address": "/run/containerd/containerd.sock"}}, "/var/lib/containerd"),
    ({"Containerd": {"Address": "/var/run/docker/containerd/containerd.sock"}}, "/var/lib/docker/containerd/daemon"),
    ({"Containerd": {"Address": "/run/user/1/docker/containerd/containerd.sock"}}, "/var/lib/docker/containerd/daemon"),
    ({"Containerd": {}}, "/var/lib/docker/containerd/daemon"),
    ({"Containerd": {"Address": "/srv/own.sock"}}, "/var/lib/containerd"),
])  # fmt: skip
def test_the_containerd_store_keeps_images_elsewhere(more: dict[str, Any], folder: str) -> None:
    facts = read({**PLAIN, **CONTAINERD, **more}, files(free={folder: 5, "/var/lib/docker": 7}))
    assert (facts.images_folder, facts.free_bytes) == (folder, 5)


def test_what_is_closed_below_the_data_root_is_measured_by_it_and_nothing_else_is() -> None:
    own = {"Containerd": {"Address": "/var/run/docker/containerd/containerd.sock"}}
    assert read({**PLAIN, **CONTAINERD, **own}, files(free={"/var/lib/docker": 7})).free_bytes == 7
    assert read({**PLAIN, **CONTAINERD}, files(free={"/var/lib/docker": 7})).free_bytes is None


def test_devices_are_those_that_the_engine_tells_and_those_that_are_described() -> None:
    spec = {"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "1:0"}]}
    texts = {
        "/etc/cdi/nvidia.yaml": YAML, "/run/cdi/mig.json": json.dumps(spec), "/run/cdi/notes.txt": YAML,
        "/run/cdi/half.json": '{"kind": "nvidia.com/gpu"', "/run/cdi/odd.json": "[]", "/run/cdi/odd.yaml": "devices: 7",
    }  # fmt: skip
    told = [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "cdi", "ID": "vendor.com/nic=eth0"}]
    info = {**PLAIN, "CDISpecDirs": ["/etc/cdi", "/run/cdi", "/absent"], "DiscoveredDevices": told}
    assert read(info, files(texts)).cdi_devices == (
        "nvidia.com/gpu=0",
        "vendor.com/nic=eth0",
        "nvidia.com/gpu=GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050",
        "nvidia.com/gpu=all",
        "nvidia.com/gpu=1:0",
    )
    assert read(info, None).cdi_devices == ("nvidia.com/gpu=0", "vendor.com/nic=eth0")


@pytest.mark.parametrize("shift", ["", "  "])
def test_a_description_in_yaml_is_read_however_its_lists_are_shifted(shift: str) -> None:
    head, _, tail = YAML.partition("devices:\n")
    section, _, end = tail.partition("kind:")
    shifted = "".join(f"{shift}{line}\n" for line in section.splitlines())
    facts = read(
        {"CDISpecDirs": ["/etc/cdi"]}, files({"/etc/cdi/a.yaml": f"{head}devices:\n# all\n{shifted}kind:{end}"})
    )
    assert [one.partition("=")[2] for one in facts.cdi_devices] == [
        "0",
        "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050",
        "all",
    ]


def test_an_option_is_its_name_and_not_any_text_in_another_s() -> None:
    profile = ["name=seccomp,profile=/etc/docker/rootless.json"]
    assert not read({**PLAIN, "SecurityOptions": profile}).is_rootless


@pytest.mark.parametrize(("info", "kind"), [
    ({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]}, "is_rootless"),
    ({"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}, "is_snap"),
    ({"OperatingSystem": "Docker Desktop"}, "is_desktop"),
])  # fmt: skip
def test_each_special_kind_of_engine_is_known_by_its_mark(info: dict[str, Any], kind: str) -> None:
    facts = read({**PLAIN, **info})
    assert [name for name in ("is_rootless", "is_snap", "is_desktop") if getattr(facts, name)] == [kind]


@pytest.mark.parametrize(("told", "shown"), [
    ("http://user:secret@proxy.example:3128", "http://proxy.example:3128"),
    ("user:secret@proxy.example:3128", "proxy.example:3128"),
    ("http://proxy.example:3128", "http://proxy.example:3128"),
    ("http://proxy.example:3128/", "http://proxy.example:3128"),
    ("http://user:secret@[proxy", "http://[proxy"),
    ("http://user:sec/ret@proxy.example:3128/", "http://proxy.example:3128"),
    ("http://user:12/s#e?c://r@t@proxy.example:3128", "http://proxy.example:3128"),
    ("", None),
])  # fmt: skip
def test_a_proxy_s_password_is_not_told(told: str, shown: str | None) -> None:
    facts = read({"HttpProxy": told, "HttpsProxy": told})
    assert (facts.http_proxy, facts.https_proxy) == (shown, shown)


@pytest.mark.parametrize(("annotations", "commit", "version"), [
    ({"org.opencontainers.runc.version": "1.1.5+ds1"}, "v1.1.12-0-g51d5e94", "1.1.5+ds1"),
    ({}, "1.1.5+ds1-1+deb12u1", "1.1.5+ds1-1+deb12u1"),
    ({}, "51d5e94601ceffbbd85688df1c928ecccbfa4685", None),
])  # fmt: skip
def test_runc_s_version_is_where_the_engine_has_it(
    annotations: dict[str, str], commit: str, version: str | None
) -> None:
    status = {"org.opencontainers.runtime-spec.features": json.dumps({"annotations": annotations})}
    info = {"Runtimes": {"runc": {"status": status}}, "RuncCommit": {"ID": commit}}
    assert read(info).runc_version == version
    info["Runtimes"]["runc"]["status"]["org.opencontainers.runtime-spec.features"] = "{"
    assert read({"Runtimes": info["Runtimes"]}).runc_version is None


def test_machines_are_called_as_images_call_them() -> None:
    names = ("x86_64", "amd64", "AMD64", "aarch64", "arm64", "ppc64le", "", None)
    assert [architecture(name) for name in names] == [
        "amd64", "amd64", "amd64", "arm64", "arm64", "ppc64le", None, None,
    ]  # fmt: skip


def test_this_machine_s_disk_is_measured_and_an_absent_folder_is_not(tmp_path: Any) -> None:
    here = host.local_files()
    assert (here.free_bytes(str(tmp_path)) or 0) > 0
    assert here.free_bytes(str(tmp_path / "absent")) is None
    (tmp_path / "a.json").write_text("text")
    assert here.list(str(tmp_path)) == [str(tmp_path / "a.json")]
    assert here.read(str(tmp_path / "a.json")) == "text"
    assert here.list(str(tmp_path / "absent")) is here.read(str(tmp_path)) is None
