import builtins
from collections.abc import Sequence
from os import PathLike
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "version",
    "BpeEncoder",
    "BpeTrainer",
    "PieceCounter",
    "count_pieces",
    "pattern_names",
    "pattern_regex",
    "split_pieces",
    "Piece",
    "key",
    "permute",
    "permute_many",
    "plan_tokens",
    "random_u64",
    "copy_rows",
    "take_plain",
    "row_digests",
    "step_digest",
    "PADDING",
    "DamagedError",
    "TokenStore",
    "Blake3",
    "block_sums",
    "text_digests",
    "Texts",
    "count_ids",
    "encode_documents",
]

version: str

_Digests = bytes | bytearray | memoryview | npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]
_Slots = tuple[npt.NDArray[np.uint32], _Words, _Words, _Words]

def key(seed: int, purpose: str, number: int, name: str) -> tuple[int, int]: ...
def random_u64(key: tuple[int, int], counter: int) -> int: ...
def permute(key: tuple[int, int], n: int, index: int) -> int: ...
def permute_many(key: tuple[int, int], n: int, indices: _Words) -> _Words: ...
def plan_tokens(state: _Words) -> _Words: ...
def copy_rows(
    ids: npt.NDArray[np.uint8],
    into: npt.NDArray[np.uint8],
    row_bytes: int,
    edge_ends: npt.NDArray[np.uint32],
    edges: npt.NDArray[np.uint32],
    names: list[str],
    domains: npt.NDArray[np.uint32],
    loss_weights: npt.NDArray[np.float32],
    mask_ends: npt.NDArray[np.uint32] | None = None,
    masks: npt.NDArray[np.uint32] | None = None,
) -> bytes: ...
def take_plain(
    reply: npt.NDArray[np.uint8],
    shared: npt.NDArray[np.uint8] | None,
    into: npt.NDArray[np.uint8],
    step: int,
    first_slot: int,
    rows: int,
    id_bytes: int,
    names: Sequence[str],
) -> (
    tuple[
        int,
        bool,
        npt.NDArray[np.uint32],
        npt.NDArray[np.uint32],
        npt.NDArray[np.float32],
        npt.NDArray[np.uint32],
        npt.NDArray[np.uint32],
        bytes,
        bytes,
        bytes,
    ]
    | None
): ...
def row_digests(
    ids: bytes | bytearray | memoryview,
    row_bytes: int,
    edge_ends: npt.NDArray[np.uint32],
    edges: npt.NDArray[np.uint32],
    names: list[str],
    domains: npt.NDArray[np.uint32],
    loss_weights: npt.NDArray[np.float32],
    mask_ends: npt.NDArray[np.uint32] | None = None,
    masks: npt.NDArray[np.uint32] | None = None,
) -> bytes: ...
def step_digest(row_digests: _Digests | Sequence[_Digests]) -> bytes: ...

@final
class Piece:
    def __new__(
        cls,
        *,
        seed: int,
        draw: str,
        order: str,
        batch: int,
        members: Sequence[dict[str, Any]],
        ramp: tuple[int, int, str] | None = None,
    ) -> Piece: ...
    def advance(self, state: _Words, step: int, steps: int) -> tuple[_Words, int, int | None]: ...
    def advance_watching(
        self, state: _Words, step: int, steps: int
    ) -> tuple[_Words, int, int | None, npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def check(self, state: _Words) -> None: ...
    def deal(self, state: _Words, step: int) -> tuple[_Slots | None, int | None]: ...
    def parts(self, step: int) -> _Words: ...
    def shares(self, step: int) -> npt.NDArray[np.int64]: ...
    def settled(self, state: _Words) -> _Words: ...
    def unread(self, state: _Words) -> _Words: ...
    def windows_left(self, state: _Words) -> _Words: ...

def pattern_names() -> list[str]: ...
def pattern_regex(pattern: str) -> str | None: ...
def split_pieces(pattern: str, text: str) -> list[bytes]: ...
def count_pieces(pattern: str, texts: Sequence[str]) -> list[int]: ...

@final
class PieceCounter:
    def __new__(cls, pattern: str, columns: int, most_pieces: int | None = None) -> PieceCounter: ...
    def add(self, column: int, texts: Sequence[str], threads: int) -> None: ...
    def add_chunk(self, column: int, chunk: bytes, last: bool, threads: int) -> int | None: ...
    def mismatch(self, train: int, dev: int) -> tuple[float, float, int, list[tuple[str, float, float]]]: ...
    def dropped(self, column: int) -> tuple[int, int]: ...
    def seen(self, column: int) -> tuple[int, int, int]: ...

@final
class BpeTrainer:
    def __new__(
        cls,
        counter: PieceCounter,
        *,
        languages: int,
        development: str,
        lines: int,
        max_tokens: int,
        max_merges: int,
        global_merges: int = 0,
        min_frequency: int = 2,
        window: tuple[int, float, int] | None = None,
        ratio: Sequence[float] | None = None,
        stop_when_exhausted: bool = False,
        least_word_count: int = 1,
        mixed: tuple[int, int, float, float] | None = None,
        norm: tuple[int, int, int] | None = None,
        cross_from: int = 0,
        state: tuple[Sequence[int], bytes] | None = None,
    ) -> BpeTrainer: ...
    def state(self) -> bytes: ...
    def run(self) -> None: ...
    def rows(self, first: int) -> list[tuple[int, int, int, int | None, int, int]]: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def is_exhausted(self) -> bool: ...
    @property
    def totals(self) -> list[int]: ...
    @property
    def exhausted(self) -> list[int | None]: ...

@final
class BpeEncoder:
    def __new__(
        cls, pattern: str, tokens: Sequence[bytes], specials: Sequence[int], merges: Sequence[tuple[int, int]]
    ) -> BpeEncoder: ...
    def encode_batch(
        self, texts: Sequence[str], allow_special: bool, threads: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]: ...
    def encode_buffer(
        self, bytes: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], allow_special: bool, threads: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]: ...
    def decode(self, ids: npt.NDArray[np.uint32]) -> bytes: ...
    def count_specials(self, texts: Sequence[str]) -> list[tuple[int, int]]: ...
    def unreachable(self) -> list[int]: ...

# ---- token store ----

PADDING: int

class DamagedError(ValueError):
    """Bytes of a shard differ from what was written; the message names file and byte, `path` on an error the file."""

@final
class TokenStore:
    """The shards of a corpus, opened read-only and checked block by block as they are read."""

    def __new__(
        cls,
        id_bytes: int,
        pad_id: int,
        streams: Sequence[Sequence[tuple[str | PathLike[str], str | PathLike[str], int, bytes, int, int, bool]]],
    ) -> TokenStore:
        """A stream is a list of shards: path, index path, bytes, BLAKE3 of the index, tokens, documents, blind."""

    def gather(
        self,
        row_ids: int,
        part_ends: npt.NDArray[np.uint32],
        streams: npt.NDArray[np.uint32],
        starts: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint32],
        whole: bool,
    ) -> tuple[bytes, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Ids, edge ends, edges of rows of `row_ids` ids; row r is parts part_ends[r-1]:part_ends[r], then padding."""

    def pieces(self, stream: int, start: int, length: int) -> list[tuple[int, int, int, int, int]]:
        """Documents of tokens [start, start + length): (shard, document, source row, begin, end) each."""

    def groups(
        self, stream: int, seq_len: int, group_windows: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Groups of a `best_fit` view: the first batch of each and the end, and the windows of each."""

    def best_fit(
        self,
        seq_len: int,
        streams: npt.NDArray[np.uint32],
        firsts: npt.NDArray[np.uint64],
        ends: npt.NDArray[np.uint64],
        numbers: npt.NDArray[np.uint32],
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Part ends, starts and lengths of windows `numbers[i]` of the group of batches [firsts[i], ends[i])."""

@final
class Blake3:
    """BLAKE3 of a sequence of byte strings."""

    def __new__(cls) -> Blake3: ...
    def update(self, data: bytes) -> None:
        """Takes in more bytes."""

    def update_array(self, data: npt.NDArray[np.uint8]) -> None:
        """Takes in the bytes of an array."""

    def digest(self) -> bytes:
        """The 32 bytes of the hash of all taken in so far."""

def block_sums(data: npt.NDArray[np.uint8], block_bytes: int) -> bytes:
    """XXH3-64 of each block of an array of bytes, 8 little-endian bytes a block."""

def text_digests(texts: Sequence[str]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """XXH3-128 of each text's UTF-8, 16 bytes a text, and the number of its bytes."""

@final
class Texts:
    """Texts of documents, and the row of each in its source."""

    def __new__(cls) -> Texts: ...
    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> str: ...
    @property
    def bytes(self) -> int:
        """UTF-8 bytes of all texts."""

    @property
    def rows(self) -> _Words:
        """The row of each text."""

    def push(self, row: int, text: str) -> None:
        """Adds a text."""

    def extend(self, other: Texts) -> None:
        """Adds all texts of another one."""

    def clear(self) -> None:
        """Lets go of all texts."""

    def select(self, keep: Sequence[bool]) -> Texts:
        """The texts that `keep` names."""

    def take_jsonl(
        self, block: builtins.bytes, at: int, end: int, row: int, field: str, names: Sequence[str]
    ) -> tuple[int, int, list[list[str]]]:
        """Takes plain JSON lines of a block in [at, end), the next of them row `row`, up to the first odd one: rows
        taken, where the next line begins, raw JSON of the fields `names` of each."""

    def take_text_lines(self, block: builtins.bytes, at: int, end: int, row: int) -> tuple[int, int]:
        """Takes lines of plain text likewise; an empty one and one that is not UTF-8 are odd."""

    def take_column(
        self,
        data: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        valid: npt.NDArray[np.bool_] | None,
        at: int,
        row: int,
    ) -> tuple[int, int]:
        """Takes values of a column from `at` on; the first of all stands in row `row`. Null, empty, not UTF-8: odd."""

def encode_documents(
    encoder: BpeEncoder,
    texts: Texts,
    before: int | None,
    after: int | None,
    id_bytes: int,
    spelling: str,
    threads: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64], list[int]]:
    """Documents of texts, with an id before and after each: ids (uint16 or uint32), ends, digests of the texts (16
    bytes each), their sizes in bytes, and the numbers of those that hold `spelling`."""

def count_ids(ids: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """How often each id occurs, up to the largest that does."""
