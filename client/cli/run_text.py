"""A run, an event and a refused change, for programs (`--json`) and as lines for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict
from headrace.proto.v1 import control_pb2 as pb


def info_dict(info: pb.RunInfo) -> dict[str, Any]:
    """A run for `--json`: digests in hex, the spec as JSON."""
    return {
        "name": info.name,
        "run_id": info.run_id,
        "spec_digest": info.spec_digest.hex(),
        "seal": info.seal,
        "confirmed": info.confirmed,
        "lead": info.lead,
        "end_step": info.end_step if info.HasField("end_step") else None,
        "segment": info.segment,
        "log_head": info.log_head.hex(),
        "parent": info.parent or None,
        "branch_at": info.branch_at,
        "weights": dict(zip(info.domains, info.weights, strict=True)),
        "lease": {"job": info.lease_job, "attempt": info.lease_attempt, "holder": info.lease_holder}
        if info.lease_job
        else None,
        "spec": json.loads(info.spec_json),
    }


def info_lines(info: pb.RunInfo) -> list[str]:
    """A run for people."""
    if json.loads(info.spec_json).get("kind") == "eval":
        return [
            f"{info.name}: evaluation of {info.end_step} steps, sealed whole",
            f"  spec digest {info.spec_digest.hex()}",
            f"  domains {', '.join(info.domains)}",
        ]
    end = f" of {info.end_step}" if info.HasField("end_step") else ""
    holder = f"held by job {info.lease_job}, attempt {info.lease_attempt}, {info.lease_holder}"
    held = holder if info.lease_job else "free"
    weights = ", ".join(f"{name} {weight:.4f}" for name, weight in zip(info.domains, info.weights, strict=True))
    return [
        f"{info.name}: confirmed {info.confirmed}{end}, seal {info.seal}, lead {info.lead}, "
        f"segment {info.segment}, {held}",
        f"  spec digest {info.spec_digest.hex()}",
        f"  weights {weights}",
    ]


def refusal_line(refusal: pb.Refusal) -> str:
    """A refused change for people."""
    when = datetime.fromtimestamp(refusal.time_us / 1e6, tz=UTC).isoformat(timespec="seconds")
    return f"{when} {refusal.method} by {refusal.who}: {refusal.reason}"


def event_dict(event: pb.Event) -> dict[str, Any]:
    """An event for `--json`, hashes in hex."""
    value: dict[str, Any] = MessageToDict(event, preserving_proto_field_name=True)
    value |= {"sequence": event.sequence, "from_step": event.from_step, "time_us": event.time_us}
    value |= {"hash": event.hash.hex(), "previous_hash": event.previous_hash.hex(), "cancelled": event.cancelled}
    if event.HasField("until_step"):
        value["until_step"] = event.until_step
    if event.HasField("cancel"):
        value["cancel"] = {"sequence": event.cancel.sequence}
    return value


def event_line(event: pb.Event) -> str:
    """An event for people."""
    until = f" to {event.until_step}" if event.HasField("until_step") else ""
    if event.HasField("weights"):
        what = "weights " + ", ".join(f"{name} {part:.4f}" for name, part in sorted(event.weights.weights.items()))
    elif event.HasField("grow"):
        what = f"generation {event.grow.generation[:16]} ({event.grow.manifest}) joins domain {event.grow.domain}"
    elif event.HasField("mask"):
        where = f" of domain {event.mask.domain}" if event.mask.domain else ""
        values = ", ".join(event.mask.values[:8]) + (
            f" and {more} more" if (more := len(event.mask.values) - 8) > 0 else ""
        )
        what = f"masks by {event.mask.by}{where}: {values}"
    else:
        what = f"cancels event {event.cancel.sequence}"
    gone = " (cancelled)" if event.cancelled else ""
    why = f": {event.reason}" if event.reason else ""
    return f"{event.sequence:>5} from step {event.from_step}{until}{gone} by {event.author or '-'}{why}\n      {what}"
