"""What the commands of `headrace corpus` print: progress, sizes by domain, a view, a sample of texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from headrace.client.cli.common import print_json, print_table
from headrace.proto.errors import UsageError

if TYPE_CHECKING:
    from headrace.server.corpus.build import Advance, BuildPlan
    from headrace.server.corpus.records import Manifest

_LOG_SECONDS = 10.0
_SAMPLE_TOKENS = 64


class Meter:
    """Progress of a build: one line that is redrawn on a terminal, a line every ten seconds in a log."""

    def __init__(self) -> None:
        from headrace.server.corpus.progress import Pace

        self._pace = Pace()
        self._last = 0.0
        self._waited = False
        self._terminal = sys.stderr.isatty()

    def __call__(self, advance: Advance) -> None:
        now = self._pace.seconds
        if now - self._last < (0.2 if self._terminal else _LOG_SECONDS):
            return
        self._last = now
        text = self._pace.words(advance)
        click.echo(f"\r{text}\x1b[K" if self._terminal else text, nl=not self._terminal, err=True)

    def waiting(self) -> None:
        """Another process builds into the same folder: said once."""
        if not self._waited:
            click.echo("another process builds this corpus; waiting for it", err=True)
            self._waited = True

    def close(self) -> None:
        if self._terminal and self._last:
            click.echo(err=True)


def tell_plan(plan: BuildPlan, share: tuple[int, int] | None, as_json: bool) -> None:
    """What a build would do, without reading a text."""
    missing = plan.missing(share)
    told = {
        "files": len(plan.files),
        "source_bytes": plan.source_bytes,
        "to_build": [task.name for task in missing],
        "id_bytes": plan.id_bytes,
    }
    if as_json:
        print_json(told)
        return
    files = "1 file" if len(plan.files) == 1 else f"{len(plan.files):,} files"
    click.echo(f"{files}, {plan.source_bytes / 1e6:,.1f} MB; to build: {len(missing):,}")
    for task in missing:
        click.echo(f"  {task.domain.name}  {task.name}")
    if missing:
        click.echo("no text was read: `text`, `where` and `{field}` names are judged by the build")


def tell(manifest: Manifest, as_json: bool) -> None:
    """A manifest: sizes by domain, and the sum of what was read by what became of it."""
    from headrace.server.corpus.report import summary

    whole = summary(manifest)
    if as_json:
        print_json(whole)
        return
    _table(whole["domains"])
    rejected = sum(whole["rejected"].values())
    click.echo(
        f"read {whole['read']:,} documents = packed {whole['packed']:,} + held out {whole['held_out']:,} "
        f"+ rejected {rejected:,}"
    )
    for entry in whole["entries"] if rejected else ():
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in entry["rejected"].items()) or "none"
        click.echo(f"  {entry['name']}: read {entry['read']:,}, rejected: {reasons}")
    for what in ("rejected", "replaced", "notes"):
        if whole[what]:
            click.echo(f"{what}: " + ", ".join(f"{reason} {count:,}" for reason, count in whole[what].items()))
    for name, problem in whole["damaged"].items():
        click.echo(f"damaged file left out: {name}: {problem}")
    click.echo(f"corpus digest {whole['digest']}")


def _table(domains: list[dict[str, Any]]) -> None:
    header = ("domain", "documents", "tokens", "bytes/token", "median", "p95", "duplicates", "held out")
    rows = [
        (
            domain["name"],
            *(domain[name] for name in ("documents", "tokens", "bytes_per_token")),
            *(domain["length"][name] for name in ("p50", "p95")),
            *(domain[name] for name in ("duplicates", "held_out")),
        )
        for domain in domains
    ]
    print_table(header, rows)


def tell_view(path: Path, view: str, as_json: bool) -> None:
    """The windows of SEQ_LEN[:PACKING] by domain."""
    from headrace.server.corpus.manifest import Corpus
    from headrace.server.corpus.report import view_sizes

    seq_len, _, packing = view.partition(":")
    if not seq_len.isdigit():
        raise UsageError(f"--view is SEQ_LEN or SEQ_LEN:PACKING, for example 4096:best_fit, not `{view}`")
    sizes = view_sizes(Corpus.open(path), int(seq_len), packing or "concat")
    if as_json:
        print_json(sizes)
        return
    header = ("domain", "windows", "fill", "padding", "dropped tail")
    rows = [(each["name"], each["windows"], f"{each['fill']:.2%}", each["padding"], each["dropped"]) for each in sizes]
    print_table(header, rows)


def tell_sample(path: Path, documents: int) -> None:
    """Some texts of each domain, token by token."""
    from headrace.server.corpus.manifest import Corpus
    from headrace.server.corpus.report import sample

    opened = Corpus.open(path)
    for domain in opened.domains:
        for found in sample(opened, domain, documents, _SAMPLE_TOKENS):
            click.echo(f"{domain}  {found.file}:{found.row}  |{'|'.join(map(_visible, found.tokens))}|")


def _visible(token: bytes) -> str:
    """A token's text on one line; bytes that are no whole character, and control characters, are escaped."""
    text = token.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
