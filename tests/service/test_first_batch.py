"""The first batch of a job that comes back: built once, by the time it is asked for, and written down once."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.request import urlopen

from rig import Raw, ServerProcess, Trainer, serving, write_run


def builds(server: ServerProcess) -> int:
    """How often rows were gathered."""
    with urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics") as answer:
        found = re.search(r"^headrace_batch_build_seconds_count (\d+)", answer.read().decode(), re.M)
    assert found is not None
    return int(found[1])


def test_ranks_that_come_back_to_a_new_server_find_their_step_built(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        with Raw(server.address) as raw:
            before = Trainer(raw).open().take(6)
            before.settle()
            seen = before.take(1).digests[6]
        server.kill()
        server.start()
        with Raw(server.address) as raw:
            raw("ListRuns")
            begun, state = builds(server), {**before.state(), "next_step": 6}
            state["plan_hash"] = raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE").plan_hash
            ranks = [Trainer(raw, attempt=1, world=2, rank=rank).open(state) for rank in "01"]
            back = ranks[0]
            back.check(back.fetch(6))
            assert back.digests[6] == seen
            assert builds(server) - begun == 1  # one for both ranks, and none for the parts that they asked for


def test_ranks_that_go_on_with_a_new_server_have_each_step_built_once(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        with Raw(server.address) as raw:
            job = Trainer(raw, world=4).open().take(6)
            job.settle()
        server.kill()
        server.start()
        with Raw(server.address) as raw:
            raw("ListRuns")
            begun = builds(server)
            job.raw = raw
            job.check(job.fetch(7))
            assert builds(server) - begun == 1
            job.check(job.fetch(4))
            assert builds(server) - begun == 1 + job.world  # what was confirmed is read as it is asked for


def test_a_later_attempt_is_not_told_of_the_words_of_the_one_before(tmp_path: Path, corpus: Path) -> None:
    """That it opened the run is in the store; only what it took would be news."""
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        for attempt in range(3):
            Trainer(raw, attempt=attempt).open()
        assert "fenced" not in server.log.read_text()
