"""Row 40: servers that do not mean the same run never mix: another spec, corpus, tokenizer or log is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from corpora import build_small_corpus, write_small_corpus
from headrace.server.control.store import Store
from headrace.server.corpus.build import build_corpus
from headrace.tokenizer import Tokenizer
from postgres import PostgresServer
from rig import Raw, ServerProcess, Trainer, headrace, planned_digests, serving, write_run


def with_another_tokenizer(folder: Path) -> Path:
    """The same texts, with one merge more."""
    spec = write_small_corpus(folder)
    specials = {"<|endoftext|>": 0, "<|pad|>": 1}
    tokens = [name.encode() for name in specials] + [bytes([byte]) for byte in range(256)] + [b"th"]
    merge = ((tokens.index(b"t"), tokens.index(b"h")),)
    Tokenizer(tokens=tokens, merges=merge, special_ids=specials).save(folder / "tokenizer.json")
    build_corpus(spec, workers=1)
    return folder / "corpus" / "manifest.json"


def refusal(folder: Path, spec: Path, store: str) -> str:
    """What a server says that does not start."""
    with pytest.raises(AssertionError, match="the server did not start") as caught:
        ServerProcess(folder, [spec], store=store)
    return str(caught.value)


def test_servers_that_differ_do_not_start(tmp_path: Path, corpus: Path, postgres: PostgresServer) -> None:
    store = postgres.new_database()
    folders = {name: tmp_path / name for name in ("one", "seed", "corpus", "tokenizer")}
    for folder in folders.values():
        folder.mkdir()
    others = {
        "seed": write_run(folders["seed"], corpus, seed=8),
        "corpus": write_run(folders["corpus"], build_small_corpus(folders["corpus"], seed=2)),
        "tokenizer": write_run(folders["tokenizer"], with_another_tokenizer(folders["tokenizer"])),
    }
    with (
        serving(folders["one"], [write_run(folders["one"], corpus)], store=store) as server,
        Raw(server.address) as raw,
    ):
        trainer = Trainer(raw).open().take(5)
        mine = raw("GetRun", run="r").run.spec_digest.hex()[:16]
        for name, spec in others.items():
            done = headrace("run", "create", str(spec), "--store", store)
            assert done.returncode == 1
            said = refusal(folders[name], spec, store) if name == "tokenizer" else done.stderr
            digests = set(re.findall(r"\b[0-9a-f]{16}\b", said))
            assert mine in digests, said
            assert len(digests) >= 2, said
            assert "Traceback" not in said
        trainer.take(20)
        assert trainer.digests == planned_digests(store, "r", "0:25")


def test_a_log_that_was_changed_is_not_served(tmp_path: Path, corpus: Path) -> None:
    """Nor is one with an event taken out: the chain says where."""
    weights = {"a": 0.1, "b": 0.1, "c": 0.8}
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        for _ in range(3):
            raw("SetWeights", run="r", weights=weights)
        server.stop()
        path = tmp_path / "control.db"
        for number, change in enumerate(
            ("UPDATE events SET author = 'somebody else' WHERE sequence = 2", "DELETE FROM events WHERE sequence = 2")
        ):
            folder = tmp_path / str(number)
            folder.mkdir()
            shutil.copy(path, folder / "control.db")
            changed = Store(f"sqlite:///{folder}/control.db", writable=True)
            with changed._database.write() as connection:
                connection.execute(sa.text(change))
            changed.close()
            url = f"sqlite:///{folder}/control.db"
            done = headrace("run", "digest", "r", "--steps", "0:1", "--store", url)
            assert done.returncode == 1
            assert re.search(r"event [23]", done.stderr), done.stderr
            said = refusal(folder, tmp_path / "r.toml", url) if number == 0 else done.stderr
            assert re.search(r"event [23]", said), said
            assert "Traceback" not in said
