"""Between the project's values and the messages of `headrace.v1`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.records import Appended, RunRecord
from headrace.server.control.refusals import Refusal
from headrace.server.plan.forecast import make_forecast
from headrace.server.plan.forecast_text import forecast_lines
from headrace.server.plan.log import CancelBody, Event, GrowBody, MaskBody, WeightsBody, bodies
from headrace.server.plan.plan import Plan
from headrace.server.service.figures import domain_figures
from headrace.server.service.view import View


def run_info(view: View) -> pb.RunInfo:
    """The run as the view shows it, with the weights of the next unsealed step (of the last step when it is over)."""
    end, step = view.plan.end, view.shown_step
    weights = view.plan.weights(step)
    info = pb.RunInfo(
        run_id=view.run.id,
        name=view.run.name,
        spec_digest=view.run.spec_digest,
        spec_json=view.run.spec_json,
        seal=view.run.seal,
        confirmed=view.run.confirmed,
        lead=view.run.lead,
        end_step=end,
        domains=view.plan.domains,
        weights=[weights.get(name, 0.0) for name in view.plan.domains],
        segment=view.plan.segment(step),
        log_head=view.run.head,
        parent=view.parent.run.name if view.parent else "",
        branch_at=view.plan.first,
    )
    if view.lease is not None and view.lease.open_ranks:
        info.lease_job = view.lease.job
        info.lease_attempt = view.lease.attempt
        info.lease_holder = view.lease.holder
    return info


def event_message(event: Event, cancelled: bool) -> pb.Event:
    """An event of the log; `cancelled` says whether a later event took it back."""
    message = pb.Event(
        sequence=event.sequence,
        from_step=event.from_step,
        until_step=event.until_step,
        author=event.author,
        reason=event.reason,
        time_us=event.time_us,
        previous_hash=event.previous_hash,
        hash=event.hash,
        cancelled=cancelled,
    )
    if isinstance(event.body, WeightsBody):
        message.weights.weights.update(event.body.weights)
        message.weights.loss_weights.update(event.body.loss_weights)
    elif isinstance(event.body, CancelBody):
        message.cancel.sequence = event.body.sequence
    elif isinstance(event.body, GrowBody):
        for name in ("domain", "generation", "manifest", "join"):
            setattr(message.grow, name, getattr(event.body, name))
    elif isinstance(event.body, MaskBody):
        message.mask.by, message.mask.domain = event.body.by, event.body.domain
        message.mask.values.extend(event.body.values)
    return message


def event_messages(events: Iterable[Event], keys: Mapping[int, str] | None = None) -> list[pb.Event]:
    """A log in order, each event with whether it was cancelled; `keys` are idempotency keys by sequence number."""
    log = list(events)
    gone = {body.sequence for body in bodies(log, CancelBody)}
    messages = [event_message(event, event.sequence in gone) for event in log]
    for message in messages:
        message.idempotency_key = (keys or {}).get(message.sequence, "")
    return messages


def event_response(appended: Appended) -> pb.EventResponse:
    """The answer to a change."""
    return pb.EventResponse(
        event=event_message(appended.event, False),
        seal=appended.seal,
        confirmed=appended.confirmed,
        notes=appended.notes,
    )


def record_info(run: RunRecord) -> pb.RunInfo:
    """What a row alone says of a run."""
    fields = ("name", "spec_digest", "spec_json", "seal", "confirmed", "lead")
    return pb.RunInfo(run_id=run.id, log_head=run.head, **{name: getattr(run, name) for name in fields})


def refusal_message(refusal: Refusal) -> pb.Refusal:
    """A refused change."""
    return pb.Refusal(**{name: getattr(refusal, name) for name in Refusal.__dataclass_fields__})


def watch_message(view: View, after_sequence: int) -> pb.WatchRunResponse:
    """The run with its ranks and realized figures, and the events after a number."""
    ranks = view.lease.open_ranks if view.lease else ()
    return pb.WatchRunResponse(
        run=run_info(view),
        events=[event for event in event_messages(view.events) if event.sequence > after_sequence],
        ranks=[
            pb.Rank(label=rank.label, holder=rank.holder, next_step=rank.next_step, heard_us=rank.heard_us)
            for rank in ranks
        ],
        figures=[
            pb.DomainFigures(domain=one.name, target=one.target, share=one.share, tokens=one.tokens, epochs=one.epochs)
            for one in domain_figures(view, view.run.confirmed)
        ],
    )


def forecast(plan: Plan) -> pb.ForecastResponse:
    """What a run will do, as lines and as JSON."""
    made = make_forecast(plan)
    return pb.ForecastResponse(lines=forecast_lines(made), json=json.dumps(asdict(made)))
