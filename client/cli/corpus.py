"""`headrace corpus`: build, verify and show the corpus of a CORPUS.toml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
from headrace.client.cli.common import dry_run_option, json_option, print_json, print_table
from headrace.client.cli.corpus_drift import drift
from headrace.client.cli.corpus_text import Meter, tell, tell_plan, tell_sample, tell_view
from headrace.proto.errors import DataLossError, HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.server.corpus.spec import CorpusSpec


@click.group()
def corpus() -> None:
    """Builds, checks and shows the corpus of a CORPUS.toml."""


corpus.add_command(drift)


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
    from headrace.server.corpus.build import build_corpus, plan_build, within_generations
    from headrace.server.corpus.spec import CorpusSpec
    from headrace.server.service.malloc import keep_freed_memory

    parsed, share = CorpusSpec.from_file(spec), _share(shard)
    if dry_run:
        tell_plan(within_generations(plan_build(parsed)), share, as_json)
        return
    keep_freed_memory()
    if share:
        _build_share(parsed, share, workers, as_json)
        return
    meter = Meter()
    before = _digest_of(parsed.manifest_path)
    manifest = build_corpus(parsed, workers=workers, progress=meter, waiting=meter.waiting, check=check)
    meter.close()
    tell(manifest, as_json)
    if not as_json:
        _tell_written(parsed.manifest_path, before, manifest.digest)


def _build_share(spec: CorpusSpec, share: tuple[int, int], workers: int | None, as_json: bool) -> None:
    from headrace.server.corpus.build import build_share

    meter = Meter()
    count = build_share(spec, share=share[0], shares=share[1], workers=workers, progress=meter)
    meter.close()
    if as_json:
        print_json({"files": count})
    else:
        click.echo(f"{count} files are built; when all shares are, build without --shard")


def _tell_written(path: Path, before: str, now: str) -> None:
    """What became of the manifest, which had the digest `before`."""
    from headrace.server.corpus.regrow import generations

    if len(generations(path)) > 1:
        click.echo(
            "this corpus has grown: its generations stay as they are, and what is whole in size was not read; "
            "`corpus grow` takes new files, `corpus build --check` reads and mends"
        )
        return
    click.echo(f"wrote {path}")
    if before not in ("", now):
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
        tell_plan(growth.plan, None, as_json)
        return
    keep_freed_memory()
    meter = Meter()
    path, manifest = grow_corpus(parsed, workers=workers, progress=meter, waiting=meter.waiting)
    meter.close()
    tell(manifest, as_json)
    if not as_json:
        click.echo(f"wrote {path}; a run takes it in with:")
        for domain in manifest.domains:
            click.echo(f"  headrace run grow RUN {domain.name} {path}")


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
        tell_view(corpus_path(path), view, as_json)
        return
    found = corpus_path(path)
    manifest = Manifest.load(found)
    tell(manifest, as_json)
    later = generations(found)[1:] if found.name == "manifest.json" else []
    if later and not as_json:
        names = ", ".join(part.name for part in later)
        click.echo(
            f"this is the first generation; the corpus has grown: `corpus show` of {names} beside it shows the rest"
        )
    if sample and not as_json:
        tell_sample(found, sample)


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
