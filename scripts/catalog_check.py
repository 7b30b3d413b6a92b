"""What must hold for the catalogue's tables. Each rule is a function that yields a message for each violation."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "toolkit"))

from ngcdl.catalog.holes import parse as parse_hole
from ngcdl.catalog.rows import CONFIDENCES, comparable, minor
from ngcdl.preflight.facts import BRANDS

Row = dict[str, str]
Table = list[Row]
END = ["source", "confidence", "notes"]
HEADERS = {
    "releases": [
        "framework", "release", "variant", "suffixes", "pythons", "ubuntu", "framework_version", "cuda", "driver",
        "docs_min_driver", "compat_drivers", "min_capability", "sass_amd64", "sass_arm64", "ptx", "architectures",
        "unverified", *END,
    ],
    "cuda_driver": ["cuda", "also_called", "driver", "branch", "minor_floor", *END],
    "cuda_compute_capability": ["cuda_from", "capabilities", *END],
    "forward_compat": [
        "first", "last", "cuda_first", "cuda_last", "branches", "excluded", "brands", "unverified", *END,
    ],
    "gpu_families": ["capability", "architecture", "gpus", "first_branch", "last_branch", *END],
    "known_holes": ["component", "cve", "since", "fixed_in", "cvss", "read", *END],
    "peaks": ["card", "cores", "boost_mhz", "tensor_mhz", "fp32_tflops", "tf32_tflops", "half_tflops", *END],
}  # fmt: skip
KEYS = {
    "releases": ["framework", "release", "variant"], "cuda_driver": ["cuda"], "cuda_compute_capability": ["cuda_from"],
    "forward_compat": ["first"], "gpu_families": ["capability"], "known_holes": ["component", "cve"],
    "peaks": ["card"],
}  # fmt: skip


def read(folder: Path, name: str) -> Table:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, restkey="", restval=""))


def native(drivers: Table, cuda: str) -> str | None:
    """Return what ngcdl.catalog.cuda.driver_for returns, but by the table that is being checked."""
    asked = comparable(cuda)
    near = [row for row in drivers if minor(row["cuda"]) == minor(cuda)]
    named = [row for row in near if cuda in row["also_called"].split()]
    below = [row for row in near if comparable(row["cuda"]) <= asked] or near[-1:]
    return next((row["driver"] for row in named or below), None)


def check(folder: Path) -> list[str]:
    missing = [f"{name}.csv is missing" for name in HEADERS if not (folder / f"{name}.csv").is_file()]
    if missing:
        return missing
    tables = {name: read(folder, name) for name in HEADERS}
    wrong = [text for name, table in tables.items() for text in shape(folder, name, table)]
    if wrong:  # the other rules read columns by name
        return wrong
    rules: list[Callable[[dict[str, Table]], Iterator[str]]] = [words, order, bounds, drivers_agree, ranges]
    unreadable = list(texts(tables))
    return unreadable or [text for rule in rules for text in rule(tables)]


def shape(folder: Path, name: str, table: Table) -> Iterator[str]:
    header = (folder / f"{name}.csv").read_text(encoding="utf-8").partition("\n")[0].split(",")
    if header != HEADERS[name]:
        yield f"{name}: the header is {','.join(header)}, not {','.join(HEADERS[name])}"
        return
    if not table:
        yield f"{name}: no rows"
    counts = Counter(key(name, row) for row in table)
    yield from (f"{name} {one}: {number} rows" for one, number in counts.items() if number > 1)
    for row in table:
        if "" in row:
            yield f"{name} {key(name, row)}: more cells than columns"
        yield from (f"{name} {key(name, row)}: no {cell}" for cell in ("source", "confidence") if not row[cell].strip())


def key(name: str, row: Row) -> str:
    return " ".join(row[column] for column in KEYS[name] if row.get(column))


NUMBERS = r"\d+(\.\d+)*"
FORMS = {
    "releases": {
        "framework": r"[a-z]+", "release": r"\d\d\.(0[1-9]|1[0-2])", "variant": r"(tf[12])?",
        "suffixes": r"(-[a-z0-9-]+( -[a-z0-9-]+)*)?", "pythons": r"[a-z0-9-]*=\d\.\d+( [a-z0-9-]+=\d\.\d+)*",
        "ubuntu": r"\d\d\.04", "framework_version": r"(\d+\.\d+[\w.+-]*)?", "cuda": r"\d+\.\d+(\.\d+){0,2}",
        "driver": r"\d{3}\.\d+(\.\d+)?", "docs_min_driver": rf"({NUMBERS})?",
        "compat_drivers": rf"({NUMBERS}( {NUMBERS})*)?", "min_capability": r"(\d+\.\d)?",
        "sass_amd64": r"\d+\.\d( \d+\.\d)*", "sass_arm64": r"(\d+\.\d( \d+\.\d)*)?", "ptx": r"(\d+\.\d)?",
        "architectures": r"amd64( arm64)?",
    },
    "cuda_driver": {
        "cuda": r"\d+\.\d+\.\d+", "also_called": rf"({NUMBERS})?", "driver": r"\d{3}\.\d+(\.\d+)?", "branch": r"\d{3}",
        "minor_floor": rf"({NUMBERS})?",
    },
    "cuda_compute_capability": {"cuda_from": r"\d+\.\d+", "capabilities": r"\d+\.\d( \d+\.\d)*"},
    "forward_compat": {
        "first": r"\d\d\.\d\d", "last": r"\d\d\.\d\d", "cuda_first": r"\d+\.\d", "cuda_last": r"\d+\.\d",
        "branches": r"(\d{3}( \d{3})*)?", "excluded": r"(\d{3}( \d{3})*)?", "brands": r"[a-z]+( [a-z]+)*",
    },
    "gpu_families": {
        "capability": r"\d+\.\d", "architecture": r"\w+", "gpus": r".+",
        "first_branch": r"(\d{3})?", "last_branch": r"(\d{3})?",
    },
    "known_holes": {
        "component": r"nvidia-container-toolkit|runc|docker", "cve": r"CVE-\d{4}-\d{4,}", "cvss": r"(10\.0|\d\.\d)?",
        "read": r"20\d\d-(0[1-9]|1[0-2])", "fixed_in": r".+",
    },
}  # fmt: skip


def texts(tables: dict[str, Table]) -> Iterator[str]:
    """Every cell parses as what its column holds."""
    for name, forms in FORMS.items():
        for row in tables[name]:
            for column, form in forms.items():
                if not re.fullmatch(form, row[column], re.ASCII):
                    yield f"{name} {key(name, row)}: {column} is {row[column]!r}"
    for row in tables["known_holes"]:
        for version in f"{row['since']} {row['fixed_in']}".split():
            if parse_hole(version) is None:
                yield f"known_holes {key('known_holes', row)}: {version!r} is not a version"


def words(tables: dict[str, Table]) -> Iterator[str]:
    """Every confidence, column, brand and Python suffix named in a cell exists."""
    for name, table in tables.items():
        for row in table:
            if row["confidence"] not in CONFIDENCES:
                yield f"{name} {key(name, row)}: confidence {row['confidence']!r} is none of {', '.join(CONFIDENCES)}"
            unknown = set(row.get("unverified", "").split()) - set(HEADERS[name])
            yield from (f"{name} {key(name, row)}: unverified {one!r} is not a column" for one in sorted(unknown))
    known = set(BRANDS.values())
    for row in tables["forward_compat"]:
        yield from (f"forward_compat {row['first']}: no brand {one!r}" for one in set(row["brands"].split()) - known)
    for row in tables["releases"]:
        if [pair.partition("=")[0] for pair in row["pythons"].split()] != (row["suffixes"].split() or [""]):
            yield f"releases {key('releases', row)}: pythons {row['pythons']!r} are not those of {row['suffixes']!r}"


def order(tables: dict[str, Table]) -> Iterator[str]:
    """Releases ascend, toolkits and families descend; a newer toolkit or release never needs an older driver."""
    for name, column, up in (
        ("releases", "release", True), ("cuda_driver", "cuda", False), ("cuda_compute_capability", "cuda_from", True),
        ("forward_compat", "first", True), ("gpu_families", "capability", False),
    ):  # fmt: skip
        for before, after in pairwise(tables[name]):
            if before[column] != after[column] and (comparable(before[column]) < comparable(after[column])) is not up:
                yield f"{name}: {after[column]} comes after {before[column]}"
    for after, before in pairwise(tables["cuda_driver"]):
        if comparable(before["driver"]) > comparable(after["driver"]):
            yield f"cuda_driver {after['cuda']}: an older driver than {before['cuda']}"
    newest: dict[str, Row] = {}
    for row in tables["releases"]:
        before = newest.setdefault(row["framework"], row)
        if comparable(row["driver"]) < comparable(before["driver"]):
            yield f"releases {key('releases', row)}: an older driver than {before['release']}"
        newest[row["framework"]] = row


def bounds(tables: dict[str, Table]) -> Iterator[str]:
    """An image has kernels only for architectures that its toolkit can compile for; lists ascend."""
    table = tables["cuda_compute_capability"]
    for row in tables["releases"]:
        known = [one for one in table if comparable(one["cuda_from"]) <= comparable(row["cuda"])]
        allowed = known[-1]["capabilities"].split() if known else []
        for column in ("sass_amd64", "sass_arm64", "ptx"):
            listed = row[column].split()
            for one in listed:
                if one not in allowed:
                    yield f"releases {key('releases', row)}: {column} {one} is not of CUDA {row['cuda']}"
            if listed != sorted(listed, key=comparable):
                yield f"releases {key('releases', row)}: {column} does not ascend"
        if bool(row["sass_arm64"]) != ("arm64" in row["architectures"].split()):
            yield f"releases {key('releases', row)}: sass_arm64 and architectures disagree"


def drivers_agree(tables: dict[str, Table]) -> Iterator[str]:
    """An image's driver is its toolkit's, or the notes of one of the two rows name the other driver."""
    for row in tables["cuda_driver"]:
        if not row["driver"].startswith(row["branch"] + "."):
            yield f"cuda_driver {row['cuda']}: driver {row['driver']} is not of branch {row['branch']}"
    for row in tables["releases"]:
        wanted = native(tables["cuda_driver"], row["cuda"])
        notes = [one["notes"] for one in tables["cuda_driver"] if one["driver"] == wanted]
        if wanted != row["driver"] and not any(row["driver"] in text for text in [row["notes"], *notes]):
            yield f"releases {key('releases', row)}: driver {row['driver']}, but CUDA {row['cuda']} has {wanted}"


def ranges(tables: dict[str, Table]) -> Iterator[str]:
    """Ranges do not overlap; a row without branches is recalled or inferred; no branch is both allowed and excluded."""
    table = tables["forward_compat"]
    for row in table:
        if comparable(row["first"]) > comparable(row["last"]):
            yield f"forward_compat {row['first']}: ends before it begins, at {row['last']}"
        if not row["branches"] and row["confidence"] not in ("recalled", "inferred"):
            yield f"forward_compat {row['first']}: no branches, though {row['confidence']}"
        both = [branch for branch in row["branches"].split() if branch in row["excluded"].split()]
        yield from (f"forward_compat {row['first']}: {branch} is both allowed and excluded" for branch in both)
    for before, after in pairwise(table):
        if comparable(before["last"]) >= comparable(after["first"]):
            yield f"forward_compat {after['first']}: begins before {before['last']}"
