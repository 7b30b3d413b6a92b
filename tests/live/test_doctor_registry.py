"""Real problems with the key, the registry or the clock: exactly that link is reported."""

from __future__ import annotations

import base64
import json

import pytest
from faulty_front import Front
from patient import Look, Patient, green, named, typed
from stand_ins import stand_in

pytestmark = pytest.mark.lab


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
    pair = base64.b64encode(f"$oauthtoken:{patient.user.lab['registry']['key_revoked']}".encode()).decode()
    host = patient.user.environment["NGCDL_REGISTRY"]
    config.write_text(json.dumps({"auths": {host: {"auth": pair}}}))
    after = patient.look()
    named(before, after, "key", "broken")
    assert "ngcdl login" in after.commands("key")
    assert patient.user.lab["registry"]["key_revoked"] not in json.dumps(dict(after.links))
    patient.user.login()
    green(before, patient.look())
    assert pair not in config.read_text()


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

    stand_in(patient.bin, "docker-credential-of-a-test", "exec sleep 600")
    after = patient.look(is_hurried=True)
    named(before, after, "credentials", "broken")
    assert "gave no answer within 3 s" in after.links["credentials"]["found"]
    assert after.seconds < 40

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
    key = patient.user.lab["registry"]["key"]
    after = patient.look(is_hurried=True, NGCDL_REGISTRY=front.host, NGC_API_KEY=key)
    named(before, after, "registry", "broken")
    assert "no answer within" in after.links["registry"]["found"]
    assert after.seconds < 40
    green(before, patient.look())


def test_a_clock_that_is_wrong(patient: Patient, before: Look, front: Front) -> None:
    """Real: a registry that sends its time. Its clock is changed, not the machine's."""
    patient.user.environment |= {"NGCDL_REGISTRY": front.host, "NGC_API_KEY": patient.user.lab["registry"]["key"]}
    front.break_down(skew_seconds=-3 * 3600)
    after = patient.look()
    named(before, after, "clock", "broken")
    assert after.links["clock"]["found"] == f"3 hours ahead of {front.host}"
    assert after.commands("clock") == ["sudo timedatectl set-ntp true"]
    front.break_down()
    green(before, patient.look())
