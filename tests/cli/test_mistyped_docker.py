"""An option of docker's that ngcdl has not is answered by the line that ngcdl takes."""

from __future__ import annotations

import pytest
from house import House


@pytest.mark.parametrize("more", [("--dry-run",), ("--", "ls")])
@pytest.mark.parametrize("option", ["--ipc", "--net", "--user", "-u", "--entrypoint", "--privileged", "--pid"])
def test_an_option_of_docker_s_that_ngcdl_has_not_is_named(house: House, option: str, more: tuple[str, ...]) -> None:
    done = house.run("run", "tensorflow:1", option, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ngcdl: {option}: ngcdl does not have this option of docker's; ")


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (("run", "--runtime", "nvidia", "x:1", "--", "ls"), "run x:1 -- ls"),
        (("run", "x:1", "--runtime=nvidia"), "run x:1"),
        (("run", "--privileged", "x:1"), "run x:1"),
        (("run", "--cap-add", "SYS_PTRACE", "--gpus", "all", "x:1"), "run --gpus all x:1"),
        (("compare", "--network", "host", "x:1", "--", "ls"), "compare x:1 -- ls"),
        (("run", "--mount", "type=bind,src=/a,dst=/b,readonly", "x:1"), "run -v /a:/b:ro x:1"),
        (("run", "--mount=type=volume,source=a,target=/b", "x:1"), "run -v a:/b x:1"),
        (("run", "--mount", "type=tmpfs,dst=/x", "x:1"), "run --help"),
        (("run", "--entrypoint", "/bin/sh", "x:1", "--", "-c", "echo hi"), "run x:1 -- /bin/sh -c 'echo hi'"),
        (("run", "--entrypoint=bash", "-i", "x:1"), "run -i x:1 -- bash"),
        (
            ("run", "--runtime=nvidia", "--ipc=host", "--net", "host", "-it", "--rm", "-u", "0:0", "x:1", "--", "ls"),
            "run -it --rm x:1 -- ls",
        ),
        (("run", "--tmpfs", "/x", "--read-only", "x:1"), "run x:1"),
    ],
)
def test_a_line_with_an_option_of_docker_s_is_told_as_ngcdl_takes_it(
    house: House, typed: tuple[str, ...], line: str
) -> None:
    done = house.run(*typed)
    assert done.returncode == 2
    assert done.stderr.endswith(f"\n      ngcdl {line}\n")
