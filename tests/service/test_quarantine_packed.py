"""A bad block under `best_fit`: ids go into quarantine; without the lengths of its documents nothing can be packed.

Then the server refuses to start and names the shard: to guess lengths would be to serve another stream.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from corpora import build_small_corpus
from headrace.client import Loader, Settings
from headrace.native import step_digest
from headrace.server.corpus.manifest import Corpus
from rig import Raw, headrace, planned_digests, serving, write_run

STEPS = 40
QUICK = Settings(stall_timeout=8, open_timeout=30, backoff=0.01, backoff_max=0.2)


def flip(manifest: Path, domain: str, column: str) -> str:
    """Flips a bit in the middle of the ids, or of the document ends, of the only shard of a domain."""
    record = next(each for each in Corpus.open(manifest).manifest.domains if each.name == domain).generations[0][0]
    name = f"{record.folder}/{record.shard.file}"
    path = manifest.parent / name
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        lists = batch.column(0)
        buffer = lists.values.buffers()[1] if column == "ids" else lists.buffers()[1]
        content = bytes(buffer)
    data = bytearray(path.read_bytes())
    at = data.index(content) + len(content) // 2
    data[at] ^= 1
    path.write_bytes(data)
    return name


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Path]:
    """A shard of many blocks, so that ids and lengths do not share one."""
    corpus = build_small_corpus(tmp_path, documents={"a": 300, "b": 3_000, "c": 100})
    path = write_run(tmp_path, corpus, steps=STEPS, lead=4, seq_len=64)
    path.write_text(path.read_text().replace("seq_len = 64", 'seq_len = 64\npacking = "best_fit"'))
    return path, corpus


def test_bad_ids_go_into_quarantine(tmp_path: Path, run: tuple[Path, Path]) -> None:
    path, own = run
    with serving(tmp_path, [path], extra='bad_blocks = "quarantine"') as server, Raw(server.address) as raw:
        with Loader(server.address, "r", settings=QUICK) as loader:
            batches = [next(loader) for _ in range(5)]
            name = flip(own, "b", "ids")
            batches += list(loader)
            page = f"http://127.0.0.1:{server.metrics_port}"
            shown = json.loads(headrace("top", "r", "--endpoint", page, "--json").stdout)
            assert {each["name"]: each["state"] for each in shown["domains"]}["b"] == "quarantine"
            assert any("b has shards in quarantine" in note["text"] for note in shown["notes"])
        (event,) = raw("ListEvents", run="r").events
        assert list(event.mask.values) == [name]
        assert all(batch.emptied.tolist() == [n == "b" for n in batch.names] for batch in batches[event.from_step :])
        served = {batch.step: step_digest(batch.row_digests.tobytes()) for batch in batches}
        assert planned_digests(server.store, "r", f"{event.from_step}:{STEPS}").items() <= served.items()


def test_without_the_ends_of_its_documents_the_run_is_not_served(tmp_path: Path, run: tuple[Path, Path]) -> None:
    path, own = run
    with serving(tmp_path, [path], extra='bad_blocks = "quarantine"') as server:
        with Loader(server.address, "r", settings=QUICK) as loader:
            for _ in range(5):
                next(loader)
        server.stop()
        name = flip(own, "b", "ends")
        with pytest.raises(AssertionError, match=f"(?s)did not start.*{name}.*is damaged at byte.*restore the file"):
            server.start()
