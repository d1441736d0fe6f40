"""Several sets, several tokenizers, useless ids, and the page that shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from headrace.proto.errors import UsageError
from headrace.tokenizer.domains import evaluate_domains
from headrace.tokenizer.evaluate import evaluate
from headrace.tokenizer.page import render
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import train
from headrace.tokenizer.vocabulary import examine

NEWS = {
    "eng": ["the cat sat", "the dog ran"],
    "ell": ["η γάτα κάθισε", "ο σκύλος έτρεξε"],
    "deu": ["die Katze", "der Hund"],
}
LAW = {"eng": ["all are equal"], "ell": ["όλοι είναι ίσοι"]}


def made(size: int = 280) -> Tokenizer:
    texts = [line for lines in NEWS.values() for line in lines] * 20
    return train(TrainSpec(vocab_size=size, variant="classical"), {"x": texts})[0]


def test_domains_and_their_whole() -> None:
    report = evaluate_domains(made(), {"news": NEWS, "law": LAW})
    assert report.left_out == ("deu",)
    assert report.domains["news"].gini == evaluate(made(), NEWS).gini
    pooled = {name: NEWS[name] + LAW[name] for name in ("eng", "ell")}
    assert report.overall.to_json() == evaluate(made(), pooled).to_json()
    with pytest.raises(UsageError, match="in the parallel set `law`"):
        evaluate_domains(made(), {"news": NEWS, "law": {"eng": ["a"], "ell": []}})
    with pytest.raises(UsageError, match="no language in common"):
        evaluate_domains(made(), {"news": {"eng": ["a"]}, "law": {"ell": ["a"]}})


def test_useless_ids_are_found() -> None:
    bytes_only = [bytes([byte]) for byte in range(256)]
    a, b, blank = (byte for byte in b"ab ")
    tokens = [*bytes_only, b"ab", b"b ", b"ba", b"aba", b"ba"]
    merges = [(a, b), (b, blank), (b, a), (a, 258)]
    found = examine(Tokenizer(tokens=tokens, merges=merges, special_ids={}))
    assert found.cut == (257,), "no piece has a blank after a letter"
    assert 259 in found.unreachable, "a b a merges to ab a"
    assert found.duplicate == (260,)
    assert found.useless == len({*found.cut, *found.unreachable, 260})
    assert examine(made()).useless == 0


def test_dead_ids_are_those_that_the_lines_lack() -> None:
    report = evaluate(made(), {"x": ["the"], "y": ["cat"]})
    used = {*made().encode("the").tolist(), *made().encode("cat").tolist()}
    assert report.dead == made().vocab_size - 2 - len(used)


class Links(HTMLParser):
    """Every tag, and whatever would fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetches: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetches += [str(value) for name, value in attrs if name in ("src", "href") or "url(" in str(value)]


def test_the_page_stands_alone_and_escapes_names() -> None:
    sets = {"news": NEWS, "<law>": LAW}
    reports = {name: evaluate_domains(made(size), sets) for name, size in (("a<b>.json", 280), ("c&d", 300))}
    page = render(reports, control="c&d")
    links = Links()
    links.feed(page)
    assert links.fetches == []
    assert "script" not in links.tags
    assert links.tags.count("svg") == 2 + 2 * 3, "a key a tokenizer, and two plots a section"
    assert "a<b>" not in page
    assert "&lt;law&gt;" in page
    assert "prefers-color-scheme: dark" in page
    for report in reports.values():
        assert f"{report.overall.gini:.4f}" in page
        assert f"{report.domains['news'].languages['ell'].tokens_per_line:.2f}" in page


def test_the_command_writes_page_and_json(tmp_path: Path) -> None:
    made().save(tmp_path / "a.json")
    made(300).save(tmp_path / "b.json")
    options = []
    for domain, lines in (("news", NEWS), ("law", LAW)):
        for name, texts in lines.items():
            (tmp_path / f"{domain}.{name}").write_text("\n".join(texts) + "\n")
            options += ["--lang", f"{domain}/{name}={tmp_path / f'{domain}.{name}'}"]
    command = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "tokenizer", "eval"]
    files = [str(tmp_path / "a.json"), "--control", str(tmp_path / "b.json"), "--html", str(tmp_path / "page.html")]
    done = subprocess.run([*command, *files, *options, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found) == {str(tmp_path / "a.json"), str(tmp_path / "b.json")}
    assert set(found[str(tmp_path / "a.json")]["domains"]) == {"news", "law"}
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    table = subprocess.run([*command, *files, *options], capture_output=True, text=True, check=True).stdout
    assert "all sets" in table
    assert "control" in table
    assert f"wrote {tmp_path / 'page.html'}" in table
