"""What the first trainer has the store do, done once before there is one and rolled back.

SQLAlchemy compiles a statement when it first meets it, which takes as long as ten transactions do: a server that has
just started would make its first trainer wait for that. Nothing is written: not a row, and no news to other servers.
Given up: other writers of the run's row wait meanwhile, some tens of milliseconds.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from headrace.server.control.leases import OpenLease, grant
from headrace.server.control.records import Heard
from headrace.server.control.runs import list_runs, read_run
from headrace.server.control.seal import Raise, advance


def rehearse(connection: sa.Connection, run_id: str, now_us: int) -> None:
    """A job opens the run, a later attempt of it too, which has the seal raised and confirms; the caller rolls back."""
    list_runs(connection)
    run = read_run(connection, run_id, lock=True)
    job = f"rehearsal-{secrets.token_hex(8)}"
    for attempt in (0, 1):
        wish = OpenLease(
            job=job, attempt=attempt, label="0", world=1, holder="", next_step=run.confirmed, takeover=True
        )
        token = grant(connection, run_id, wish, now_us).token
    wanted = Raise(to=run.seal + 1, head=run.head, anchors=((run.seal + 1, ""),))
    sealed = advance(connection, run_id, heard=(), wish=wanted, known_sequence=run.sequence, now_us=now_us).run.seal
    words = (Heard(token=token, next_step=sealed),)
    advance(connection, run_id, heard=words, wish=None, known_sequence=run.sequence, now_us=now_us)
