"""An export that was damaged, or edited by hand, is refused in words, whatever was changed in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rig import headrace, write_run


@pytest.fixture
def export(tmp_path: Path, corpus: Path) -> dict[str, Any]:
    url = f"sqlite:///{tmp_path}/control.db"
    assert headrace("run", "create", str(write_run(tmp_path, corpus)), "--store", url).returncode == 0
    return dict(json.loads(headrace("run", "export", "r", "--store", url).stdout))


def test_no_value_of_another_kind_is_taken(tmp_path: Path, export: dict[str, Any]) -> None:
    changes = {
        "seal": [99, -1, "x", 10**30], "lead": [None, -1], "head": [None, "x"], "step_digests": [None, []],
        "events": [None, {}], "parent": [[], 5], "spec": [[], {}], "created_us": [{}], "name": ["other"],
    }  # fmt: skip
    spec = {"phases": None, "seed": "x", "lead": [], "domains": None, "corpus": None}
    documents = [{**export, key: value} for key, values in changes.items() for value in values]
    documents += [{**export, "spec": {**export["spec"], key: value}} for key, value in spec.items()]
    documents += [{key: value for key, value in export.items() if key != left} for left in export]
    for document in documents:
        path = tmp_path / "export.json"
        path.write_text(json.dumps(document))
        done = headrace("run", "import", str(path), "--dry-run", "--store", f"sqlite:///{tmp_path}/other.db")
        assert done.returncode in (1, 2), document
        assert "error: " in done.stderr
        assert "Traceback" not in done.stderr
