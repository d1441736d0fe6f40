"""A model: random operations on the real store through several replicas, with a clock of its own and seeded crashes.

Replicas hold snapshots of any age and serve what lies below their seal. At the end the plain-Python oracle deals the
whole run from the final log, and every slot that any replica ever served must be the oracle's. Two planted faults (a
replica that seals without looking at the head, a plan that is wrong by one at the end of a pass) must be found.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from headrace.proto.errors import ConflictError, FencedError, HeadraceError
from headrace.server.control.database import Database
from headrace.server.control.events import Wish
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import Heard, NewRun, RunRecord
from headrace.server.control.seal import Raise
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.log import CancelBody, Event, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import Phase, Point, RunSpec
from headrace.server.plan.validate import check_event
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))

from oracle_plan import Oracle
from random_runs import plain_event

TOKENS = {"a": 64, "b": 36, "c": 12}
STEPS, SEQ_LEN, BATCH, LEAD = 60, 4, 4, 5
VECTORS = ((0.5, 0.3, 0.2), (0.1, 0.1, 0.8), (1.0, 0.0, 0.0), (0.25, 0.5, 0.25))
FACTS = CorpusFacts(
    digest=bytes(32),
    tokens=TOKENS,
    vocab_size=100,
    pad_id=1,
    views={
        (name, SEQ_LEN, "concat"): ViewFacts(windows=-(-size // SEQ_LEN), real_tokens=size)
        for name, size in TOKENS.items()
    },
)
SPEC = RunSpec(
    name="r",
    corpus="c",
    seed=3,
    lead=LEAD,
    phases=(
        Phase(
            name="p",
            steps=STEPS,
            seq_len=SEQ_LEN,
            batch=BATCH,
            points=(Point(at=0, weights=dict(zip(TOKENS, VECTORS[0], strict=True))),),
        ),
    ),
)
Slots = list[tuple[str, int, int, int]]


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
        for which in range(3):
            self.a_rank_opens(which, newer=False)

    def open(self) -> Store:
        store = Store(f"sqlite:///{self.folder.name}/control.db", writable=True)
        database: Database = store._database
        database.now_us = lambda _: self.now  # type: ignore[method-assign]
        return store

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
        taken = min(replica.taken, self.store.snapshot("r").run.seal)
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

    @rule(which=st.integers(0, 2), raising=st.booleans())
    def the_seal_task_turns(self, which: int, raising: bool) -> None:
        self.replicas[which].turn(raising=raising)

    @rule(
        which=st.integers(0, 2),
        later=st.none() | st.integers(-2, 8),
        vector=st.sampled_from(VECTORS),
        guarded=st.booleans(),
    )
    def weights_change(self, which: int, later: int | None, vector: tuple[float, ...], guarded: bool) -> None:
        replica, seal = self.replicas[which], self.store.snapshot("r").run.seal
        step = None if later is None else max(0, seal + later)
        head = replica.run.head if guarded else b""
        body = WeightsBody(weights=dict(zip(TOKENS, vector, strict=True)))
        self.append(Wish(body=body, from_step=step, expected_head=head), seal)

    @rule(sequence=st.integers(1, 6))
    def an_event_is_taken_back(self, sequence: int) -> None:
        self.append(Wish(body=CancelBody(sequence=sequence)), self.store.snapshot("r").run.seal)

    def append(self, wish: Wish, seal: int) -> None:
        def judge(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
            return check_event(Plan(SPEC, FACTS, before), run.seal, event)

        try:
            appended = self.store.append(self.replicas[0].run.id, wish, judge)
        except HeadraceError:
            return
        assert appended.event.from_step >= seal
        self.acknowledged.append(appended.event.hash)

    @rule(seconds=st.sampled_from((1, 59, 61, -3600)))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @rule(which=st.integers(0, 2), back=st.integers(1, 2 * LEAD))
    def a_step_is_served(self, which: int, back: int) -> None:
        replica = self.replicas[which]
        if step_range := range(max(0, replica.run.seal - back), replica.run.seal):
            step = step_range[0]
            slots = replica.slots(step)
            if self.off_by_one:
                slots = [(d, p, i, w if i else (w + 1) % -(-TOKENS[d] // SEQ_LEN)) for d, p, i, w in slots]
            assert self.served.setdefault(step, slots) == slots, f"step {step} was served in two ways"

    @invariant()
    def the_seal_keeps_its_bounds(self) -> None:
        if not hasattr(self, "store"):
            return
        run = self.store.snapshot("r").run
        assert run.confirmed <= run.seal <= min(run.confirmed + LEAD, STEPS)
        assert run.seal >= self.seal
        self.seal = run.seal

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        events = self.store.snapshot("r").events
        self.store.close()
        self.folder.cleanup()
        log.verify(events)
        assert [event.hash for event in events] == self.acknowledged
        live = [plain_event(event) for event in sorted(log.live(events), key=lambda event: event.sequence)]
        views = {key: (view.windows, view.real_tokens) for key, view in FACTS.views.items()}
        oracle: Any = Oracle(json.loads(SPEC.to_json()), dict(TOKENS), views, live, {})
        for step in oracle:
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
    """Without shrinking: that they are found is the point, not the shortest way there."""
    found = limits(400, derandomize=True, database=None, phases=(HypothesisPhase.generate,))
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(planted, settings=found)
