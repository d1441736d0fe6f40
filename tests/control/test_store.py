"""The control store on SQLite and PostgreSQL: what is durable, who wins, and what is refused in which words."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from headrace.proto.errors import (
    ConflictError,
    DataLossError,
    ExistsError,
    NotFoundError,
    StaleError,
    UnavailableError,
    UsageError,
)
from headrace.server.control import runs
from headrace.server.control.database import mask
from headrace.server.control.events import Wish
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import Heard, LossReport, NewRun, RunRecord
from headrace.server.control.refusals import Refusal
from headrace.server.control.seal import Raise
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.log import CancelBody, WeightsBody


@pytest.fixture
def held(store: Store, run: RunRecord) -> bytes:
    return store.open_lease(run.id, train()).token


def train(job: str = "job", attempt: int = 0, rank: str = "0", step: int = 0, world: int = 1) -> OpenLease:
    return OpenLease(job=job, attempt=attempt, label=rank, world=world, holder=f"host:{rank}", next_step=step)


def weights(a: float = 0.5, **changes: object) -> Wish:
    return Wish(body=WeightsBody(weights={"a": a, "b": 1 - a}), **changes)  # type: ignore[arg-type]


def anything(*_: object) -> tuple[str, ...]:
    return ("a note",)


def test_seal_follows_confirmed_and_lead(store: Store, run: RunRecord, held: bytes) -> None:
    first = store.advance(run.id, wish=Raise(to=10**9, head=run.head))
    assert (first.run.seal, first.run.confirmed) == (8, 0)
    second = store.advance(run.id, heard=[Heard(token=held, next_step=3)], wish=Raise(to=10, head=run.head))
    assert (second.run.seal, second.run.confirmed) == (10, 3)
    back = store.advance(run.id, heard=[Heard(token=held, next_step=1)], wish=Raise(to=5, head=run.head))
    assert (back.run.seal, back.run.confirmed) == (10, 3)


def test_no_lease_no_seal(store: Store, run: RunRecord) -> None:
    assert store.advance(run.id, wish=Raise(to=8, head=run.head)).run.seal == 0


def test_closed_lease_raises_no_seal(store: Store, run: RunRecord, held: bytes) -> None:
    store.close_rank(run.id, held)
    assert store.advance(run.id, wish=Raise(to=8, head=run.head)).run.seal == 0


def test_seal_stays_when_the_head_has_moved(store: Store, run: RunRecord, held: bytes) -> None:
    event = store.append(run.id, weights(), anything).event
    stale = store.advance(run.id, wish=Raise(to=8, head=run.head))
    assert stale.run.seal == 0
    assert stale.events == (event,)
    assert store.advance(run.id, wish=Raise(to=8, head=event.hash), known_sequence=1).run.seal == 8


def test_confirmation_above_the_seal_does_not_count(store: Store, run: RunRecord, held: bytes) -> None:
    word = Heard(token=held, next_step=5)
    advanced = store.advance(run.id, heard=[word])
    assert advanced.refused == (word,)
    assert advanced.run.confirmed == 0


def test_event_takes_the_first_unsealed_step(store: Store, run: RunRecord, held: bytes) -> None:
    store.advance(run.id, wish=Raise(to=8, head=run.head))
    assert store.append(run.id, weights(), anything).event.from_step == 8
    assert store.append(run.id, weights(from_step=20), anything).event.from_step == 20
    with pytest.raises(ConflictError, match="first free step is 8"):
        store.append(run.id, weights(from_step=7), anything)


def test_expected_head(store: Store, run: RunRecord) -> None:
    first = store.append(run.id, weights(expected_head=run.head), anything).event
    with pytest.raises(StaleError, match="has moved on"):
        store.append(run.id, weights(0.1, expected_head=run.head), anything)
    second = store.append(run.id, weights(0.1, expected_head=first.hash), anything).event
    assert log.verify(store.snapshot("r").events) == second.hash


def test_key_is_looked_up_before_anything_is_refused(store: Store, run: RunRecord, held: bytes) -> None:
    wish = weights(from_step=2, key="k", expected_head=run.head)
    first = store.append(run.id, wish, anything)
    store.advance(run.id, wish=Raise(to=8, head=first.event.hash))
    again = store.append(run.id, wish, anything)  # sealed by now, and the head has moved
    assert again.replayed
    assert (again.event, again.notes) == (first.event, ("a note",))
    with pytest.raises(ConflictError, match="another request"):
        store.append(run.id, weights(0.9, key="k"), anything)


def test_dry_run_and_refusal_change_nothing(store: Store, run: RunRecord) -> None:
    def refuse(*_: object) -> tuple[str, ...]:
        raise UsageError("no")

    store.append(run.id, weights(dry_run=True), anything)
    with pytest.raises(UsageError):
        store.append(run.id, weights(key="k"), refuse)
    assert store.snapshot("r").events == ()
    assert not store.append(run.id, weights(key="k"), anything).replayed


def test_check_sees_the_log_inside_the_transaction(store: Store, run: RunRecord) -> None:
    seen: list[int] = []

    def count(_: RunRecord, before: tuple[log.Event, ...], event: log.Event) -> tuple[str, ...]:
        seen.append(len(before))
        return ()

    store.append(run.id, weights(), count)
    store.append(run.id, Wish(body=CancelBody(sequence=1)), count)
    assert seen == [0, 1]


def test_two_writers_at_once_one_wins(store: Store, run: RunRecord) -> None:
    results: list[object] = []

    def push(part: float) -> None:
        try:
            results.append(store.append(run.id, weights(part, expected_head=run.head), anything).event.sequence)
        except StaleError as error:
            results.append(error)

    threads = [threading.Thread(target=push, args=(n / 16,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count(1) == 1
    assert sum(isinstance(result, StaleError) for result in results) == 15
    assert len(store.snapshot("r").events) == 1


def test_a_log_that_is_known_is_not_read_again_and_one_that_is_wrong_is(store: Store, run: RunRecord) -> None:
    seen: list[tuple[int, ...]] = []

    def look(_: RunRecord, before: tuple[log.Event, ...], event: log.Event) -> tuple[str, ...]:
        seen.append(tuple(one.sequence for one in before))
        log.verify((*before, event), run.first_head)
        return ()

    events = [store.append(run.id, weights(), look).event for _ in range(4)]
    odd = log.append(
        (), body=WeightsBody(weights={"a": 1.0}), from_step=0, until_step=None, author="", reason="", time_us=0
    )
    for known in (events, events[:2], [], [odd], [*events[:3], odd], events[1:]):
        event = store.append(run.id, weights(), look, known=known).event
        assert seen[-1] == tuple(range(1, event.sequence))


def test_sequences_have_no_gap(store: Store, run: RunRecord) -> None:
    threads = [
        threading.Thread(target=lambda: [store.append(run.id, weights(), anything) for _ in range(10)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = store.snapshot("r").events
    assert [event.sequence for event in events] == list(range(1, 41))
    log.verify(events)


def test_equal_run_is_answered_another_is_refused(
    store: Store, run: RunRecord, make_run: Callable[..., NewRun]
) -> None:
    assert store.create_run(make_run("r")) == (run, False)
    with pytest.raises(ExistsError, match="its corpus is not the one that it was made with"):
        store.create_run(make_run("r", digest=b"\1" * 32))
    with pytest.raises(ExistsError, match="give the new spec another name"):
        store.create_run(replace(make_run("r", digest=b"\1" * 32), spec_json='{"seed":1}'))


def test_anchors_up_to_the_seal_only(store: Store, run: RunRecord, held: bytes) -> None:
    wish = Raise(to=8, head=run.head, anchors=((5, "five"), (9, "nine")))
    store.advance(run.id, wish=wish)
    store.advance(run.id, wish=wish)
    assert store.anchors(run.id) == ((5, "five"),)


def test_of_many_anchors_the_newest_and_an_even_choice_are_read(
    store: Store, run: RunRecord, held: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "NEWEST", 20)
    made = tuple((step, str(step)) for step in range(50))
    with store._database.write() as connection:
        runs.store_anchors(connection, run.id, made)
    assert store.anchors(run.id, every=True) == made
    assert [step for step, _ in store.anchors(run.id)] == [*range(0, 30, 2), *range(30, 50)]
    store.forget_anchors(run.id, [0, 49])
    assert len(store.anchors(run.id, every=True)) == 48


def test_losses_count_a_reporter_once(store: Store, run: RunRecord) -> None:
    def report(reporter: str, loss: float) -> LossReport:
        return LossReport(step=3, segment=0, domain="a", reporter=reporter, loss_sum=loss, tokens=10)

    store.store_losses(run.id, [report("0", 5.0), report("1", 7.0)])
    store.store_losses(run.id, [report("0", 6.0)])
    (found,) = store.losses(run.id, 0, 10)
    assert (found.loss_sum, found.tokens, found.excess_sum) == (13.0, 20, None)


def test_refused_changes_are_kept_up_to_a_thousand_whoever_notes_them(store: Store, run: RunRecord) -> None:
    """Two servers note at one moment; the newest stay, each once, and can be asked for by run."""

    def note(who: str) -> None:
        for first in range(0, 600, 100):
            made = [Refusal(run="r", who=who, method="SetWeights", reason=str(n)) for n in range(first, first + 100)]
            store.record_refusals(made)

    threads = [threading.Thread(target=note, args=(who,)) for who in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.record_refusals([Refusal(run="other", who="three", method="Mask", reason="last")])
    kept = store.refusals("")
    assert len(kept) == len(set(kept)) == 1000
    assert (kept[0].who, kept[0].reason) == ("three", "last")
    assert {"one", "two"} <= {one.who for one in kept}
    assert [one.method for one in store.refusals("other")] == ["Mask"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_second_server_is_kept_off_and_readers_are_not(store: Store, run: RunRecord, url: str) -> None:
    with pytest.raises(ConflictError, match=f"pid {os.getpid()}"):
        Store(url, writable=True)


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("sqlite:///nowhere/x.db", NotFoundError, "there is no f"),
        ("sqlite://", UsageError, "names no file"),
        ("mysql://h/x", UsageError, "not supported"),
        ("nonsense", UsageError, "no store address"),
    ],
)
@pytest.mark.parametrize("writable", [True, False])
def test_bad_addresses(
    url: str, kind: type[Exception], words: str, writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=words):
        Store(url, writable=writable)


def test_password_is_never_shown() -> None:
    assert mask("postgresql://u:secret@h/d") == "postgresql://u@h/d"
    with pytest.raises(UsageError) as caught:
        Store("mysql://u:secret@h/d", writable=True)
    assert "secret" not in str(caught.value)


def test_readers_of_either_kind_cannot_write(store: Store, run: RunRecord, url: str) -> None:
    reader = Store(url, writable=False)
    assert reader.snapshot("r").run == run
    with pytest.raises(UnavailableError, match=r"read-?only"):
        reader.append(run.id, weights(), anything)
    reader.close()


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(DataLossError, match="not a database"):
        Store(f"sqlite:///{tmp_path}/x.db", writable=False)


def test_unknown_run_names_those_there_are(store: Store, run: RunRecord) -> None:
    with pytest.raises(NotFoundError, match="the store holds `r`"):
        store.snapshot("s")


@pytest.fixture
def killed(url: str) -> list[int]:
    """Sequence numbers that a writer acknowledged before it was killed at a random moment."""
    script = Path(__file__).with_name("appending_writer.py")
    with subprocess.Popen([sys.executable, script, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(random.randrange(1, 60))]
        process.send_signal(signal.SIGKILL)
        return acknowledged + [int(line) for line in process.stdout if line.endswith("\n")]


def test_acknowledged_events_survive_a_kill(killed: list[int], url: str) -> None:
    store = Store(url, writable=True)
    events = store.snapshot("r").events
    log.verify(events)
    assert [event.sequence for event in events][: len(killed)] == killed
    assert len(events) <= len(killed) + 1
    store.close()
