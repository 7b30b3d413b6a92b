"""scripts/catalog: the committed tables are right, and each kind of broken row is named."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "toolkit/ngcdl/catalog/tables"
Row = dict[str, str]


def catalog(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/catalog"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for table in TABLES.glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    return tmp_path


def changed(folder: Path, table: str, change: Callable[[list[Row]], None]) -> None:
    path = folder / f"{table}.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def row_of(rows: list[Row], **cells: str) -> Row:
    return next(row for row in rows if all(row[name] == cell for name, cell in cells.items()))


def test_the_committed_tables_are_right() -> None:
    done = catalog("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


RELEASE = {"framework": "pytorch", "release": "26.07"}
# table, row, cell, new content, message
BROKEN = [
    ("releases", RELEASE, "source", "", "pytorch 26.07: no source"),
    ("known_holes", {"cve": "CVE-2026-24260"}, "confidence", " ", "CVE-2026-24260: no confidence"),
    ("gpu_families", {"capability": "7.5"}, "confidence", "sure", "confidence 'sure' is none of"),
    ("gpu_families", {"capability": "7.0"}, "last_branch", "R580", "last_branch is 'R580'"),
    ("gpu_families", {"capability": "8.9"}, "first_branch", "R520", "first_branch is 'R520'"),
    ("releases", RELEASE, "cuda", "13.x", "cuda is '13.x'"),
    ("releases", RELEASE, "driver", "610", "driver is '610'"),
    ("releases", RELEASE, "release", "26.13", "release is '26.13'"),
    ("releases", RELEASE, "framework_version", "banner 2.7", "framework_version is 'banner 2.7'"),
    ("releases", RELEASE, "pythons", "-py2=2.7", "pythons '-py2=2.7' are not those of '-py3'"),
    ("releases", RELEASE, "unverified", "cuda tag", "unverified 'tag' is not a column"),
    ("releases", RELEASE, "sass_amd64", "7.0 7.5", "sass_amd64 7.0 is not of CUDA 13.3.1.008"),
    ("releases", RELEASE, "sass_amd64", "8.0 7.5", "sass_amd64 does not ascend"),
    ("releases", RELEASE, "ptx", "13.0", "ptx 13.0 is not of CUDA 13.3.1.008"),
    ("releases", RELEASE, "sass_arm64", "", "sass_arm64 and architectures disagree"),
    ("releases", RELEASE, "driver", "610.44.01", "driver 610.44.01, but CUDA 13.3.1.008 has 610.43.02"),
    ("releases", RELEASE, "driver", "590.44.01", "an older driver than 26.06"),
    ("cuda_driver", {"cuda": "12.4.1"}, "driver", "545.54.15", "driver 545.54.15 is not of branch 550"),
    ("cuda_driver", {"cuda": "12.4.1"}, "minor_floor", "none", "minor_floor is 'none'"),
    ("cuda_compute_capability", {"cuda_from": "11.8"}, "capabilities", "3.5-9.0", "capabilities is '3.5-9.0'"),
    ("forward_compat", {"first": "24.03"}, "branches", "470 R525", "branches is '470 R525'"),
    ("forward_compat", {"first": "24.03"}, "brands", "tesla gforce", "no brand 'gforce'"),
    ("forward_compat", {"first": "24.03"}, "branches", "", "no branches, though seen"),
    ("forward_compat", {"first": "24.03"}, "excluded", "460 535", "24.03: 535 is both allowed and excluded"),
    ("forward_compat", {"first": "24.03"}, "last", "24.06", "24.06: begins before 24.06"),
    ("forward_compat", {"first": "24.03"}, "last", "24.01", "ends before it begins"),
    ("known_holes", {"cve": "CVE-2026-24260"}, "cve", "CVE-26-1", "cve is 'CVE-26-1'"),
    ("known_holes", {"cve": "CVE-2026-24260"}, "fixed_in", "1.19.1 next", "'next' is not a version"),
    ("known_holes", {"cve": "CVE-2026-24260"}, "cvss", "11", "cvss is '11'"),
    ("known_holes", {"cve": "CVE-2026-24260"}, "read", "2026", "read is '2026'"),
    ("known_holes", {"cve": "CVE-2026-24260"}, "component", "podman", "component is 'podman'"),
]


@pytest.mark.parametrize(("table", "which", "cell", "becomes", "said"), BROKEN, ids=[case[-1] for case in BROKEN])
def test_a_broken_cell_is_named(
    tables: Path, table: str, which: dict[str, str], cell: str, becomes: str, said: str
) -> None:
    changed(tables, table, lambda rows: row_of(rows, **which).update({cell: becomes}))
    done = catalog("--check", tables)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def broken_tables(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "cuda_driver.csv is missing", (folder / "cuda_driver.csv").unlink
    yield "pytorch 17.12: 2 rows", lambda: changed(folder, "releases", lambda rows: rows.append(rows[6]))
    yield (
        "releases: 26.08 comes after 26.09",
        lambda: changed(folder, "releases", lambda rows: rows.append(rows.pop(-2))),
    )
    yield (
        "cuda_driver: 13.5.0 comes after",
        lambda: changed(folder, "cuda_driver", lambda rows: rows.append(rows.pop(0))),
    )
    yield "gpu_families: no rows", lambda: one_line(folder / "gpu_families.csv")
    yield "releases: the header is", lambda: headless(folder / "releases.csv")
    yield "known_holes docker CVE-2026-17106: more cells", lambda: longer(folder / "known_holes.csv")


def one_line(path: Path) -> None:
    path.write_text(path.read_text().partition("\n")[0] + "\n")


def headless(path: Path) -> None:
    path.write_text(path.read_text().partition("\n")[2])


def longer(path: Path) -> None:
    path.write_text(path.read_text().rstrip("\n") + ",what is this\n")


@pytest.mark.parametrize("number", range(7))
def test_a_broken_table_is_named(tables: Path, number: int) -> None:
    said, break_it = list(broken_tables(tables))[number]
    break_it()
    done = catalog("--check", tables)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
