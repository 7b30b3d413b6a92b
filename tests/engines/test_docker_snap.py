"""What Docker from snap may not see of a run's folders."""

from __future__ import annotations

from pathlib import Path

from ngcdl.engines.docker import snap


def test_only_what_is_not_hidden_in_the_home_folder_is_seen(tmp_path: Path) -> None:
    home = tmp_path / "me"
    hidden = [home / ".cache/ngcdl", tmp_path / "data", Path("/work"), home / "link"]
    seen = [home, home / "ngcdl-state/ngcdl/runs", home / "project/.git"]
    home.mkdir()
    (home / "link").symlink_to(tmp_path / "data")
    assert snap.out_of_sight([*seen, *hidden], home) == tuple(hidden)
    assert all(str(path) in snap.warning(hidden) for path in hidden)
    assert snap.INSTALL in snap.warning(hidden)
