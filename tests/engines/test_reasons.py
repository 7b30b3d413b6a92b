"""Each flag of a `docker run` line is explained by what is true of it."""

from __future__ import annotations

from ngcdl.engines.docker.reasons import reasons

LINE = "docker run --rm --init \\\n    --ulimit {} \\\n    image"


def test_the_stack_s_limit_is_not_explained_by_that_of_locked_memory() -> None:
    assert "has to be locked" in " ".join(reasons(LINE.format("memlock=-1")).split())
    assert reasons(LINE.format("stack=67108864")).endswith("#   --ulimit stack: as NVIDIA documents")
