"""A folder is made even if another process makes it at the same moment."""

import os

import pytest

from trainer import files


def test_a_folder_that_another_node_makes_at_the_same_moment_is_no_error(tmp_path, monkeypatch):
    make = os.makedirs

    def after_another(path):
        make(path)
        make(path)

    monkeypatch.setattr(os, "makedirs", after_another)
    files.make_folder(str(tmp_path / "one"))
    assert (tmp_path / "one").is_dir()


def test_one_that_is_there_stays_and_a_file_in_its_place_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    files.make_folder(str(tmp_path))
    assert (tmp_path / "file").is_file()
    with pytest.raises(EnvironmentError):
        files.make_folder(str(tmp_path / "file"))
