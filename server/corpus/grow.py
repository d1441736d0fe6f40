"""New files become a generation: a manifest of their own beside the first one, which stays what it is.

A run holds on to the manifest that it was made with, so files that come later must not change it. They are built into
the same token store, and `headrace run grow` lets them join a domain from a step on. Duplicates are looked for among
the documents of all generations: a text that an earlier one holds is a repeat in the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.proto.errors import ConfigError, UsageError
from headrace.server.corpus.assemble import assemble
from headrace.server.corpus.build import Advance, BuildPlan, build_units, plan_build
from headrace.server.corpus.durable import alone
from headrace.server.corpus.records import Manifest
from headrace.server.corpus.regrow import GENERATION, generations
from headrace.server.corpus.spec import CorpusSpec


@dataclass(frozen=True, slots=True)
class Growth:
    """What a new generation would be made of.

    Attributes:
        path: its manifest
        earlier: the manifests before it, the first one first
        plan: its files and their tasks
    """

    path: Path
    earlier: Sequence[Manifest]
    plan: BuildPlan


def plan_growth(spec: CorpusSpec) -> Growth:
    """Finds the files that no manifest of this corpus has; UsageError when there are none.

    A file that an earlier generation was made of must have the size that it had; whether its bytes are the same is for
    `headrace corpus verify --sources` to tell.
    """
    paths = generations(spec.manifest_path)
    earlier = [Manifest.load(path) for path in paths]
    plan = plan_build(spec)
    _check_same(plan, earlier[0])
    known = {source.path: source.size for manifest in earlier for source in manifest.sources}
    for file in plan.files:
        if file.name in known and (size := file.source.stamp()[0]) != known[file.name]:
            raise ConfigError(
                f"{spec.place}: `{file.name}` has {size:,} bytes and had {known[file.name]:,} when it was built: a "
                "generation takes new files alone; put the old one back, or give the new one another name"
            )
    fresh = [number for number, file in enumerate(plan.files) if file.name not in known]
    if not fresh:
        raise UsageError(f"{spec.place}: all {len(plan.files):,} files are in this corpus already; there is no new one")
    files, tasks = [plan.files[number] for number in fresh], [plan.tasks[number] for number in fresh]
    entries = tuple(domain for domain in spec.domains if any(file.domain is domain for file in files))
    last = GENERATION.fullmatch(paths[-1].name)
    number = int(last[1]) + 1 if last else 2
    chosen = replace(plan, spec=replace(spec, domains=entries), files=files, tasks=tasks)
    return Growth(paths[0].with_name(f"generation-{number}.json"), earlier, chosen)


def _check_same(plan: BuildPlan, first: Manifest) -> None:
    for what, now, then in (
        ("tokenizer", plan.tokenizer.digest[:16], first.tokenizer.digest[:16]),
        ("id_bytes", plan.id_bytes, first.id_bytes),
        ("tail", plan.spec.tail, first.tail),
    ):
        if now != then:
            raise ConfigError(
                f"{plan.spec.place}: `{what}` is {now}, but the corpus was built with {then}, and a generation is read "
                "as the first one is; put it back, or build another corpus"
            )


def grow_corpus(
    spec: CorpusSpec,
    *,
    workers: int | None = None,
    progress: Callable[[Advance], None] | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> tuple[Path, Manifest]:
    """Builds the new files and writes their manifest: its path, and what it says."""
    with alone(spec.out_path, waiting):
        growth = plan_growth(spec)
        plan = growth.plan
        outcomes = build_units(plan, plan.tasks, workers=workers, progress=progress)
        manifest = assemble(
            plan.spec, plan.files, plan.tasks, outcomes, plan.tokenizer, plan.id_bytes, earlier=growth.earlier
        )
        manifest.save(growth.path)
    return growth.path, manifest
