"""Older stores are brought to the tables of this version, in one transaction and in words; newer ones are refused.

Each step takes a store from one version to the next. A step never changes what events, hashes or digests are made of:
what was sealed stays byte for byte what it was. Given up: going back; an export made before goes back.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

import sqlalchemy as sa
from headrace.proto.errors import ConflictError
from headrace.server.control import schema

logger = logging.getLogger("headrace.server")


def _name_the_store(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE meta ADD COLUMN store_id TEXT NOT NULL DEFAULT ''"))
    connection.execute(schema.meta.update().values(store_id=new_store_id()))


# From which version on, what is done in words, and how.
_STEPS: dict[int, tuple[str, Callable[[sa.Connection], None]]] = {
    1: ("the store is given a name of its own", _name_the_store),
}


def new_store_id() -> str:
    """A random name for a store, by which servers and exports tell it from others."""
    return secrets.token_hex(8)


def version_of(connection: sa.Connection) -> int:
    """The version of a store's tables."""
    return int(connection.execute(sa.text("SELECT schema_version FROM meta")).scalar_one())


def migrate(connection: sa.Connection, name: str) -> None:
    """Brings a store to this version, in the caller's transaction. Raises ConflictError for a newer store."""
    version = version_of(connection)
    check_not_newer(version, name)
    while version < schema.SCHEMA_VERSION:
        words, step = _STEPS[version]
        logger.warning(
            "store `%s` has schema version %d: migrating it to %d (%s); Headrace of before will refuse it from now on",
            name,
            version,
            version + 1,
            words,
        )
        step(connection)
        version += 1
        connection.execute(sa.text("UPDATE meta SET schema_version = :version"), {"version": version})


def check_not_newer(version: int, name: str) -> None:
    """Raises ConflictError for a store that a newer Headrace made or migrated."""
    if version > schema.SCHEMA_VERSION:
        raise ConflictError(
            f"store `{name}` has schema version {version}, this Headrace knows {schema.SCHEMA_VERSION} and older; use "
            f"the version that made it or a newer one, or export the runs there and import them into a new store"
        )


def check_current(version: int, name: str) -> None:
    """Raises ConflictError for a store that is not of this version, for those who only read it."""
    check_not_newer(version, name)
    if version < schema.SCHEMA_VERSION:
        raise ConflictError(
            f"store `{name}` has schema version {version}, this Headrace reads {schema.SCHEMA_VERSION}; start "
            f"`headrace serve` on it once, which migrates it, or read it with the version that made it"
        )
