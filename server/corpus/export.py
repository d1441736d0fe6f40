"""Held-out documents as texts, with task files for lm-evaluation-harness: one perplexity task a domain.

    lm_eval --include_path FOLDER --tasks headrace_deu,headrace_fra --model hf --model_args pretrained=...

The texts are decoded from the token store (without bos and eos), so they are exactly what was held out of training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from headrace.proto.errors import DataLossError, UsageError
from headrace.server.corpus.durable import write_file
from headrace.server.corpus.records import DomainRecord, Manifest
from headrace.server.corpus.shard import HOLDOUT
from headrace.server.corpus.shard_read import is_whole, read_batches
from headrace.tokenizer.tokenizer import Tokenizer

_TASK = """task: headrace_{task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
metadata:
  version: 1.0
  corpus: {digest}
"""


def export_holdout(manifest: Manifest, root: Path, folder: Path) -> dict[str, int]:
    """Writes NAME.jsonl and NAME.yaml for each domain with held-out documents; how many documents each has."""
    domains = [domain for domain in manifest.domains if domain.holdout]
    if not domains:
        raise UsageError("no domain of this corpus holds documents out; say holdout = 0.001 and build again")
    tokenizer = Tokenizer.load(root / manifest.tokenizer.file)
    counts = {}
    for domain in domains:
        lines = [json.dumps({"text": text}, ensure_ascii=False) for text in _texts(manifest, root, domain, tokenizer)]
        data = folder / f"{domain.name}.jsonl"
        write_file(data, "".join(line + "\n" for line in lines).encode())
        # A task's name may hold no dot or plus sign.
        task = "".join(each if each.isalnum() else "_" for each in domain.name)
        yaml = _TASK.format(task=task, data=json.dumps(str(data.resolve())), digest=json.dumps(manifest.digest))
        write_file(folder / f"{domain.name}.yaml", yaml.encode())
        counts[domain.name] = len(lines)
    return counts


def _texts(manifest: Manifest, root: Path, domain: DomainRecord, tokenizer: Tokenizer) -> Iterator[str]:
    added = {manifest.tokenizer.bos_id, manifest.tokenizer.eos_id}
    for shards in domain.part(HOLDOUT):
        for record in shards:
            path = root / record.folder / record.shard.file
            if not is_whole(path.parent, record.shard, blocks=True):
                raise DataLossError(f"`{path}` is damaged; run: headrace corpus build --check")
            for batch in read_batches(path):
                start = 0
                for end in batch.ends.tolist():
                    ids = [each for each in batch.ids[start:end].tolist() if each not in added]
                    yield tokenizer.decode_text(ids)
                    start = end
