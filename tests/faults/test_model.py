"""A model of a whole run: several replicas on one control store, against the plain-Python oracle.

Hypothesis drives real plans and a real SQLite store: weights set, taken back and scheduled through replicas whose view
may be old, generations that join, seals raised, trainers that go on, go back and come back as another attempt, replicas
that crash and begin again from anchors, hours in which nothing is heard. Time is the model's own. Whatever was served
must be served again alike, and must be what the oracle makes of the final log. Two planted faults show that it bites.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest
from headrace.native import key, permute
from headrace.proto.errors import ConflictError, StaleError, UsageError
from headrace.server.control.events import Wish
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import Heard, NewRun
from headrace.server.control.seal import Advanced, Raise
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, GenerationFacts, ViewFacts
from headrace.server.plan.log import CancelBody, GrowBody, WeightsBody
from headrace.server.plan.plan import Draw, Plan
from headrace.server.plan.spec import PLAN_VERSION, DomainPolicy, Phase, Point, RunSpec
from headrace.server.service.changes import checker
from headrace.server.service.library import Library
from headrace.server.service.view import View
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from random_runs import RandomRun

LEAD = 6
NAMES = ("a", "b", "c")
EXAMPLES = 400 if os.environ.get("HEADRACE_SLOW") else 12
PLENTY = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

SPEC = RunSpec(
    name="model",
    corpus="c",
    seed=11,
    lead=LEAD,
    phases=tuple(
        Phase(
            name=f"p{seq_len}",
            steps=steps,
            seq_len=seq_len,
            batch=5,
            points=(Point(at=0, weights={"a": 0.5, "b": 0.3, "c": 0.2}),),
        )
        for seq_len, steps in ((4, 25), (8, 15))
    ),
    domains={"c": DomainPolicy(cap=Decimal("2.5"))},
)


def _views(tokens: int) -> dict[tuple[int, str], ViewFacts]:
    return {(s, "concat"): ViewFacts(windows=-(-tokens // s), real_tokens=tokens) for s in (4, 8)}


SIZES = {"a": 41, "b": 12, "c": 22}
FACTS = CorpusFacts(
    digest=bytes(32),
    tokens=SIZES,
    vocab_size=9,
    pad_id=0,
    views={(name, *shape): view for name, tokens in SIZES.items() for shape, view in _views(tokens).items()},
    generations={
        (str(n) * 64, name): GenerationFacts(tokens=size, views=_views(size))
        for n, name, size in ((1, "b", 9), (2, "a", 13))
    },
)
Slots = list[tuple[str, int, int, int]]


class Replica:
    """A server as far as the stream goes: a view of the run that is replaced by what transactions return."""

    plan_type = Plan

    def __init__(self, store: Store) -> None:
        self.store = store
        self.begin()

    def begin(self) -> None:
        """Starts from the store alone: row, log and anchors."""
        snapshot = self.store.snapshot(SPEC.name)
        log.verify(snapshot.events)
        plan = self.plan_type(SPEC, FACTS, snapshot.events, self.store.anchors(snapshot.run.id))
        no_files = cast(Library, None)  # the model reads no token
        self.view = View(run=snapshot.run, plan=plan, library=no_files, events=snapshot.events, lease=snapshot.lease)

    def append(self, body: log.Body, from_step: int | None, until: int | None) -> None:
        wish = Wish(body=body, from_step=from_step, until_step=until)
        self.store.append(self.view.run.id, wish, checker(self.view))

    def talk(self, heard: Sequence[Heard], to: int | None) -> None:
        """Writes what ranks said, raises the seal if it may, and takes what the store answers."""
        end = self.view.plan.end
        to = to if to is None or end is None else min(to, end)
        wish = None if to is None else Raise(to=to, head=self.view.run.head, anchors=self.view.anchors(to))
        known = self.view.run.sequence
        self.take(self.store.advance(self.view.run.id, heard=heard, wish=wish, known_sequence=known))

    def take(self, advanced: Advanced) -> None:
        self.view = self.view.after(advanced)

    def slots(self, step: int) -> Slots:
        draw = self.view.plan.draw(step)
        columns = (draw.domains, draw.passes, draw.indices, draw.windows)
        return [(self.view.plan.domains[d], int(p), int(i), int(w)) for d, p, i, w in zip(*columns, strict=True)]


class Model(RuleBasedStateMachine):
    """Three replicas, one trainer."""

    replica_type: type[Replica] = Replica

    @initialize()
    def start(self) -> None:
        memory = Path(
            "/dev/shm"
        )  # durability is not what is tested here, and real disks make thousands of commits slow
        self.folder = tempfile.mkdtemp(dir=memory if memory.is_dir() else None)
        self.store = Store(f"sqlite:///{Path(self.folder)}/control.db", writable=True)
        self.now_us = 1_000_000
        self.store._database.now_us = lambda connection: self.now_us  # type: ignore[method-assign]
        digest = SPEC.digest(FACTS.digest)
        new = {"name": SPEC.name, "kind": "train", "plan_version": PLAN_VERSION, "spec_json": SPEC.to_json()}
        self.store.create_run(
            NewRun(**new, spec_digest=digest, base_dir="/", lead=LEAD, author="model", head=log.EMPTY_HEAD)
        )
        self.replicas = [self.replica_type(self.store) for _ in range(3)]
        self.attempt = 0
        self.taken = 0
        self.served: dict[int, Slots] = {}
        self.open()

    def open(self) -> None:
        """A launch of the trainer takes the lease at the step of its checkpoint."""
        lease = OpenLease(
            job="job", attempt=self.attempt, label="0", world=1, holder="h", next_step=self.taken, takeover=True
        )
        self.token = self.store.open_lease(self.replicas[0].view.run.id, lease).token

    def teardown(self) -> None:
        if not hasattr(self, "served"):
            return
        events = self.store.snapshot(SPEC.name).events
        assert log.verify(events) == self.store.snapshot(SPEC.name).run.head
        self.store.close()
        shutil.rmtree(self.folder)
        oracle = RandomRun(seed=0, spec=SPEC, facts=FACTS, events=events).oracle()
        for step in oracle:
            assert self.served.get(step.number, step.slots) == step.slots, f"step {step.number} is not what was planned"

    # ---- changes

    @rule(
        replica=st.integers(0, 2),
        parts=st.tuples(*[st.integers(0, 4)] * 3).filter(any),
        ahead=st.none() | st.integers(0, 12),
        until=st.none() | st.integers(1, 9),
    )
    def set_weights(self, replica: int, parts: tuple[int, ...], ahead: int | None, until: int | None) -> None:
        weights = {name: part / sum(parts) for name, part in zip(NAMES, parts, strict=True)}
        server = self.replicas[replica]
        step = None if ahead is None and until is None else server.view.run.seal + (ahead or 0)
        self.wish(server, WeightsBody(weights=weights), step, None if until is None or step is None else step + until)

    @rule(replica=st.integers(0, 2), event=st.integers(1, 8))
    def cancel(self, replica: int, event: int) -> None:
        self.wish(self.replicas[replica], CancelBody(sequence=event), None, None)

    @rule(replica=st.integers(0, 2), which=st.sampled_from(sorted(FACTS.generations)), join=st.sampled_from(log.JOINS))
    def grow(self, replica: int, which: tuple[str, str], join: str) -> None:
        self.wish(self.replicas[replica], GrowBody(domain=which[1], generation=which[0], join=join), None, None)

    def wish(self, server: Replica, body: log.Body, step: int | None, until: int | None) -> None:
        """Refusals are answers too: sealed by now, beyond the end, known already, cancelled already."""
        with suppress(ConflictError, StaleError, UsageError):
            server.append(body, step, until)

    # ---- the stream

    @rule(replica=st.integers(0, 2), reach=st.none() | st.integers(0, LEAD))
    def talk(self, replica: int, reach: int | None) -> None:
        server = self.replicas[replica]
        heard = [Heard(token=self.token, next_step=self.taken)]
        server.talk(heard, None if reach is None else self.taken + reach)

    @rule(replica=st.integers(0, 2), steps=st.integers(1, 8))
    def train(self, replica: int, steps: int) -> None:
        for _ in range(steps):
            if self.taken < self.replicas[replica].view.run.seal:
                self.serve(replica, self.taken)
                self.taken += 1

    @rule(replica=st.integers(0, 2), part=st.floats(0, 0.999))
    def look(self, replica: int, part: float) -> None:
        seal = self.replicas[replica].view.run.seal
        if seal:
            self.serve(replica, int(part * seal))

    def serve(self, replica: int, step: int) -> None:
        slots = self.replicas[replica].slots(step)
        assert self.served.setdefault(step, slots) == slots, f"step {step} was served in two ways"

    # ---- faults

    @rule(replica=st.integers(0, 2))
    def crash(self, replica: int) -> None:
        self.replicas[replica].begin()

    @rule(back=st.integers(0, 9))
    def restart_trainer(self, back: int) -> None:
        """The job dies and comes back as a newer attempt, from an older checkpoint."""
        self.taken = max(self.taken - back, 0)
        self.attempt += 1
        self.open()

    @rule(seconds=st.sampled_from((1, 59, 61, 3600)))
    def wait(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000

    @invariant()
    def views_agree(self) -> None:
        """Below the lower of two seals, replicas know one plan."""
        for one, other in zip(getattr(self, "replicas", []), getattr(self, "replicas", [])[1:], strict=False):
            seal = min(one.view.run.seal, other.view.run.seal)
            assert one.view.plan.hash(seal) == other.view.plan.hash(seal)


TestModel = Model.TestCase
TestModel.settings = PLENTY


# ---- planted faults


class StaleReplica(Replica):
    """Believes a new seal, and forgets to take the log that came with it."""

    def take(self, advanced: Advanced) -> None:
        self.view = replace(
            self.view, run=replace(advanced.run, sequence=self.view.run.sequence, head=self.view.run.head)
        )


class OffByOnePlan(Plan):
    """Reads the first window of a pass by the order of the pass before."""

    def draw(self, step: int) -> Draw:
        draw = super().draw(step)
        for slot in range(len(draw.windows)):
            name, number, index = self.domains[draw.domains[slot]], int(draw.passes[slot]), int(draw.indices[slot])
            if index == 0 and number > 0:
                place = list(self.domains).index(name)
                windows = int(self.cursor(step + 1).windows[place])
                draw.windows[slot] = permute(key(SPEC.seed, "pass", number - 1, name), windows, 0)
        return draw


class OffByOneReplica(Replica):
    plan_type = OffByOnePlan


@pytest.mark.parametrize(
    ("planted", "message"),
    [(StaleReplica, "served in two ways|not what was planned|assert b"), (OffByOneReplica, "not what was planned")],
)
def test_the_model_finds_planted_faults(planted: type[Replica], message: str) -> None:
    faulty = type("Faulty", (Model,), {"replica_type": planted})
    hunt = settings(
        PLENTY, max_examples=200, phases=[Stage.generate], derandomize=True, database=None, print_blob=False
    )
    with pytest.raises(AssertionError, match=message):
        run_state_machine_as_test(faulty, settings=hunt)
