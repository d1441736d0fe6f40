"""One rank that trains on nothing: takes steps, writes down what it got, saves its state; to be killed at any time.

python rank_program.py ADDRESS RUN RANK WORLD FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from headrace.client import Loader, Settings

address, run, rank, world, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
state = folder / f"rank-{rank}.json"
settings = Settings(stall_timeout=120, open_timeout=60, backoff=0.01, backoff_max=0.2)
with Loader(address, run, rank=rank, world=world, job="killed", settings=settings) as loader:
    if state.exists():
        loader.load_state_dict(json.loads(state.read_text()))
    with (folder / f"trace-{rank}.jsonl").open("a") as trace:
        for batch in loader:
            trace.write(f"\n{json.dumps({'step': batch.step, 'rows': batch.row_digests.tobytes().hex()})}\n")
            trace.flush()
            time.sleep(0.004)
            if batch.step % 3 == 2:
                fresh = state.with_suffix(f".{os.getpid()}")
                fresh.write_text(json.dumps(loader.state_dict()))
                fresh.rename(state)
