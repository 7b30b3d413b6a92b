"""The chain broken link by link: exactly that link is named, nothing else changes, and its remedy makes it green.

Real here are the engines, the registry, the key files and helpers, the file systems, and the driver's library (the
bench's stand-in for NVML). Injected is what this machine can't have: each test that injects says what.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pty
import re
import select
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from ngcdl_child import User, user_in
from own_engine import engine_of_ones_own
from patient import Clock, Look, Patient, clock_before

pytestmark = pytest.mark.lab

UID = 61234


@pytest.fixture
def clock(lab: dict[str, Any]) -> Iterator[Clock]:
    with clock_before(lab["registry"]["host"]) as one:
        yield one


@pytest.fixture
def patient(lab: dict[str, Any], clock: Clock, tmp_path: Path) -> Iterator[Patient]:
    """Somebody who is signed in, at the bench's main engine with two cards."""
    with user_in(tmp_path, lab) as user:
        one = Patient(user, clock.host)
        user.login()
        yield one


@pytest.fixture
def before(patient: Patient) -> Look:
    """How all is while nothing is broken."""
    look = patient.look()
    assert "broken" not in look.states.values(), look.states
    return look


def named(before: Look, after: Look, name: str, state: str) -> None:
    """Exactly `name` is in another state, and is `state`. What hangs on it may be unchecked, and then says so."""
    changed = {
        link: one
        for link, one in after.states.items()
        if one != before.states.get(link) and one not in ("unchecked", "ok")
    }
    assert changed == {name: state}, {link: after.links[link] for link in changed}
    for link, one in after.states.items():
        if one == "unchecked" and before.states.get(link) != "unchecked":
            assert after.links[link]["found"] == f"needs {name}"


def green(before: Look, after: Look) -> None:
    assert after.states == before.states


def typed(patient: Patient, command: str) -> None:
    """Type a remedy as it was shown."""
    done = subprocess.run(["sh", "-c", command], env=patient.user.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- nothing is broken -------------------------------------------------------------------------------------


def test_a_healthy_chain_is_seen_in_less_than_five_seconds(before: Look) -> None:
    assert before.seconds < 5
    assert len(before.links) >= 20
    # The bench's GTX 1050 Ti is an old card, and its programs are Debian's.
    left = {name: state for name, state in before.states.items() if state != "ok"}
    assert left == {"cards": "warning", "runc": "unchecked", "docker": "unchecked"}
    assert before.links["gpu-way"]["found"] == "the runtime nvidia is there"


def test_a_machine_without_a_card_is_not_blamed_for_it(user: User) -> None:
    """Real: this machine, if it has no NVIDIA card."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    user.login()
    done = user.run("doctor")
    assert done.code == 0, done
    assert "no NVIDIA card in this machine: trainings run on the CPU" in done.out
    assert "BROKEN" not in done.out


# -- the driver: its library is real, its kernel module injected ---------------------------------------------


def test_a_driver_whose_library_is_missing(patient: Patient, before: Look) -> None:
    after = patient.look(LD_LIBRARY_PATH=str(patient.user.folder / "nosuch"))
    named(before, after, "driver", "broken")
    assert after.commands("driver") == ["sudo apt-get install --reinstall libnvidia-compute-535"]
    green(before, patient.look())


def test_a_driver_whose_library_is_empty(patient: Patient, before: Look) -> None:
    folder = patient.user.folder / "empty"
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").touch()
    after = patient.look(LD_LIBRARY_PATH=str(folder))
    named(before, after, "driver", "broken")
    assert "can't be loaded" in after.links["driver"]["found"]
    # The equivalent of the reinstallation that is named: the library is put back.
    shutil.copy(Path(patient.user.lab["nvml"]["library_dir"]) / "libnvidia-ml.so.1", folder)
    green(before, patient.look(LD_LIBRARY_PATH=str(folder)))


@pytest.mark.parametrize(("code", "command"), [("9", "sudo modprobe nvidia"), ("18", "sudo reboot")])
def test_a_driver_that_is_not_loaded_or_differs_from_its_library(
    patient: Patient, before: Look, code: str, command: str
) -> None:
    patient.drive(fail__Init=code)
    after = patient.look()
    named(before, after, "driver", "broken")
    assert command in after.commands("driver")
    patient.drive(fail__Init="")
    green(before, patient.look())


def test_a_card_that_fell_off_the_bus(patient: Patient, before: Look) -> None:
    patient.drive(fail__gpu1__DeviceGetHandleByIndex="15")
    after = patient.look()
    named(before, after, "cards", "broken")
    assert "GPU 1: GPU is lost" in after.links["cards"]["found"]
    assert "sudo reboot" in after.commands("cards")
    patient.drive(fail__gpu1__DeviceGetHandleByIndex="")
    green(before, patient.look())


def test_nouveau_in_place_of_the_driver(patient: Patient, before: Look) -> None:
    """Injected: the modules of the kernel, and a driver that was never installed."""
    shutil.rmtree(patient.root / "proc/driver")
    patient.put("sys/module/nouveau/version", "")
    after = patient.look(LD_LIBRARY_PATH=str(patient.user.folder / "nosuch"))
    named(before, after, "driver", "broken")
    assert after.commands("driver")[0] == "sudo ubuntu-drivers install"


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
    # The capability is for the interpreter, which may lie below root's own folder: it opens no socket.
    words = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--inh-caps=+dac_read_search")
    words += ("--ambient-caps=+dac_read_search",)
    probe = subprocess.run([*words, "--clear-groups", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("setpriv can't make an ordinary user here")
    # The equivalent of joining the group docker: the group that the bench's socket belongs to.
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
        after = patient.look(DOCKER_HOST=f"unix://{path}")
    named(before, after, "engine", "broken")
    assert "no answer" in after.links["engine"]["found"]
    assert "sudo systemctl restart docker" in after.commands("engine")
    assert after.seconds < 15


def test_a_runtime_that_is_not_registered(patient: Patient, before: Look) -> None:
    """Real: the bench's engine without a GPU chain, beside a toolkit that is installed. The remedy's equivalent is the
    engine that has it registered."""
    bare = patient.user.lab.get("bare")
    if not bare:
        pytest.skip("no engine without a GPU chain: scripts/lab up --without-gpu")
    after = patient.look(DOCKER_HOST=bare["host"])
    named(before, after, "gpu-way", "broken")
    assert "not registered" in after.links["gpu-way"]["cause"]
    assert after.commands("gpu-way")[0] == "sudo nvidia-ctk runtime configure --runtime=docker"
    green(before, patient.look())


def test_a_runtime_that_waits_for_a_restart_of_the_engine(patient: Patient, before: Look) -> None:
    """Injected: /etc/docker/daemon.json, which names what the engine does not have."""
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
containerEdits:
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{driver}
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{driver}
"""


def test_cdi_descriptions_that_are_stale_or_gone(lab: dict[str, Any], clock: Clock, tmp_path: Path) -> None:
    """Real: an engine that has CDI alone. The equivalent of `nvidia-ctk cdi generate` is the description it writes."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    spec = folder / "nvidia.yaml"
    spec.write_text(SPEC.format(driver="535.104.05"))
    settings: dict[str, Any] = {"features": {"cdi": True}, "cdi-spec-dirs": [str(folder)]}
    with engine_of_ones_own(lab, **settings) as engine, user_in(tmp_path / "user", lab, engine.host) as user:
        patient = Patient(user, clock.host)
        user.login()
        before = patient.look()
        assert before.states["cdi"] == "ok"

        spec.write_text(SPEC.format(driver="525.60.13"))
        after = patient.look()
        named(before, after, "cdi", "broken")
        assert "it is for driver 525.60.13, and 535.104.05 is loaded" in after.links["cdi"]["found"]
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
        runtimes = dict.fromkeys(("gpu-way", "memlock"), "")  # this engine has no GPU chain and another daemon
        after = patient.look(DOCKER_HOST=engine.host)
        kept = {name: link for name, link in after.links.items() if name not in runtimes}
        named(before, Look(kept, 0), "disk", "broken")
        assert "docker image prune" in after.commands("disk")
    green(before, patient.look())


def test_an_engine_that_refused_memlock_to_an_earlier_run(patient: Patient, before: Look) -> None:
    """Injected: that the daemon may raise limits. Real: the mark that a run leaves which was refused."""
    info = json.loads(patient.user.docker("info", "--format", "{{json .}}"))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    mark = patient.user.home / ".cache/ngcdl" / f"memlock-forbidden-{re.sub('[^0-9A-Za-z]+', '-', info['ID'])}-{boot}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    after = patient.look()
    named(before, after, "memlock", "warning")
    assert "an earlier run was refused" in after.links["memlock"]["cause"]
    mark.unlink()  # the equivalent of a restart, after which another run finds out again
    green(before, patient.look())


def test_a_daemon_that_may_not_raise_limits(patient: Patient, before: Look) -> None:
    """Real, where the bench's root lacks CAP_SYS_RESOURCE: /proc as it is."""
    if f"{int(_capabilities(), 16) & (1 << 24):016x}" == "0000000001000000":
        pytest.skip("this bench's daemon may raise limits")
    shutil.rmtree(patient.root / "proc")
    (patient.root / "proc").mkdir()
    for folder in Path("/proc").glob("[0-9]*"):
        (patient.root / "proc" / folder.name).symlink_to(folder)
    patient.put("proc/driver/nvidia/version", "NVRM version: Kernel Module  535.104.05  x\n")
    patient.put("proc/cpuinfo", "flags\t\t: avx\n")
    after = patient.look()
    named(before, after, "memlock", "warning")
    assert "CAP_SYS_RESOURCE" in after.links["memlock"]["cause"]


def _capabilities() -> str:
    found = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    assert found
    return found[1]


# -- versions: the program is one of the test's own ---------------------------------------------------------


def test_a_toolkit_with_known_holes_and_a_distributions_own(patient: Patient, before: Look) -> None:
    patient.has_toolkit("1.17.4")
    after = patient.look()
    named(before, after, "toolkit", "warning")
    assert "CVE-2025-23266" in after.links["toolkit"]["cause"]
    patient.has_toolkit("1.13.5-1~deb12u1")
    told = patient.look()
    assert told.states == before.states | {"toolkit": "unchecked"}
    assert "can't tell" in told.links["toolkit"]["found"]
    patient.has_toolkit("1.19.1")
    green(before, patient.look())


# -- the key and the registry: all real ----------------------------------------------------------------------


def test_no_key(patient: Patient, before: Look) -> None:
    assert patient.user.run("logout").code == 0
    after = patient.look()
    named(before, after, "credentials", "warning")
    assert after.commands("credentials") == ["ngcdl login"]
    patient.user.login()
    green(before, patient.look())


def test_a_key_that_was_revoked(patient: Patient, before: Look) -> None:
    config = patient.user.home / ".docker/config.json"
    good = config.read_text()
    pair = base64.b64encode(f"$oauthtoken:{patient.user.lab['registry']['key_revoked']}".encode()).decode()
    host = patient.user.environment["NGCDL_REGISTRY"]
    config.write_text(json.dumps({"auths": {host: {"auth": pair}}}))
    after = patient.look()
    named(before, after, "key", "broken")
    assert "ngcdl login" in after.commands("key")
    assert patient.user.lab["registry"]["key_revoked"] not in json.dumps(dict(after.links))
    patient.user.login()
    green(before, patient.look())
    assert good != config.read_text() or pair not in good


def test_a_configuration_that_is_broken(patient: Patient, before: Look) -> None:
    config = patient.user.home / ".docker/config.json"
    config.write_text(config.read_text()[:-9])
    after = patient.look()
    named(before, after, "credentials", "broken")
    (command,) = after.commands("credentials")
    typed(patient, command.partition(" && ngcdl login")[0])
    patient.user.login()
    green(before, patient.look())


def test_a_credential_helper_that_is_missing_or_hangs(patient: Patient, before: Look) -> None:
    config = patient.user.home / ".docker/config.json"
    good = config.read_text()
    config.write_text(json.dumps({**json.loads(good), "credsStore": "of-a-test"}))
    after = patient.look()
    named(before, after, "credentials", "broken")
    assert "docker-credential-of-a-test" in after.links["credentials"]["found"]

    helper = patient.bin / "docker-credential-of-a-test"
    helper.write_text("#!/bin/sh\nexec sleep 600\n")
    helper.chmod(0o755)
    after = patient.look()
    named(before, after, "credentials", "broken")
    assert "gave no answer within 3 s" in after.links["credentials"]["found"]
    assert after.seconds < 10

    config.write_text(good)  # the entry is removed, as the hint says
    green(before, patient.look())


def test_a_configuration_that_others_can_read(patient: Patient, before: Look) -> None:
    (patient.user.home / ".docker/config.json").chmod(0o644)
    after = patient.look()
    named(before, after, "credentials", "warning")
    (command,) = after.commands("credentials")
    assert command.startswith("chmod 600 ")
    typed(patient, command)
    green(before, patient.look())


def test_a_registry_that_can_not_be_reached_or_never_answers(patient: Patient, before: Look, front: Front) -> None:
    after = patient.look(NGCDL_REGISTRY="127.0.0.1:1", NGC_API_KEY=patient.user.lab["registry"]["key"])
    named(before, after, "registry", "broken")
    assert "curl -sI https://127.0.0.1:1/v2/" in after.commands("registry")

    front.break_down(ping={"hang": True})
    after = patient.look(NGCDL_REGISTRY=front.host, NGC_API_KEY=patient.user.lab["registry"]["key"])
    named(before, after, "registry", "broken")
    assert "no answer within" in after.links["registry"]["found"]
    assert after.seconds < 8
    green(before, patient.look())


def test_a_clock_that_is_wrong(patient: Patient, before: Look, clock: Clock) -> None:
    """Real: a registry that tells its time. It is this one's clock that is turned, and not the machine's."""
    clock.skew_seconds = -3 * 3600
    after = patient.look()
    named(before, after, "clock", "broken")
    assert after.links["clock"]["found"] == f"3 hours ahead of {clock.host}"
    assert after.commands("clock") == ["sudo timedatectl set-ntp true"]
    clock.skew_seconds = 0
    green(before, patient.look())


# -- the host: injected, but for the data set -----------------------------------------------------------------


def test_a_shared_memory_that_is_too_small(patient: Patient, before: Look) -> None:
    """Injected: the size of /dev/shm."""
    patient.shm = [64 << 20, 64 << 20]
    after = patient.look()
    named(before, after, "shm", "warning")
    assert after.commands("shm") == ["sudo mount -o remount,size=50% /dev/shm"]
    patient.shm = [8 << 30, 8 << 30]
    green(before, patient.look())


def test_a_processor_without_avx(patient: Patient, before: Look) -> None:
    """Injected: /proc/cpuinfo."""
    patient.put("proc/cpuinfo", "flags\t\t: fpu sse2\n")
    named(before, patient.look(), "cpu", "warning")
    patient.put("proc/cpuinfo", "flags\t\t: fpu avx\n")
    green(before, patient.look())


def test_a_data_set_that_was_damaged(patient: Patient, before: Look) -> None:
    """Real: the cache and its stamp, with small files in place of CIFAR-10's."""
    cache = patient.user.home / ".cache/ngcdl"
    _stamped(cache)
    assert patient.look().links["dataset"]["found"] == f"CIFAR-10 is in {cache}, whole"
    (cache / "cifar-10/cifar-10-batches-bin/data_batch_3.bin").write_bytes(b"rotten")
    after = patient.look()
    named(before, after, "dataset", "warning")
    assert "data_batch_3.bin has changed" in after.links["dataset"]["found"]
    (command,) = after.commands("dataset")
    typed(patient, command)
    green(before, patient.look())


def _stamped(cache: Path) -> None:
    from ngcdl.dataset import CIFAR10

    folder = cache / "cifar-10" / CIFAR10.folder
    folder.mkdir(parents=True)
    files = {}
    for member in CIFAR10.members:
        path = folder / member.name
        path.write_bytes(member.name.encode())
        state = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files[member.name] = {
            "bytes": state.st_size, "sha256": digest, "mtime_ns": state.st_mtime_ns, "ctime_ns": state.st_ctime_ns,
        }  # fmt: skip
    stamp = {
        "format": 1,
        "archive": CIFAR10.sha256,
        "training_sha256": "0" * 64,
        "checked": time.time(),
        "files": files,
    }
    (cache / "cifar-10.json").write_text(json.dumps(stamp))


# -- the command -----------------------------------------------------------------------------------------------


def test_the_exit_code_tells_a_broken_link_and_json_is_one_document(patient: Patient) -> None:
    user = patient.user
    whole, broken = user.run("doctor", "--json"), user.run("doctor", "--json", DOCKER_HOST="unix:///nosuch")
    assert (whole.code, broken.code) == (0, 1)
    assert json.loads(whole.out)["broken"] == 0
    tree = json.loads(broken.out)
    assert [link["name"] for link in tree["links"] if link["state"] == "broken"] == ["engine"]
    assert tree["broken"] == 1


def test_fix_without_a_terminal_asks_nothing_and_runs_nothing(patient: Patient) -> None:
    config = patient.user.home / ".docker/config.json"
    config.chmod(0o644)
    done = patient.user.run("doctor", "--fix", stdin="y\ny\ny\n")
    assert done.code == 0, done
    assert "nothing was run" in done.err
    assert "Run it?" not in done.out
    assert config.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("answer", "mode"), [("y", 0o600), ("n", 0o644), ("", 0o644)])
def test_fix_on_a_terminal_runs_what_it_shows_after_a_yes_alone(patient: Patient, answer: str, mode: int) -> None:
    config = patient.user.home / ".docker/config.json"
    config.chmod(0o644)
    code, text = _on_a_terminal(patient.user, answer)
    assert code == 0, text
    assert f"chmod 600 {config}" in text
    assert ("credentials: ok now" in text) == (answer == "y")
    assert config.stat().st_mode & 0o777 == mode


def _on_a_terminal(user: User, answer: str) -> tuple[int, str]:
    """Answer the first question, and no to all others."""
    outer, inner = pty.openpty()
    environment = user.environment | {"TERM": "dumb", "COLUMNS": "200"}
    child = subprocess.Popen([*user.words, "doctor", "--fix"], stdin=inner, stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    text, answers = "", [answer]
    with os.fdopen(outer, "r+b", buffering=0) as screen:
        end = time.monotonic() + 60
        while time.monotonic() < end and select.select([screen], [], [], 60)[0]:
            try:
                data = screen.read(65536)
            except OSError:  # Linux says EIO for a terminal that nobody holds any more
                break
            text += (data or b"").decode(errors="replace")
            if data and b"Run it? [y/N]" in data:
                screen.write(f"{answers.pop(0) if answers else 'n'}\n".encode())
    return child.wait(20), text


def test_a_bundle_holds_what_was_found_and_nothing_secret(patient: Patient) -> None:
    user = patient.user
    user.environment["HTTPS_PROXY"] = "http://bird:canary-password@127.0.0.1:9"
    report = user.here / "report.tar.gz"
    done = user.run("doctor", "--bundle", "report.tar.gz")
    assert done.code == 0, done
    assert "doctor.json" in done.err
    assert report.stat().st_mode & 0o777 == 0o600
    with tarfile.open(report) as archive:
        content = {entry.name: file.read() for entry in archive if (file := archive.extractfile(entry))}
    assert {"ngcdl-doctor/doctor.json", "ngcdl-doctor/docker-info.json", "ngcdl-doctor/versions.json"} <= set(content)
    key = user.lab["registry"]["key"]
    forms = [key.encode(), base64.b64encode(f"$oauthtoken:{key}".encode()), b"canary-password", str(user.home).encode()]
    assert [(name, form) for name, text in content.items() for form in forms if form in text] == []
    again = user.run("doctor", "--bundle", "report.tar.gz")
    assert again.code == 2
    assert "it is there already" in again.err
