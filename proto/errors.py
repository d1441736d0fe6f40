"""The one tree of Headrace's exceptions, and how each travels over gRPC.

    HeadraceError                  anything that Headrace raises on purpose
    +-- UsageError                 the caller asked for something impossible; exit code 2, INVALID_ARGUMENT
    |   +-- ConfigError            a file or option is wrong; names the file and the place in it
    +-- NotFoundError              no such run, domain or file; NOT_FOUND
    +-- ConflictError              the state of the run forbids it; FAILED_PRECONDITION
    |   +-- FencedError            a newer attempt of the job, or a takeover, holds the lease
    |   +-- StateMismatchError     a checkpoint belongs to another run, spec or plan
    +-- StaleError                 the log has moved on since the caller looked; ABORTED
    +-- ExistsError                the name is taken; ALREADY_EXISTS
    +-- OutOfRangeError            a step beyond what may be asked for; OUT_OF_RANGE
    +-- DataLossError              bytes that fail their checksum; DATA_LOSS
    +-- AuthError                  a scope that is too small; PERMISSION_DENIED
    |   +-- UnauthenticatedError   no token, or a wrong one; UNAUTHENTICATED
    +-- LimitError                 a limit of size or rate; RESOURCE_EXHAUSTED
    |   +-- BusyError              too often; the same again is good after `retry_after` seconds; exit code 75
    +-- UnavailableError           try again: a server or store is away; exit code 75, UNAVAILABLE
        +-- DeadlineError          it did not answer in time; DEADLINE_EXCEEDED
        +-- ElsewhereError         this server cannot, another one may; UNAVAILABLE

Each message says what is wrong, where, and what to do. The gRPC status carries the class; `from_rpc` restores it.
"""

from __future__ import annotations

from typing import Any

import grpc
from headrace.proto.transport import explained

_DETAIL_KEY = "headrace-error"
_RETRY_KEY = "grpc-retry-pushback-ms"  # gRPC's own clients know it too


class HeadraceError(Exception):
    """Anything that Headrace raises on purpose."""

    exit_code = 1
    status = grpc.StatusCode.UNKNOWN


class UsageError(HeadraceError):
    """The caller asked for something impossible."""

    exit_code = 2
    status = grpc.StatusCode.INVALID_ARGUMENT


class ConfigError(UsageError):
    """A configuration file or option is wrong; the message names the file and the place in it."""


class NotFoundError(HeadraceError):
    """No such run, domain or file."""

    status = grpc.StatusCode.NOT_FOUND


class ConflictError(HeadraceError):
    """The state of the run forbids what was asked."""

    status = grpc.StatusCode.FAILED_PRECONDITION


class FencedError(ConflictError):
    """A newer attempt of the job, or a takeover, holds the lease."""


class StateMismatchError(ConflictError):
    """A checkpoint belongs to another run, spec or plan."""


class StaleError(HeadraceError):
    """The log has moved on since the caller looked."""

    status = grpc.StatusCode.ABORTED


class ExistsError(HeadraceError):
    """The name is taken."""

    status = grpc.StatusCode.ALREADY_EXISTS


class OutOfRangeError(HeadraceError):
    """A step beyond what may be asked for."""

    status = grpc.StatusCode.OUT_OF_RANGE


class DataLossError(HeadraceError):
    """Bytes that fail their checksum; they are never served."""

    status = grpc.StatusCode.DATA_LOSS


class AuthError(HeadraceError):
    """The caller's scope is too small for the call."""

    status = grpc.StatusCode.PERMISSION_DENIED


class UnauthenticatedError(AuthError):
    """No token, or a wrong one."""

    status = grpc.StatusCode.UNAUTHENTICATED


class LimitError(HeadraceError):
    """A limit of size or rate."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class BusyError(LimitError):
    """Asked too often: the same again is good after `retry_after` seconds."""

    exit_code = 75

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(HeadraceError):
    """A server or store is away; trying again is right."""

    exit_code = 75
    status = grpc.StatusCode.UNAVAILABLE


class DeadlineError(UnavailableError):
    """No answer in time."""

    status = grpc.StatusCode.DEADLINE_EXCEEDED


class ElsewhereError(UnavailableError):
    """This server cannot answer; another one on the same store may, and clients that know one ask it."""


def _tree(root: type[HeadraceError]) -> dict[str, type[HeadraceError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


_BY_NAME = _tree(HeadraceError)
_BY_STATUS = {
    **{kind.status: kind for kind in reversed(list(_BY_NAME.values()))},
    # A server that stops cancels the calls that it has not begun: asking another one, or again, is right.
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.UNKNOWN: HeadraceError,
}


def trailing_metadata(error: HeadraceError) -> tuple[tuple[str, str], ...]:
    """Metadata that a server sends with the status, so that the client can restore the class."""
    named = (_DETAIL_KEY, name_of(error))
    if isinstance(error, BusyError):
        return named, (_RETRY_KEY, str(max(1, round(1e3 * error.retry_after))))
    return (named,)


def name_of(error: HeadraceError) -> str:
    """The class of an error as it is named on the wire: its own, or the nearest in the tree."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _BY_NAME)


def from_name(name: str, code: int, message: str) -> HeadraceError:
    """The exception that a name on the wire stands for, or else the status code does."""
    by_code = {status.value[0]: kind for status, kind in _BY_STATUS.items()}
    return _BY_NAME.get(name, by_code.get(code, HeadraceError))(message)


def from_rpc(error: grpc.RpcError, *, doing: str, endpoint: str) -> HeadraceError:
    """The exception for a failed call.

    `doing` says what was tried ("get rows 0-7 of step 12"), `endpoint` where. The class is the one the server
    named, else the one that the status code stands for.
    """
    call: Any = error  # every RpcError that a call raises is a grpc.Call too; the stubs do not know it
    code: grpc.StatusCode = call.code()
    named = {str(key): str(value) for key, value in call.trailing_metadata() or ()}
    details = str(call.details() or "")
    if _DETAIL_KEY not in named:
        details = explained(code, details)
    kind = _BY_NAME.get(named.get(_DETAIL_KEY, ""), _BY_STATUS.get(code, HeadraceError))
    message = f"cannot {doing} from `{endpoint}`: {details} ({code.name})"
    if kind is BusyError:
        return BusyError(message, retry_after=int(named.get(_RETRY_KEY, "0")) / 1e3)
    return kind(message)
