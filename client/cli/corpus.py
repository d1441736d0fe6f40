"""`headrace corpus`: build, verify and show the corpus of a CORPUS.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from headrace.client.cli.common import dry_run_option, json_option, print_json, print_table
from headrace.client.cli.corpus_drift import drift
from headrace.proto.errors import DataLossError, HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.server.corpus.build import Advance, BuildPlan
    from headrace.server.corpus.records import Manifest

_LOG_SECONDS = 10.0
_SAMPLE_TOKENS = 64


@click.group()
def corpus() -> None:
    """Builds, checks and shows the corpus of a CORPUS.toml."""


corpus.add_command(drift)


class _Meter:
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


def _share(text: str | None) -> tuple[int, int] | None:
    """`2/8` as (2, 8)."""
    if text is None:
        return None
    left, _, right = text.partition("/")
    if not (left.isdigit() and right.isdigit() and int(left) < int(right)):
        raise UsageError(f"--shard is i/n with 0 <= i < n, for example 0/8, not `{text}`")
    return int(left), int(right)


@corpus.command()
@click.argument("spec", metavar="CORPUS.toml", default="CORPUS.toml")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; default: one a core")
@click.option("--shard", metavar="I/N", help="Build only every N-th source file from the I-th on, and no manifest")
@click.option("--check", is_flag=True, help="Read what is built already from end to end, and build damaged parts again")
@dry_run_option
@json_option
def build(spec: str, workers: int | None, shard: str | None, check: bool, dry_run: bool, as_json: bool) -> None:
    """Tokenizes every source file that is not in the token store yet, then writes the manifest.

    A build that was stopped goes on where it was. The result is the same for any number of workers, and for array jobs
    with --shard followed by one plain build.
    """
    from headrace.server.corpus.build import build_corpus, build_share, plan_build, within_generations
    from headrace.server.corpus.regrow import generations
    from headrace.server.corpus.spec import CorpusSpec
    from headrace.server.service.malloc import keep_freed_memory

    parsed, share = CorpusSpec.from_file(spec), _share(shard)
    if dry_run:
        _tell_plan(within_generations(plan_build(parsed)), share, as_json)
        return
    keep_freed_memory()
    meter = _Meter()
    if share:
        count = build_share(parsed, share=share[0], shares=share[1], workers=workers, progress=meter)
        meter.close()
        if as_json:
            print_json({"files": count})
        else:
            click.echo(f"{count} files are built; when all shares are, build without --shard")
        return
    before = _digest_of(parsed.manifest_path)
    manifest = build_corpus(parsed, workers=workers, progress=meter, waiting=meter.waiting, check=check)
    meter.close()
    _tell(manifest, as_json)
    if as_json:
        return
    if len(generations(parsed.manifest_path)) > 1:
        click.echo(
            "this corpus has grown: its generations are whole and stay as they are; `corpus grow` takes new files"
        )
        return
    click.echo(f"wrote {parsed.manifest_path}")
    if before not in ("", manifest.digest):
        click.echo(
            f"it was {before[:16]} before: runs that were made with that need it back. To add files to a run that "
            "goes on, build them with: headrace corpus grow",
            err=True,
        )


def _digest_of(path: Path) -> str:
    """The digest of the manifest that lies there, empty when none does, or none that is whole."""
    from headrace.server.corpus.records import Manifest

    try:
        return Manifest.load(path).digest
    except HeadraceError:
        return ""


@corpus.command()
@click.argument("spec", metavar="CORPUS.toml", default="CORPUS.toml")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; default: one a core")
@dry_run_option
@json_option
def grow(spec: str, workers: int | None, dry_run: bool, as_json: bool) -> None:
    """Makes the files that came since the last build a generation, which runs that go on can take in.

    The manifest that runs were made with stays as it is; the new one lies beside it as generation-2.json and so on.
    """
    from headrace.server.corpus.grow import grow_corpus, plan_growth
    from headrace.server.corpus.spec import CorpusSpec
    from headrace.server.service.malloc import keep_freed_memory

    parsed = CorpusSpec.from_file(spec)
    if dry_run:
        growth = plan_growth(parsed)
        _tell_plan(growth.plan, None, as_json)
        return
    keep_freed_memory()
    meter = _Meter()
    path, manifest = grow_corpus(parsed, workers=workers, progress=meter, waiting=meter.waiting)
    meter.close()
    _tell(manifest, as_json)
    if not as_json:
        click.echo(f"wrote {path}; a run takes it in with:")
        for domain in manifest.domains:
            click.echo(f"  headrace run grow RUN {domain.name} {path}")


def _tell_plan(plan: BuildPlan, share: tuple[int, int] | None, as_json: bool) -> None:
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


@corpus.command()
@click.argument("path", metavar="CORPUS.toml|MANIFEST", default="CORPUS.toml")
@click.option("--sources", is_flag=True, help="Also hash the source files again; for a manifest, from this folder")
@json_option
def verify(path: str, sources: bool, as_json: bool) -> None:
    """Checks every block of every shard of all generations, and the tokenizer; exit code 1 when anything is damaged."""
    from headrace.server.corpus.ready import corpus_path
    from headrace.server.corpus.regrow import generations
    from headrace.server.corpus.verify import verify_manifest, verify_sources

    checks = []
    found = corpus_path(path)
    for part in generations(found) if found.name == "manifest.json" else (found,):
        manifest, more = verify_manifest(part)
        checks += [*more, *(verify_sources(manifest, *_locations(path)) if sources else ())]
    damaged = [check for check in checks if check.problem]
    size = sum(check.size for check in checks)
    if as_json:
        told = {"files": len(checks), "bytes": size, "damaged": {check.name: check.problem for check in damaged}}
        print_json(told)
    else:
        for check in damaged:
            click.echo(f"damaged: {check.name}: {check.problem}")
        click.echo(f"{len(checks)} files, {size / 1e6:,.1f} MB read, {len(damaged)} damaged")
    if damaged:
        raise DataLossError(
            f"{len(damaged)} of {len(checks)} files are damaged; restore them, or run: headrace corpus build --check"
        )


def _locations(path: str) -> tuple[Path, dict[str, str]]:
    """Where the sources' paths start, and the addresses that a CORPUS.toml has for them."""
    from headrace.server.corpus.bytestream import is_remote
    from headrace.server.corpus.files import source_files
    from headrace.server.corpus.spec import CorpusSpec

    if not path.endswith(".toml"):
        return Path(), {}
    spec = CorpusSpec.from_file(path)
    return spec.root, {file.name: file.location for file in source_files(spec) if is_remote(file.location)}


@corpus.command()
@click.argument("path", metavar="CORPUS.toml|MANIFEST", default="CORPUS.toml")
@click.option("--sample", type=click.IntRange(min=1), help="Also print this many texts of each domain, token by token")
@click.option("--view", metavar="SEQ_LEN[:PACKING]", help="Print the windows of this view instead; 4096:best_fit")
@json_option
def show(path: str, sample: int | None, view: str | None, as_json: bool) -> None:
    """Prints documents, tokens, bytes a token, lengths, duplicates and rejected documents of each domain."""
    from headrace.server.corpus.ready import corpus_path
    from headrace.server.corpus.records import Manifest
    from headrace.server.corpus.regrow import generations

    if view:
        _tell_view(corpus_path(path), view, as_json)
        return
    found = corpus_path(path)
    manifest = Manifest.load(found)
    _tell(manifest, as_json)
    later = generations(found)[1:] if found.name == "manifest.json" else []
    if later and not as_json:
        names = ", ".join(part.name for part in later)
        click.echo(
            f"this is the first generation; the corpus has grown: `corpus show` of {names} beside it shows the rest"
        )
    if sample and not as_json:
        _tell_sample(found, sample)


@corpus.command()
@click.argument("path", metavar="CORPUS.toml|MANIFEST")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@dry_run_option
@json_option
def export(path: str, folder: Path, dry_run: bool, as_json: bool) -> None:
    """Writes the held-out documents of each domain to FOLDER, with a task file for lm-evaluation-harness."""
    from headrace.server.corpus.export import export_holdout
    from headrace.server.corpus.ready import corpus_path
    from headrace.server.corpus.records import Manifest
    from headrace.server.corpus.shard import HOLDOUT

    found = corpus_path(path)
    manifest = Manifest.load(found)
    if dry_run:
        counts = {domain.name: domain.total("documents", HOLDOUT) for domain in manifest.domains if domain.holdout}
    else:
        counts = export_holdout(manifest, found.parent, folder)
    if as_json:
        print_json(counts)
    else:
        print_table(("domain", "documents"), list(counts.items()))


@corpus.command(name="hash")
@click.argument("file", type=click.File("rb"), default="-")
def hash_text(file: BinaryIO) -> None:
    """Prints the digest of a document, by which a mask can name it: XXH3-128 of the text of FILE, byte for byte."""
    from headrace.native import text_digests

    try:
        text = file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"this text is not UTF-8 (byte {error.start}); documents are") from None
    click.echo(text_digests([text])[0].hex())


def _tell(manifest: Manifest, as_json: bool) -> None:
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


def _tell_view(path: Path, view: str, as_json: bool) -> None:
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


def _tell_sample(path: Path, documents: int) -> None:
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
