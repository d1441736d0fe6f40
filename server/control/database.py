"""Opens the control store's database: SQLite (one server) or PostgreSQL (several), and says in words what fails.

Every write transaction takes its lock first (SQLite `BEGIN IMMEDIATE`, PostgreSQL `SELECT ... FOR UPDATE` on the run's
row), so that nothing is decided on what another writer is about to change. SQLite runs in WAL mode with
`synchronous=FULL`: a commit that was acknowledged survives a power cut. Given up: SQLite's cheaper `NORMAL`, which
loses acknowledged commits.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from headrace.proto.errors import (
    DataLossError,
    HeadraceError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from headrace.server.control import schema
from headrace.server.control.migrations import check_current, migrate, new_store_id, version_of

_BUSY_SECONDS = 10.0
_WRITE = "headrace_write"
_NO_WRITES = ("disk is full", "No space left", "disk I/O error", "readonly", "read-only")


def parse_url(url: str) -> sa.URL:
    """The store's address, checked: `sqlite:///path` or `postgresql://user@host/database`."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise UsageError(
            f"`{mask(url)}` is no store address; write sqlite:///PATH or postgresql://USER@HOST/DATABASE"
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise UsageError(f"store `{mask(url)}`: `{parsed.drivername}` is not supported; use sqlite or postgresql")
    if parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise UsageError(f"store `{url}` names no file; write sqlite:///PATH (a run must outlive its server)")
    return parsed


def mask(url: str) -> str:
    """The address without its password, for messages."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{tail}" if at else url


class Database:
    """Connections to one store. Safe for use from several threads."""

    def __init__(self, url: str, *, create: bool) -> None:
        parsed = parse_url(url)
        self.name = mask(url)
        self.url = parsed
        self.is_sqlite = parsed.drivername == "sqlite"
        if self.is_sqlite:
            self.path = Path(str(parsed.database)).resolve()
            self._engine = _sqlite_engine(self.path, create=create, name=self.name)
        else:
            self.path = Path()
            self._engine = _postgres_engine(parsed, read_only=not create)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one moment of the store."""
        level = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with translated(self.name), self._engine.connect() as connection:
            connection = connection.execution_options(**level)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that may change things; on SQLite it has the write lock from its first statement."""
        with translated(self.name), self._engine.connect() as connection:
            connection = connection.execution_options(**{_WRITE: True})
            with connection.begin():
                yield connection

    def lock_table(self, connection: sa.Connection, table: str) -> None:
        """Keeps other writers of a whole table out until the transaction ends; SQLite has its lock already."""
        if not self.is_sqlite:
            connection.execute(sa.text(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))

    def now_us(self, connection: sa.Connection) -> int:
        """The store's clock, microseconds since 1970: PostgreSQL's own, or that of the one server of an SQLite file."""
        if self.is_sqlite:
            return time.time_ns() // 1000
        clock = sa.text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint")
        return int(connection.execute(clock).scalar_one())

    def prepare(self) -> None:
        """Makes the tables of an empty store, or brings those of an older version to ours."""
        with self.write() as connection:
            if not self.is_sqlite:  # two first servers at once: one makes the tables
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7750)"))
            if not sa.inspect(connection).has_table("meta"):
                schema.metadata.create_all(connection)
                connection.execute(
                    schema.meta.insert().values(
                        id=1,
                        schema_version=schema.SCHEMA_VERSION,
                        created_us=self.now_us(connection),
                        store_id=new_store_id(),
                    )
                )
            else:
                migrate(connection, self.name)

    def check_version(self) -> None:
        """Refuses a store whose tables another version made."""
        with self.read() as connection:
            if not sa.inspect(connection).has_table("meta"):
                raise NotFoundError(f"store `{self.name}` holds no Headrace tables; start `headrace serve` on it first")
            check_current(version_of(connection), self.name)

    def dispose(self) -> None:
        """Closes every pooled connection."""
        self._engine.dispose()


def refuses_writes(words: str) -> bool:
    """Whether a database has said that it can be read and takes nothing new: it is full, or read-only."""
    return any(sign in words for sign in _NO_WRITES)


def _sqlite_engine(path: Path, *, create: bool, name: str) -> sa.Engine:
    if not create and not path.is_file():
        raise NotFoundError(f"store `{name}`: there is no file {path}; check --store, or start `headrace serve` first")
    if create and not path.parent.is_dir():
        raise NotFoundError(f"store `{name}`: there is no folder {path.parent}; make it first")
    options = {"check_same_thread": False, "timeout": _BUSY_SECONDS, "isolation_level": None}
    engine = sa.create_engine(f"sqlite:///{path}", connect_args=options)

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL" if create else "PRAGMA query_only=ON")
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgres_engine(url: sa.URL, *, read_only: bool) -> sa.Engine:
    settings = {"statement_timeout": 10000, "lock_timeout": 10000, "synchronous_commit": "on"}
    settings["idle_in_transaction_session_timeout"] = 5000  # a server that stops in a transaction keeps no lock
    if read_only:
        settings["default_transaction_read_only"] = "on"
    words = " ".join(f"-c {name}={value}" for name, value in settings.items())
    options = {"connect_timeout": 5, "options": words}
    return sa.create_engine(url, connect_args=options, pool_pre_ping=True, pool_size=8, pool_timeout=_BUSY_SECONDS)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turns what a driver raises into the project's errors. A full disk is an absence too: trainers wait for room."""
    try:
        yield
    except (HeadraceError, sa.exc.IntegrityError):  # two writers of one new row: the caller knows what it means
        raise
    except sa.exc.SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        if refuses_writes(cause):
            raise UnavailableError(
                f"control store `{name}`: {cause}; nothing was changed; make room and try again"
            ) from error
        if "not a database" in cause or "malformed" in cause:
            raise DataLossError(f"control store `{name}`: {cause}; restore it from a backup or an export") from error
        if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError | sa.exc.DBAPIError):
            raise UnavailableError(f"control store `{name}` did not answer: {cause}; try again") from error
        raise
