"""What every command that writes an event takes, and how it says what became of it.

    @change_options          # --from-step, --reason, --expected-head, --idempotency-key, --dry-run  ->  change: Change

All of them go into the request as they are; the server's validator judges them.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields, replace
from typing import Any

import click
from headrace.client.cli.common import F, dry_run_option
from headrace.client.cli.run_text import event_dict
from headrace.client.cli.source import author, log_head
from headrace.client.cli.terminal import clean
from headrace.proto.v1 import control_pb2 as pb


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """From which step a change holds (None: the first unsealed one), why, and under which conditions it is made."""

    reason: str
    expected_head: str
    idempotency_key: str
    dry_run: bool
    from_step: int | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a request; raises UsageError when the head is no hash."""
        held = {} if self.from_step is None else {"from_step": self.from_step}
        return {
            **held,
            "author": author(),
            "reason": self.reason,
            "expected_head": log_head(self.expected_head),
            "idempotency_key": self.idempotency_key,
            "dry_run": self.dry_run,
        }

    def or_else(self, *, reason: str, idempotency_key: str) -> Change:
        """The same with these, where the caller gave none."""
        return replace(self, reason=self.reason or reason, idempotency_key=self.idempotency_key or idempotency_key)

    def print_answer(self, answer: pb.EventResponse, as_json: bool, lines: list[str] | None = None) -> None:
        """The event, from which step it holds, and what is worth a note; `lines` come in between."""
        if as_json:
            value = {"event": event_dict(answer.event), "seal": answer.seal, "confirmed": answer.confirmed}
            click.echo(json.dumps({**value, "notes": list(answer.notes), "dry_run": self.dry_run}, indent=2))
            return
        verb = "would hold" if self.dry_run else "holds"
        away = answer.event.from_step - answer.confirmed
        steps = "1 step" if abs(away) == 1 else f"{abs(away)} steps"
        when = f"{steps} from now" if away >= 0 else f"since {steps}"
        click.echo(
            f"event {answer.event.sequence} {verb} from step {answer.event.from_step} "
            f"({answer.confirmed} confirmed, seal {answer.seal}: {when})"
        )
        for line in [*(lines or ()), *(f"note: {clean(note)}" for note in answer.notes)]:
            click.echo(line)


def change_options(command: F) -> F:
    """Adds the options of a change that holds from a step on; the command receives `change`."""
    return click.option(
        "--from-step", type=click.IntRange(min=0), help="First step for which it holds; default: the first unsealed."
    )(audit_options(command))


def audit_options(command: F) -> F:
    """The same without --from-step."""

    @click.option("--reason", default="", help="Why, for the audit log.")
    @click.option("--expected-head", default="", help="Log head (hex) that you have seen; refused when it has moved.")
    @click.option("--idempotency-key", default="", help="The same key again is answered with the first result.")
    @dry_run_option
    @functools.wraps(command)
    def with_change(*args: Any, **kwargs: Any) -> Any:
        given = {field.name: kwargs.pop(field.name) for field in fields(Change) if field.name in kwargs}
        return command(*args, change=Change(**given), **kwargs)

    return with_change  # type: ignore[return-value]
