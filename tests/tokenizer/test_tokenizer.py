"""The tokenizer: exact ids, exact round trip, hostile text, its file, and what it refuses."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import twin
from headrace.native import split_pieces
from headrace.proto.errors import ConfigError, UsageError
from headrace.tokenizer import Tokenizer
from headrace.tokenizer.byte_chars import to_chars
from headrace.tokenizer.pretokenizer import LOSSY, NAMES
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = "The quick brown fox isn't here; 中文字典 और हिन्दी की किताब 1234.\n\n    def f(x): return x\r\n" * 20


@cache
def made(name: str = "gpt2m", size: int = 315) -> Tokenizer:
    return train(TrainSpec(vocab_size=size, variant="classical", pretokenizer=name), {"x": [TEXT]})[0]


texts = st.text() | st.text(alphabet="the ’'s\n\r\tक़ि中1é🙂<|endoftext|>", max_size=60)


@settings(max_examples=100, deadline=None)
@given(text=texts, name=st.sampled_from([name for name in NAMES if name not in LOSSY]))
def test_round_trip_and_twin(text: str, name: str) -> None:
    tokenizer = made(name)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.uint32
    assert tokenizer.decode(ids) == text.encode()
    chars = [to_chars(token) for token in tokenizer.tokens]
    merges = [(chars[left], chars[right]) for left, right in tokenizer.merges]
    expected = [token for piece in split_pieces(name, text) for token in twin.encode(piece, merges)]
    assert [chars[i] for i in ids] == expected


@settings(max_examples=60, deadline=None)
@given(many=st.lists(texts, max_size=20), threads=st.integers(1, 4))
def test_batch_equals_one_by_one(many: list[str], threads: int) -> None:
    ids, ends = made().encode_batch(many, threads=threads)
    parts = np.split(ids, ends[:-1].astype(np.int64)) if many else []
    assert [part.tolist() for part in parts] == [made().encode(text).tolist() for text in many]


def test_batch_on_threads_equals_one_thread() -> None:
    rng = random.Random(1)
    many = ["".join(rng.choices(TEXT, k=rng.randint(0, 300))) for _ in range(5000)]
    one, two = made().encode_batch(many, threads=1), made().encode_batch(many, threads=4)
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])


def test_calls_at_once_and_again_give_the_same_ids() -> None:
    """What threads have met is kept between calls, by whoever takes it next."""
    rng = random.Random(2)
    # More distinct pieces than the first tables hold, so that large ones are made and taken over.
    many = [f"{rng.getrandbits(70):x} {rng.getrandbits(20):x} {TEXT}" for _ in range(3000)]
    expected = Tokenizer.from_json(made().to_json()).encode_batch(many, threads=1)[0]
    tokenizer = Tokenizer.from_json(made().to_json())
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda threads: tokenizer.encode_batch(many, threads=threads)[0], [1, 3, 2, 3, 1, 2]))
    assert all(np.array_equal(ids, expected) for ids in found)


@pytest.mark.parametrize("char", ["^", " ", "a", "-", "\n", "中", "\u0301", "7", "\t", "😀", " \n"])
@pytest.mark.parametrize("name", ["gpt2m", "o200k"])
def test_a_million_equal_characters(char: str, name: str) -> None:
    text = char * (1_000_000 // len(char))
    start = time.monotonic()
    tokenizer = made(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text.encode()
    assert time.monotonic() - start < 10


def test_training_on_a_million_equal_characters() -> None:
    spec = TrainSpec(vocab_size=258 + 19, variant="classical", min_frequency=1)
    tokenizer, _ = train(spec, {"x": ["a" * 1_000_000]})
    assert tokenizer.tokens[-1] == b"a" * 2**19
    assert len(tokenizer.encode("a" * 1_000_000)) < 10


def test_hostile_pieces_cost_at_most_three_times_normal_text() -> None:
    rng = random.Random(2)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(60_000)]
    normal = [" ".join(words[start::6]) for start in range(6)]
    tokenizer, _ = train(TrainSpec(vocab_size=3000, variant="classical"), {"x": [*normal, TEXT]})
    per_byte = min(cpu_seconds(tokenizer, text) / len(text) for text in normal)
    for size in (25_000, 50_000, 100_000, 200_000):
        for name, piece in hostile(rng, size).items():
            spent = min(cpu_seconds(tokenizer, piece) for _ in range(3))
            assert spent / size < 3 * per_byte, (size, name)


def hostile(rng: random.Random, size: int) -> dict[str, str]:
    """Text without a border for the pre-tokenizer, or nearly so."""
    record = '{"id":12,"name":"abc","list":[1,2,3],"ok":true},'
    return {
        "underscores": "_" * size,
        "letters": "".join(rng.choices("abcdefghijklmnopABCDEFGH", k=size)),
        "base64": "".join(rng.choices("abcdefghijklmnopABCDEFGH0123456789+/", k=size)),
        "acgt": "".join(rng.choices("ACGT", k=size)),
        "json": record * (size // len(record) + 1),
    }


def cpu_seconds(tokenizer: Tokenizer, text: str) -> float:
    """CPU time of encoding, which neighbours on the machine can't lengthen much."""
    start = time.thread_time()
    tokenizer.encode(text)
    return time.thread_time() - start


def test_special_text_is_text_unless_allowed() -> None:
    tokenizer = made()
    end = tokenizer.special_ids["<|endoftext|>"]
    for text in ("before <|endoftext|> after", "<|endoftext|>", "<|endof\ntext|>", "<|endof", "<|pad|><|endoftext|>"):
        assert end not in tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text.encode()
        allowed = tokenizer.encode(text, allow_special=True)
        assert (allowed == end).sum() == text.count("<|endoftext|>")
        assert tokenizer.decode(allowed) == text.encode()
    assert tokenizer.count_special_text(["a<|pad|>", "<|pad|><|endoftext|>"]) == {"<|endoftext|>": 1, "<|pad|>": 2}
    assert (tokenizer.eos_id, tokenizer.pad_id, tokenizer.bos_id) == (0, 1, None)


@pytest.mark.parametrize("text", ["\ud83d", "a\udc80", "\ud83d\udc4d"])
def test_surrogates_are_refused_alike(text: str) -> None:
    for call in (lambda: made().encode(text), lambda: made().encode_batch(["fine", text])):
        with pytest.raises(UsageError, match="lone surrogate U\\+D"):
            call()


@pytest.mark.parametrize("pair", [("e\u0301", "\u00e9"), ("ﬁ", "fi"), ("１", "1"), ("\u1112\u1161\u11ab", "한")])
def test_nothing_is_normalised(pair: tuple[str, str]) -> None:
    assert made().encode(pair[0]).tolist() != made().encode(pair[1]).tolist()


def test_decoding_any_ids() -> None:
    tokenizer = made()
    rng = np.random.default_rng(3)
    ids = rng.integers(0, tokenizer.vocab_size, 2000)
    assert tokenizer.decode(ids) == b"".join(tokenizer.tokens[i] for i in ids)
    assert "\ufffd" in tokenizer.decode_text(tokenizer.encode("😀")[:1])
    assert tokenizer.decode([]) == b""
    for wrong in ([tokenizer.vocab_size], [-1], [0.5], [2**40]):
        with pytest.raises(UsageError):
            tokenizer.decode(wrong)


def test_file_keeps_everything(tmp_path: Path) -> None:
    for name in NAMES:
        if name in LOSSY:
            continue
        tokenizer = made(name)
        tokenizer.save(tmp_path / "t.json")
        again = Tokenizer.load(tmp_path / "t.json")
        assert again.digest == tokenizer.digest
        assert again.to_json() == tokenizer.to_json()
        assert again.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
        assert again.special_ids == tokenizer.special_ids
    assert made().digest != made(size=314).digest
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "NFC"}}, "normalizer"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer"),
        ({"model": {"type": "WordPiece", "vocab": {}, "merges": []}}, "WordPiece"),
        ({"model": {"type": "BPE", "vocab": {"a": 5}, "merges": []}}, "without a gap"),
    ],
)
def test_foreign_files_are_refused_by_name(change: dict[str, object], message: str) -> None:
    content = {**json.loads(made().to_json()), **change}
    with pytest.raises(ConfigError, match=message):
        Tokenizer.from_json(json.dumps(content), place="x.json")


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json"):
        Tokenizer.load(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text(made().to_json()[:100])
    with pytest.raises(ConfigError, match=r"cut\.json"):
        Tokenizer.load(tmp_path / "cut.json")


def _encode_in_child(tokenizer: Tokenizer, queue: multiprocessing.Queue[int]) -> None:
    queue.put(len(tokenizer.encode_batch([TEXT] * 200, threads=2)[0]))


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_fork_while_threads_encode() -> None:
    tokenizer, context = made(), multiprocessing.get_context("fork")
    expected = len(tokenizer.encode_batch([TEXT] * 200, threads=2)[0])
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            tokenizer.encode_batch([TEXT] * 200, threads=2)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        queue: multiprocessing.Queue[int] = context.Queue()
        children = [context.Process(target=_encode_in_child, args=(tokenizer, queue)) for _ in range(4)]
        for child in children:
            child.start()
        assert [queue.get(timeout=60) for _ in children] == [expected] * 4
        for child in children:
            child.join(timeout=60)
            assert child.exitcode == 0
    finally:
        stop.set()
        thread.join()


def test_other_threads_run_while_encoding() -> None:
    gaps, stop = [0.0], threading.Event()

    def heartbeat() -> None:
        last = time.monotonic()
        while not stop.is_set():
            time.sleep(0.002)
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    thread = threading.Thread(target=heartbeat)
    thread.start()
    started = time.monotonic()
    while time.monotonic() - started < 0.7:
        made().encode("abc def " * 500_000)
    stop.set()
    thread.join()
    assert len(gaps) > 20
    assert max(gaps) < 0.5
