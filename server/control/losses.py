"""What trainers measured, kept as sums and counts by step, domain and reporter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from headrace.server.control.records import LossReport
from headrace.server.control.schema import losses


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainLoss:
    """A domain's loss at one step, summed over its reporters."""

    step: int
    domain: str
    loss_sum: float
    tokens: int
    excess_sum: float | None


def store_losses(connection: sa.Connection, run_id: str, reports: Sequence[LossReport]) -> None:
    """Writes the reports; a reporter's second word on a step and domain replaces its first."""
    for report in reports:
        same = (
            losses.c.run_id == run_id,
            losses.c.step == report.step,
            losses.c.domain == report.domain,
            losses.c.reporter == report.reporter,
        )
        values = {name: getattr(report, name) for name in LossReport.__dataclass_fields__}
        if connection.execute(losses.update().where(*same).values(**values)).rowcount == 0:
            connection.execute(losses.insert().values(run_id=run_id, **values))


def read_losses(
    connection: sa.Connection, run_id: str, from_step: int, to_step: int, *, most_steps: int
) -> tuple[DomainLoss, ...]:
    """Losses of the first `most_steps` reported steps of [from_step, to_step), by step and domain, over reporters."""
    wanted = (losses.c.run_id == run_id, losses.c.step >= from_step, losses.c.step < to_step)
    steps = sa.select(losses.c.step).where(*wanted).distinct().order_by(losses.c.step).limit(most_steps)
    last = connection.execute(sa.select(sa.func.max(steps.subquery().c.step))).scalar_one_or_none()
    if last is None:
        return ()
    query = (
        sa.select(
            losses.c.step,
            losses.c.domain,
            sa.func.sum(losses.c.loss_sum).label("loss_sum"),
            sa.func.sum(losses.c.tokens).label("tokens"),
            sa.func.sum(losses.c.excess_sum).label("excess_sum"),
        )
        .where(*wanted, losses.c.step <= last)
        .group_by(losses.c.step, losses.c.domain)
        .order_by(losses.c.step, losses.c.domain)
    )
    return tuple(
        DomainLoss(
            step=row.step,
            domain=row.domain,
            loss_sum=float(row.loss_sum),
            tokens=int(row.tokens),
            excess_sum=None if row.excess_sum is None else float(row.excess_sum),
        )
        for row in connection.execute(query)
    )
