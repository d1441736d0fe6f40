"""One tokenizer at one job, in a process of its own; `bench_tokenizer.py` runs it, in this interpreter and the peers'.

    tokenizer_peers.py encode TOOL TOKENIZER.json TEXTS.json THREADS     one JSON line: cold and warm seconds, tokens
    tokenizer_peers.py train TOOL VOCABULARY FOLDER THREADS              FOLDER/train/LANG.txt and FOLDER/dev/LANG.txt

`cold` is the first pass over text that the process has not seen (after a warm-up of two texts), `warm` the same again.
A tool that is not installed ends with exit code 3 and its reason.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Encode = Callable[[list[str]], int]

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def flat(found: Any) -> int:
    """Ids of a flat pair of ids and ends, whatever holds the ids."""
    ids = found[0]
    return len(ids) // 4 if isinstance(ids, bytes | bytearray | memoryview) else len(ids)


def headrace(path: str, threads: int) -> Encode:
    module = importlib.import_module("headrace.tokenizer")
    tokenizer = module.Tokenizer.load(path)
    return lambda texts: len(tokenizer.encode_batch(texts, threads=threads)[0])


def tokenizers(path: str, threads: int) -> Encode:
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(path)
    return lambda texts: sum(len(each) for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False))


def gigatoken(path: str, threads: int) -> Encode:
    tokenizer = importlib.import_module("gigatoken").Tokenizer(path)

    # Its ids lie in an array of its own kind, whose counting would be timed too.
    return lambda texts: 0 * len(tokenizer.encode_batch(texts, parallel=threads > 1))


def fastokens(path: str, threads: int) -> Encode:
    tokenizer = importlib.import_module("fastokens._native").Tokenizer.from_file(path)
    return lambda texts: flat(tokenizer.encode_batch_flat(texts))


def snaptokens(path: str, threads: int) -> Encode:
    tokenizer = importlib.import_module("snaptokens").Tokenizer.from_file(path)
    return lambda texts: flat(tokenizer.encode_batch_flat(texts))


def splintr(path: str, threads: int) -> Encode:
    tokenizer = importlib.import_module("splintr").from_json(path)
    if threads > 1:
        return lambda texts: sum(map(len, tokenizer.encode_batch(texts)))
    return lambda texts: sum(len(tokenizer.encode(text)) for text in texts)


def tiktoken(path: str, threads: int) -> Encode:
    module = importlib.import_module("tiktoken")
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    bytes_of = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    special = {token["content"] for token in content["added_tokens"]}
    vocabulary = content["model"]["vocab"].items()
    ranks = {bytes(bytes_of[char] for char in name): i for name, i in vocabulary if name not in special}
    encoding = module.Encoding("bench", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    if threads > 1:
        return lambda texts: sum(map(len, encoding.encode_ordinary_batch(texts, num_threads=threads)))
    return lambda texts: sum(len(encoding.encode_ordinary(text)) for text in texts)


ENCODERS = {each.__name__: each for each in (
    headrace, gigatoken, fastokens, snaptokens, splintr, tiktoken, tokenizers,
)}  # fmt: skip


def encode(tool: str, path: str, texts_path: str, threads: int) -> dict[str, float]:
    texts = json.loads(Path(texts_path).read_text(encoding="utf-8"))
    run = ENCODERS[tool](path, threads)
    run(["a text", "another text"])
    found: dict[str, float] = {}
    for name in ("cold", "warm"):
        wall, used = time.perf_counter(), time.process_time()
        found["tokens"] = run(texts)
        found[name], found[f"{name}_wall"] = time.process_time() - used, time.perf_counter() - wall
    return found


def lines_of(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from file


def train_headrace(vocabulary: int, train: list[Path], dev: list[Path], threads: int, variant: str) -> int:
    spec = importlib.import_module("headrace.tokenizer.spec")
    module = importlib.import_module("headrace.tokenizer.train")
    evidence = "mix" if variant == "mix" else "train"
    settings = spec.TrainSpec(
        vocab_size=vocabulary, variant="base" if variant == "mix" else variant, evidence=evidence, threads=threads,
        pretokenizer="gpt2", specials=(), allow_smaller=True, kappa=0.02,
    )  # fmt: skip
    parallel = {path.stem: [path] for path in dev} if variant != "classical" else None
    made, _ = module.train(settings, {path.stem: [path] for path in train}, parallel)
    made.save(train[0].parent.parent / "headrace.json")
    return int(made.vocab_size)


def train_tokenizers(vocabulary: int, train: list[Path], dev: list[Path], threads: int, variant: str) -> int:
    module = importlib.import_module("tokenizers")
    tokenizer = module.Tokenizer(module.models.BPE())
    tokenizer.pre_tokenizer = module.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    common = {
        "min_frequency": 2,
        "show_progress": False,
        "initial_alphabet": module.pre_tokenizers.ByteLevel.alphabet(),
    }
    if variant == "classical":
        tokenizer.train([str(path) for path in train], module.trainers.BpeTrainer(vocab_size=vocabulary, **common))
    else:
        trainer = module.trainers.ParityBpeTrainer(num_merges=vocabulary - 256, variant=variant, **common)
        trainer.train_from_iterator(
            tokenizer,
            train_iterators=[lines_of(path) for path in train],
            dev_iterators=[lines_of(path) for path in dev],
        )
    tokenizer.save(str(train[0].parent.parent / "tokenizers.json"))
    return int(tokenizer.get_vocab_size())


def train_gigabpe(vocabulary: int, train: list[Path], dev: list[Path], threads: int, variant: str) -> int:
    module = importlib.import_module("gigabpe")
    files = [str(path) for path in train]
    made, _ = module.train_bpe(files, vocabulary, pretokenizer="bytelevel", threads=threads, special_tokens=[])
    return len(made)


def train_rustbpe(vocabulary: int, train: list[Path], dev: list[Path], threads: int, variant: str) -> int:
    tokenizer = importlib.import_module("rustbpe").Tokenizer()
    tokenizer.train_from_iterator((line for path in train for line in lines_of(path)), vocabulary, pattern=GPT2)
    return len(tokenizer.get_mergeable_ranks())


def train_gigatoken(vocabulary: int, train: list[Path], dev: list[Path], threads: int, variant: str) -> int:
    whole = train[0].parent.parent / "all.txt"
    whole.write_bytes(b"".join(path.read_bytes() for path in train))
    made, _ = importlib.import_module("gigatoken").train_bpe(whole, vocabulary, [])
    return len(made)


TRAINERS: dict[str, tuple[Callable[..., int], str]] = {
    "headrace classical": (train_headrace, "classical"),
    "tokenizers BpeTrainer": (train_tokenizers, "classical"),
    "gigabpe": (train_gigabpe, "classical"),
    "rustbpe": (train_rustbpe, "classical"),
    "gigatoken": (train_gigatoken, "classical"),
    "headrace base": (train_headrace, "base"),
    "headrace mix": (train_headrace, "mix"),
    "headrace window": (train_headrace, "window"),
    "tokenizers ParityBpeTrainer base": (train_tokenizers, "base"),
}


def train(tool: str, vocabulary: int, folder: Path, threads: int) -> dict[str, float]:
    run, variant = TRAINERS[tool]
    parts = [sorted((folder / part).glob("*.txt")) for part in ("train", "dev")]
    wall, used = time.perf_counter(), time.process_time()
    made = run(vocabulary, *parts, threads, variant)
    return {
        "cold": time.process_time() - used,
        "cold_wall": time.perf_counter() - wall,
        "tokens": made,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(job: str, tool: str, what: str, where: str, threads: str) -> None:
    for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ[name] = threads
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if int(threads) > 1 else "false"
    try:
        run = encode(tool, what, where, int(threads)) if job == "encode" else train(
            tool, int(what), Path(where), int(threads)
        )  # fmt: skip
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        raise SystemExit(3) from None
    print(json.dumps(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
