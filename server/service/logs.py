"""The server's log: one line an event that an operator needs, as text, JSON or logfmt, to standard error.

A line says in words what happened; with `told` it also carries the event's name, run, step and remedy as fields, which
the structured formats put first. Words that come from elsewhere (names, reasons) never break a line. Tokens and lease
secrets are in no line.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

logger = logging.getLogger("headrace.server")

FORMATS = ("text", "json", "logfmt")
_FIELDS = "headrace_fields"


def told(event: str, *, run: str = "", step: int | None = None, remedy: str = "", **more: Any) -> dict[str, Any]:
    """For `extra=` of a logging call: the fields of an event; empty ones are left out."""
    fields = {"event": event, "run": run, "step": step, "remedy": remedy, **more}
    return {_FIELDS: {name: value for name, value in fields.items() if value not in ("", None)}}


def tell(level: int, event: str, run: str, what: str, **fields: Any) -> None:
    """Logs what happened to a run, in words and as fields of `told`."""
    logger.log(level, "run %s: %s", run, what, extra=told(event, run=run, **fields))


def remedy_of(error: BaseException) -> str:
    """What an error's message says to do: what stands behind its last semicolon."""
    _, found, remedy = str(error).rpartition("; ")
    return remedy if found else ""


def set_up(level: str, format_: str) -> None:
    """Makes this process log so. Raises ValueError for a format that there is not."""
    formatters: dict[str, logging.Formatter] = {"text": Text(), "json": Json(), "logfmt": Logfmt()}
    if format_ not in formatters:
        raise ValueError(f"no log format is called `{format_}`; there are {', '.join(FORMATS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(formatters[format_])
    logging.basicConfig(level=level.upper(), handlers=[handler])


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Time, level and logger, then what was told, then the words."""
    fields = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        **getattr(record, _FIELDS, {}),
        "message": record.getMessage(),
    }
    if record.exc_info:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    return fields


class Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(fields_of(record), ensure_ascii=True, default=str)


class Logfmt(logging.Formatter):
    """`key=value` pairs; values with spaces, quotes or control characters are JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_plain(value)}" for name, value in fields_of(record).items())


def _plain(value: Any) -> str:
    text = str(value)
    safe = text.isascii() and text.isprintable() and not set(text) & set(' "=\\')
    return text if safe and text else json.dumps(text, ensure_ascii=True)


class Text(logging.Formatter):
    """For people; only a traceback, which is a bug of ours, takes more than one line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
        return super().formatMessage(record)
