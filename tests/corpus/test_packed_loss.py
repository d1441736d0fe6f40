"""What packing must not change: the loss of a document, and each domain's part of the tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from headrace.client.batch import Batch
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.served import Rows
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import RunSpec
from small_corpus import ONE, some_texts, stream, write_jsonl

Build = Callable[..., Corpus]
WIDTH = 8


def batch_of(rows: Rows, seq_len: int, pad_id: int) -> Batch:
    ids = np.frombuffer(rows.ids, np.uint16).reshape(-1, seq_len + 1)
    count = len(ids)
    return Batch(
        step=0,
        segment=0,
        first_slot=0,
        token_ids=ids,
        real_ids=rows.real_ids,
        domain=np.zeros(count, np.uint32),
        domain_names=("d",),
        loss_weight=np.ones(count, np.float32),
        edge_ends=rows.edge_ends,
        edges=rows.edges,
        row_digests=np.zeros((count, 16), np.uint8),
        plan_hash=b"",
        next_plan_hash=b"",
        pad_id=pad_id,
    )


class TinyModel:
    """One head of causal attention over token and position embeddings; `documents` says who may see whom."""

    def __init__(self, vocab_size: int) -> None:
        rng = np.random.default_rng(5)
        self.tokens, self.out = rng.normal(size=(2, vocab_size, WIDTH))
        self.places = rng.normal(size=(4096, WIDTH))
        self.query, self.key, self.value = rng.normal(size=(3, WIDTH, WIDTH))

    def losses(
        self, inputs: npt.NDArray[Any], places: npt.NDArray[Any], documents: npt.NDArray[Any], labels: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Loss of each position, nats."""
        x = self.tokens[inputs] + self.places[places]
        scores = (x @ self.query) @ (x @ self.key).T
        seen = np.tril(np.ones(scores.shape, np.bool_)) & (documents[:, None] == documents[None, :])
        scores = np.where(seen, scores, -np.inf)
        parts = np.exp(scores - scores.max(axis=1, keepdims=True))
        logits = (parts / parts.sum(axis=1, keepdims=True)) @ (x @ self.value) @ self.out.T
        logits -= logits.max(axis=1, keepdims=True)
        found: npt.NDArray[np.float64] = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
        return found


def test_loss_of_packed_documents_is_that_of_each_alone(root: Path, build: Build) -> None:
    texts = some_texts(11, 60, longest=20)
    write_jsonl(root / "raw/a.jsonl", texts)
    corpus = build(ONE)
    model = TinyModel(corpus.vocab_size)
    alone = 0.0
    for text in texts:
        ids = np.array(stream([text]))
        places = np.arange(len(ids) - 1)
        alone += model.losses(ids[:-1], places, np.zeros(len(places)), ids[1:]).sum()
    seq_len = 128
    count = corpus.view("d", seq_len, "best_fit").windows
    windows = np.arange(count, dtype=np.uint64)
    batch = batch_of(
        corpus.read(seq_len, "best_fit", ["d"], np.zeros(count, np.uint32), windows), seq_len, corpus.pad_id
    )
    packed, labels = 0.0, 0
    for row in range(count):
        documents = batch.document_ids[row]
        # The label of a document's last token is the first of another one: it is left out, as it is when alone.
        inside = batch.loss_mask[row] & (np.append(documents[1:], -1) == documents)
        safe = np.where(inside, batch.labels[row], 0)
        losses = model.losses(batch.input_ids[row].astype(np.int64), batch.position_ids[row], documents, safe)
        packed += losses[inside].sum()
        labels += int(inside.sum())
    assert labels == sum(len(stream([text])) - 1 for text in texts)
    assert packed == pytest.approx(alone, rel=1e-9)


def test_mixture_over_views_of_different_fill_realizes_its_token_shares(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/full.jsonl", ["a" * 63] * 900)
    write_jsonl(root / "raw/half.jsonl", ["b" * 39] * 900)
    corpus = build("".join(f'[[domain]]\nname = "{n}"\nfiles = ["raw/{n}.jsonl"]\n' for n in ("full", "half")))
    fills = {name: corpus.view(name, 64, "best_fit").fill(64) for name in ("full", "half")}
    assert fills["full"] == 1.0
    assert fills["half"] == 40 / 64
    toml = (
        '[run]\nname = "r"\ncorpus = "c"\nseed = 3\n[[phase]]\nname = "p"\nsteps = 200\nseq_len = 64\nbatch = 16\n'
        'packing = "best_fit"\nweights = { full = 0.3, half = 0.7 }\n'
    )
    spec = RunSpec.from_toml(toml, place="RUN.toml")
    plan = Plan(spec, corpus.facts(spec.shapes()))
    served = np.zeros(2)
    for step in range(200):
        draw = plan.draw(step)
        rows = corpus.read(64, "best_fit", list(plan.domains), draw.domains, draw.windows)
        np.add.at(served, draw.domains, np.minimum(rows.real_ids, 64))
    assert served[0] / served.sum() == pytest.approx(0.3, abs=0.003)
