"""Which source files a corpus has: globs, sorted bytewise, each file in the domain that names it and in no other."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.proto.errors import ConfigError, NotFoundError
from headrace.server.corpus.spec import CorpusSpec, DomainSpec


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a domain; `name` is its path as CORPUS.toml reaches it."""

    name: str
    path: Path
    domain: DomainSpec


def _matches(root: Path, pattern: str) -> Iterator[str]:
    for name in glob.iglob(pattern, root_dir=root, recursive=True):
        if (root / name).is_file():
            yield name


def _key(name: str) -> bytes:
    return os.fsencode(name)


def files_of(spec: CorpusSpec, domain: DomainSpec) -> list[SourceFile]:
    """The files of one domain, sorted by the bytes of their names; a pattern without a match is an error."""
    names: set[str] = set()
    for pattern in domain.files:
        found = set(_matches(spec.root, pattern))
        if not found:
            where = (spec.root / pattern).absolute()
            raise NotFoundError(
                f"{spec.place}: domain `{domain.name}`: no file matches `{pattern}` (looked at `{where}`)"
            )
        names |= found
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(f"{spec.place}: the file name {name!r} is not UTF-8; rename the file") from None
    return [SourceFile(name, spec.root / name, domain) for name in sorted(names, key=_key)]


def source_files(spec: CorpusSpec) -> list[SourceFile]:
    """All files, domain by domain; one named by two domains, or lying in the output folder, is an error."""
    found = [file for domain in spec.domains for file in files_of(spec, domain)]
    owner: dict[Path, SourceFile] = {}
    out = spec.out_path.resolve()
    for file in found:
        real = file.path.resolve()
        if real.is_relative_to(out):
            raise ConfigError(
                f"{spec.place}: source `{file.name}` lies in the output folder `{spec.out}`; choose another `out`"
            )
        first = owner.setdefault(real, file)
        if first is not file:
            both = f"`{first.domain.name}` (as `{first.name}`) and `{file.domain.name}` (as `{file.name}`)"
            raise ConfigError(f"{spec.place}: one file is named twice: by {both}; name it once")
    return found
