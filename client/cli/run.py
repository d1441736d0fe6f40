"""`headrace run`: make runs, and see exactly what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from google.protobuf.json_format import MessageToDict
from headrace.client.cli.common import Target, access_options, dry_run_option, json_option
from headrace.client.cli.run_changes import branch, export, forecast, grow, import_run, mask
from headrace.client.cli.run_convert import convert
from headrace.client.cli.run_report import report
from headrace.client.cli.run_text import event_dict, event_line, info_dict, info_lines, refusal_line
from headrace.client.cli.source import Source, author, open_source, step_range
from headrace.proto.errors import ConfigError, HeadraceError
from headrace.proto.v1 import control_pb2 as pb


@click.group()
def run() -> None:
    """Make runs, list them, and see exactly what they hold."""


def _emit(as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Prints JSON, or lines for people."""
    if as_json:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    for line in lines:
        click.echo(line)


@run.command()
@click.argument("spec", type=click.Path(path_type=Path))
@dry_run_option
@json_option
@access_options
def create(spec: Path, dry_run: bool, as_json: bool, target: Target) -> None:
    """Make the run that SPEC (RUN.toml) describes. An equal run of that name is answered as it stands."""
    try:
        text = spec.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {spec}: {error.strerror}; check the path") from None
    folder = str(spec.resolve().parent)
    if dry_run:
        from headrace.server.service.loading import Corpora, new_run

        new = new_run(text, place=str(spec), base_dir=folder, author=author(), corpora=Corpora())
        _emit(as_json, {"name": new.name, "spec_digest": new.spec_digest.hex(), "created": False}, [f"{spec}: good"])
        return
    with open_source(target, write=True) as source:
        answer = source.create(pb.CreateRunRequest(spec_toml=text, base_dir=folder, author=author(), place=str(spec)))
    said = "created" if answer.created else "exists already, with the same digest"
    value = {**info_dict(answer.run), "created": answer.created}
    _emit(as_json, value, [f"run {answer.run.name} {said}", *info_lines(answer.run)[1:]])


@run.command("list")
@json_option
@access_options
def list_(as_json: bool, target: Target) -> None:
    """List the runs of a server or store."""
    with open_source(target) as source:
        answer = source.runs()
    runs, refused = list(answer.runs), dict(answer.refused)
    lines = [line for info in runs for line in info_lines(info)]
    verdict = "NOT SERVED by this server" if target.server else "CANNOT BE OPENED here"
    lines += [f"{name}: {verdict}: {why}" for name, why in sorted(refused.items())]
    found = [info_dict(info) for info in runs]
    found += [{"name": name} for name in sorted(refused.keys() - {info.name for info in runs})]
    for one in found:
        one["refused"] = refused.get(one["name"], "")
    _emit(as_json, found, lines or ["no run yet; make one with `headrace run create`"])


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--refused", is_flag=True, help="Changes that were refused, newest first, instead of the log.")
@json_option
@access_options
def events(name: str, refused: bool, as_json: bool, target: Target) -> None:
    """Print the event log of RUN: what changed, from which step, by whom and why."""
    with open_source(target) as source:
        if refused:
            found = source.refusals(name)
            _emit(as_json, [MessageToDict(one) for one in found], [refusal_line(one) for one in found] or ["none"])
            return
        log = source.events(name)
    _emit(as_json, [event_dict(event) for event in log], [event_line(event) for event in log] or ["no events"])


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--step", type=click.IntRange(min=0), required=True, help="Step to explain.")
@click.option(
    "--text", "characters", type=click.IntRange(min=0), default=80, show_default=True, help="Characters a row."
)
@json_option
@access_options
def explain(name: str, step: int, characters: int, as_json: bool, target: Target) -> None:
    """Print what STEP of RUN holds, slot by slot: domain, pass, window, and the documents in it."""
    with open_source(target) as source:
        answer = source.explain(name, step, characters)
    value = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    value |= {"step": answer.step, "step_digest": answer.step_digest.hex()}
    for slot, message in zip(value["slots"], answer.slots, strict=True):
        slot |= {"row_digest": message.row_digest.hex(), "window": message.window, "index": message.index}
        slot["pass"] = getattr(message, "pass")
        for source_value, source_message in zip(slot["sources"], message.sources, strict=True):
            source_value["row"] = source_message.row
    _emit(as_json, value, _explain_lines(answer))


def _explain_lines(answer: pb.ExplainResponse) -> list[str]:
    state = "sealed" if answer.sealed else "planned, not sealed yet"
    lines = [f"step {answer.step}: segment {answer.segment}, phase {answer.phase}, {state}"]
    for slot in answer.slots:
        if slot.emptied and not slot.masks:
            lines.append(f"{slot.slot:>6} nothing: the evaluation is over, this row fills the batch with padding")
            continue
        lines.append(
            f"{slot.slot:>6} {slot.domain} pass {getattr(slot, 'pass')} index {slot.index} window {slot.window}"
        )
        if slot.masks:
            pairs = ", ".join(f"{a}-{b}" for a, b in zip(slot.masks[::2], slot.masks[1::2], strict=True))
            lines.append(f"         masked ids {pairs}{': no label is left, loss weight 0' if slot.emptied else ''}")
            lines += [] if slot.sources else ["         its shard is in quarantine and cannot be read"]
        if slot.text:
            lines.append(f"         {json.dumps(slot.text, ensure_ascii=False)}")
        lines += [
            f"         {part.file}:{part.row} tokens {part.begin}-{part.end}{' masked' if part.masked else ''}"
            for part in slot.sources
        ]
    return [*lines, f"digest {answer.step_digest.hex()}"]


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--steps", required=True, help="A:B (B excluded), or one step.")
@json_option
@access_options
def digest(name: str, steps: str, as_json: bool, target: Target) -> None:
    """Print the digest of each step of RUN, computed from spec, log and corpus: what was, or will be, served."""
    with open_source(target) as source:
        found = {step: source.digest(name, step).hex() for step in step_range(steps)}
    _emit(as_json, {str(step): value for step, value in found.items()}, (f"{s} {value}" for s, value in found.items()))


@run.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="OTHER")
@click.option("--steps", help="Steps to compare, A:B (B excluded).  [default: 100, from 0 or where a branch begins]")
@json_option
@access_options
def diff(first: str, second: str, steps: str | None, as_json: bool, target: Target) -> None:
    """Compare two runs: what differs in their specs, their logs, and from which step on their streams part.

    Exit code 0 when the streams agree over the steps compared, 1 when they part.
    """
    with open_source(target) as source:
        ours, theirs = source.run(first), source.run(second)
        if steps is None:
            steps = _first_of_their_own(ours, theirs)
        differ = spec_differences(json.loads(ours.spec_json), json.loads(theirs.spec_json))
        logs = [[event.hash.hex() for event in source.events(name)] for name in (first, second)]
        parts = _first_difference(source, first, second, step_range(steps))
    value = {"spec": differ, "same_log": logs[0] == logs[1], "first_step_that_differs": parts}
    lines = [f"spec {line}" for line in differ] or ["specs are equal"]
    lines.append("logs are equal" if logs[0] == logs[1] else f"logs differ: {len(logs[0])} and {len(logs[1])} events")
    lines.append(f"steps {steps} are equal" if parts is None else f"the streams part at step {parts}")
    _emit(as_json, value, lines)
    if parts is not None:
        raise click.exceptions.Exit(1)


def _first_of_their_own(*runs: pb.RunInfo) -> str:
    """The first 100 steps, or those that a branch does not share with its parent; none that a run does not have."""
    begin = min((run.branch_at for run in runs if run.parent), default=0)
    end = min((run.end_step for run in runs if run.HasField("end_step")), default=begin + 100)
    return f"{begin}:{max(min(begin + 100, end), begin + 1)}"


def _first_difference(source: Source, first: str, second: str, steps: range) -> int | None:
    return next((step for step in steps if source.digest(first, step) != source.digest(second, step)), None)


def spec_differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Every key at which two specs differ, as `path: ours -> theirs`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted(ours.keys() | theirs.keys())
        return [line for key in keys for line in spec_differences(ours.get(key), theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for at, (a, b) in pairs for line in spec_differences(a, b, f"{path}[{at}]")]
    return [] if ours == theirs else [f"{path.lstrip('.')}: {json.dumps(ours)} -> {json.dumps(theirs)}"]


@run.command()
@click.argument("name", metavar="RUN")
@click.option("--forget-anchors", is_flag=True, help="Delete stored cursors that are not right: they are made again.")
@json_option
@access_options
def verify(name: str, forget_anchors: bool, as_json: bool, target: Target) -> None:
    """Recompute what the store keeps of RUN: hash chain, digest of spec and corpus, and every stored cursor."""
    from headrace.client.cli.offline import Offline
    from headrace.server.service.verify import verify_run

    with open_source(target, write=forget_anchors) as source:
        if not isinstance(source, Offline):
            raise HeadraceError("verifying recomputes the store's contents; give --store, a server is not asked")
        report = verify_run(source.store, name, forget_anchors=forget_anchors)
    _emit(as_json, report.as_dict(), report.lines())
    if report.faults:
        raise click.exceptions.Exit(1)


# The rest of the group lives in files of its own.
run.add_command(branch)
run.add_command(grow)
run.add_command(mask)
run.add_command(forecast)
run.add_command(export)
run.add_command(import_run)
run.add_command(convert)
run.add_command(report)
