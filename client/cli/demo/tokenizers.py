"""Two tokenizers on the same text, parity-aware (base) and classical, and how fair each is on the test split.

Both are trained on the fourteen languages alone: code and topics have no aligned lines to be fair to, and a byte-level
tokenizer encodes them all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.client.cli.demo.console import say, table
from headrace.client.cli.demo.languages import LANGUAGES
from headrace.client.cli.demo.processes import Children, DemoError

VOCAB_SIZE = 2048
VARIANTS = {"parity": "base", "classical": "classical"}


def train_tokenizers(children: Children) -> None:
    """Train both, print the comparison; DemoError unless the parity-aware one is the fairer."""
    (children.folder / "tokenizers").mkdir()
    for name, variant in VARIANTS.items():
        options = ["--vocab-size", str(VOCAB_SIZE), "--variant", variant, "--out", f"tokenizers/{name}.json"]
        files = _options("--lang", _training_files(children.folder))
        if variant != "classical":
            files += _options("--dev", {language.name: [f"aligned/dev/{language.name}.txt"] for language in LANGUAGES})
        shown = f"tokenizer train {' '.join(options)} --lang eng=raw/eng/part-0.jsonl ..."
        children.headrace("tokenizer", "train", *options, *files, show=shown)
    compare(_evaluated(children))


def compare(reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Print Gini and tokens a line by language, of reports by name; DemoError unless `parity` has the lower Gini."""
    languages = {name: report["languages"] for name, report in reports.items()}
    rows = [
        [name, *(f"{languages[report][name]['tokens_per_line']:.2f}" for report in reports)]
        for name in sorted(languages["parity"])
    ]
    rows.append(["mean", *(f"{report['tokens_per_line']:.2f}" for report in reports.values())])
    rows.append(["Gini", *(f"{report['gini']:.3f}" for report in reports.values())])
    say(table(("tokens a line", *reports), rows))
    if not reports["parity"]["gini"] < reports["classical"]["gini"]:
        raise DemoError(
            f"the parity-aware tokenizer is not the fairer one: Gini {reports['parity']['gini']:.3f} against "
            f"{reports['classical']['gini']:.3f} of the classical one"
        )


def _evaluated(children: Children) -> dict[str, Mapping[str, Any]]:
    """The reports of `headrace tokenizer eval` on the test split, by tokenizer."""
    paths = {name: f"tokenizers/{name}.json" for name in VARIANTS}
    files = _options("--lang", {language.name: [f"aligned/test/{language.name}.txt"] for language in LANGUAGES})
    shown = f"tokenizer eval {' '.join(paths.values())} --lang eng=aligned/test/eng.txt ... --json"
    found = json.loads(children.headrace("tokenizer", "eval", *paths.values(), *files, "--json", show=shown))
    return {name: found[path] for name, path in paths.items()}


def _training_files(folder: Path) -> dict[str, list[str]]:
    return {
        language.name: [str(path.relative_to(folder)) for path in sorted((folder / "raw" / language.name).iterdir())]
        for language in LANGUAGES
    }


def _options(flag: str, files: Mapping[str, list[str]]) -> list[str]:
    """`flag NAME=FILE` for every file."""
    return [word for name, paths in files.items() for path in paths for word in (flag, f"{name}={path}")]
