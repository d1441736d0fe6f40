"""From a run's row to a view: opens the corpus that the spec names, makes the plan, and refuses what does not match.

Used by the server and, with no server at all, by the command line. Nothing here writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.proto.errors import ConflictError, DataLossError, HeadraceError, UsageError
from headrace.server.control.records import NewRun, RunRecord
from headrace.server.control.store import Store
from headrace.server.corpus import ready
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.masks import quarantined
from headrace.server.corpus.served import DamagedShardError
from headrace.server.plan import log
from headrace.server.plan.branched import branch_plan
from headrace.server.plan.log import GrowBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import PLAN_VERSION, RunSpec
from headrace.server.service.library import Library, grow_bodies
from headrace.server.service.view import View


def corpus_path(run_base: str, spec: RunSpec) -> Path:
    """The manifest of a run, wherever the command is called from."""
    return ready.corpus_path(Path(run_base) / spec.corpus).resolve()


def make_plan(
    spec: RunSpec,
    library: Library,
    events: tuple[log.Event, ...] = (),
    anchors: tuple[tuple[int, str], ...] = (),
    parent: Plan | None = None,
) -> Plan:
    """The plan of a spec over a library; `parent` is the plan of the run that a branch leaves."""
    facts = library.facts(spec.shapes())
    if parent is None:
        return Plan(spec, facts, events, anchors)
    return branch_plan(spec, facts, events, anchors, parent)


def new_run(text: str, *, place: str, base_dir: str, author: str, corpora: Corpora) -> NewRun:
    """What a RUN.toml asks for, checked against its corpus; raises ConfigError, NotFoundError or UsageError."""
    plan = planned(text, place=place, base_dir=base_dir, corpora=corpora)
    spec, seal = plan.given, 0
    if spec.kind == "eval":
        if plan.end is None:
            raise ConflictError(f"{place}: a run of kind eval must end; give its phase steps or tokens")
        seal = plan.end
    return NewRun(
        name=spec.name,
        kind=spec.kind,
        plan_version=PLAN_VERSION,
        spec_json=spec.to_json(),
        spec_digest=plan.spec_digest,
        base_dir=base_dir,
        lead=spec.lead,
        author=author,
        head=log.EMPTY_HEAD,
        seal=seal,
    )


def planned(text: str, *, place: str, base_dir: str, corpora: Corpora | None = None) -> Plan:
    """The plan of a RUN.toml of which no run needs to be made; raises as `new_run`."""
    spec = RunSpec.from_toml(text, place=place)
    opened = (corpora or Corpora()).open(corpus_path(base_dir, spec)).for_kind(spec.kind)
    plan = make_plan(spec, Library(opened))
    for span in plan.spans():  # a view without windows, or a weight without a share, is refused now
        plan.piece(span)
    return plan


class Opener:
    """Opens runs of one store: views by name, each with its corpus. `folders` says where a run's files lie here."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.corpora = Corpora(self._quarantined)
        self.folders: dict[str, str] = {}
        self._verified: dict[str, tuple[log.Event, ...]] = {}  # logs by run id

    def _quarantined(self) -> frozenset[str]:
        """Shards that a run of this store has in quarantine."""
        events = (event for run in self.store.runs() for event in log.live(self.store.snapshot(run.name).events))
        return quarantined(log.bodies(events, log.MaskBody))

    def view(self, name: str, *, trust_anchors: bool = True) -> View:
        """The view of a run; refuses another plan version, and a corpus that is not the one the run was made with.

        Without `trust_anchors` the plan begins at the first step, not at the cursors that the store keeps.
        """
        snapshot = self.store.snapshot(name, self._verified if trust_anchors else {})
        return self.view_of(snapshot.run, snapshot.events, trust_anchors=trust_anchors).with_lease(snapshot.lease)

    def view_of(self, run: RunRecord, events: tuple[log.Event, ...], *, trust_anchors: bool = True) -> View:
        """The view of a row and a log, whether or not the store holds them yet."""
        spec = _spec_of(run)
        path = corpus_path(self.folders.get(run.name, run.base_dir), spec)
        corpus = self.corpora.open(path).for_kind(spec.kind)
        _check_digest(run, spec, corpus, path)
        self._verify(run, events)
        parent = self.view(self.store.name_of(run.parent), trust_anchors=trust_anchors) if run.parent else None
        anchors = self.store.anchors(run.id) if trust_anchors else ()
        library = parent.library if parent else Library(corpus)
        plan = make_plan(spec, library, events, anchors, parent.plan if parent else None)
        view = View(run=run, plan=plan, library=library, events=events, lease=None, parent=parent)
        with contextlib.suppress(HeadraceError):  # served up to the step that needs what is not here
            return self.with_generations(view, trust_anchors=trust_anchors)
        return view

    def _verify(self, run: RunRecord, events: tuple[log.Event, ...]) -> None:
        """Checks the chain of a log up to the head in the run's row, from where this process has checked it before."""
        known = self._verified.get(run.id, ())
        if not known or len(events) < len(known) or events[len(known) - 1] is not known[-1]:
            known = ()
        head = log.verify(events[len(known) :], known[-1].hash if known else run.first_head, len(known) + 1)
        if head != run.head:
            raise DataLossError(
                f"the log of run `{run.name}` ends at {head.hex()[:16]}, its row says {run.head.hex()[:16]}: events "
                f"were taken out of the control store; restore it from a backup or an export"
            )
        self._verified[run.id] = events

    def with_generations(self, view: View, *, trust_anchors: bool = True) -> View:
        """The view with every generation of its log open; raises what keeps one from being opened."""
        for body in grow_bodies(view.plan.timeline.grows):
            if (body.generation, body.domain) not in view.plan.facts.generations:
                view = self.with_generation(view, body, trust_anchors=trust_anchors)
        return view

    def with_generation(self, view: View, body: GrowBody, *, trust_anchors: bool = True) -> View:
        """The view with one generation more; raises UsageError when the manifest is not the one that is named."""
        path = Path(self.folders.get(view.run.name, view.run.base_dir)) / body.manifest
        corpus = self.corpora.open(path)
        if corpus.digest.hex() != body.generation:
            raise UsageError(
                f"the manifest {path} has digest {corpus.digest.hex()[:16]}, the generation that joins "
                f"`{body.domain}` has {body.generation[:16]}; put that one there"
            )
        library = view.library.with_generation(corpus, body.domain)
        parent = view.parent.plan if view.parent else None
        anchors = self.store.anchors(view.run.id) if trust_anchors else ()
        plan = make_plan(view.plan.spec, library, view.events, anchors, parent)
        return replace(view, library=library, plan=plan)


def _spec_of(run: RunRecord) -> RunSpec:
    if run.plan_version != PLAN_VERSION:
        raise ConflictError(
            f"run `{run.name}` has plan version {run.plan_version}, this Headrace knows {PLAN_VERSION}; "
            f"use the version that made it"
        )
    return RunSpec.from_json(run.spec_json)


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

    def __init__(self, quarantined: Callable[[], frozenset[str]] = frozenset) -> None:
        self._open: dict[Path, Corpus] = {}
        self._quarantined = quarantined

    def open(self, path: Path) -> Corpus:
        """The corpus of this manifest; damage in a shard that is in quarantine does not keep it from being opened."""
        real = path.resolve()
        if real not in self._open:
            try:
                self._open[real] = Corpus.open(real)
            except DamagedShardError:
                self._open[real] = Corpus.open(real, quarantine=self._quarantined())
        return self._open[real]

    def forget(self, path: Path) -> None:
        """Opens the corpus of this manifest anew when it is asked for next; whoever has it open keeps it."""
        self._open.pop(path.resolve(), None)
