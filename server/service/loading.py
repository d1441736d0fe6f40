"""From a run's row to a view: opens the corpus that the spec names, makes the plan, and refuses what does not match.

Used by the server and, with no server at all, by the command line. Nothing here writes.
"""

from __future__ import annotations

from pathlib import Path

from headrace.proto.errors import ConflictError
from headrace.server.control.records import NewRun, RunRecord, Snapshot
from headrace.server.corpus.manifest import Corpus
from headrace.server.plan import log
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import PLAN_VERSION, RunSpec
from headrace.server.service.view import View


def corpus_path(run_base: str, spec: RunSpec) -> Path:
    """The manifest of a run, wherever the command is called from."""
    return Path(run_base) / spec.corpus


def make_plan(
    spec: RunSpec, corpus: Corpus, events: tuple[log.Event, ...], anchors: tuple[tuple[int, str], ...]
) -> Plan:
    """The plan of a spec over a corpus."""
    return Plan(spec, corpus.facts(spec.shapes()), events, anchors)


def new_run(text: str, *, place: str, base_dir: str, author: str, corpora: Corpora) -> NewRun:
    """What a RUN.toml asks for, checked against its corpus; raises ConfigError, NotFoundError or UsageError."""
    spec = RunSpec.from_toml(text, place=place)
    opened = corpora.open(corpus_path(base_dir, spec)).for_kind(spec.kind)
    digest = spec.digest(opened.digest)
    plan = make_plan(spec, opened, (), ())
    for span in plan.spans():  # a view without windows, or a weight without a share, is refused now
        plan.piece(span)
    seal = 0
    if spec.kind == "eval":
        if plan.end is None:
            raise ConflictError(f"{place}: a run of kind eval must end; give its phase steps or tokens")
        seal = plan.end
    return NewRun(
        name=spec.name,
        kind=spec.kind,
        plan_version=PLAN_VERSION,
        spec_json=spec.to_json(),
        spec_digest=digest,
        base_dir=base_dir,
        lead=spec.lead,
        author=author,
        head=log.EMPTY_HEAD,
        seal=seal,
    )


def open_view(
    snapshot: Snapshot, anchors: tuple[tuple[int, str], ...], corpora: Corpora, *, folder: str | None = None
) -> tuple[View, Corpus]:
    """The view of a run; refuses another plan version, and a corpus that is not the one the run was made with.

    `folder` is where relative paths of the spec start on this machine, by default where the run was made.
    """
    run = snapshot.run
    if run.plan_version != PLAN_VERSION:
        raise ConflictError(
            f"run `{run.name}` has plan version {run.plan_version}, this Headrace knows {PLAN_VERSION}; "
            f"use the version that made it"
        )
    spec = RunSpec.from_json(run.spec_json)
    path = corpus_path(folder or run.base_dir, spec)
    corpus = corpora.open(path).for_kind(spec.kind)
    _check_digest(run, spec, corpus, path)
    log.verify(snapshot.events)
    view = View(run=run, plan=make_plan(spec, corpus, snapshot.events, anchors), events=snapshot.events, lease=None)
    return view.with_lease(snapshot.lease), corpus


def _check_digest(run: RunRecord, spec: RunSpec, corpus: Corpus, path: Path) -> None:
    digest = spec.digest(corpus.digest)
    if digest != run.spec_digest:
        raise ConflictError(
            f"run `{run.name}` was made with spec digest {run.spec_digest.hex()[:16]}, but with the corpus now at "
            f"{path} (digest {corpus.digest.hex()[:16]}) it is {digest.hex()[:16]}; "
            f"put the run's corpus back, or create a new run on this one"
        )


class Corpora:
    """Corpora that are open, by path: runs on one corpus share its maps and its checked blocks."""

    def __init__(self) -> None:
        self._open: dict[Path, Corpus] = {}

    def open(self, path: Path) -> Corpus:
        """The corpus of this manifest."""
        real = path.resolve()
        if real not in self._open:
            self._open[real] = Corpus.open(real)
        return self._open[real]
