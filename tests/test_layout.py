"""The layout holds: every sub-package ships, and imports between folders point one way."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("client", "mixer", "native", "proto", "server", "tokenizer")

# Which folders a folder may import from (DESIGN: arrows point one way). The command and its demo are the exception:
# `client/cli` loads every part, when it is used.
ALLOWED = {
    "client": {"client", "proto", "native"},
    "mixer": {"mixer", "client", "proto", "native"},
    "native": {"native"},
    "proto": {"proto"},
    "server": {"server", "proto", "tokenizer", "native"},
    "tokenizer": {"tokenizer", "native", "proto"},
}


def modules(folder: str) -> list[Path]:
    return sorted(
        path for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name and "target" not in path.parts
    )


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name for name in names if name.startswith("headrace.")}
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_arrows_point_one_way(folder: str) -> None:
    paths = [path for path in modules(folder) if "cli" not in path.relative_to(ROOT / folder).parts]
    wrong = {
        (str(path.relative_to(ROOT)), name)
        for path in paths
        for name in imported(path)
        if name.split(".")[1] not in ALLOWED[folder]
    }
    assert not wrong


def test_plan_does_no_io() -> None:
    allowed = ("headrace.server.plan", "headrace.native", "headrace.proto.errors")
    wrong = {name for path in modules("server/plan") for name in imported(path) if not name.startswith(allowed)}
    assert not wrong


def test_server_never_imports_torch() -> None:
    for folder in ("server", "tokenizer", "proto", "native"):
        for path in modules(folder):
            assert "torch" not in path.read_text(encoding="utf-8").replace("pytorch", ""), path


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        "headrace." + str(path.relative_to(ROOT)).replace("/", ".")
        for folder in FOLDERS
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]
        if path.is_dir() and any(path.glob("*.py")) and "target" not in path.parts
    }
    assert found == listed


def test_no_two_tests_have_one_name() -> None:
    """They have no packages: pytest would import the first and refuse the second, and a run of one folder hides it."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
