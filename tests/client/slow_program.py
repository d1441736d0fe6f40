"""Sixteen ranks of a job in one process: each sleeps after every batch, the last one never takes a second one.

Prints what each has taken, and by how many MiB the process has grown by all of them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from headrace.client import Loader, Settings

RANKS = 16


def resident() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(address: str, pause: float, seconds: float, buffer_bytes: int) -> None:
    before = resident()
    settings = Settings(buffer_bytes=buffer_bytes, message_bytes=256 << 10, stall_timeout=60)
    started, taken = threading.Barrier(RANKS + 1), [0] * RANKS

    def go(rank: int) -> None:
        with Loader(
            address, "deep", rank=rank, world=RANKS, job="slow", settings=settings, start="beginning"
        ) as loader:
            next(loader)
            started.wait(60)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(pause)
                if rank < RANKS - 1:
                    taken[rank] = next(loader).step
            done.wait(60)

    done = threading.Barrier(RANKS + 1)
    threads = [threading.Thread(target=go, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    started.wait(60)
    print("started", flush=True)
    time.sleep(seconds)
    grown = resident() - before
    done.wait(60)
    for thread in threads:
        thread.join()
    print(json.dumps({"taken": taken, "grown": grown}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
