"""The chain broken link by link: exactly that link is reported, nothing else changes, and its remedy makes it green.

The engines, the registry, the key files and helpers, the file systems and the driver's library (the lab's stand-in for
NVML) are real. What this machine can't have is injected: each test that injects something says what.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pty
import select
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from ngcdl_child import User, drive
from patient import Look, Patient, green, named, patiently, typed
from stand_ins import stand_in

pytestmark = pytest.mark.lab


# -- nothing is broken -------------------------------------------------------------------------------------


def test_a_healthy_chain_is_seen_in_less_than_five_seconds(patient: Patient, before: Look) -> None:
    assert any(patient.look(is_hurried=True).seconds < 5 for _ in range(10))  # others may load this machine
    assert len(before.links) >= 20
    # The lab's GTX 1050 Ti is an old card, and its programs are Debian's. The free disk space is the machine's own.
    left = {name: state for name, state in before.but_disk.items() if state != "ok"}
    assert left == {"cards": "warning", "runc": "unchecked", "docker": "unchecked"}
    assert before.links["gpu-way"]["found"] == "the runtime nvidia is there"


def test_a_machine_without_a_card_is_not_blamed_for_it(user: User) -> None:
    """Real: this machine, if it has no NVIDIA card."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    user.login()
    done = patiently(user).run("doctor")
    assert done.code == 0, done
    assert "no NVIDIA card in this machine: trainings run on the CPU" in done.out
    assert "BROKEN" not in done.out


# -- the driver: its library is real, its kernel module injected ---------------------------------------------


def test_a_driver_whose_library_is_missing(patient: Patient, before: Look) -> None:
    """Injected: dpkg's entries for the driver."""
    after = patient.look(LD_LIBRARY_PATH=str(patient.user.folder / "nosuch"))
    named(before, after, "driver", "broken")
    assert after.commands("driver") == [], "of which flavour the module is, nobody said"
    stand_in(patient.bin, "dpkg-query", "echo installed nvidia-dkms-535-server")
    after = patient.look(LD_LIBRARY_PATH=str(patient.user.folder / "nosuch"))
    assert after.commands("driver") == ["sudo apt-get install --reinstall libnvidia-compute-535-server"]
    green(before, patient.look())


def test_a_driver_whose_library_is_empty(patient: Patient, before: Look) -> None:
    folder = patient.user.folder / "empty"
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").touch()
    after = patient.look(LD_LIBRARY_PATH=str(folder))
    named(before, after, "driver", "broken")
    assert "can't be loaded" in after.links["driver"]["found"]
    # Equivalent to the suggested reinstallation: the library is put back.
    shutil.copy(Path(patient.user.lab["nvml"]["library_dir"]) / "libnvidia-ml.so.1", folder)
    green(before, patient.look(LD_LIBRARY_PATH=str(folder)))


@pytest.mark.parametrize(("code", "command"), [("9", "sudo modprobe nvidia"), ("18", "sudo reboot")])
def test_a_driver_that_is_not_loaded_or_differs_from_its_library(
    patient: Patient, before: Look, code: str, command: str
) -> None:
    drive(patient.state, fail__Init=code)
    after = patient.look()
    named(before, after, "driver", "broken")
    assert command in after.commands("driver")
    drive(patient.state, fail__Init="")
    green(before, patient.look())


def test_a_card_that_fell_off_the_bus(patient: Patient, before: Look) -> None:
    drive(patient.state, fail__gpu1__DeviceGetHandleByIndex="15")
    after = patient.look()
    named(before, after, "cards", "broken")
    assert "GPU 1: GPU is lost" in after.links["cards"]["found"]
    assert "sudo reboot" in after.commands("cards")
    drive(patient.state, fail__gpu1__DeviceGetHandleByIndex="")
    green(before, patient.look())


def test_nouveau_in_place_of_the_driver(patient: Patient, before: Look) -> None:
    """Injected: the kernel modules, and a driver that was never installed."""
    shutil.rmtree(patient.root / "proc/driver")
    patient.put("sys/module/nouveau/version", "")
    after = patient.look(LD_LIBRARY_PATH=str(patient.user.folder / "nosuch"))
    named(before, after, "driver", "broken")
    assert after.commands("driver")[1] == "sudo ubuntu-drivers install"


# -- versions: the program is the test's own ----------------------------------------------------------------


def test_a_toolkit_with_known_holes_and_a_distributions_own(patient: Patient, before: Look) -> None:
    patient.has_toolkit("1.17.4")
    after = patient.look()
    named(before, after, "toolkit", "warning")
    assert "CVE-2025-23266" in after.links["toolkit"]["cause"]
    patient.has_toolkit("1.13.5-1~deb12u1")
    told = patient.look()
    assert told.but_disk == before.but_disk | {"toolkit": "unchecked"}
    assert "can't tell" in told.links["toolkit"]["found"]
    patient.has_toolkit("1.19.1")
    green(before, patient.look())


# -- the host: injected, except for the data set --------------------------------------------------------------


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
    assert patient.look().links["dataset"]["found"] == f"CIFAR-10 is in {cache}, intact"
    (cache / "cifar-10/cifar-10-batches-bin/data_batch_3.bin").write_bytes(b"rotten")
    after = patient.look()
    named(before, after, "dataset", "warning")
    assert "data_batch_3.bin has changed" in after.links["dataset"]["found"]
    (command,) = after.commands("dataset")
    typed(patient, command)
    green(before, patient.look())


def _stamped(cache: Path) -> None:
    from ngcdl.dataset.official import BINARY, CIFAR10

    folder = cache / "cifar-10" / BINARY
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
    user = patiently(patient.user)
    whole, broken = user.run("doctor", "--json"), user.run("doctor", "--json", DOCKER_HOST="unix:///nosuch")
    assert (whole.code, broken.code) == (0, 1)
    assert json.loads(whole.out)["broken"] == 0
    tree = json.loads(broken.out)
    assert [link["name"] for link in tree["links"] if link["state"] == "broken"] == ["engine"]
    assert tree["broken"] == 1


def test_fix_without_a_terminal_asks_nothing_and_runs_nothing(patient: Patient) -> None:
    config = patient.user.home / ".docker/config.json"
    config.chmod(0o644)
    done = patiently(patient.user).run("doctor", "--fix", stdin="y\ny\ny\n")
    assert done.code == 0, done
    assert "nothing was run" in done.err
    assert "Run it?" not in done.out
    assert config.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("answer", "mode"), [("y", 0o600), ("n", 0o644), ("", 0o644)])
def test_fix_on_a_terminal_runs_what_it_shows_after_a_yes_alone(patient: Patient, answer: str, mode: int) -> None:
    config = patient.user.home / ".docker/config.json"
    config.chmod(0o644)
    code, text = _on_a_terminal(patiently(patient.user), answer)
    assert code == 0, text
    assert f"chmod 600 {config}" in text
    assert ("credentials: ok now" in text) == (answer == "y")
    assert config.stat().st_mode & 0o777 == mode


def _on_a_terminal(user: User, answer: str) -> tuple[int, str]:
    """Give `answer` to the question about the key file's permissions and "no" to others, for example on a full disk.

    Return the exit code and what the terminal showed."""
    outer, inner = pty.openpty()
    environment = user.environment | {"TERM": "dumb", "COLUMNS": "200"}
    child = subprocess.Popen([*user.words, "doctor", "--fix"], stdin=inner, stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    text, seen = "", 0
    with os.fdopen(outer, "r+b", buffering=0) as screen:
        end = time.monotonic() + 240
        while time.monotonic() < end and select.select([screen], [], [], 240)[0]:
            try:
                data = screen.read(65536)
            except OSError:  # Linux returns EIO once nobody has the terminal open
                break
            text += (data or b"").decode(errors="replace")
            if "Run it? [y/N]" in text[seen:]:  # the question may arrive in two pieces
                asked = "".join(text.splitlines()[-2:])
                screen.write(f"{answer if 'chmod 600' in asked else 'n'}\n".encode())
                seen = len(text)
    return child.wait(240), text


def test_a_bundle_holds_what_was_found_and_nothing_secret(patient: Patient) -> None:
    user = patiently(patient.user)
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
    assert "it already exists" in again.err
