"""`headrace tokenizer` from a shell's point of view."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LINES = {"eng": "the cat sat on the mat", "deu": "die Katze saß auf der Matte", "hin": "बिल्ली चटाई पर बैठी"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    for name, line in LINES.items():
        (folder / f"{name}.txt").write_text(f"{line}\n" * 50, encoding="utf-8")
        (folder / f"{name}.dev").write_text(f"{line}\r\n" * 5, encoding="utf-8")
    return folder


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "tokenizer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=text, timeout=60, check=False)


def options(folder: Path, option: str, suffix: str) -> list[str]:
    return [part for name in LINES for part in (option, f"{name}={folder / name}.{suffix}")]


def test_train_eval_encode(folder: Path) -> None:
    out = folder / "t.json"
    texts, dev = options(folder, "--lang", "txt"), options(folder, "--dev", "dev")
    done = run("train", *texts, *dev, "--vocab-size", "280", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["vocab_size"] == 280
    assert "merge 22/22" in done.stderr
    done = run("eval", str(out), *options(folder, "--lang", "dev"), "--json")
    assert json.loads(done.stdout)[str(out)]["lines"] == 5
    assert "gini" in run("eval", str(out), *options(folder, "--lang", "dev"), "--per-language").stdout
    done = run("encode", str(out), "--json", text="the cat <|endoftext|>")
    assert 0 not in json.loads(done.stdout)["ids"]
    assert run("encode", str(out), "--allow-special", text="<|endoftext|>").stdout.split() == ["0"]


def test_dry_run_writes_nothing(folder: Path) -> None:
    texts = options(folder, "--lang", "txt")
    out = folder / "dry.json"
    done = run("train", *texts, "--variant", "classical", "--vocab-size", "270", "--out", str(out), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--lang", "x=/nowhere", "--variant", "classical", "--vocab-size", "300", "--out", "o"], "/nowhere"),
        (["train", "--lang", "x", "--vocab-size", "300", "--out", "o"], "NAME=FILE"),
        (["eval", "/nowhere.json", "--lang", "x=/nowhere"], "/nowhere"),
        (["encode", "/nowhere.json"], "/nowhere.json"),
    ],
)
def test_mistakes_show_no_traceback(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
