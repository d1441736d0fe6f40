"""A model: random operations on the real store through several replicas, with a clock of its own and seeded crashes.

Replicas hold snapshots of any age and serve what lies below their seal; writes are cut off at every named moment of a
commit, and sent again with their key. The run has a cap, a phase of another seq_len, and a generation that may join. At
the end the plain-Python oracle deals the whole run from the final log, and every slot that any replica ever served must
be the oracle's. Two planted faults (a replica that seals without looking at the head, a plan that is wrong by one at
the end of a pass) must be found.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from headrace.proto.errors import ConflictError, FencedError, HeadraceError
from headrace.server.control import events as events_module
from headrace.server.control import failpoints
from headrace.server.control import store as store_module
from headrace.server.control.database import Database
from headrace.server.control.events import Wish
from headrace.server.control.failpoints import NAMES
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import Heard, NewRun, RunRecord
from headrace.server.control.seal import Raise
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, GenerationFacts, ViewFacts
from headrace.server.plan.log import Body, CancelBody, Event, GrowBody, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import DomainPolicy, Phase, Point, RunSpec
from headrace.server.plan.validate import check_event
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))

from random_runs import RandomRun

TOKENS = {"a": 64, "b": 36, "c": 12}
MORE = "2" * 64  # a generation that joins `b`
STEPS, BATCH, LEAD = 60, 4, 5
VECTORS = ((0.5, 0.3, 0.2), (0.1, 0.1, 0.8), (1.0, 0.0, 0.0), (0.25, 0.5, 0.25))


def view(tokens: int, seq_len: int) -> ViewFacts:
    return ViewFacts(windows=-(-tokens // seq_len), real_tokens=tokens)


def phase(name: str, steps: int, seq_len: int) -> Phase:
    point = Point(at=0, weights=dict(zip(TOKENS, VECTORS[0], strict=True)))
    return Phase(name=name, steps=steps, seq_len=seq_len, batch=BATCH, points=(point,))


FACTS = CorpusFacts(
    digest=bytes(32),
    tokens=TOKENS,
    vocab_size=100,
    pad_id=1,
    views={(name, long, "concat"): view(size, long) for name, size in TOKENS.items() for long in (4, 8)},
    generations={(MORE, "b"): GenerationFacts(tokens=20, views={(long, "concat"): view(20, long) for long in (4, 8)})},
)
SPEC = RunSpec(
    name="r",
    corpus="c",
    seed=3,
    lead=LEAD,
    phases=(phase("p", 35, 4), phase("q", STEPS - 35, 8)),
    domains={"c": DomainPolicy(cap=Decimal("3.5"))},
)
Slots = list[tuple[str, int, int, int]]
MOMENTS = {kind: [name for name in NAMES if name.startswith(kind)] for kind in ("append", "seal")}
MOMENTS["append"].remove("append-answered")  # which is the service's


class CutOffError(Exception):
    """The process that writes is no more."""


@dataclass
class Replica:
    """A server's view of the run, as old as its last look, and what the trainer at it has confirmed."""

    store: Store
    run: RunRecord
    plan: Plan
    token: bytes = b""
    taken: int = 0
    stale: bool = False
    words: list[Heard] = field(default_factory=list)

    def turn(self, *, raising: bool) -> None:
        """What the seal task does: writes words, raises the seal under the head that the plan was made with."""
        confirmed = max([self.run.confirmed, *(word.next_step for word in self.words)])
        to = min(confirmed + self.run.lead, self.plan.end or 0)
        head = self.store.snapshot("r").run.head if self.stale else self.run.head
        wish = Raise(to=to, head=head) if raising else None
        known = len(self.plan.events)
        advanced = self.store.advance(self.run.id, heard=self.words, wish=wish, known_sequence=known)
        self.words = []
        self.run = advanced.run
        if advanced.events and not self.stale:
            self.plan = self.plan.with_events((*self.plan.events, *advanced.events))

    def slots(self, step: int) -> Slots:
        draw = self.plan.draw(step)
        columns = (draw.domains, draw.passes, draw.indices, draw.windows)
        return [(self.plan.domains[d], int(p), int(i), int(w)) for d, p, i, w in zip(*columns, strict=True)]


class Model(RuleBasedStateMachine):
    """See the module."""

    stale = False
    off_by_one = False

    @initialize()
    def begin(self) -> None:
        memory = Path("/dev/shm")  # thousands of commits: a power cut is not what is tested here
        self.folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.now = 1_800_000_000_000_000
        self.store = self.open()
        new = NewRun(
            name="r",
            kind="train",
            plan_version=1,
            spec_json=SPEC.to_json(),
            spec_digest=SPEC.digest(FACTS.digest),
            base_dir="/",
            lead=LEAD,
            author="",
            head=log.EMPTY_HEAD,
        )
        self.store.create_run(new)
        self.replicas = [self.fresh() for _ in range(3)]
        self.served: dict[int, Slots] = {}
        self.acknowledged: list[bytes] = []
        self.attempt = 0
        self.seal = 0
        self.cut_at = ""
        self.wishes = 0
        events_module.reach = store_module.reach = self.reach
        for which in range(3):
            self.a_rank_opens(which, newer=False)

    def open(self) -> Store:
        store = Store(f"sqlite:///{self.folder.name}/control.db", writable=True)
        database: Database = store._database
        database.now_us = lambda _: self.now  # type: ignore[method-assign]
        return store

    def reach(self, name: str) -> None:
        """What stands here kills the process elsewhere."""
        if name == self.cut_at:
            self.cut_at = ""
            raise CutOffError(name)

    def fresh(self) -> Replica:
        snapshot = self.store.snapshot("r")
        return Replica(self.store, snapshot.run, Plan(SPEC, FACTS, snapshot.events), stale=self.stale)

    @rule(which=st.integers(0, 2))
    def crash_and_come_back(self, which: int) -> None:
        old, self.replicas[which] = self.replicas[which], self.fresh()
        self.replicas[which].token, self.replicas[which].taken = old.token, old.taken

    @rule()
    def the_store_is_opened_again(self) -> None:
        self.store.close()
        self.store = self.open()
        for replica in self.replicas:
            replica.store = self.store

    @rule(which=st.integers(0, 2), newer=st.booleans())
    def a_rank_opens(self, which: int, newer: bool) -> None:
        self.attempt += newer
        replica = self.replicas[which]
        taken = min(replica.taken, self.run.seal)
        wish = OpenLease(job="j", attempt=self.attempt, label=str(which), world=3, holder=str(which), next_step=taken)
        try:
            replica.token = self.store.open_lease(replica.run.id, wish).token
        except FencedError:
            raise AssertionError("the newest attempt was fenced") from None
        except ConflictError:
            return  # ranks of one attempt that stand at different steps

    @rule(which=st.integers(0, 2), more=st.integers(0, LEAD))
    def a_rank_confirms(self, which: int, more: int) -> None:
        replica = self.replicas[which]
        replica.taken = min(replica.run.seal, replica.taken + more)
        replica.words.append(Heard(token=replica.token, next_step=replica.taken))

    @rule(
        which=st.integers(0, 2),
        raising=st.sampled_from((True, True, False)),
        cut_at=st.sampled_from([""] * 9 + MOMENTS["seal"]),
    )
    def the_seal_task_turns(self, which: int, raising: bool, cut_at: str) -> None:
        self.cut_at = cut_at
        try:
            self.replicas[which].turn(raising=raising)
        except CutOffError:
            self.crash_and_come_back(which)
        self.cut_at = ""

    @rule(
        which=st.integers(0, 2),
        later=st.none() | st.integers(-2, 8),
        steps=st.none() | st.integers(1, 30),
        vector=st.sampled_from(VECTORS),
        guarded=st.booleans(),
        cut_at=st.sampled_from([""] * 4 + MOMENTS["append"]),
    )
    def weights_change(
        self, which: int, later: int | None, steps: int | None, vector: tuple[float, ...], guarded: bool, cut_at: str
    ) -> None:
        seal = self.run.seal
        step = None if later is None else max(0, seal + later)
        until = None if steps is None else (seal if step is None else step) + steps
        self.cut_at = cut_at
        self.append(
            WeightsBody(weights=dict(zip(TOKENS, vector, strict=True))),
            from_step=step,
            until_step=until,
            expected_head=self.replicas[which].run.head if guarded else b"",
        )
        self.cut_at = ""

    @rule(sequence=st.integers(1, 6))
    def an_event_is_taken_back(self, sequence: int) -> None:
        self.append(CancelBody(sequence=sequence))

    @rule(join=st.sampled_from(("now", "next_pass")))
    def a_generation_joins(self, join: Literal["now", "next_pass"]) -> None:
        self.append(GrowBody(domain="b", generation=MORE, join=join))

    @property
    def run(self) -> RunRecord:
        """The run's row as the store has it."""
        return self.store.runs()[0]

    def append(self, body: Body, **fields: Any) -> None:
        """Sent again with its key if whoever wrote it was cut off: it is in the log once."""
        seal, self.wishes = self.run.seal, self.wishes + 1
        wish = Wish(body=body, key=str(self.wishes), **fields)

        def judge(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
            return check_event(Plan(SPEC, FACTS, before), run.seal, event)

        try:
            try:
                appended = self.store.append(self.replicas[0].run.id, wish, judge)
            except CutOffError:
                appended = self.store.append(self.replicas[0].run.id, wish, judge)
        except HeadraceError:
            return
        assert appended.event.from_step >= seal
        self.acknowledged.append(appended.event.hash)

    @rule(seconds=st.sampled_from((1, 59, 61, -3600)))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @rule(which=st.integers(0, 2), back=st.integers(1, 2 * LEAD))
    def steps_are_served(self, which: int, back: int) -> None:
        replica = self.replicas[which]
        for step in range(max(0, replica.run.seal - back), replica.run.seal):
            slots = replica.slots(step)
            if self.off_by_one:
                slots = [(d, p, i, w + (i == 0)) for d, p, i, w in slots]
            assert self.served.setdefault(step, slots) == slots, f"step {step} was served in two ways"

    @rule(which=st.integers(0, 2), more=st.integers(1, LEAD))
    def a_rank_goes_on(self, which: int, more: int) -> None:
        """What happens most of the time: it confirms, the seal follows, and the next steps are served."""
        self.a_rank_confirms(which, more)
        self.the_seal_task_turns(which, raising=True, cut_at="")
        self.steps_are_served(which, back=2 * LEAD)

    @invariant()
    def the_seal_keeps_its_bounds(self) -> None:
        if not hasattr(self, "store"):
            return
        run = self.run
        assert run.confirmed <= run.seal <= min(run.confirmed + LEAD, STEPS)
        assert run.seal >= self.seal
        self.seal = run.seal

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        events_module.reach = store_module.reach = failpoints.reach
        events = self.store.snapshot("r").events
        self.store.close()
        self.folder.cleanup()
        log.verify(events)
        assert [event.hash for event in events] == self.acknowledged
        for step in RandomRun(seed=SPEC.seed, spec=SPEC, facts=FACTS, events=events).oracle():
            if step.number in self.served:
                assert self.served[step.number] == step.slots, f"step {step.number} is not what the oracle deals"


class StaleModel(Model):
    """A replica that seals under whatever head there is, and goes on with the log it knew."""

    stale = True


class OffByOneModel(Model):
    """A plan whose first window of a pass is the one after it."""

    off_by_one = True


SLOW = os.environ.get("HEADRACE_SLOW") == "1"


def limits(examples: int, **changes: Any) -> settings:
    common = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    return settings(max_examples=examples, stateful_step_count=40, **{**common, **changes})


def test_no_history_gives_two_streams() -> None:
    run_state_machine_as_test(Model, settings=limits(400 if SLOW else 12))


@pytest.mark.parametrize("planted", [StaleModel, OffByOneModel])
def test_planted_faults_are_found(planted: type[Model]) -> None:
    """Without shrinking: that they are found is the point, not the shortest way there. Nothing else may be."""
    found = limits(400, report_multiple_bugs=False, derandomize=True, database=None, phases=(HypothesisPhase.generate,))
    with pytest.raises(AssertionError, match=r"step \d+ (was served in two ways|is not what the oracle deals)"):
        run_state_machine_as_test(planted, settings=found)
