"""A stored cursor that was damaged is named, deleted on request, and never decides what is served."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.server.control import runs
from headrace.server.control.store import Store
from headrace.server.service.loading import Opener
from rig import headrace, planned_digests, write_run


def test_a_damaged_anchor_is_named_and_can_be_forgotten(tmp_path: Path, corpus: Path) -> None:
    url = f"sqlite:///{tmp_path}/control.db"
    assert headrace("run", "create", str(write_run(tmp_path, corpus)), "--store", url).returncode == 0
    planned = planned_digests(url, "r", "0:40")
    store = Store(url, writable=True)
    view = Opener(store).view("r")
    good, bad = view.plan.anchor(10), view.plan.anchor(20).replace('"step":20', '"step":21')
    with store._database.write() as connection:
        runs.store_anchors(connection, view.run.id, ((10, good), (20, bad), (401, good)))
    store.close()

    assert planned_digests(url, "r", "10:20") == {step: planned[step] for step in range(10, 20)}
    done = headrace("run", "digest", "r", "--steps", "25:26", "--store", url)
    assert done.returncode == 1
    assert "step 20" in done.stderr
    assert "--forget-anchors" in done.stderr
    assert "Traceback" not in done.stderr

    done = headrace("run", "verify", "r", "--store", url)
    assert done.returncode == 1
    assert "the anchor of step 20 is not what the plan gives" in done.stdout
    done = headrace("run", "verify", "r", "--store", url, "--forget-anchors", "--json")
    assert json.loads(done.stdout)["forgotten_anchors"] == 2
    assert "1 anchors recomputed, all good" in headrace("run", "verify", "r", "--store", url).stdout
    assert planned_digests(url, "r", "0:40") == planned
