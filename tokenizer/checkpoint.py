"""A training run that was stopped, as a file: it goes on from there with the same result.

The file is one line of JSON (what the run is, and what was counted before merging), the state of the merge loop, and
the SHA-256 of both. A run takes up a checkpoint only if its settings, its languages and the files it reads are those of
the checkpoint. Counting is not kept: a run that is stopped before the first merge begins anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.proto.errors import ConfigError, UsageError
from headrace.tokenizer.files import write_durably
from headrace.tokenizer.spec import TrainSpec

_VERSION = 1
_DIGEST = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Attributes:
    run: what must be equal for the run to be taken up (see `identity`).
    counted: (documents, bytes, pieces) of each column.
    inputs: SHA-256 of each text.
    before: tokens before the first merge, by language.
    warnings: what was said of the texts.
    rows: merges so far, as the trainer gives them.
    state: the merge loop's own state.
    """

    run: dict[str, Any]
    counted: list[list[int]]
    inputs: dict[str, str]
    before: dict[str, int]
    warnings: list[str]
    rows: list[list[Any]]
    state: bytes

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        head = {key: value for key, value in _fields(self).items() if key != "state"}
        content = json.dumps({"version": _VERSION, **head}, separators=(",", ":")).encode() + b"\n" + self.state
        write_durably(path, content + hashlib.sha256(content).digest())


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}


def identity(
    spec: TrainSpec, texts: Mapping[str, Iterable[Any]], dev: Mapping[str, Iterable[Any]] | None
) -> dict[str, Any]:
    """What makes two runs the same: settings, languages in order, and name, size and time of each file that is read."""
    settings = asdict(spec)
    del settings["threads"]
    files = [_stamp(text) for part in (texts, dev or {}) for given in part.values() for text in _paths(given)]
    return json.loads(json.dumps({"settings": settings, "languages": list(texts), "files": files}))  # type: ignore[no-any-return]


def _paths(texts: Iterable[Any]) -> list[Path]:
    # Texts in memory can't be told apart without reading them, and an iterator must not be used up here.
    return [text for text in texts if isinstance(text, Path)] if isinstance(texts, list | tuple) else []


def _stamp(path: Path) -> list[Any]:
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    return [path.name, found.st_size, found.st_mtime_ns]


def load(path: Path, run: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint at a path, None when there is none; refused when it is damaged or another run's."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read the checkpoint `{path}`: {error.strerror}") from None
    content, digest = content[:-_DIGEST], content[-_DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise ConfigError(f"the checkpoint `{path}` is damaged; remove it to begin anew")
    head, _, state = content.partition(b"\n")
    fields = json.loads(head)
    if fields.pop("version") != _VERSION:
        raise ConfigError(f"the checkpoint `{path}` is of another version; remove it to begin anew")
    if fields["run"] != run:
        other = _difference(fields["run"], run)
        raise UsageError(
            f"the checkpoint `{path}` is of another run: its {other}; remove it to begin anew, or name another file"
        )
    return Checkpoint(state=state, **fields)


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    for name, value in one["settings"].items():
        if other["settings"].get(name) != value:
            return f"setting `{name}` was {value}, and is now {other['settings'].get(name)}"
    if one["languages"] != other["languages"]:
        return f"languages were {', '.join(one['languages'])}"
    changed = [file[0] for file in one["files"] if file not in other["files"]]
    return f"files have changed ({', '.join(changed[:3])})" if changed else "files were fewer"
