"""The tables of the control store, the same for SQLite and PostgreSQL.

Events are only ever inserted; a run's row carries what changes (seal, confirmed, head) and is the row that every
writer locks first. Times are microseconds since 1970 by the store's clock, digests and hashes are raw bytes. Foreign
keys are left out on purpose: runs are never deleted, and every writer holds the lock of the run's row.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text

SCHEMA_VERSION = 2

metadata = MetaData()

# One row: the version of these tables, and a random name of this store that servers compare.
meta = Table(
    "meta",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("schema_version", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("store_id", Text, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("plan_version", Integer, nullable=False),
    Column("spec_json", Text, nullable=False),
    Column("spec_digest", LargeBinary, nullable=False),
    Column("base_dir", Text, nullable=False),
    Column("lead", Integer, nullable=False),
    Column("seal", BigInteger, nullable=False),
    Column("confirmed", BigInteger, nullable=False),
    # What the chain of this run begins with (a branch begins with its parent's head), and its newest hash.
    Column("first_head", LargeBinary, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    # Id of the run that this one was branched from.
    Column("parent", Text),
)

events = Table(
    "events",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("from_step", BigInteger, nullable=False),
    Column("until_step", BigInteger),
    Column("body", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("previous_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

# An idempotency key and the event that it made; `request` is a digest of what was asked.
keys = Table(
    "idempotency_keys",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", LargeBinary, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("notes", Text, nullable=False),
)

anchors = Table(
    "anchors",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("cursor", Text, nullable=False),
)

# The attempt that holds a run, one row a run.
leases = Table(
    "leases",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("world", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("start_step", BigInteger, nullable=False),
    Column("has_confirmed", Boolean, nullable=False),
    Column("opened_us", BigInteger, nullable=False),
)

# The newest attempt of each job that ever held the run: older ones are fenced for good.
attempts = Table(
    "attempts",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
)

# Every rank that opened under an attempt; the lease's secret is kept as its SHA-256.
ranks = Table(
    "ranks",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("token", LargeBinary, primary_key=True),
    Column("job", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("label", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("next_step", BigInteger, nullable=False),
    Column("heard_us", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
)

# What trainers measured. One reporter's second word on a step replaces its first, so a retry counts once.
losses = Table(
    "losses",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("domain", Text, primary_key=True),
    Column("reporter", Text, primary_key=True),
    Column("segment", BigInteger, nullable=False),
    Column("loss_sum", Float, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("excess_sum", Float),
)

refusals = Table(
    "refusals",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("reason", Text, nullable=False),
)

Index("ranks_by_attempt", ranks.c.run_id, ranks.c.job, ranks.c.attempt)
