"""`headrace run report`: one HTML file that needs nothing, and the same as JSON, from a store without a server."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import chromium, page_of, problems_of
from headrace.server.watch.svg import Line, lines_plot, ticks
from hypothesis import given
from hypothesis import strategies as st
from rig import ServerProcess, headrace
from worlds import World, make_world


def store(world: Path) -> str:
    return f"sqlite:///{world}/control.db"


@pytest.fixture
def world(watched: ServerProcess) -> Path:
    """A store beside the server that writes it."""
    return watched.folder


@pytest.fixture(scope="module")
def page(watched: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    done = headrace("run", "report", "pretrain-7b", "--store", watched.store, "--html", str(path))
    assert done.returncode == 0, done.stderr
    return path


class _Tags(HTMLParser):
    """Every tag and attribute, and whether tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_file_is_whole_and_needs_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    seen = _Tags()
    seen.feed(text)
    assert not seen.open
    assert "script" not in {tag for tag, _ in seen.tags}
    assert not re.search(r"(?:src|href|url)\s*[=(]|https?://|@import|\sstyle=|\son\w+=", text)
    assert "default-src 'none'" in text
    for words in ("more of what the evaluation of step 4k was weak in", "krls", "slurm-48213", "14,000 of 20,000"):
        assert words in text


def test_figures_are_those_of_the_plan(world: Path) -> None:
    done = headrace("run", "report", "pretrain-7b", "--store", store(world), "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    watched = json.loads(headrace("top", "--store", store(world), "--json").stdout)
    assert made["domains"] == watched["domains"]
    assert [event["sequence"] for event in made["events"]] == [3, 2, 1]
    assert made["series"]["steps"][-1] == 14_000
    shares = [made["series"]["domains"][name]["share_so_far"][-1] for name in made["series"]["domains"]]
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    assert {figure["against"] for figure in made["drift"]} == {"reference", "previous"}
    assert len(made["phases"]) == 2


def test_hostile_words_of_the_log_are_text(tmp_path: Path) -> None:
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(2)>"
    make_world(tmp_path, World(domains=3, events=1, documents=5, reasons=(evil,)))
    done = headrace("run", "report", "pretrain-7b", "--store", store(tmp_path), "--html", "-", "--drift-intervals", "0")
    assert done.returncode == 0, done.stderr
    assert "&lt;script&gt;alert(1)" in done.stdout
    assert "<script" not in done.stdout
    assert "<img" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--store", "STORE"], "--html FILE or --json"),
        (["--store", "STORE", "--json", "--html", "x"], "--html FILE or --json"),
        (["--server", "127.0.0.1:1", "--json"], "give --store URL"),
    ],
)
def test_mistakes_are_told(world: Path, words: list[str], said: str, tmp_path: Path) -> None:
    given = [word.replace("STORE", store(world)) for word in words]
    done = headrace("run", "report", "pretrain-7b", *given, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_it_is_readable_in_a_browser(page: Path) -> None:
    with chromium() as browser:
        for scheme, width in (("light", 1000), ("dark", 400)):
            options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "offline": True}
            with page_of(browser, **options) as opened:
                opened.goto(page.as_uri())
                assert opened.locator("svg[role=img]").count() > 10
                assert problems_of(opened) == []
                assert opened.evaluate("document.documentElement.scrollWidth") <= width


@given(low=st.floats(-1e9, 1e9), span=st.floats(1e-6, 1e9), most=st.integers(2, 12))
def test_ticks_are_few_round_and_within(low: float, span: float, most: int) -> None:
    high = low + span
    if high <= low:
        return
    found = ticks(low, high, most)
    assert len(found) <= most + 1
    slack = 1e-6 * (span + abs(low))
    assert all(low - slack <= value <= high + slack for value in found)


@given(st.lists(st.none() | st.floats(0, 1), min_size=2, max_size=40))
def test_paths_have_a_gap_where_a_value_is_missing(values: list[float | None]) -> None:
    steps = list(range(1, len(values) + 1))
    plot = lines_plot(steps, [Line(name="x<y", place=0, values=values)], title="t", label=str)
    path = re.search(r'class="line s0" d="([^"]*)"', plot)
    assert path is not None
    runs = sum(1 for at, value in enumerate(values) if value is not None and (at == 0 or values[at - 1] is None))
    assert path[1].count("M") == runs
    assert "x&lt;y" in plot
    assert all(math.isfinite(float(number)) for number in re.findall(r"-?\d+\.?\d*", path[1]))
