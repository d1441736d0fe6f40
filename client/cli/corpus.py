"""`headrace corpus`: build, verify and show the corpus of a CORPUS.toml."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from headrace.proto.errors import DataLossError

if TYPE_CHECKING:
    from headrace.server.corpus.build import Advance
    from headrace.server.corpus.records import Manifest

_LOG_SECONDS = 10.0


@click.group()
def corpus() -> None:
    """Builds, checks and shows the corpus of a CORPUS.toml."""


class _Meter:
    """Progress of a build: one line that is redrawn on a terminal, a line every ten seconds in a log."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = 0.0
        self._terminal = sys.stderr.isatty()

    def __call__(self, advance: Advance) -> None:
        now = time.monotonic() - self._start
        if now - self._last < (0.2 if self._terminal else _LOG_SECONDS):
            return
        self._last = now
        rate = advance.source_bytes / now
        left = (advance.total_bytes - advance.source_bytes) / rate if rate else 0.0
        text = (
            f"{advance.source_bytes / 1e6:,.0f} of {advance.total_bytes / 1e6:,.0f} MB  {rate / 1e6:,.1f} MB/s  "
            f"{advance.documents:,} documents  {advance.tokens:,} tokens  {max(0.0, left):,.0f} s left"
        )
        click.echo(f"\r{text}\x1b[K" if self._terminal else text, nl=not self._terminal, err=True)

    def close(self) -> None:
        if self._terminal and self._last:
            click.echo(err=True)


@corpus.command()
@click.argument("spec", metavar="CORPUS.toml", default="CORPUS.toml")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; default: one a core")
@click.option("--dry-run", is_flag=True, help="Say what would be built and write nothing")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON")
def build(spec: str, workers: int | None, dry_run: bool, as_json: bool) -> None:
    """Tokenizes every source file that is not in the token store yet, then writes the manifest.

    A build that was stopped goes on where it was. The result is the same for any number of workers.
    """
    from headrace.server.corpus.build import build_corpus, plan_build
    from headrace.server.corpus.spec import CorpusSpec

    parsed = CorpusSpec.from_file(spec)
    if dry_run:
        plan = plan_build(parsed)
        missing = plan.missing()
        told = {
            "files": len(plan.files),
            "source_bytes": plan.source_bytes,
            "to_build": [task.name for task in missing],
            "id_bytes": plan.id_bytes,
        }
        if as_json:
            click.echo(json.dumps(told, indent=1))
            return
        click.echo(f"{len(plan.files)} files, {plan.source_bytes / 1e6:,.1f} MB; to build: {len(missing)}")
        for task in missing:
            click.echo(f"  {task.domain.name}  {task.name}")
        return
    meter = _Meter()
    manifest = build_corpus(parsed, workers=workers, progress=meter)
    meter.close()
    if as_json:
        click.echo(json.dumps(_summary(manifest), indent=1))
        return
    _print_summary(manifest)
    click.echo(f"wrote {parsed.manifest_path}")


@corpus.command()
@click.argument("path", metavar="CORPUS.toml|MANIFEST", default="CORPUS.toml")
@click.option("--sources", is_flag=True, help="Also hash the source files again; paths start at the current folder")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON")
def verify(path: str, sources: bool, as_json: bool) -> None:
    """Reads every block of every shard and checks it; exit code 1 when anything is damaged."""
    from headrace.server.corpus.manifest import Corpus
    from headrace.server.corpus.verify import verify_corpus, verify_sources

    root = _source_root(path)
    opened = Corpus.open(_manifest(path))
    checks = list(verify_corpus(opened)) + (list(verify_sources(opened.manifest, root)) if sources else [])
    damaged = [check for check in checks if check.problem]
    if as_json:
        told = {"files": len(checks), "bytes": sum(check.size for check in checks)}
        click.echo(json.dumps({**told, "damaged": {check.name: check.problem for check in damaged}}, indent=1))
    else:
        for check in damaged:
            click.echo(f"damaged: {check.name}: {check.problem}")
        click.echo(
            f"{len(checks)} files, {sum(check.size for check in checks) / 1e6:,.1f} MB read, {len(damaged)} damaged"
        )
    if damaged:
        raise DataLossError(
            f"{len(damaged)} of {len(checks)} files are damaged; restore them or build the corpus again"
        )


@corpus.command()
@click.argument("path", metavar="CORPUS.toml|MANIFEST", default="CORPUS.toml")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON")
def show(path: str, as_json: bool) -> None:
    """Prints documents, tokens, bytes a token and rejected documents of each domain."""
    from headrace.server.corpus.records import Manifest

    manifest = Manifest.load(_manifest(path))
    if as_json:
        click.echo(json.dumps(_summary(manifest), indent=1))
    else:
        _print_summary(manifest)


def _manifest(path: str) -> Any:
    from headrace.server.corpus.build import corpus_path

    return corpus_path(path)


def _source_root(path: str) -> Any:
    from pathlib import Path

    return Path(path).parent if path.endswith(".toml") else Path()


def _summary(manifest: Manifest) -> dict[str, Any]:
    domains = [
        {
            "name": domain.name,
            **{what: domain.total(what) for what in ("documents", "tokens", "text_bytes")},
            "bytes_per_token": round(domain.total("text_bytes") / max(1, domain.total("tokens")), 3),
        }
        for domain in manifest.domains
    ]
    return {
        "digest": manifest.digest,
        "tokenizer": manifest.tokenizer.digest,
        "vocab_size": manifest.tokenizer.vocab_size,
        "id_bytes": manifest.id_bytes,
        "read": sum(source.read for source in manifest.sources),
        "packed": sum(source.packed for source in manifest.sources),
        **{what: _sum(manifest, what) for what in ("rejected", "replaced", "notes")},
        "domains": domains,
    }


def _sum(manifest: Manifest, what: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for source in manifest.sources:
        counts: Mapping[str, int] = getattr(source, what)
        for reason, count in counts.items():
            total[reason] = total.get(reason, 0) + count
    return dict(sorted(total.items()))


def _print_summary(manifest: Manifest) -> None:
    summary = _summary(manifest)
    width = max(len(domain["name"]) for domain in summary["domains"])
    click.echo(f"{'domain':{width}}  {'documents':>12}  {'tokens':>15}  {'bytes/token':>11}")
    for domain in summary["domains"]:
        click.echo(
            f"{domain['name']:{width}}  {domain['documents']:>12,}  {domain['tokens']:>15,}  "
            f"{domain['bytes_per_token']:>11.2f}"
        )
    rejected = sum(summary["rejected"].values())
    click.echo(f"read {summary['read']:,} documents = packed {summary['packed']:,} + rejected {rejected:,}")
    for what in ("rejected", "replaced", "notes"):
        if summary[what]:
            click.echo(f"{what}: " + ", ".join(f"{reason} {count:,}" for reason, count in summary[what].items()))
    click.echo(f"corpus digest {summary['digest']}")
