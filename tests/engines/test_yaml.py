"""Manifests are written as YAML that any reader reads back exactly."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as some

from ngcdl.engines.yaml import document, documents

TEXTS = some.text() | some.sampled_from(
    ["no", "y", "0x1F", "1e3", "~", "a: b", "# c", "- d", " x\ny\n", "a\n\nb\n", "\t\n\n"]
)
SCALARS = TEXTS | some.none() | some.booleans() | some.integers()
KEYS = some.text(max_size=60)  # YAML allows at most 1024 characters, escaped
VALUES = some.recursive(SCALARS, lambda inner: some.lists(inner) | some.dictionaries(KEYS, inner), max_leaves=12)


@given(some.dictionaries(KEYS, VALUES, min_size=1))
def test_what_is_written_is_read_back_the_same(value: dict[str, Any]) -> None:
    assert yaml.safe_load(document(value)) == value


def test_a_script_stands_in_lines_of_its_own_and_several_documents_apart() -> None:
    text = documents([{"data": {"run.sh": "#!/bin/sh\n\nif x; then\n    y\nfi\n"}}, {"kind": "Job"}])
    assert text == ("data:\n  run.sh: |\n    #!/bin/sh\n\n    if x; then\n        y\n    fi\n---\nkind: Job\n")
    assert [one.popitem()[0] for one in yaml.safe_load_all(text)] == ["data", "kind"]
