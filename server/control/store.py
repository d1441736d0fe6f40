"""The control store: every operation is one transaction, and nothing outside it decides.

Synchronous and safe for several threads; `headrace.server.control.aio` runs it off the event loop. What is decided in a
transaction (first unsealed step, expected head, idempotency key, lease) is decided after the run's row is locked, so
that of two writers one wins and the other is told so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from headrace.proto.errors import UnavailableError
from headrace.server.control import events, imports, leases, losses, refusals, rehearsal, runs, seal
from headrace.server.control.database import Database
from headrace.server.control.events import Check, Wish
from headrace.server.control.failpoints import reach
from headrace.server.control.imports import ImportedRun
from headrace.server.control.leases import Granted, OpenLease
from headrace.server.control.listen import EVENT, SEAL, Listener, new_origin, notify
from headrace.server.control.lock import StoreLock
from headrace.server.control.log_rows import whole_log
from headrace.server.control.losses import DomainLoss
from headrace.server.control.records import Appended, Heard, LossReport, NewRun, RunRecord, Snapshot
from headrace.server.control.refusals import Refusal
from headrace.server.control.runs import Made
from headrace.server.control.seal import Advanced, Raise
from headrace.server.plan.log import Event

_NOTHING: Mapping[str, tuple[Event, ...]] = {}


class Store:
    """One control store, open for reading (`writable=False`) or for writing."""

    def __init__(self, url: str, *, writable: bool) -> None:
        """Opens the store; a writer of an SQLite file takes its lock (ConflictError when a server holds it)."""
        self._database = Database(url, create=writable)
        self.name = self._database.name
        self.is_shared = not self._database.is_sqlite  # other servers may change it
        self._origin = new_origin()
        self._listener: Listener | None = None
        self._lock = StoreLock(self._database.path) if writable and self._database.is_sqlite else None
        try:
            if writable:
                self._database.prepare()
            else:
                self._database.check_version()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connections and gives the lock back."""
        if self._listener is not None:
            self._listener.close()
        self._database.dispose()
        if self._lock is not None:
            self._lock.release()

    def listen(self, hear: Callable[[str, str], None]) -> None:
        """Calls `hear(run id, kind)` on a thread of its own when another server has changed a run of a shared store."""
        if self.is_shared and self._listener is None:
            self._listener = Listener(self._database.url, self._origin, hear)

    @property
    def is_listening(self) -> bool:
        """Whether news of other servers come by themselves just now."""
        return self._listener is not None and self._listener.alive

    def _notify(self, connection: sa.Connection, run_id: str, kind: str) -> None:
        if self.is_shared:
            notify(connection, run_id, kind, self._origin)

    def create_run(self, new: NewRun) -> tuple[RunRecord, bool]:
        """Makes a run, or answers an equal one of the same name; the flag says which."""
        for _ in range(2):  # two servers may make the same run at once: the second look finds the winner's
            with contextlib.suppress(sa.exc.IntegrityError), self._database.write() as connection:
                return runs.create_run(connection, new, self._database.now_us(connection))
        raise UnavailableError(f"run `{new.name}` is being made by somebody else just now; try again")

    def import_run(self, imported: ImportedRun, check: Callable[[RunRecord], Made], *, dry_run: bool) -> RunRecord:
        """Makes a run of an export, with the anchors of `check`; what that raises undoes it, and so does a dry run."""
        with self._database.write() as connection:
            run = imports.import_run(connection, imported)
            runs.store_anchors(connection, run.id, check(run))
            if dry_run:
                connection.rollback()
            return run

    def runs(self) -> tuple[RunRecord, ...]:
        """All runs, by name."""
        with self._database.read() as connection:
            return runs.list_runs(connection)

    def snapshot(self, name: str, known: Mapping[str, tuple[Event, ...]] = _NOTHING) -> Snapshot:
        """Row, log and lease of the run of this name, at one moment.

        `known` are logs, by run id, that were read before: what the chain goes on from is not read again.
        """
        with self._database.read() as connection:
            run = runs.find_run(connection, name)
            return Snapshot(
                run=run,
                events=whole_log(connection, run, known.get(run.id, ())),
                lease=leases.read_lease(connection, run.id),
                now_us=self._database.now_us(connection),
            )

    def name_of(self, run_id: str) -> str:
        """The name of the run with this id."""
        with self._database.read() as connection:
            return runs.read_run(connection, run_id).name

    def anchors(self, run_id: str, *, every: bool = False) -> Made:
        """Stored cursors of a run as (step, text), by step; of many the newest and an even choice."""
        with self._database.read() as connection:
            return runs.read_anchors(connection, run_id, every=every)

    def forget_anchors(self, run_id: str, steps: Sequence[int]) -> None:
        """Deletes stored cursors; whoever needs them makes them again."""
        with self._database.write() as connection:
            runs.read_run(connection, run_id, lock=True)
            runs.delete_anchors(connection, run_id, steps)

    def append(self, run_id: str, wish: Wish, check: Check, *, known: Sequence[Event] = ()) -> Appended:
        """Appends an event; see `headrace.server.control.events`."""
        reach("append-begin")
        with self._database.write() as connection:
            appended = events.append(connection, run_id, wish, check, self._database.now_us(connection), known)
            if not wish.dry_run and not appended.replayed:
                self._notify(connection, run_id, EVENT)
            reach("append-written")
        reach("append-committed")
        return appended

    def advance(
        self, run_id: str, *, heard: Sequence[Heard] = (), wish: Raise | None = None, known_sequence: int = 0
    ) -> Advanced:
        """Writes what ranks said and raises the seal; see `headrace.server.control.seal`."""
        reach("seal-begin")
        with self._database.write() as connection:
            advanced = seal.advance(
                connection,
                run_id,
                heard=heard,
                wish=wish,
                known_sequence=known_sequence,
                now_us=self._database.now_us(connection),
            )
            if advanced.moved:
                self._notify(connection, run_id, SEAL)
            reach("seal-written")
        reach("seal-committed")
        return advanced

    def open_lease(self, run_id: str, wish: OpenLease) -> Granted:
        """Takes or joins the lease of a run; see `headrace.server.control.leases`."""
        with self._database.write() as connection:
            runs.read_run(connection, run_id, lock=True)
            return leases.grant(connection, run_id, wish, self._database.now_us(connection))

    def rehearse(self, run_id: str) -> None:
        """Does what the first trainer of a run needs, and undoes it; see `headrace.server.control.rehearsal`."""
        with self._database.write() as connection:
            rehearsal.rehearse(connection, run_id, self._database.now_us(connection))
            self._notify(connection, run_id, SEAL)  # told to nobody, being rolled back
            connection.rollback()

    def close_rank(self, run_id: str, token: bytes) -> None:
        """This rank is done."""
        with self._database.write() as connection:
            runs.read_run(connection, run_id, lock=True)
            leases.close_rank(connection, run_id, token)

    def store_losses(self, run_id: str, reports: Sequence[LossReport]) -> None:
        """Keeps what trainers measured."""
        with self._database.write() as connection:
            runs.read_run(connection, run_id, lock=True)
            losses.store_losses(connection, run_id, reports)

    def losses(self, run_id: str, from_step: int, to_step: int, *, most_steps: int = 200) -> tuple[DomainLoss, ...]:
        """Losses of the first reported steps of [from_step, to_step), summed over reporters."""
        with self._database.read() as connection:
            return losses.read_losses(connection, run_id, from_step, to_step, most_steps=most_steps)

    def record_refusals(self, refused: Sequence[Refusal]) -> None:
        """Notes changes that were refused; the oldest beyond 1,000 are forgotten."""
        with self._database.write() as connection:
            self._database.lock_table(connection, "refusals")
            refusals.record_refusals(connection, refused, self._database.now_us(connection))

    def keys(self, run_id: str) -> dict[int, str]:
        """Idempotency keys of a run's events, by sequence number."""
        with self._database.read() as connection:
            return events.read_keys(connection, run_id)

    def refusals(self, run: str = "") -> tuple[Refusal, ...]:
        """Changes that were refused, newest first; of one run, or of all."""
        with self._database.read() as connection:
            return refusals.read_refusals(connection, run)
