"""Launchers' variables of the machine that runs the tests must not name a job for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# The rig of a real server is that of the service's tests.
sys.path.append(str(Path(__file__).parent.parent / "service"))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
