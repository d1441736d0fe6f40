"""Changes that were refused, kept apart from the log and capped: the audit of what did not happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from headrace.server.control.schema import refusals

MOST = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Who was refused what, and why. `run` is a name, empty where the request had none."""

    run: str
    who: str
    method: str
    reason: str
    time_us: int = 0


def record_refusals(connection: sa.Connection, refused: Sequence[Refusal], now_us: int) -> None:
    """Writes them and forgets the oldest beyond 1,000."""
    newest = connection.execute(sa.select(sa.func.max(refusals.c.id))).scalar_one() or 0
    for number, one in enumerate(refused, newest + 1):
        values = {"run": one.run, "who": one.who, "method": one.method, "reason": one.reason[:2000]}
        connection.execute(refusals.insert().values(id=number, time_us=one.time_us or now_us, **values))
    connection.execute(refusals.delete().where(refusals.c.id <= newest + len(refused) - MOST))


def read_refusals(connection: sa.Connection, run: str) -> tuple[Refusal, ...]:
    """Newest first; of one run, or of all when `run` is empty."""
    query = sa.select(refusals).order_by(refusals.c.id.desc())
    rows = connection.execute(query.where(refusals.c.run == run) if run else query).mappings()
    return tuple(Refusal(**{name: row[name] for name in Refusal.__dataclass_fields__}) for row in rows)
