"""The client's page is true: its Python runs as it stands, its settings and examples are those that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.client import Settings
from rig import serving, write_run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "client" / "README.md").read_text(encoding="utf-8")


def test_its_python_runs_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "texts").mkdir()
    run = write_run(tmp_path, build_small_corpus(tmp_path / "texts"), name="pretrain-1")
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path, [run]) as server:
        for block in blocks:
            assert "127.0.0.1:7750" in block
            exec(block.replace("127.0.0.1:7750", server.address), {})


def test_its_settings_are_all_that_there_are_with_their_defaults() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| ([\w.]+) \| ", PAGE.split("## Settings")[1], re.MULTILINE))
    assert table == {one.name: str(one.default) for one in fields(Settings)}


def test_the_files_that_it_names_are_there() -> None:
    for name in re.findall(r"`([\w/]+\.py)`", PAGE.split("## Where to look")[1]):
        assert (ROOT / "client" / name).is_file(), name
