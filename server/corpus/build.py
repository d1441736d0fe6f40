"""Builds a corpus: tasks from the spec, units by any number of workers, the manifest last.

The manifest follows from the spec, the sources and the tokenizer alone. Units that are there already are taken as they
are; nothing in the output folder but our own temporary files and damaged units is ever removed. A corpus that has grown
keeps its manifests: see `regrow`. One build at a time writes a manifest: a second one waits, and finds the units done.
Array jobs (`build_share`) write none and do not wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from headrace.proto.errors import ConfigError
from headrace.server.corpus.assemble import assemble
from headrace.server.corpus.durable import alone, sweep, write_file
from headrace.server.corpus.files import SourceFile, source_files
from headrace.server.corpus.pool import Outcome, run_tasks
from headrace.server.corpus.readers import check_source
from headrace.server.corpus.records import Manifest, TokenizerRecord
from headrace.server.corpus.regrow import assemble_again, generations, known_names
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.text_encoder import wanted_ids
from headrace.server.corpus.unit import UnitTask, finished
from headrace.tokenizer.tokenizer import Tokenizer

_BYTES_A_WORKER = 64 << 20


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What a build would do.

    Attributes:
        spec: what was asked for
        files: the sources, in order
        tasks: one a source
        tokenizer: what the manifest says of it
        id_bytes: 2 or 4
    """

    spec: CorpusSpec
    files: Sequence[SourceFile]
    tasks: Sequence[UnitTask]
    tokenizer: TokenizerRecord
    id_bytes: int

    @property
    def source_bytes(self) -> int:
        return sum(file.source.stamp()[0] for file in self.files)

    def only(self, names: Collection[str]) -> BuildPlan:
        """The same with no other files than these."""
        places = [place for place, file in enumerate(self.files) if file.name in names]
        return replace(self, files=[self.files[at] for at in places], tasks=[self.tasks[at] for at in places])

    def missing(self, share: tuple[int, int] | None = None) -> list[UnitTask]:
        """Tasks (of a share) whose unit is not there yet.

        Checks the schemas of tables, and hashes the sources that may have a unit.
        """
        for file in self.files:
            if file.domain.on_damaged == "error":
                check_source(file.source, file.domain)
        first, step = share or (0, 1)
        return [task for task in self.tasks[first::step] if finished(task, mend=False) is None]


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
        raise ConfigError(
            f"{spec.place}: no tokenizer at `{spec.tokenizer_path}`; make one with: headrace tokenizer train"
        )
    tokenizer = Tokenizer.load(spec.tokenizer_path)
    bos, eos = wanted_ids(tokenizer, bos=spec.bos, eos=spec.eos)
    common = UnitTask(
        location="",
        name="",
        store=str(spec.out_path / "store"),
        tokenizer=str(spec.tokenizer_path),
        tokenizer_digest=tokenizer.digest.hex(),
        domain=spec.domains[0],
        bos=bos is not None,
        eos=eos is not None,
        id_bytes=id_width(tokenizer, spec.id_bytes),
    )
    files = source_files(spec)
    tasks = [replace(common, location=file.location, name=file.name, domain=file.domain) for file in files]
    return BuildPlan(spec, files, tasks, _record(tokenizer), common.id_bytes)


def _record(tokenizer: Tokenizer) -> TokenizerRecord:
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


def within_generations(plan: BuildPlan) -> BuildPlan:
    """Of a corpus that has grown, the files of its generations alone: new ones are for `headrace corpus grow`."""
    paths = generations(plan.spec.manifest_path)
    return plan.only(known_names(plan.spec, paths)) if len(paths) > 1 else plan


@dataclass(frozen=True, slots=True)
class Advance:
    """Progress of a build: done so far, and the source bytes there are."""

    source_bytes: int
    documents: int
    tokens: int
    total_bytes: int


def build_corpus(
    spec: CorpusSpec,
    *,
    workers: int | None = None,
    progress: Callable[[Advance], None] | None = None,
    waiting: Callable[[], None] = lambda: None,
    check: bool = False,
) -> Manifest:
    """Builds what is missing and writes the manifest; equal bytes for any number of workers.

    By default there are as many as there are cores, or fewer when there is little to do. An exception of `progress`
    stops the build. While another process builds into the same folder, this one calls `waiting` twice a second.

    With `check` the units that are there are read from end to end, and a damaged one is built again.
    """
    plan = plan_build(spec)
    with alone(spec.out_path, waiting):
        return carry_out(plan, workers=workers, progress=progress, check=check)


def carry_out(
    plan: BuildPlan,
    *,
    workers: int | None = None,
    progress: Callable[[Advance], None] | None = None,
    check: bool = False,
) -> Manifest:
    """`build_corpus` for one who holds the folder already."""
    spec = plan.spec
    paths = generations(spec.manifest_path)
    plan = within_generations(plan)
    outcomes = build_units(plan, plan.tasks, workers=workers, progress=progress, check=check)
    if len(paths) > 1:
        return assemble_again(spec, paths, plan.files, plan.tasks, outcomes, plan.tokenizer, plan.id_bytes)
    manifest = assemble(spec, plan.files, plan.tasks, outcomes, plan.tokenizer, plan.id_bytes)
    write_file(spec.out_path / manifest.tokenizer.file, spec.tokenizer_path.read_bytes())
    manifest.save(spec.manifest_path)
    return manifest


def build_units(
    plan: BuildPlan,
    tasks: Sequence[UnitTask],
    *,
    workers: int | None = None,
    progress: Callable[[Advance], None] | None = None,
    check: bool = False,
) -> list[Outcome]:
    """Builds the units of some tasks of a plan, in any order and on any number of workers."""
    _sweep(plan)
    done = [0, 0, 0]
    total = sum(task.source.stamp()[0] for task in tasks)

    def advance(source_bytes: int, documents: int, tokens: int) -> None:
        for i, more in enumerate((source_bytes, documents, tokens)):
            done[i] += more
        if progress:
            progress(Advance(done[0], done[1], done[2], total))

    advance(0, 0, 0)
    cores = len(os.sched_getaffinity(0))
    checked = [replace(task, check=check) for task in tasks]
    # A process takes a second to start; smaller corpora are built faster by the threads of this one.
    worth = min(cores, -(-total // _BYTES_A_WORKER))
    try:
        return run_tasks(checked, workers=worth if workers is None else workers, cores=cores, progress=advance)
    except BaseException:
        _sweep(plan)  # of the workers that were stopped because another one failed
        raise


def _sweep(plan: BuildPlan) -> None:
    out = plan.spec.out_path
    for folder in (out, *(out / "store").glob("*/")):
        sweep(folder)


def build_share(
    spec: CorpusSpec,
    *,
    share: int,
    shares: int,
    workers: int | None = None,
    progress: Callable[[Advance], None] | None = None,
) -> int:
    """Builds every `shares`-th unit from the `share`-th on, for array jobs; a plain build then writes the manifest."""
    plan = within_generations(plan_build(spec))
    tasks = plan.tasks[share::shares]
    build_units(plan, tasks, workers=workers, progress=progress)
    return len(tasks)
