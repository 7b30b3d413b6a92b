"""A user who pulls, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ngc_server import NgcServer, serving
from pulling_engine import PullingEngine, Table, put_image


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.delenv("NGCDL_PULL", raising=False)
    ngc = NgcServer()
    put_image(ngc)
    with serving(ngc):
        yield Table(ngc, PullingEngine(), tmp_path / "blobs")
