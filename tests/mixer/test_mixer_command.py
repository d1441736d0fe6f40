"""`headrace mixer compute` as a user calls it: tables, files, and mistakes without tracebacks."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from headrace.client.cli.main import run
from headrace.mixer.embeddings import Embeddings, load_embeddings, merge
from headrace.mixer.result import load
from headrace.mixer.trials import Trial
from headrace.proto.errors import ConfigError, UsageError

COUNTS = "web = 3000\ncode = 200\nmath = 25\nbooks = 100\nmulti = 500\n"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def headrace(*arguments: str | Path) -> Done:
    """The command as its entry point runs it, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    before, sys.argv = sys.argv, ["headrace", "mixer", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = before
    return Done(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    path = tmp_path / "counts.toml"
    path.write_text(COUNTS)
    return path


def test_natural_with_caps_writes_a_result(counts: Path, tmp_path: Path) -> None:
    out = tmp_path / "mix.json"
    arguments = (
        "compute",
        "temperature",
        "--t",
        "3.3",
        "--counts",
        counts,
        "--budget",
        "1500",
        "--max-epochs",
        "4",
        "--out",
        out,
    )
    dry = headrace(*arguments, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "would write" in dry.stdout
    assert not out.exists()
    done = headrace(*arguments)
    assert done.returncode == 0, done.stderr
    assert "cap 0.066667" in done.stdout
    mixture = load(out)
    assert mixture.weights["math"] == pytest.approx(4 * 25 / 1500)
    assert mixture.raw["math"] > 0.08
    table = tomllib.loads(headrace(*arguments, "--toml").stdout)
    assert table["weights"] == mixture.weights
    assert json.loads(headrace(*arguments, "--json").stdout)["method"] == "temperature"


def test_krls_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    Embeddings(vectors={"a": np.array([1.0, 0]), "b": np.array([1.0, 0]), "c": np.array([0, 1.0])}).save(path)
    done = headrace(
        "compute", "krls", "--embeddings", path, "--convention", "paper", "--lam", "0.5", "--any-length", "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["weights"] == pytest.approx({"a": 0.422319, "b": 0.422319, "c": 0.155362}, abs=5e-7)
    assert found["convention"] == "paper"
    assert found["diagnostics"]["relative_lam"] == pytest.approx(0.5)
    assert found["inputs"]["embeddings"] == load_embeddings(path).digest
    published = json.loads(headrace("compute", "krls", "--embeddings", path, "--as-published", "--json").stdout)
    assert published["raw"] == pytest.approx({"a": 0.415529, "b": 0.415529, "c": 0.168942}, abs=5e-7)
    assert (published["convention"], published["parameters"]["lam"]) == ("reference", 10.0)
    default = json.loads(headrace("compute", "krls", "--embeddings", path, "--json").stdout)
    assert default["convention"] == "reference, unit length"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("natural",), "needs token counts"),
        (("natural", "--tokens", "a"), "is not NAME=NUMBER"),
        (("natural", "--tokens", "a=1", "--tokens", "a=2"), "names a domain twice"),
        (("natural", "--tokens", "a=x"), "is no number of tokens"),
        (("unimax", "--tokens", "a=1K"), "needs --budget"),
        (("manual", "--weight", "a=1", "--weight", "b=nan"), "`b`"),
        (("manual", "--weight", "a=.5", "--weight", "b=.5", "--cap", "a=.3", "--cap", "b=.3"), "shortfall of 0.4"),
        (("krls", "--embeddings", "missing.npz"), "missing.npz"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], message: str) -> None:
    done = headrace("compute", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_given_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    for name, text in (("w.json", '{"a": 1, "b": 2, "a": 3}'), ("w.toml", "a = 1\na = 2\n"), ("l.json", "[1, 2]")):
        (tmp_path / name).write_text(text)
        done = headrace("compute", "manual", "--weights", tmp_path / name)
        assert done.returncode == 2, done.stderr
        assert name in done.stderr


def test_embeddings_of_different_proxies_do_not_mix(tmp_path: Path) -> None:
    one = Embeddings(vectors={"a": np.ones(2)}, meta={"proxy": "x"})
    two = Embeddings(vectors={"b": np.ones(2)}, meta={"proxy": "y"})
    with pytest.raises(UsageError, match="different proxies"):
        merge(one, two)
    with pytest.raises(UsageError, match="`a` is in both"):
        merge(one, one)
    both = merge(one, Embeddings(vectors={"b": np.zeros(2)}, meta={"proxy": "x"}, windows={"b": 3}))
    both.save(tmp_path / "both.npz")
    again = load_embeddings(tmp_path / "both.npz")
    assert again.digest == both.digest
    assert again.windows == {"b": 3}
    (tmp_path / "bad.npz").write_bytes(b"PK not a zip")
    with pytest.raises(ConfigError, match=r"bad\.npz"):
        load_embeddings(tmp_path / "bad.npz")


def test_compare_and_content(counts: Path, tmp_path: Path) -> None:
    for name, exponent in (("natural", "1"), ("flat", "5")):
        headrace("compute", "temperature", "--t", exponent, "--counts", counts, "--out", tmp_path / f"{name}.json")
    files = (tmp_path / "natural.json", tmp_path / "flat.json")
    done = headrace("compare", *files, "--counts", counts, "--budget", "1500", "--plot", tmp_path / "c.svg")
    assert done.returncode == 0, done.stderr
    assert "flat (temperature)" in done.stdout
    assert (tmp_path / "c.svg").read_text().startswith("<svg")
    assert re.search(r"^web +0\.\d+ 0\.\d+x", done.stdout, re.MULTILINE)
    assert headrace("compare", *files, "--plot", tmp_path / "c.png").returncode == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "let it end with .svg or .png" in headrace("compare", *files, "--plot", tmp_path / "c.gif").stderr
    trained = tmp_path / "krls"
    trained.mkdir()
    (trained / "mixture.json").write_bytes(files[0].read_bytes())
    (trained / "seconds.txt").write_text("12.5\n")
    found = json.loads(headrace("compare", files[1], trained / "mixture.json", "--json").stdout)
    assert [(column["label"], column["seconds"]) for column in found] == [
        ("flat (temperature)", None),
        ("krls (temperature)", 12.5),
    ]
    columns = json.loads(headrace("compare", *files, "--json").stdout)
    assert columns[1]["distance"] > 0.2
    rates = [word for name in ("web", "code", "math", "books", "multi") for word in ("--rate", f"{name}=4")]
    done = headrace("content", files[0], *rates, "--json")
    assert {entry["domain"]: entry["share"] for entry in json.loads(done.stdout)} == pytest.approx(
        load(files[0]).weights
    )
    assert headrace("content", files[0], "--rate", "web=1").returncode == 2
    report = {"t.json": {"languages": {name: {"tokens_per_line": 20.0} for name in load(files[0]).weights}}}
    report["t.json"]["languages"]["math"] = {"tokens_per_line": 40.0}
    (tmp_path / "eval.json").write_text(json.dumps(report))
    done = headrace("content", files[0], "--evaluation", tmp_path / "eval.json", "--budget", "1M", "--json")
    text = {entry["domain"]: entry["text"] for entry in json.loads(done.stdout)}
    assert text["web"] == pytest.approx(1e6 * load(files[0]).weights["web"] / 20)  # lines
    assert text["math"] == pytest.approx(1e6 * load(files[0]).weights["math"] / 40)
    for broken in ({}, report | {"u.json": {}}, {"t.json": {"languages": {"web": 3}}}):
        (tmp_path / "eval.json").write_text(json.dumps(broken))
        assert "eval.json" in headrace("content", files[0], "--evaluation", tmp_path / "eval.json").stderr


def test_laws_and_regressions_of_trials(tmp_path: Path) -> None:
    """Trials of a known law: more `b` lowers both losses, up to its cap."""
    folder, rng = tmp_path / "sweep", np.random.default_rng(8)
    folder.mkdir()
    for number, row in enumerate(rng.dirichlet(np.ones(2), size=20).tolist()):
        weights = dict(zip("ab", row, strict=True))
        losses = {"a": 2 + float(np.exp(-0.5 * row[0])), "b": 2 + float(np.exp(-2 * row[1]))}
        trial = Trial(name=f"t{number}", weights=weights, losses=losses, setting={}, flops=1e9, seconds=2.0)
        trial.save(folder / f"t{number}.trial.json")
    for method in (("loglinear", "--strength", "0"), ("regmix", "--draws", "3000", "--top", "32")):
        done = headrace("compute", *method, "--trials", folder, "--cap", "b=0.7", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert 0.6 < found["weights"]["b"] <= 0.7 + 1e-9, method
        assert (found["diagnostics"]["flops"], found["diagnostics"]["seconds"]) == (20e9, 40.0)
        assert found["warnings"] == []
    assert found["convention"] in ("linear", "trees")
    assert found["diagnostics"]["predicted_target"] < 2.6
    few = headrace("compute", "regmix", "--trials", folder, "--draws", "9", "--top", "9", "--cap", "b=0.1", "--json")
    assert "imposed on the answer" in json.loads(few.stdout)["warnings"][0]
    for number, loss in enumerate((9.0, 8.0, 7.5)):  # trials that no smooth law of weights can hold
        odd = {"a": 0.5 + number / 100, "b": 0.5 - number / 100}
        trial = Trial(
            name=f"odd{number}", weights=odd, losses={"a": 3.0, "b": loss}, setting={}, flops=1e9, seconds=2.0
        )
        trial.save(folder / f"odd{number}.trial.json")
    for method in (("loglinear",), ("regmix", "--draws", "3000", "--top", "32", "--regressor", "linear")):
        found = json.loads(headrace("compute", *method, "--trials", folder, "--json").stdout)
        assert found["diagnostics"]["best_measured"] in found["warnings"][-1]
        assert "take that one" in found["warnings"][-1]


def test_mixmin_and_aioli_of_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", a=np.array([-1.0, -3.0, -2.0]), b=np.array([-3.0, -1.0, -2.5]))
    done = headrace("compute", "mixmin", "--log-probs", tmp_path / "p.npz", "--json")
    assert json.loads(done.stdout)["weights"] == pytest.approx({"a": 0.598443, "b": 0.401557}, abs=5e-7)
    falls = tmp_path / "falls.json"
    falls.write_text(json.dumps({"a": {"a": 0.10, "b": 0.02}, "b": {"a": -0.01, "b": 0.20}}))
    one = tmp_path / "one.json"
    done = headrace("compute", "aioli", "--falls", falls, "--json", "--out", one)
    assert json.loads(done.stdout)["weights"] == pytest.approx({"a": 0.481437, "b": 0.518563}, abs=5e-7)
    two = json.loads(headrace("compute", "aioli", "--falls", falls, "--previous", one, "--json").stdout)
    assert two["weights"]["b"] > 0.53
    falls.write_text('{"a": 1}')
    assert headrace("compute", "aioli", "--falls", falls).returncode == 2


def test_counts_of_a_corpus(corpus: Path) -> None:
    done = headrace("compute", "natural", "--corpus", corpus, "--json")
    assert done.returncode == 0, done.stderr
    weights = json.loads(done.stdout)["weights"]
    assert set(weights) == {"noise", "other", "plain", "small", "twin"}
    assert weights["small"] < 0.05 < weights["plain"]
    assert headrace("compute", "natural", "--corpus", corpus, "--counts", corpus).returncode == 2
