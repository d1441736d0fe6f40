"""Who may confirm: attempts, takeovers, silence, and ranks that disagree, on a real store."""

from __future__ import annotations

import pytest
from headrace.proto.errors import ConflictError, FencedError, UsageError
from headrace.server.control import database
from headrace.server.control.leases import OpenLease, token_of
from headrace.server.control.records import Heard, RunRecord
from headrace.server.control.seal import Raise
from headrace.server.control.store import Store


class Clock:
    """The store's clock, turned by hand."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(database.Database, "now_us", lambda *_: made.us)
    return made


def wish(job: str = "job", attempt: int = 0, rank: str = "0", **changes: object) -> OpenLease:
    values = {"label": rank, "world": 2, "holder": f"{job}-host:{rank}", "next_step": 0, **changes}
    return OpenLease(job=job, attempt=attempt, **values)  # type: ignore[arg-type]


def confirm(store: Store, run: RunRecord, token: bytes, step: int) -> tuple[bytes, ...]:
    head = store.snapshot("r").run.head
    return store.advance(run.id, heard=[Heard(token=token, next_step=step)], wish=Raise(to=100, head=head)).fenced


def test_a_newer_attempt_takes_over_at_once_and_fences_for_good(store: Store, run: RunRecord) -> None:
    old = store.open_lease(run.id, wish())
    new = store.open_lease(run.id, wish(attempt=1))
    assert new.lease.attempt == 1
    assert confirm(store, run, old.token, 0) == (old.token,)
    with pytest.raises(FencedError, match="attempt 0 of job `job` was fenced by attempt 1"):
        store.open_lease(run.id, wish())
    store.close_rank(run.id, new.token)
    with pytest.raises(FencedError):
        store.open_lease(run.id, wish())


def test_another_job_is_refused_and_told_who_holds_it(store: Store, run: RunRecord, clock: Clock) -> None:
    store.open_lease(run.id, wish("first"))
    clock.us += 5_000_000
    with pytest.raises(ConflictError, match=r"job `first` \(attempt 0, first-host:0\) holds it and was heard 5 s ago"):
        store.open_lease(run.id, wish("second"))


def test_another_job_may_come_when_every_rank_has_closed(store: Store, run: RunRecord) -> None:
    granted = [store.open_lease(run.id, wish("first", rank=rank)) for rank in "01"]
    store.close_rank(run.id, granted[0].token)
    with pytest.raises(ConflictError):
        store.open_lease(run.id, wish("second"))
    store.close_rank(run.id, granted[1].token)
    assert store.open_lease(run.id, wish("second")).lease.job == "second"


def test_another_job_may_come_after_60_s_of_silence(store: Store, run: RunRecord, clock: Clock) -> None:
    first = store.open_lease(run.id, wish("first"))
    clock.us += 59_000_000
    confirm(store, run, first.token, 0)
    clock.us += 60_000_000
    with pytest.raises(ConflictError):
        store.open_lease(run.id, wish("second"))
    clock.us += 1
    assert store.open_lease(run.id, wish("second")).lease.job == "second"
    assert confirm(store, run, first.token, 0) == (first.token,)


def test_a_clock_that_jumps_back_takes_no_lease(store: Store, run: RunRecord, clock: Clock) -> None:
    store.open_lease(run.id, wish("first"))
    clock.us -= 3_600_000_000
    with pytest.raises(ConflictError, match="heard 0 s ago"):
        store.open_lease(run.id, wish("second"))


def test_takeover(store: Store, run: RunRecord) -> None:
    first = store.open_lease(run.id, wish("first"))
    assert store.open_lease(run.id, wish("second", takeover=True)).lease.job == "second"
    assert confirm(store, run, first.token, 0) == (first.token,)


def test_ranks_must_agree_on_world_and_step(store: Store, run: RunRecord) -> None:
    store.open_lease(run.id, wish())
    with pytest.raises(ConflictError, match=r"world 2 \(job-host:0\) and world 4 \(rank 1, job-host:1\)"):
        store.open_lease(run.id, wish(rank="1", world=4))
    with pytest.raises(ConflictError, match=r"step 0 \(job-host:0\) and step 7 \(rank 1, job-host:1\)"):
        store.open_lease(run.id, wish(rank="1", next_step=7))


def test_a_rank_rejoins_where_it_asks_once_the_attempt_has_confirmed(store: Store, run: RunRecord) -> None:
    first = store.open_lease(run.id, wish())
    store.open_lease(run.id, wish(rank="1"))
    confirm(store, run, first.token, 0)
    confirm(store, run, first.token, 5)
    back = store.open_lease(run.id, wish(rank="1", next_step=4))
    assert confirm(store, run, first.token, 5) == ()
    assert confirm(store, run, back.token, 4) == ()


def test_a_rank_that_opens_for_the_first_time_begins_where_the_attempt_began(store: Store, run: RunRecord) -> None:
    first = store.open_lease(run.id, wish())
    confirm(store, run, first.token, 0)
    confirm(store, run, first.token, 1)
    with pytest.raises(ConflictError, match=r"step 0 .* and step 1"):
        store.open_lease(run.id, wish(rank="1", next_step=1))
    store.open_lease(run.id, wish(rank="1"))


def test_rows_do_not_pile_up_when_one_process_opens_again(store: Store, run: RunRecord) -> None:
    for _ in range(5):
        store.open_lease(run.id, wish())
    lease = store.snapshot("r").lease
    assert lease is not None
    assert len(lease.ranks) == 1


def test_the_secret_is_not_in_the_store(store: Store, run: RunRecord) -> None:
    granted = store.open_lease(run.id, wish())
    assert granted.token == token_of(granted.secret)
    lease = store.snapshot("r").lease
    assert lease is not None
    assert granted.secret not in repr(lease)


@pytest.mark.parametrize("changes", [{"job": ""}, {"world": 0}, {"rank": "x" * 65}])
def test_bad_wishes(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        wish(**changes)  # type: ignore[arg-type]
