"""Two versions of the data side by side, by the command: noise is quiet, changes are named, tokenizers are compared."""

from __future__ import annotations

import json
from pathlib import Path

import planted
import pytest
from headrace.server.watch.drift_versions import compare_lines
from rig import headrace


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> planted.Bench:
    return planted.Bench(tmp_path_factory.mktemp("versions"))


def above(stdout: str) -> set[str]:
    return {figure["feature"] for figure in json.loads(stdout)["figures"] if figure["above"]}


def test_more_of_the_same_is_no_drift(bench: planted.Bench) -> None:
    grown = bench.built("grown", planted.clean(12))
    done = headrace("corpus", "drift", str(bench.corpus.root), str(grown.root), "--json", "--check")
    assert done.returncode == 0, done.stderr
    assert above(done.stdout) == set()
    found = json.loads(done.stdout)
    assert {figure["feature"] for figure in found["figures"]} >= {"document_length", "script", "near_duplicate"}
    assert all(figure["jsd"] < 2 * max(figure["floor"], 0.002) for figure in found["figures"])


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("25 % of another language, same script", "vocabulary"),
        ("one shard ten times", "near_duplicate"),
        ("documents cut to 64 words", "document_length"),
        ("another tokenizer", "byte_fallback"),
    ],
)
def test_changes_are_named(bench: planted.Bench, name: str, feature: str) -> None:
    done = headrace("corpus", "drift", str(bench.corpus.root), str(bench.drifted(name).root), "--json", "--check")
    assert done.returncode == 1, done.stderr
    assert feature in above(done.stdout)


def test_tokens_an_aligned_line(bench: planted.Bench, tmp_path: Path) -> None:
    other = bench.built("other", planted.clean(13)[:300], other_tokenizer=True)
    words = []
    for name in ("lat", "pol"):
        texts = planted.clean(14, 200) if name == "lat" else planted.mixed_in("pol", 1.0)[:200]
        (tmp_path / f"{name}.txt").write_text("\n".join(" ".join(text.split()[:20]) for text in texts) + "\n")
        words += ["--parallel", f"{name}={tmp_path / name}.txt"]
    done = headrace("corpus", "drift", str(bench.corpus.root), str(other.root), *words, "--json")
    assert done.returncode == 0, done.stderr
    lines = {line["language"]: line for line in json.loads(done.stdout)["lines"]}
    assert lines["lat"]["change"] > 0.1  # the other tokenizer knows the other language
    assert lines["pol"]["change"] < -0.1
    assert all(line["above"] and 0 < line["floor"] < abs(line["change"]) / 3 for line in lines.values())
    plain = headrace("corpus", "drift", str(bench.corpus.root), str(other.root), *words)
    assert "the tokenizers differ" in plain.stdout
    assert "tokens a line" in plain.stdout
    (same, _) = compare_lines(bench.tokenizer, bench.tokenizer, {"a": ["x y"], "b": ["z"]})
    assert (same.change, same.above) == (0.0, False)


def test_words_of_wrong_use(bench: planted.Bench, tmp_path: Path) -> None:
    root = str(bench.corpus.root)
    assert "LANG=FILE" in headrace("corpus", "drift", root, root, "--parallel", "nothing").stderr
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("one\ntwo\n")
    words = ["--parallel", f"a={tmp_path / 'a.txt'}", "--parallel", f"b={tmp_path / 'b.txt'}"]
    done = headrace("corpus", "drift", root, root, *words)
    assert done.returncode == 2
    assert "as many in each language" in done.stderr
    missing = headrace("corpus", "drift", root, str(tmp_path / "nowhere"))
    assert "no corpus at" in missing.stderr
