"""Mixes of MosaicML and Megatron as weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from headrace.client.cli.main import main
from headrace.proto.errors import ConfigError, UsageError
from headrace.server.plan.convert import from_megatron, from_mosaic
from headrace.server.plan.spec import RunSpec

SIZES = {"a": 1000, "b": 200, "c": 50}


def test_mosaic_proportion() -> None:
    mix = from_mosaic({"a": {"proportion": 3}, "b": {"proportion": 1}}, SIZES)
    assert (mix.weights, mix.samples) == ({"a": 0.75, "b": 0.25}, 1200)
    assert from_mosaic({"a": {"proportion": 3}}, SIZES, epoch_size=77).samples == 77


def test_mosaic_repeat_and_choose() -> None:
    mix = from_mosaic({"a": {}, "b": {"repeat": 2.5}, "c": {"choose": 500}}, SIZES)
    assert mix.samples == 2000
    assert mix.weights == {"a": 0.5, "b": 0.25, "c": 0.25}


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ({"a": {"proportion": 1}, "b": {"repeat": 1}}, "either every stream has `proportion` or none"),
        ({"a": {"repeat": 1, "choose": 1}}, "both `repeat` and `choose`"),
        ({"z": {}}, "samples of stream `z`"),
        ({"a": {"proportion": -1}}, "`proportion` of `a` must be a finite number"),
        ({"a": {"choose": 0}}, "a part above 0"),
        ({}, "either every stream"),
    ],
)
def test_mosaic_mistakes(streams: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_mosaic(streams, SIZES)


def test_megatron_blend() -> None:
    mix = from_megatron(["30", "/data/web_text_document", "70", "/data/code_text_document"])
    assert mix.weights == {"web": 0.3, "code": 0.7}
    assert from_megatron(["data/web", "data/code"], {"web": 300, "code": 100}).weights == {"web": 0.75, "code": 0.25}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["1", "x/a", "1", "y/a"], "different names"),
        (["x/a", "y/b"], "mixed by size"),
        (["-1", "x/a"], "`weight` of `a` must be a finite"),
        (["1", "x/a b"], "gives no domain name"),
        ([], "needs prefixes"),
    ],
)
def test_megatron_mistakes(items: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_megatron(items)


def test_the_line_is_read_back() -> None:
    line = from_mosaic({"a": {}, "b.c": {"repeat": 2.5}}, {"a": 3, "b.c": 7}).to_toml()
    text = f'[run]\nname="r"\ncorpus="c"\nseed=1\n[[phase]]\nname="p"\nsteps=1\nseq_len=4\nbatch=1\n{line}\n'
    weights = RunSpec.from_toml(text, place="RUN.toml").phases[0].points[0].weights
    assert weights == {"a": 0.15, "b.c": 0.85}


# ---- the command


def test_the_command_prints_the_line(tmp_path: Path) -> None:
    file = tmp_path / "streams.json"
    file.write_text('{"streams": {"a": {}, "b": {"repeat": 3}}, "sizes": {"a": 10, "b": 10}}')
    done = CliRunner().invoke(main, ["run", "convert", "mosaic", str(file)])
    assert done.output.splitlines()[0] == 'weights = { "a" = 0.25, "b" = 0.75 }'
    done = CliRunner().invoke(main, ["run", "convert", "megatron", "30 x/web_text_document 70 x/code", "--json"])
    assert json.loads(done.output) == {"weights": {"web": 0.3, "code": 0.7}, "samples": None}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[]")
    for words in (["mosaic", str(tmp_path / "bad.json")], ["megatron", "x/a", "--tokens", "a=many"]):
        done = CliRunner().invoke(main, ["run", "convert", *words])
        assert isinstance(done.exception, ConfigError)
