"""A run that comes from an export: its row and its whole log are written in one transaction, under the same id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from headrace.proto.errors import ExistsError, NotFoundError
from headrace.server.control.log_rows import insert_event
from headrace.server.control.records import RunRecord
from headrace.server.control.runs import read_run
from headrace.server.control.schema import runs
from headrace.server.plan.log import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRun:
    """A run as an export holds it. `plan_hash` is that at the seal, `step_digests` are those of the newest steps."""

    id: str
    name: str
    kind: str
    plan_version: int
    spec_json: str
    spec_digest: bytes
    base_dir: str
    parent_name: str | None
    lead: int
    seal: int
    confirmed: int
    author: str
    created_us: int
    first_head: bytes
    events: tuple[Event, ...]
    plan_hash: bytes
    step_digests: Mapping[int, bytes]

    def __post_init__(self) -> None:
        if self.kind == "train" and not 0 <= self.confirmed <= self.seal <= self.confirmed + self.lead:
            raise ValueError(f"confirmed {self.confirmed}, seal {self.seal} and lead {self.lead} do not go together")


def import_run(connection: sa.Connection, imported: ImportedRun) -> RunRecord:
    """Writes the run; raises ExistsError when the store holds its name or id, NotFoundError without its parent."""
    _check_new(connection, imported)
    parent = None
    if imported.parent_name is not None:
        query = sa.select(runs.c.id).where(runs.c.name == imported.parent_name)
        parent = connection.execute(query).scalar_one_or_none()
        if parent is None:
            raise NotFoundError(
                f"run `{imported.name}` was branched from `{imported.parent_name}`; import that one first"
            )
    fields = ("id", "name", "kind", "plan_version", "spec_json", "spec_digest", "base_dir", "lead", "seal")
    rest = ("confirmed", "first_head", "author", "created_us")
    values = {name: getattr(imported, name) for name in (*fields, *rest)}
    head = imported.events[-1].hash if imported.events else imported.first_head
    connection.execute(runs.insert().values(**values, head=head, sequence=len(imported.events), parent=parent))
    for event in imported.events:
        insert_event(connection, imported.id, event)
    return read_run(connection, imported.id)


def _check_new(connection: sa.Connection, imported: ImportedRun) -> None:
    query = sa.select(runs.c.name, runs.c.id, runs.c.spec_digest)
    found = connection.execute(query.where(sa.or_(runs.c.name == imported.name, runs.c.id == imported.id))).all()
    if any(row.id == imported.id for row in found):
        raise ExistsError(f"this store holds run `{imported.name}` (id `{imported.id}`) already; nothing was imported")
    if found:
        other = found[0]
        raise ExistsError(
            f"this store holds another run `{other.name}` (id `{other.id}`, spec digest "
            f"{other.spec_digest.hex()[:16]}) than "
            f"the export's (id `{imported.id}`, spec digest {imported.spec_digest.hex()[:16]}); nothing was imported: "
            f"import it into a store of its own"
        )
