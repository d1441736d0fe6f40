"""The manifest from finished units: pure bookkeeping, but for duplicates, whose shards may be written again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from headrace.proto.errors import ConfigError
from headrace.server.corpus.documents import DUPLICATE, FILTERED
from headrace.server.corpus.duplicates import find_duplicates, without
from headrace.server.corpus.files import SourceFile
from headrace.server.corpus.pool import Outcome
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.records import DomainRecord, Manifest, ShardRecord, SourceRecord, TokenizerRecord
from headrace.server.corpus.shard import HOLDOUT, TRAIN
from headrace.server.corpus.spec import CorpusSpec, DomainSpec
from headrace.server.corpus.text_encoder import load_tokenizer, tables_of
from headrace.server.corpus.token_tables import TokenTables
from headrace.server.corpus.unit import UnitReport, UnitTask


@dataclass(frozen=True, slots=True)
class _Built:
    """A shard on its way into the manifest."""

    record: ShardRecord
    profile: Profile


@dataclass(frozen=True, kw_only=True, slots=True)
class _Collected:
    """Units as they come: shards by (domain, part), the entry of the file that makes each domain, damaged files."""

    spec: CorpusSpec
    sources: list[SourceRecord] = field(default_factory=list)
    shards: dict[tuple[str, str], list[_Built]] = field(default_factory=lambda: defaultdict(list))
    entry_of: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    def add(self, file: SourceFile, task: UnitTask, outcome: Outcome) -> None:
        if not isinstance(outcome, UnitReport):
            self.damaged[file.name] = str(outcome)
            return
        folder = str((task.folder / outcome.folder_name).relative_to(self.spec.out_path))
        for shard, profile in zip(outcome.shards, outcome.profiles, strict=True):
            _own(self.spec, self.entry_of, shard.domain, file.domain.name)
            record = ShardRecord(source=len(self.sources), folder=folder, shard=shard)
            self.shards[shard.domain, shard.part].append(_Built(record, profile))
        self.sources.append(_source(file, outcome, folder))


def assemble(
    spec: CorpusSpec,
    files: Sequence[SourceFile],
    tasks: Sequence[UnitTask],
    outcomes: Sequence[Outcome],
    tokenizer: TokenizerRecord,
    id_bytes: int,
    *,
    earlier: Sequence[Manifest] = (),
) -> Manifest:
    """The manifest; checks names, shares of rejected documents and empty domains.

    A text that an `earlier` generation of the domain holds is a duplicate too.
    """
    found = _Collected(spec=spec)
    for file, task, outcome in zip(files, tasks, outcomes, strict=True):
        found.add(file, task, outcome)

    def tables() -> TokenTables:
        return tables_of(load_tokenizer(tasks[0].tokenizer, tokenizer.digest))

    domains = []
    for name in sorted(found.entry_of, key=str.encode):
        train, again = _unique(found, earlier, (name, TRAIN), id_bytes, tables)
        holdout, again_held_out = _unique(found, earlier, (name, HOLDOUT), id_bytes, tables)
        domains.append(_domain(name, train, holdout, again + again_held_out))
    _check_entries(spec, found.sources, found.damaged)
    return Manifest(
        tokenizer=tokenizer,
        id_bytes=id_bytes,
        tail=spec.tail,
        domains=tuple(domain for domain in domains if domain.total("documents")),
        sources=tuple(found.sources),
        damaged=found.damaged,
    )


def _entry(spec: CorpusSpec, name: str) -> DomainSpec:
    return next(domain for domain in spec.domains if domain.name == name)


def _own(spec: CorpusSpec, entry_of: dict[str, str], domain: str, entry: str) -> None:
    first = entry_of.setdefault(domain, entry)
    if first != entry:
        raise ConfigError(f"{spec.place}: domain `{domain}` is made by both `{first}` and `{entry}`; rename one")


def _source(file: SourceFile, report: UnitReport, folder: str) -> SourceRecord:
    return SourceRecord(
        path=file.name,
        entry=file.domain.name,
        size=report.size,
        hash=report.hash,
        unit=folder,
        read=report.read,
        packed=report.packed,
        held_out=report.held_out,
        rejected=report.rejected,
        replaced=report.replaced,
        notes=report.notes,
    )


def _domain(name: str, train: list[_Built], holdout: list[_Built], duplicates: int) -> DomainRecord:
    return DomainRecord(
        name=name,
        generations=(tuple(built.record for built in train),),
        holdout=(tuple(built.record for built in holdout),) if holdout else (),
        duplicates=duplicates,
        profile=Profile.total(built.profile for built in train),
    )


def _shards_before(earlier: Sequence[Manifest], name: str, part: str) -> list[ShardRecord]:
    """The shards of a domain's part in earlier generations."""
    domains = [domain for manifest in earlier for domain in manifest.domains if domain.name == name]
    return [record for domain in domains for shards in domain.part(part) for record in shards]


def _unique(
    found: _Collected,
    earlier: Sequence[Manifest],
    key: tuple[str, str],
    id_bytes: int,
    tables: Callable[[], TokenTables],
) -> tuple[list[_Built], int]:
    """A domain's part with its duplicates counted; to drop them, the shards that have some are written again."""
    spec, shards, before = found.spec, found.shards[key], _shards_before(earlier, *key)
    entry = _entry(spec, found.entry_of[key[0]])
    records = [*before, *(built.record for built in shards)]
    paths = [spec.out_path / record.folder / record.shard.file for record in records]
    flags = find_duplicates(paths, [record.shard.documents for record in records])[len(before) :]
    counts = [int(np.count_nonzero(each)) for each in flags]
    if entry.duplicates != "drop":
        return shards, sum(counts)
    kept: list[_Built] = []
    for path, built, repeated, count in zip(paths[len(before) :], shards, flags, counts, strict=True):
        if not count:
            kept.append(built)
            continue
        _count_out(found.sources, built.record, count)
        if count < len(repeated):
            store, keeps = spec.out_path / "store", bool(entry.keep)
            folder, shard, profile = without(
                path, built.record.shard, repeated, store, tables(), id_bytes=id_bytes, keeps=keeps
            )
            record = replace(built.record, folder=str(folder.relative_to(spec.out_path)), shard=shard)
            kept.append(_Built(record, profile))
    return kept, sum(counts)


def _count_out(sources: list[SourceRecord], record: ShardRecord, count: int) -> None:
    source = sources[record.source]
    rejected = dict(sorted({**source.rejected, DUPLICATE: source.rejected.get(DUPLICATE, 0) + count}.items()))
    part = "held_out" if record.shard.part == HOLDOUT else "packed"
    sources[record.source] = replace(source, rejected=rejected, **{part: getattr(source, part) - count})


def _files(sources: Sequence[SourceRecord]) -> str:
    """The first files by name and size, and how many there are beside them."""
    named = ", ".join(f"`{source.path}` ({source.size:,} bytes)" for source in sources[:3])
    more = f" and {len(sources) - 3:,} files more" if len(sources) > 3 else ""
    return f"{named}{more}" or "no file"


def _check_entries(spec: CorpusSpec, sources: Sequence[SourceRecord], damaged: dict[str, str]) -> None:
    for domain in spec.domains:
        mine = [source for source in sources if source.entry == domain.name]
        reasons: Counter[str] = Counter()
        for source in mine:
            reasons.update(source.rejected)
        read, packed = sum(source.read for source in mine), sum(source.packed for source in mine)
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items())) or "none"
        if not packed:
            raise ConfigError(
                f"{spec.place}: domain `{domain.name}` is empty: {read} documents read from {_files(mine)}, "
                f"rejected: {told}; damaged files left out: {len(damaged)}; check `files`, `text` and `where` of it"
            )
        wanted = reasons.total() - reasons[FILTERED] - reasons[DUPLICATE]
        if wanted > domain.max_rejected * read:
            raise ConfigError(
                f"{spec.place}: domain `{domain.name}`: {wanted} of {read} documents are rejected ({told}), "
                f"more than max_rejected = {domain.max_rejected}; mend the sources or raise it"
            )
