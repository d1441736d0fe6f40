"""A corpus that is open for reading: sizes and views from the manifest, windows from the checked shards.

Opening checks every shard's size, its index against the manifest and its first and last block, and reads no more;
a block is checked when a window first touches it. Nothing here depends on who asks or in which order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from headrace.native import TokenStore
from headrace.proto.errors import NotFoundError, OutOfRangeError
from headrace.server.corpus.documents_in import Begun, Documents
from headrace.server.corpus.groups import best_fit_groups
from headrace.server.corpus.looked_up import LookedUp
from headrace.server.corpus.masks import Found, Mask, resolve
from headrace.server.corpus.records import DomainRecord, Manifest, ShardRecord, digest_of
from headrace.server.corpus.served import Rows, SourcePart, store_errors
from headrace.server.corpus.shard import HOLDOUT, TRAIN
from headrace.server.corpus.views import BestFitView, ConcatView, Parts, View, ViewSize, check_shape, merge
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.log import MaskBody


class Corpus:
    """The domains of one manifest."""

    def __init__(
        self, manifest: Manifest, root: Path, part: str = TRAIN, quarantine: frozenset[str] = frozenset()
    ) -> None:
        self.manifest = manifest
        self.root = root
        self.part = part
        self._quarantine = quarantine
        self._looked_up = LookedUp(manifest, root, part)
        self._views: dict[tuple[str, int, str], View] = {}
        self._lock = threading.Lock()
        self._domains = {domain.name: domain for domain in manifest.domains if domain.part(part)}
        # Streams are numbered over domains and their generations in the order of the manifest.
        self._streams = [shards for domain in self._domains.values() for shards in domain.part(part)]
        self._first_stream: dict[str, int] = {}
        first = 0
        for name, domain in self._domains.items():
            self._first_stream[name] = first
            first += len(domain.part(part))
        tuples = [[self._shard_tuple(record) for record in shards] for shards in self._streams]
        with store_errors():
            self._store = TokenStore(manifest.id_bytes, self.pad_id, tuples)
        tokens = [sum(record.shard.tokens for record in shards) for shards in self._streams]
        self._documents = Documents(self._store, tokens)

    @classmethod
    def open(cls, path: str | Path, part: str = TRAIN, quarantine: frozenset[str] = frozenset()) -> Corpus:
        """Opens a manifest, or the folder that holds one; damage found now is a `DataLossError` naming the file.

        `part` is `train`, or `holdout` for the documents kept for evaluation. The blocks of shards in `quarantine`
        (`folder/file`, as masks name them) are not looked at now.
        """
        path = Path(path)
        if path.is_dir():
            path = path / "manifest.json"
        return cls(Manifest.load(path), path.parent, part, quarantine)

    def for_kind(self, kind: str) -> Corpus:
        """The corpus that a run of this kind reads: `eval` reads the held-out documents if there are any."""
        part = HOLDOUT if kind == "eval" and any(domain.holdout for domain in self.manifest.domains) else TRAIN
        if part == self.part:
            return self
        return Corpus(self.manifest, self.root, part, self._quarantine)

    def _shard_tuple(self, record: ShardRecord) -> tuple[str, str, int, bytes, int, int, bool]:
        shard = record.shard
        path = self.root / record.folder / shard.file
        return (
            str(path),
            f"{path}.index",
            shard.size,
            bytes.fromhex(shard.index_digest),
            shard.tokens,
            shard.documents,
            self.shard_name(path) in self._quarantine,
        )

    @cached_property
    def digest(self) -> bytes:
        """32 bytes over the canonical content."""
        whole = self.manifest.digest if self.part == TRAIN else digest_of([self.manifest.digest, self.part])
        return bytes.fromhex(whole)

    @property
    def tokenizer_digest(self) -> bytes:
        return bytes.fromhex(self.manifest.tokenizer.digest)

    @property
    def tokenizer_path(self) -> Path:
        """The copy of the tokenizer that lies with the corpus."""
        return self.root / self.manifest.tokenizer.file

    @property
    def domains(self) -> tuple[str, ...]:
        """Names, sorted bytewise."""
        return tuple(sorted(self._domains, key=str.encode))

    @property
    def vocab_size(self) -> int:
        return self.manifest.tokenizer.vocab_size

    @property
    def pad_id(self) -> int:
        return self.manifest.tokenizer.pad_id

    @property
    def id_bytes(self) -> int:
        return self.manifest.id_bytes

    def _domain(self, name: str) -> DomainRecord:
        if name not in self._domains:
            raise NotFoundError(f"no domain is called `{name}`; the corpus has {', '.join(self.domains)}")
        return self._domains[name]

    def tokens(self, domain: str) -> int:
        """Real tokens of a domain, those of bos and eos among them."""
        return self._domain(domain).total("tokens", self.part)

    def documents(self, domain: str) -> int:
        return self._domain(domain).total("documents", self.part)

    def _totals(self, domain: str) -> list[int]:
        """Tokens of each generation."""
        generations = self._domain(domain).part(self.part)
        return [sum(record.shard.tokens for record in shards) for shards in generations]

    def _view(self, domain: str, seq_len: int, packing: str) -> View:
        key = (domain, seq_len, packing)
        with self._lock:
            if key not in self._views:
                self._views[key] = self._make_view(*key)
            return self._views[key]

    def _make_view(self, domain: str, seq_len: int, packing: str) -> View:
        check_shape(seq_len, packing)
        totals = self._totals(domain)
        first = self._first_stream[domain]
        if packing == "concat":
            return ConcatView(first, totals, seq_len, drop=self.manifest.tail == "drop")
        with store_errors():
            groups = [
                best_fit_groups(self._store, stream, self._streams[stream], seq_len, self.root / "views")
                for stream in range(first, first + len(totals))
            ]
        return BestFitView(self._store, first, groups, seq_len, sum(totals))

    def view(self, domain: str, seq_len: int, packing: str) -> ViewSize:
        """Windows of a view and their real input tokens, over all generations."""
        return self._view(domain, seq_len, packing).size

    def facts(self, shapes: Iterable[tuple[int, str]]) -> CorpusFacts:
        """What the plan needs to know: tokens of each domain, and the views of the (seq_len, packing) that it uses."""
        views = {
            (domain, seq_len, packing): ViewFacts(windows=size.windows, real_tokens=size.real_tokens)
            for seq_len, packing in set(shapes)
            for domain in self.domains
            for size in [self.view(domain, seq_len, packing)]
        }
        return CorpusFacts(
            digest=self.digest,
            tokens={domain: self.tokens(domain) for domain in self.domains},
            vocab_size=self.vocab_size,
            pad_id=self.pad_id,
            views=views,
        )

    def _parts(self, domain: str, seq_len: int, packing: str, windows: npt.NDArray[np.uint64]) -> Parts:
        view = self._view(domain, seq_len, packing)
        if len(windows) and int(windows.max()) >= view.size.windows:
            raise OutOfRangeError(
                f"window {int(windows.max())} of domain `{domain}` is asked for; its view at seq_len {seq_len} "
                f"({packing}) has {view.size.windows}"
            )
        with store_errors():
            return view.parts(windows)

    def read(
        self,
        seq_len: int,
        packing: str,
        domain_names: Sequence[str],
        domains: npt.NDArray[np.uint32],
        windows: npt.NDArray[np.uint64],
        mask: Mask | None = None,
    ) -> Rows:
        """Windows `windows[i]` of `domain_names[domains[i]]`, one row each of seq_len + 1 ids.

        Tokens of `mask` are served as padding and not read.

        Raises `DataLossError` naming the file when a block fails its checksum.
        """
        pieces = []
        for number in np.unique(domains):
            rows = np.flatnonzero(domains == number)
            found = self._parts(domain_names[int(number)], seq_len, packing, windows[rows].astype(np.uint64))
            pieces.append((rows, found))
        parts, mask_ends, masks = (mask or Mask({})).apply(merge(len(windows), pieces))
        with store_errors():
            ids, edge_ends, edges = self._store.gather(
                seq_len + 1, parts.ends, parts.streams, parts.starts, parts.lengths, parts.whole
            )
        return Rows(ids, edge_ends, edges, parts.real_ids(), mask_ends, masks)

    def shard_name(self, path: str | Path) -> str:
        """What masks call the shard in this file, or the shard whose index it is: `folder/file` below the corpus."""
        return Path(str(path).removesuffix(".index")).relative_to(self.root).as_posix()

    def mask(self, bodies: Sequence[MaskBody]) -> Mask:
        """The tokens that mask events take down; `NotFoundError` when a value of one names nothing here."""
        return resolve(self.manifest, self.root, self.part, bodies)

    def masked(self, bodies: tuple[MaskBody, ...]) -> Mask:
        """As `mask`, kept for the next time; what names nothing here is let be."""
        return self._looked_up.masked(bodies)

    def find_masked(self, body: MaskBody, others: Sequence[MaskBody] = ()) -> Found:
        """What one event takes down here beside `others`, and which of its values name nothing."""
        return self._looked_up.find(body, others)

    def masked_tokens(self, mask: Mask) -> dict[str, int]:
        """Masked tokens of each domain that has any."""
        counts = {
            name: sum(mask.tokens(self._first_stream[name] + number) for number in range(len(domain.part(self.part))))
            for name, domain in self._domains.items()
        }
        return {name: count for name, count in counts.items() if count}

    def sources(self, domain: str, seq_len: int, packing: str, window: int) -> list[SourcePart]:
        """The parts of documents that a window holds, in order, the id after the last input among them."""
        parts = self._parts(domain, seq_len, packing, np.array([window], np.uint64))
        return [
            SourcePart(self.manifest.sources[shards[shard].source].path, row, begin, end)
            for stream, start, length in zip(parts.streams, parts.starts, parts.lengths, strict=True)
            for shards in (self._streams[int(stream)],)
            for shard, _, row, begin, end in self._documents.pieces(int(stream), int(start), int(length))
        ]

    def documents_of(
        self, domain: str, seq_len: int, packing: str, windows: npt.NDArray[np.uint64], within: int
    ) -> Begun:
        """Documents that begin in the first `within` inputs of windows; see `Documents.begun`."""
        return self._documents.begun(self._parts(domain, seq_len, packing, windows), min(within, seq_len))
