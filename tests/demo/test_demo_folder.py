"""The demo makes its output folder fresh and never deletes what it has not made."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.client.cli.demo.folder import MARKER, fresh_folder
from headrace.proto.errors import UsageError


def test_a_new_folder_is_made_and_emptied_the_next_time(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "out") as folder:
        (folder / "raw").mkdir()
        (folder / "raw/text").write_text("x")
        (folder / "weights.json").write_text("{}")
    with fresh_folder(tmp_path / "out") as folder:
        assert [path.name for path in folder.iterdir()] == [MARKER]


def test_a_folder_of_somebody_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"no demo made it.*thesis\.tex.*--out"), fresh_folder(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_foreign_files_in_our_folder_stop_it_before_anything_is_deleted(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "out") as folder:
        (folder / "raw").mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt.*did not make"), fresh_folder(folder):
        pass
    assert (folder / "raw").is_dir()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_link_is_foreign_even_under_our_name(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    with fresh_folder(tmp_path / "out") as folder:
        (folder / "raw").symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="`raw`"), fresh_folder(folder):
        pass
    assert (tmp_path / "precious").is_dir()


def test_two_demos_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        fresh_folder(tmp_path / "out"),
        pytest.raises(UsageError, match="another demo is running"),
        fresh_folder(tmp_path / "out"),
    ):
        pass


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(UsageError, match="not a folder"), fresh_folder(tmp_path / "out"):
        pass
