"""Real problems with an engine: exactly that link is reported, and its remedy makes it green."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ngcdl_child import user_in
from own_engine import engine_of_ones_own
from patient import Look, Patient, green, named

pytestmark = pytest.mark.lab

UID = 61234


# -- the engine: all real ----------------------------------------------------------------------------------


def test_an_engine_that_is_not_there(patient: Patient, before: Look) -> None:
    after = patient.look(DOCKER_HOST="unix:///nosuch/docker.sock")
    named(before, after, "engine", "broken")
    assert "unset DOCKER_HOST" in after.commands("engine")
    green(before, patient.look())


def test_an_engine_that_this_user_may_not_talk_to(patient: Patient) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    address = Path(patient.user.environment["DOCKER_HOST"].removeprefix("unix://"))
    for path in (patient.user.home, *patient.user.home.rglob("*")):
        os.chown(path, UID, UID)
    # The capability lets ngcdl read the interpreter, which may be below /root, but not open the engine's socket.
    words = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--inh-caps=+dac_read_search")
    words += ("--ambient-caps=+dac_read_search",)
    probe = subprocess.run([*words, "--clear-groups", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("setpriv can't make an ordinary user here")
    # Equivalent to joining the group docker: the group that owns the lab's socket.
    member = (*words, f"--groups={address.stat().st_gid}", "--")
    before = patient.look(member)
    after = patient.look((*words, "--clear-groups", "--"))
    named(before, after, "engine", "broken")
    assert after.commands("engine") == ["sudo usermod -aG docker $USER"]
    green(before, patient.look(member))


def test_an_engine_that_never_answers(patient: Patient, before: Look) -> None:
    path = patient.user.folder / "silent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)
        after = patient.look(is_hurried=True, DOCKER_HOST=f"unix://{path}")
    named(before, after, "engine", "broken")
    assert "no answer" in after.links["engine"]["found"]
    assert "sudo systemctl restart docker" in after.commands("engine")
    assert after.seconds < 40


def test_a_runtime_that_is_not_registered(patient: Patient, before: Look) -> None:
    """Real: the lab's engine without a GPU chain, with a toolkit installed. Equivalent to the remedy: the engine that
    has the runtime registered."""
    bare = patient.user.lab.get("bare")
    if not bare:
        pytest.skip("no engine without a GPU chain: scripts/lab up --without-gpu")
    after = patient.look(DOCKER_HOST=bare["host"])
    named(before, after, "gpu-way", "broken")
    assert "not registered" in after.links["gpu-way"]["cause"]
    assert after.commands("gpu-way")[0] == "sudo nvidia-ctk runtime configure --runtime=docker"
    green(before, patient.look())


def test_a_runtime_that_waits_for_a_restart_of_the_engine(patient: Patient, before: Look) -> None:
    """Injected: /etc/docker/daemon.json, with a runtime that the engine does not have yet."""
    bare = patient.user.lab.get("bare")
    if not bare:
        pytest.skip("no engine without a GPU chain: scripts/lab up --without-gpu")
    patient.put("etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
    after = patient.look(DOCKER_HOST=bare["host"])
    named(before, after, "gpu-way", "broken")
    assert after.commands("gpu-way") == ["sudo systemctl restart docker"]
    green(before, patient.look())


SPEC = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia-uvm
containerEdits:
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{driver}
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{driver}
"""


def test_cdi_descriptions_that_are_stale_or_gone(lab: dict[str, Any], tmp_path: Path) -> None:
    """Real: an engine with CDI only. Equivalent to `nvidia-ctk cdi generate`: writing the description itself."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    spec = folder / "nvidia.yaml"
    spec.write_text(SPEC.format(driver="535.104.05"))
    settings: dict[str, Any] = {"features": {"cdi": True}, "cdi-spec-dirs": [str(folder)]}
    with engine_of_ones_own(lab, **settings) as engine, user_in(tmp_path / "user", lab, engine.host) as user:
        patient = Patient(user)
        user.login()
        before = patient.look()
        assert before.states["cdi"] == "ok"

        spec.write_text(SPEC.format(driver="525.60.13"))
        after = patient.look()
        named(before, after, "cdi", "broken")
        assert "it is for driver 525.60.13, but 535.104.05 is loaded" in after.links["cdi"]["found"]
        assert after.commands("cdi") == [f"sudo nvidia-ctk cdi generate --output={spec}"]

        spec.write_text(SPEC.format(driver="535.104.05").replace("nvidia0", "nvidia7"))
        after = patient.look()
        named(before, after, "cdi", "broken")
        assert "/dev/nvidia7, which is not there" in after.links["cdi"]["found"]

        shutil.rmtree(folder)
        after = patient.look()
        named(before, after, "gpu-way", "broken")
        assert str(folder) in after.links["gpu-way"]["cause"]

        folder.mkdir()
        spec.write_text(SPEC.format(driver="535.104.05"))
        green(before, patient.look())


def test_an_engine_whose_disk_is_full(lab: dict[str, Any], patient: Patient, before: Look) -> None:
    """Real: a data root on a small tmpfs."""
    with engine_of_ones_own(lab, tmpfs_bytes=64 << 20) as engine:
        runtimes = dict.fromkeys(("gpu-way", "memlock"), "")  # this engine has no GPU chain, and is another daemon
        after = patient.look(DOCKER_HOST=engine.host)
        kept = {name: link for name, link in after.links.items() if name not in runtimes}
        named(before, Look(kept, 0), "disk", "broken")
        assert "docker image prune" in after.commands("disk")
    green(before, patient.look())


def test_an_engine_that_refused_memlock_to_an_earlier_run(patient: Patient, before: Look) -> None:
    """Injected: that the daemon may raise limits. Real: the mark left by a run that was refused."""
    info = json.loads(patient.user.docker("info", "--format", "{{json .}}"))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    mark = patient.user.home / ".cache/ngcdl" / f"memlock-forbidden-{re.sub('[^0-9A-Za-z]+', '-', info['ID'])}-{boot}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    after = patient.look()
    named(before, after, "memlock", "warning")
    assert "an earlier run was refused" in after.links["memlock"]["cause"]
    mark.unlink()  # equivalent to a restart, after which the next run finds out again
    green(before, patient.look())


def test_a_daemon_that_may_not_raise_limits(patient: Patient, before: Look) -> None:
    """Real if the lab's root lacks CAP_SYS_RESOURCE: /proc as it is."""
    (capabilities,) = re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    if int(capabilities, 16) & 1 << 24:
        pytest.skip("this lab's daemon may raise limits")
    shutil.rmtree(patient.root / "proc")
    (patient.root / "proc").mkdir()
    for folder in Path("/proc").glob("[0-9]*"):
        (patient.root / "proc" / folder.name).symlink_to(folder)
    patient.put("proc/driver/nvidia/version", "NVRM version: Kernel Module  535.104.05  x\n")
    patient.put("proc/cpuinfo", "flags\t\t: avx\n")
    after = patient.look()
    named(before, after, "memlock", "warning")
    assert "CAP_SYS_RESOURCE" in after.links["memlock"]["cause"]
