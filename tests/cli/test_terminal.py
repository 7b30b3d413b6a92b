"""The caller's stdin, passed on to a run."""

from __future__ import annotations

import io
import sys

import pytest
from fakes import FakeJob

from ngcdl.cli.terminal import _forward


@pytest.mark.parametrize("stdin", [None, io.StringIO()], ids=["closed", "no file"])
def test_a_stdin_that_can_t_be_read_is_at_its_end(monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    job = FakeJob()
    _forward(job)
    assert job.asked == ["close_input"]
