"""Builds a corpus: tasks from the spec, units by any number of workers, the manifest last.

The manifest follows from the spec, the sources and the tokenizer alone. Units that are there already are taken as they
are; nothing in the output folder but our own temporary files is ever removed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.proto.errors import ConfigError, NotFoundError
from headrace.server.corpus.durable import sweep, write_file
from headrace.server.corpus.files import SourceFile, source_files
from headrace.server.corpus.pool import run_tasks
from headrace.server.corpus.records import DomainRecord, Manifest, ShardRecord, SourceRecord, TokenizerRecord
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.text_encoder import wanted_ids
from headrace.server.corpus.unit import UnitReport, UnitTask, finished
from headrace.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What a build would do.

    Attributes:
        files: the sources, in order
        tasks: one a source
        tokenizer: the loaded tokenizer
        id_bytes: 2 or 4
    """

    spec: CorpusSpec
    files: Sequence[SourceFile]
    tasks: Sequence[UnitTask]
    tokenizer: Tokenizer
    id_bytes: int

    @property
    def source_bytes(self) -> int:
        return sum(file.path.stat().st_size for file in self.files)

    def missing(self) -> list[UnitTask]:
        """Tasks whose unit is not there yet; hashes the sources that may have one."""
        return [task for task in self.tasks if finished(task) is None]


def id_width(tokenizer: Tokenizer, wanted: int | None) -> int:
    """2 when the largest id fits 16 bits, else 4; a width that is asked for and too narrow is refused."""
    largest = max([tokenizer.vocab_size - 1, *tokenizer.special_ids.values()])
    needed = 2 if largest <= 0xFFFF else 4
    if wanted is not None and wanted < needed:
        raise ConfigError(f"`id_bytes = {wanted}` cannot hold id {largest} of the tokenizer; say 4 or leave it out")
    return wanted or needed


def plan_build(spec: CorpusSpec) -> BuildPlan:
    """Finds the sources and checks all that can be checked before work begins."""
    if not spec.tokenizer_path.is_file():
        raise NotFoundError(
            f"{spec.place}: no tokenizer at `{spec.tokenizer_path}`; make one with: headrace tokenizer train"
        )
    tokenizer = Tokenizer.load(spec.tokenizer_path)
    bos, eos = wanted_ids(tokenizer, bos=spec.bos, eos=spec.eos)
    id_bytes = id_width(tokenizer, spec.id_bytes)
    files = source_files(spec)
    tasks = [
        UnitTask(
            path=str(file.path),
            name=file.name,
            store=str(spec.out_path / "store"),
            tokenizer=str(spec.tokenizer_path),
            tokenizer_digest=tokenizer.digest.hex(),
            domain=file.domain,
            bos=bos is not None,
            eos=eos is not None,
            id_bytes=id_bytes,
        )
        for file in files
    ]
    return BuildPlan(spec, files, tasks, tokenizer, id_bytes)


@dataclass(frozen=True, slots=True)
class Advance:
    """Progress of a build: done so far, and the source bytes there are."""

    source_bytes: int
    documents: int
    tokens: int
    total_bytes: int


def build_corpus(
    spec: CorpusSpec, *, workers: int | None = None, progress: Callable[[Advance], None] | None = None
) -> Manifest:
    """Builds what is missing and writes the manifest; equal bytes for any number of workers (default: the cores)."""
    plan = plan_build(spec)
    store = spec.out_path / "store"
    for folder in store.glob("*/"):
        sweep(folder)
    done = [0, 0, 0]
    total = plan.source_bytes

    def advance(source_bytes: int, documents: int, tokens: int) -> None:
        for i, more in enumerate((source_bytes, documents, tokens)):
            done[i] += more
        if progress:
            progress(Advance(*done, total_bytes=total))

    cores = len(os.sched_getaffinity(0))
    reports = run_tasks(plan.tasks, workers=cores if workers is None else workers, progress=advance)
    manifest = assemble(plan, reports)
    write_file(spec.out_path / manifest.tokenizer.file, spec.tokenizer_path.read_bytes())
    manifest.save(spec.manifest_path)
    return manifest


def assemble(plan: BuildPlan, reports: Sequence[UnitReport]) -> Manifest:
    """The manifest of finished units; checks shares of rejected documents, names and empty domains."""
    sources, shards = [], defaultdict[str, list[ShardRecord]](list)
    entry_of: dict[str, str] = {}
    for number, (file, task, report) in enumerate(zip(plan.files, plan.tasks, reports, strict=True)):
        sources.append(_source(plan.spec, file, task, report))
        for shard in report.shards:
            entry = entry_of.setdefault(shard.domain, file.domain.name)
            if entry != file.domain.name:
                both = f"`{entry}` and `{file.domain.name}`"
                raise ConfigError(f"{plan.spec.place}: domain `{shard.domain}` is made by both {both}; rename one")
            shards[shard.domain].append(ShardRecord(source=number, shard=shard))
    _check_entries(plan.spec, sources)
    domains = [DomainRecord(name=name, generations=(tuple(shards[name]),)) for name in sorted(shards, key=str.encode)]
    return Manifest(tokenizer=_tokenizer(plan), id_bytes=plan.id_bytes, domains=tuple(domains), sources=tuple(sources))


def _source(spec: CorpusSpec, file: SourceFile, task: UnitTask, report: UnitReport) -> SourceRecord:
    return SourceRecord(
        path=file.name,
        entry=file.domain.name,
        size=report.size,
        hash=report.hash,
        unit=str((task.folder / report.folder_name).relative_to(spec.out_path)),
        read=report.read,
        packed=report.packed,
        rejected=report.rejected,
        replaced=report.replaced,
        notes=report.notes,
    )


def _tokenizer(plan: BuildPlan) -> TokenizerRecord:
    tokenizer = plan.tokenizer
    pads = [each for each in (tokenizer.pad_id, tokenizer.eos_id) if each is not None]
    return TokenizerRecord(
        file=f"tokenizer-{tokenizer.digest.hex()[:16]}.json",
        digest=tokenizer.digest.hex(),
        vocab_size=max([tokenizer.vocab_size, *(each + 1 for each in tokenizer.special_ids.values())]),
        # Padding is told by `real_ids`, never by the id, so any id will do when the tokenizer has none for it.
        pad_id=pads[0] if pads else 0,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )


def _check_entries(spec: CorpusSpec, sources: Sequence[SourceRecord]) -> None:
    for domain in spec.domains:
        mine = [source for source in sources if source.entry == domain.name]
        read, packed = sum(source.read for source in mine), sum(source.packed for source in mine)
        reasons: dict[str, int] = defaultdict(int)
        for source in mine:
            for reason, count in source.rejected.items():
                reasons[reason] += count
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items())) or "none"
        if not packed:
            raise ConfigError(
                f"{spec.place}: domain `{domain.name}` is empty: {read} documents read from {len(mine)} files, "
                f"rejected: {told}"
            )
        if read - packed > domain.max_rejected * read:
            raise ConfigError(
                f"{spec.place}: domain `{domain.name}`: {read - packed} of {read} documents are rejected ({told}), "
                f"more than max_rejected = {domain.max_rejected}"
            )


def corpus_path(spec_or_manifest: str | Path) -> Path:
    """The manifest that a path means: a CORPUS.toml's, a folder's, or itself."""
    path = Path(spec_or_manifest)
    if path.suffix == ".toml":
        return CorpusSpec.from_file(path).manifest_path
    return path / "manifest.json" if path.is_dir() else path
