"""Other tools' way from JSON Lines to token ids, run by `bench_corpus.py --peers PYTHON` in that interpreter.

    corpus_peers.py TOOL RAW TOKENIZER.json FOLDER WORKERS   ->   one JSON line: seconds, tokens

All take the JSON Lines in RAW and the same tokenizer.json (the Hugging Face layout), and write ids to FOLDER.
"""

from __future__ import annotations

import fileinput
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

_tokenizer: Any = None


def load(path: str) -> None:
    global _tokenizer
    from tokenizers import Tokenizer

    _tokenizer = Tokenizer.from_file(path)


def encode_line(line: str) -> list[int]:
    ids: list[int] = _tokenizer.encode(json.loads(line)["text"]).ids
    return ids


def megatron_style(data: str, tokenizer: str, folder: Path, workers: int) -> int:
    """A pool that parses and encodes line by line, and one writer of a .bin: as Megatron-LM's preprocess_data does."""
    import numpy as np

    total = 0
    files = sorted(str(path) for path in Path(data).iterdir())
    with fileinput.input(files, encoding="utf-8") as lines, (folder / "out.bin").open("wb") as out:
        if workers == 1:
            load(tokenizer)
            found = map(encode_line, lines)
        else:
            pool = multiprocessing.Pool(workers, initializer=load, initargs=(tokenizer,))
            found = pool.imap(encode_line, lines, 32)
        for ids in found:
            total += len(ids)
            out.write(np.array(ids, np.uint16).tobytes())
    return total


def datasets_map(data: str, tokenizer: str, folder: Path, workers: int) -> int:
    """`datasets.map`, batched, with the fast tokenizer."""
    import datasets

    load(tokenizer)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": [each.ids for each in _tokenizer.encode_batch(batch["text"])]}

    rows = datasets.load_dataset(
        "json",
        data_files=sorted(str(path) for path in Path(data).iterdir()),
        split="train",
        cache_dir=str(folder / "cache"),
    )
    mapped = rows.map(encode, batched=True, remove_columns=rows.column_names, num_proc=workers if workers > 1 else None)
    return sum(len(chunk.flatten()) for chunk in mapped.data["ids"].chunks)


def datatrove(data: str, tokenizer: str, folder: Path, workers: int) -> int:
    """datatrove's JsonlReader and DocumentTokenizer."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    pipeline = [
        JsonlReader(data, glob_pattern="*.jsonl"),
        DocumentTokenizer(str(folder / "tokens"), tokenizer_name_or_path=tokenizer, shuffle_documents=False),
    ]
    LocalPipelineExecutor(pipeline, tasks=workers, workers=workers, logging_dir=str(folder / "logs")).run()
    return sum(each.stat().st_size for each in (folder / "tokens").glob("*.ds")) // 2


if __name__ == "__main__":
    tool, data, tokenizer, folder, workers = sys.argv[1:]
    tools = {"megatron-style": megatron_style, "datasets.map": datasets_map, "datatrove": datatrove}
    began = time.perf_counter()
    tokens = tools[tool](data, tokenizer, Path(folder), int(workers))
    print(json.dumps({"seconds": time.perf_counter() - began, "tokens": tokens}))
