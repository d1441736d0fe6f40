"""A corpus that has grown is built again: damaged parts are mended, and its manifests stay what they are.

Runs hold on to the manifests of the generations, so each is assembled anew from its own files and compared with the
one that is there; nothing is written over it. Files that no generation has wait for `headrace corpus grow`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace.proto.errors import ConfigError
from headrace.server.corpus.assemble import assemble
from headrace.server.corpus.files import SourceFile
from headrace.server.corpus.pool import Outcome
from headrace.server.corpus.records import Manifest, TokenizerRecord
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.unit import UnitTask

GENERATION = re.compile(r"generation-(\d+)\.json")


def generations(first: Path) -> list[Path]:
    """The manifests of a corpus, the first one first."""
    found = {int(match[1]): path for path in first.parent.glob("*.json") if (match := GENERATION.fullmatch(path.name))}
    return [first, *(found[number] for number in sorted(found))]


def names_of(manifest: Manifest) -> set[str]:
    """The files that a generation was made of, those that were damaged and left out too."""
    return {source.path for source in manifest.sources} | set(manifest.damaged)


def known_names(spec: CorpusSpec, paths: Sequence[Path]) -> set[str]:
    """The files of all generations. Raises ConfigError when the first manifest is gone: its files cannot be guessed."""
    if not paths[0].is_file():
        raise ConfigError(
            f"{spec.place}: `{paths[0]}` is gone, but `{paths[-1].name}` beside it is of the same corpus; restore it "
            "from a backup, or remove the generations too to build a new corpus of all files"
        )
    return set().union(*(names_of(Manifest.load(path)) for path in paths))


def assemble_again(
    spec: CorpusSpec,
    paths: Sequence[Path],
    files: Sequence[SourceFile],
    tasks: Sequence[UnitTask],
    outcomes: Sequence[Outcome],
    tokenizer: TokenizerRecord,
    id_bytes: int,
) -> Manifest:
    """Makes every generation from its files, mending shards without duplicates; the first one's manifest.

    Raises ConfigError when one would become another than it is.
    """
    earlier: list[Manifest] = []
    for path in paths:
        saved = Manifest.load(path)
        names = names_of(saved)
        mine = [number for number, file in enumerate(files) if file.name in names]
        chosen = [files[number] for number in mine]
        entries = tuple(domain for domain in spec.domains if any(file.domain is domain for file in chosen))
        made = assemble(
            replace(spec, domains=entries),
            chosen,
            [tasks[number] for number in mine],
            [outcomes[number] for number in mine],
            tokenizer,
            id_bytes,
            earlier=earlier,
        )
        if made.digest != saved.digest:
            raise ConfigError(
                f"{spec.place}: this corpus has grown, and runs hold on to `{path.name}` ({saved.digest[:16]}), but "
                f"built again it would be {made.digest[:16]}: a source, the tokenizer or a setting is not what it was; "
                "put that back, or give a new corpus another `out`"
            )
        earlier.append(saved)
    return earlier[0]
