"""The sidecar of a tokenizer: how it was learned, beside the artifact.

`tokenizer.json` gets `tokenizer.training.json`: settings, languages, a hash of each input, counts, warnings, and for
each merge the language that it was for, the pair's count and the tokens that it saved. It has no time and no path, so
equal runs write equal files.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.native import __version__
from headrace.tokenizer.files import write_durably
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import TrainReport


def path_beside(tokenizer: Path) -> Path:
    """Where the sidecar of a tokenizer file lies."""
    return tokenizer.with_name(f"{tokenizer.name.removesuffix('.json')}.training.json")


def content(spec: TrainSpec, tokenizer: Tokenizer, report: TrainReport) -> dict[str, Any]:
    """What the sidecar says."""
    settings = asdict(spec)
    del settings["threads"]
    languages, counts, saved = (
        (list(column) for column in zip(*report.trace, strict=True)) if report.trace else [[]] * 3
    )
    return {
        "version": 1,
        "headrace": __version__,
        "tokenizer_digest": tokenizer.digest.hex(),
        "settings": settings,
        **report.to_json(),
        "trace": {"language": languages, "count": counts, "saved": saved},
    }


def save(path: Path, spec: TrainSpec, tokenizer: Tokenizer, report: TrainReport) -> None:
    """Write the sidecar of the tokenizer file `path`."""
    text = json.dumps(content(spec, tokenizer, report), ensure_ascii=False, separators=(",", ":")) + "\n"
    write_durably(path_beside(path), text.encode())
