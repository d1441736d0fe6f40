"""The corpus that a path means, and how it comes to be there: a server builds what is missing before it serves.

A path names a manifest, the folder of one, or the CORPUS.toml that makes it. When a manifest is missing, a CORPUS.toml
beside the folder of the corpus, or in the folder of the one who asks, is taken if it makes this very manifest; nothing
is guessed beyond that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.server.corpus.build import Advance, carry_out, plan_build
from headrace.server.corpus.durable import alone
from headrace.server.corpus.spec import CorpusSpec

SPEC_NAME = "CORPUS.toml"


def corpus_path(spec_or_manifest: str | Path) -> Path:
    """The manifest that a path means: a CORPUS.toml's, a folder's, or itself."""
    path = Path(spec_or_manifest)
    if path.suffix == ".toml":
        return CorpusSpec.from_file(path).manifest_path
    return path / "manifest.json" if path.is_dir() else path


def missing_spec(path: Path, folder: Path) -> CorpusSpec | None:
    """What would make the corpus that a path in `folder` means; None when it is there or nothing is known of it."""
    if path.suffix == ".toml":
        spec = CorpusSpec.from_file(path)
        return None if spec.manifest_path.exists() else spec
    manifest = corpus_path(path) if path.suffix == ".json" else path / "manifest.json"
    if manifest.exists():
        return None
    for candidate in dict.fromkeys((folder / SPEC_NAME, manifest.parent.parent / SPEC_NAME)):
        if candidate.is_file():
            spec = CorpusSpec.from_file(candidate)
            if spec.manifest_path.resolve() == manifest.resolve():
                return spec
    return None


def make_ready(spec: CorpusSpec, *, progress: Callable[[Advance], None], waiting: Callable[[], None]) -> None:
    """Builds a corpus unless it is there; of several processes one builds, and the others wait for its manifest."""
    plan = plan_build(spec)
    with alone(spec.out_path, waiting):
        if not spec.manifest_path.exists():
            carry_out(plan, progress=progress)
