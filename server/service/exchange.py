"""Export and import: a run as one readable document, from which a lost store is made anew.

The document holds spec, log, seal, confirmed, the plan hash at the seal and the digests of the newest sealed steps.
What can be computed is not trusted but compared: an import recomputes the chain, the hash and the digests. Leases,
losses and anchors are left out: leases end with their store, anchors are made again by the import.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.proto.errors import ConfigError, ConflictError, DataLossError
from headrace.server.control.imports import ImportedRun
from headrace.server.control.runs import Made
from headrace.server.plan import log
from headrace.server.plan.log import Event, body_from_json, body_to_json
from headrace.server.plan.spec import RunSpec
from headrace.server.service.explain import digest_of
from headrace.server.service.view import View, spread_anchors

FORMAT = 1
NEWEST = 8


def export_run(view: View) -> str:
    """The run as indented JSON."""
    run = view.run
    steps = range(max(0, run.seal - NEWEST), run.seal)
    document = {
        "headrace_export": FORMAT,
        "run_id": run.id,
        "name": run.name,
        "kind": run.kind,
        "plan_version": run.plan_version,
        "spec": json.loads(run.spec_json),
        "spec_digest": run.spec_digest.hex(),
        "base_dir": run.base_dir,
        "parent": view.parent.run.name if view.parent else None,
        "lead": run.lead,
        "seal": run.seal,
        "confirmed": run.confirmed,
        "author": run.author,
        "created_us": run.created_us,
        "first_head": run.first_head.hex(),
        "head": run.head.hex(),
        "plan_hash": view.plan.hash(run.seal).hex(),
        "step_digests": {str(step): digest_of(view, step).hex() for step in steps},
        "events": [_plain(event) for event in view.events],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _plain(event: Event) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "kind": event.kind,
        "from_step": event.from_step,
        "until_step": event.until_step,
        "body": json.loads(event.text),
        "author": event.author,
        "reason": event.reason,
        "time_us": event.time_us,
        "hash": event.hash.hex(),
    }


def read_export(text: str, *, place: str, base_dir: str = "") -> ImportedRun:
    """Reads a document and checks its chain; `base_dir` replaces the folder in it."""
    try:
        document: dict[str, Any] = json.loads(text)
        version = document["headrace_export"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{place} is no export of a run; `headrace run export` writes one") from None
    if version != FORMAT:
        raise ConflictError(
            f"{place} has export format {version}, this Headrace knows {FORMAT}; use the one that wrote it"
        )
    try:
        _check_kinds(document)
        first_head, head = (bytes.fromhex(document[name]) for name in ("first_head", "head"))
        events = _events(document["events"], first_head)
        imported = _imported(document, events, first_head, base_dir)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{place} is not whole: {type(error).__name__} {error}; export the run again") from None
    if log.verify(events, first_head) != head:
        raise DataLossError(f"{place}: its head is not the hash of its newest event; it was changed or cut")
    return imported


_TEXTS = ("run_id", "name", "kind", "spec_digest", "base_dir", "author", "first_head", "head", "plan_hash")
_NUMBERS = ("plan_version", "lead", "seal", "confirmed", "created_us")
_KINDS = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_NUMBERS, int),
    "spec": dict,
    "step_digests": dict,
    "events": list,
}


def _check_kinds(document: dict[str, Any]) -> None:
    """Raises ValueError naming the first value that cannot be, and what a spec that is none raises."""
    for name, kind in _KINDS.items():
        if type(document[name]) is not kind or (kind is int and not 0 <= document[name] < 1 << 63):
            raise ValueError(f"`{name}` cannot be {document[name]!r}")
    if not isinstance(document["parent"], str | None):
        raise ValueError(f"`parent` cannot be {document['parent']!r}")
    spec = RunSpec.from_json(log.canonical(document["spec"]))
    if (spec.name, spec.kind) != (document["name"], document["kind"]) or not isinstance(spec.corpus, str):
        raise ValueError("its spec is that of another run")


def _events(rows: list[dict[str, Any]], head: bytes) -> tuple[Event, ...]:
    events: list[Event] = []
    for row in rows:
        text = body_to_json(body_from_json(row["kind"], json.dumps(row["body"])))
        names = ("sequence", "kind", "from_step", "until_step", "author", "reason", "time_us")
        fields = {name: row[name] for name in names}
        own = bytes.fromhex(row["hash"])
        events.append(Event(**fields, text=text, previous_hash=events[-1].hash if events else head, hash=own))
    return tuple(events)


def _imported(document: dict[str, Any], events: tuple[Event, ...], first_head: bytes, base_dir: str) -> ImportedRun:
    return ImportedRun(
        id=document["run_id"],
        name=document["name"],
        kind=document["kind"],
        plan_version=document["plan_version"],
        spec_json=log.canonical(document["spec"]),
        spec_digest=bytes.fromhex(document["spec_digest"]),
        base_dir=base_dir or document["base_dir"],
        parent_name=document["parent"],
        lead=document["lead"],
        seal=document["seal"],
        confirmed=document["confirmed"],
        author=document["author"],
        created_us=document["created_us"],
        first_head=first_head,
        events=events,
        plan_hash=bytes.fromhex(document["plan_hash"]),
        step_digests={int(step): bytes.fromhex(digest) for step, digest in document["step_digests"].items()},
    )


def check_import(view: View, imported: ImportedRun, place: str) -> Made:
    """Recomputes what the document says of the stream; raises DataLossError naming the first difference.

    Returns anchors up to the seal, so that no step of the run is far when it is asked for.
    """
    if view.plan.hash(imported.seal) != imported.plan_hash:
        raise DataLossError(f"{place}: the plan hash at step {imported.seal} differs here; is it the same corpus?")
    for step, digest in imported.step_digests.items():
        if digest_of(view, step) != digest:
            raise DataLossError(f"{place}: step {step} has another digest here; is it the same corpus?")
    return spread_anchors(view.plan, imported.seal)
