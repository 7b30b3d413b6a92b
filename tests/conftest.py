"""What every test may ask for: the test bench, as scripts/lab describes it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Machines that are shared stutter: a slow example is no failure. What failed once is kept as a test.
hypothesis.settings.register_profile("ngcdl", deadline=None, database=None)
hypothesis.settings.load_profile("ngcdl")


@pytest.fixture(scope="session")
def lab() -> dict[str, Any]:
    """Give what `scripts/lab status --json` wrote to the file that NGCDL_LAB_JSON names.

    Where CI is set a missing lab is a failure: what was not run did not pass.
    """
    path = os.environ.get("NGCDL_LAB_JSON")
    missing = "NGCDL_LAB_JSON is not set" if not path else "" if Path(path).is_file() else f"there is no file {path}"
    if missing:
        text = f"{missing}: scripts/lab up, then scripts/lab status --json > FILE and NGCDL_LAB_JSON=FILE"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    status: dict[str, Any] = json.loads(Path(path or "").read_text())
    return status
