"""Which source files a corpus has: globs, sorted bytewise, each file in the domain that names it and in no other."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs
from headrace.proto.errors import ConfigError, UnavailableError
from headrace.server.corpus.bytestream import Source, filesystem, is_remote
from headrace.server.corpus.spec import CorpusSpec, DomainSpec

_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a domain; `name` is its path as CORPUS.toml reaches it, `location` where it is opened."""

    name: str
    location: str
    domain: DomainSpec

    @property
    def source(self) -> Source:
        return Source(self.location, self.name)


def _local(root: Path, pattern: str) -> Iterator[tuple[str, str]]:
    for name in glob.iglob(pattern, root_dir=root, recursive=True):
        path = root / name
        if path.is_file():
            yield os.path.normpath(name), str(path)


def _pattern(glob_text: str) -> re.Pattern[str]:
    """A glob over whole keys: `*` and `?` stay within a folder, `**` does not."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^\]]+\])", glob_text)
    known = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part, part if part.startswith("[") else re.escape(part)) for part in parts))


def _remote(address: str) -> Iterator[tuple[str, str]]:
    """Keys of an object store that match; what follows `?name=` in the address are options of the store."""
    options = re.search(r"\?[A-Za-z_]+=.*$", address)
    tail = options.group() if options else ""
    pattern = address.removesuffix(tail)
    scheme, _, whole = pattern.partition("://")
    lead = "/" if whole.startswith("/") else ""
    parts = PurePosixPath(whole.lstrip("/")).parts[:-1]
    base = "/".join(itertools.takewhile(lambda part: not _MAGIC.search(part), parts))
    system, folder = filesystem(f"{scheme}://{lead}{base}{tail}")
    try:
        found = system.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    except (OSError, pa.ArrowException) as error:
        raise UnavailableError(f"cannot list `{address}`: {error}; check address, network and credentials") from None
    wanted = _pattern(whole.lstrip("/"))
    for info in found:
        key = info.path.lstrip("/")
        if info.type == pafs.FileType.File and wanted.fullmatch(key):
            yield f"{scheme}://{lead}{key}", f"{scheme}://{lead}{key}{tail}"


def files_of(spec: CorpusSpec, domain: DomainSpec) -> list[SourceFile]:
    """The files of one domain, sorted by the bytes of their names; a pattern without a match is an error."""
    found: dict[str, str] = {}
    for pattern in domain.files:
        matches = dict(_remote(pattern) if is_remote(pattern) else _local(spec.root, pattern))
        if not matches:
            where = pattern if is_remote(pattern) else (spec.root / pattern).absolute()
            raise ConfigError(
                f"{spec.place}: domain `{domain.name}`: no file matches `{pattern}` (looked at "
                f"`{where}`); correct `files`"
            )
        found |= matches
    for name in found:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(f"{spec.place}: the file name {name!r} is not UTF-8; rename the file") from None
    return [SourceFile(name, found[name], domain) for name in sorted(found, key=os.fsencode)]


def source_files(spec: CorpusSpec) -> list[SourceFile]:
    """All files, domain by domain; one named by two domains, or lying in the output folder, is an error.

    Two entries may share files when each of them filters: then a document belongs to those whose `where` it passes.
    """
    found = [file for domain in spec.domains for file in files_of(spec, domain)]
    owner: dict[str, SourceFile] = {}
    out = spec.out_path.resolve()
    for file in found:
        real = file.location if is_remote(file.location) else str(Path(file.location).resolve())
        if not is_remote(real) and Path(real).is_relative_to(out):
            raise ConfigError(
                f"{spec.place}: source `{file.name}` lies in the output folder `{spec.out}`; choose another `out`"
            )
        first = owner.setdefault(real, file)
        if first is not file and not (first.domain.where and file.domain.where):
            both = f"`{first.domain.name}` (as `{first.name}`) and `{file.domain.name}` (as `{file.name}`)"
            raise ConfigError(
                f"{spec.place}: one file is named twice: by {both}; name it once, or give both a `where` that "
                "divides its documents"
            )
    return found
