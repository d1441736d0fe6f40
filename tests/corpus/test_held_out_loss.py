"""Held-out documents are served as an evaluation, and the client's example tells a model's loss on each domain."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from headrace.client.examples.common import Model, options
from headrace.client.examples.held_out import evaluate
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.manifest import Corpus
from rig import serving
from small_corpus import save_byte_tokenizer, some_texts, spec_of, write_jsonl


def test_loss_of_each_domain_on_what_no_training_view_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_byte_tokenizer(tmp_path / "tokenizer.json")
    domains = ""
    for name in ("de", "fr"):
        write_jsonl(tmp_path / f"raw/{name}.jsonl", some_texts(len(domains), 300, longest=60))
        domains += f'[[domain]]\nname = "{name}"\nfiles = ["raw/{name}.jsonl"]\nholdout = 0.1\n'
    spec = spec_of(tmp_path, domains)
    build_corpus(spec, workers=1)
    run = tmp_path / "EVAL.toml"
    run.write_text(
        '[run]\nname = "held-out"\ncorpus = "corpus/manifest.json"\nseed = 1\nkind = "eval"\n'
        '[[phase]]\nname = "all"\nseq_len = 64\nbatch = 4\n'
    )
    torch.manual_seed(0)
    held = Corpus.open(spec.manifest_path, "holdout")
    model = Model(held.vocab_size)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()  # every id is as likely as any other
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.save({"model": model.state_dict()}, folder / "newest.pt")
    with serving(tmp_path, [run]) as server:
        monkeypatch.setattr(sys, "argv", ["held_out", server.address, "held-out", "--folder", str(folder)])
        found = evaluate(options(""))
    lines = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    assert sorted(found) == sorted(lines)
    assert sorted(lines) == ["de", "fr"]
    for name, line in lines.items():
        assert f"{math.log(held.vocab_size):.4f} nats a token" in line
        # Each token is a label once, but for the last one of the domain's stream, which is an input alone.
        assert f"over {held.tokens(name) - 1:,} held-out tokens" in line
