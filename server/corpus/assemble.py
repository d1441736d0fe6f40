"""The manifest from finished units: pure bookkeeping, but for duplicates, whose shards may be written again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    sources: list[SourceRecord] = []
    shards: dict[tuple[str, str], list[_Built]] = defaultdict(list)
    entry_of: dict[str, str] = {}
    damaged: dict[str, str] = {}

    def tables() -> TokenTables:
        return tables_of(load_tokenizer(tasks[0].tokenizer, tokenizer.digest))

    for file, task, outcome in zip(files, tasks, outcomes, strict=True):
        if not isinstance(outcome, UnitReport):
            damaged[file.name] = str(outcome)
            continue
        folder = str((task.folder / outcome.folder_name).relative_to(spec.out_path))
        for shard, profile in zip(outcome.shards, outcome.profiles, strict=True):
            _own(spec, entry_of, shard.domain, file.domain.name)
            record = ShardRecord(source=len(sources), folder=folder, shard=shard)
            shards[shard.domain, shard.part].append(_Built(record, profile))
        sources.append(_source(file, outcome, folder))
    domains = []
    for name in sorted(entry_of, key=str.encode):
        parts, repeated = {}, 0
        for part in (TRAIN, HOLDOUT):
            entry = _entry(spec, entry_of[name])
            drop, keeps = entry.duplicates == "drop", bool(entry.keep)
            before = _shards_before(earlier, name, part)
            parts[part], count = _unique(
                spec, before, shards[name, part], sources, id_bytes, tables, drop=drop, keeps=keeps
            )
            repeated += count
        domains.append(_domain(name, parts[TRAIN], parts[HOLDOUT], repeated))
    _check_entries(spec, sources, damaged)
    trained = tuple(domain for domain in domains if domain.total("documents"))
    return Manifest(
        tokenizer=tokenizer,
        id_bytes=id_bytes,
        tail=spec.tail,
        domains=trained,
        sources=tuple(sources),
        damaged=damaged,
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
    spec: CorpusSpec,
    before: Sequence[ShardRecord],
    shards: list[_Built],
    sources: list[SourceRecord],
    id_bytes: int,
    tables: Callable[[], TokenTables],
    *,
    drop: bool,
    keeps: bool,
) -> tuple[list[_Built], int]:
    """Counts the duplicates of a domain's part; with `drop` writes the shards that have some again without them."""
    records = [*before, *(built.record for built in shards)]
    paths = [spec.out_path / record.folder / record.shard.file for record in records]
    flags = find_duplicates(paths, [record.shard.documents for record in records])[len(before) :]
    total = sum(int(np.count_nonzero(each)) for each in flags)
    if not drop or not total:
        return shards, total
    kept: list[_Built] = []
    for path, built, repeated in zip(paths[len(before) :], shards, flags, strict=True):
        count = int(np.count_nonzero(repeated))
        if not count:
            kept.append(built)
            continue
        _count_out(sources, built.record, count)
        if count < len(repeated):
            store = spec.out_path / "store"
            folder, shard, profile = without(
                path, built.record.shard, repeated, store, tables(), id_bytes=id_bytes, keeps=keeps
            )
            record = replace(built.record, folder=str(folder.relative_to(spec.out_path)), shard=shard)
            kept.append(_Built(record, profile))
    return kept, total


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
