"""What can be tuned in the client: times, sizes, and how to prove who is calling.

The defaults fit a trainer whose collectives time out after ten minutes: a stall is logged after 10 s and raised after
300 s, so that the error that names the data server comes before one that names a collective.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.proto.errors import UsageError

MIB = 1 << 20

# Largest reply that the client takes. Rows are asked for in ranges well below it.
MAX_MESSAGE_BYTES = 64 * MIB

_SECONDS = (
    "call_timeout",
    "stall_log",
    "stall_timeout",
    "open_timeout",
    "backoff",
    "backoff_max",
    "keepalive",
    "keepalive_timeout",
    "heartbeat",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """Files for TLS: the CA that signed the server, and for mTLS this client's own certificate and key."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise UsageError("tls: `cert` and `key` go together: give both for mTLS, or neither")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Times in seconds, sizes in bytes.

    call_timeout        deadline of one call; a call that misses it is tried again
    stall_log           how long a trainer waits for one batch before a warning says why, then again each time as long
    stall_timeout       how long it waits before StallError; keep it below the timeout of the trainer's collectives
    open_timeout        how long opening the run may be tried while no server answers
    in_flight           calls under way at once
    buffer_bytes        token bytes that prefetched batches may hold; one batch is always allowed
    message_bytes       rows are asked for in ranges of about this size (and never more than the server allows)
    backoff, backoff_max  first and longest pause between two tries; each pause is random between 0 and its bound
    keepalive, keepalive_timeout  an idle or silent connection is asked after so long whether it lives, and given up
                        when no answer comes: before TCP, which doubles its pauses, has come to pause for seconds, so
                        that a network that comes back is noticed at once; servers refuse to be asked more often than
                        four times a second
    stream              rows come over one stream where the server offers it, else each range by a call of its own
    share               on one host (an address of loopback, or a Unix socket) the ids of a stream come through memory
                        that the server shares, at most `in_flight` + 1 times `message_bytes` of it
    heartbeat           a lease that is silent for 60 s may be taken, so a paused trainer says this often that it lives
    """

    call_timeout: float = 30.0
    stall_log: float = 10.0
    stall_timeout: float = 300.0
    open_timeout: float = 120.0
    in_flight: int = 4
    buffer_bytes: int = 256 * MIB
    message_bytes: int = 4 * MIB
    backoff: float = 0.05
    backoff_max: float = 1.0
    keepalive: float = 2.0
    keepalive_timeout: float = 2.0
    heartbeat: float = 15.0
    stream: bool = True
    share: bool = True

    def __post_init__(self) -> None:
        for name in _SECONDS:
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise UsageError(f"settings: {name} must be a finite number of seconds above 0, not {value!r}")
        if not 1 <= self.in_flight <= 64:
            raise UsageError(f"settings: in_flight must be from 1 to 64, not {self.in_flight!r}")
        if self.buffer_bytes < 1:
            raise UsageError(f"settings: buffer_bytes must be above 0, not {self.buffer_bytes!r}")
        if not 1 <= self.message_bytes <= MAX_MESSAGE_BYTES:
            raise UsageError(
                f"settings: message_bytes must be from 1 to {MAX_MESSAGE_BYTES}, not {self.message_bytes!r}"
            )
