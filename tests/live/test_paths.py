"""The trainer on Python 2.7 can use a folder whose name is not ASCII, or not even valid text."""

from __future__ import annotations

import json

import pytest
from ngcdl_child import User, planted

pytestmark = pytest.mark.lab

CONTAINERS = __file__.rpartition("/tests/")[0] + "/containers"
TRAIN = "python -m trainer cifar10 --steps 2 --batch 2 --no-eval --record --out"
CASES = [("L\\xc3\\xa4ufe", "Läufe"), ("L\\xe4ufe", "L\ufffdufe")]


@pytest.mark.parametrize(("name", "told"), CASES)
def test_the_trainer_keeps_its_record_there(user: User, name: str, told: str) -> None:
    script = f"cd /above && {TRAIN} /tmp/$'{name}' >&2 && cat /tmp/L*ufe/run.json && ls /tmp/L*ufe/checkpoints"
    words = (*planted("few"), "-v", f"{CONTAINERS}:/above:ro", "-e", "PYTHONPATH=/planted:/above")
    done = user.run("run", "tensorflow:18.01-py2", *words, "--gpus", "none", "--", "bash", "-c", script, seconds=120)
    assert done.code == 0, done
    record, checkpoint = done.out.splitlines()[-2:]  # the image prints its banner first
    assert (json.loads(record)["id"], json.loads(record)["status"]) == (told, "finished")
    assert checkpoint == "step-2.npz"
    voice = f"from trainer.events import Voice; import sys; Voice(sys.stdout, open('/tmp/log', 'wb')).say('{name}')"
    script = f'cd /above && python -c "{voice}" && cat /tmp/log'
    done = user.run("run", "tensorflow:18.01-py2", *words, "--gpus", "none", "--", "bash", "-c", script)
    assert (done.code, done.out.splitlines()[-2:]) == (0, [told, told]), done
