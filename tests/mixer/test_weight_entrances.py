"""Bad weights at every entrance: the command line, a RUN.toml, the mixer, and a result file. Nothing is repaired.

Through gRPC itself they are in `tests/service`. On the command line and in files any finite parts >= 0 are weights, and
the normalised vector is shown; a result file must already sum to 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from headrace.client.cli.mixer import mixer
from headrace.client.cli.weights import weights as weights_command
from headrace.mixer.remote import Remote, create_run
from headrace.proto.errors import HeadraceError
from mixer_rig import DOCUMENTS, Server, run_toml

EVEN = dict.fromkeys(DOCUMENTS, "0.2")
MANY = {f"domain-{n}": "0.0001" for n in range(10_000)}
# What is written for each domain, and what a message must name; `small` is the domain at fault.
BAD = {
    "nan": (EVEN | {"small": "nan"}, "small"),
    "inf": (EVEN | {"small": "inf"}, "small"),
    "minus inf": (EVEN | {"small": "-inf"}, "small"),
    "negative": (EVEN | {"small": "-0.1"}, "small"),
    "all zero": (dict.fromkeys(DOCUMENTS, "0.0"), ""),
    "denormal": (EVEN | {"small": "5e-324"}, "small"),
    "unknown": ({k: v for k, v in EVEN.items() if k != "small"} | {"stranger": "0.2"}, "stranger"),
    "missing": ({k: v for k, v in EVEN.items() if k != "small"}, "small"),
    "string": (EVEN | {"small": "lots"}, "small"),
    "quoted": (EVEN | {"small": '"0.2"'}, "small"),
    "no name": (EVEN | {"": "0.2"}, ""),
    "empty": ({}, ""),
    "ten thousand": (MANY, "domain"),
}


def refused(done: object, naming: str) -> None:
    output, code = done.output, done.exit_code  # type: ignore[attr-defined]
    error = done.exception  # type: ignore[attr-defined]
    said = f"{output} {error}"
    assert code != 0, said
    assert isinstance(error, HeadraceError | SystemExit), repr(error)
    assert naming in said
    assert "Traceback" not in said


def unchanged(server: Server, run: str) -> None:
    with Remote(server.address, run) as remote:
        facts = remote.facts()
    assert set(facts.weights.values()) == {0.2}
    assert facts.head == bytes(32) or facts.seal == 0


@pytest.fixture(scope="module")
def run(server: Server, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    spec = run_toml("entrances", corpus, dict.fromkeys(DOCUMENTS, 1.0))
    create_run(server.address, spec, base_dir=tmp_path_factory.mktemp("entrances"))
    return "entrances"


@pytest.mark.parametrize("name", [name for name in BAD if name != "quoted"])
def test_the_command_line(server: Server, run: str, name: str) -> None:
    parts, naming = BAD[name]
    words = [f"{domain}={part}" for domain, part in parts.items()]
    refused(CliRunner().invoke(weights_command, ["set", run, "--server", server.address, "--", *words]), naming)
    unchanged(server, run)


def test_a_domain_named_twice(server: Server, run: str) -> None:
    words = [f"{domain}={part}" for domain, part in EVEN.items()]
    twice = ["set", run, *words, "small=0.2", "--server", server.address]
    refused(CliRunner().invoke(weights_command, twice), "small")
    unchanged(server, run)


# A run has the domains that its file names: one that is not there is not missing.
@pytest.mark.parametrize("name", [name for name in BAD if name != "missing"])
def test_a_run_file(server: Server, corpus: Path, tmp_path: Path, name: str) -> None:
    parts, naming = BAD[name]
    table = {f'"{domain}"': part for domain, part in parts.items()}
    spec = run_toml(f"bad-{len(naming)}-{abs(hash(name))}", corpus, table)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError) as caught:
        create_run(server.address, spec, base_dir=tmp_path)
    assert ("line 11" if name == "string" else naming) in str(caught.value)


@pytest.mark.parametrize("name", ["nan", "inf", "minus inf", "negative", "all zero", "string", "no name", "empty"])
def test_the_mixer(tmp_path: Path, name: str) -> None:
    parts, naming = BAD[name]
    words = [word for domain, part in parts.items() for word in ("--weight", f"{domain}={part}")]
    refused(CliRunner().invoke(mixer, ["compute", "manual", *words]), naming)


def test_the_mixer_is_given_a_domain_twice() -> None:
    words = [word for domain in (*EVEN, "small") for word in ("--weight", f"{domain}=0.2")]
    refused(CliRunner().invoke(mixer, ["compute", "manual", *words]), "names a domain twice")


@pytest.mark.parametrize("name", [*(n for n in BAD if n not in ("string", "ten thousand")), "sum", "twice"])
def test_a_result_file(
    server: Server, run: str, tmp_path: Path, name: str, make_result: Callable[[Path], dict[str, object]]
) -> None:
    path = tmp_path / "mix.json"
    document = make_result(path)
    parts, naming = BAD.get(name, (EVEN | {"small": "0.2001"}, ""))
    if name in ("denormal", "missing"):  # what is left sums to 1, so that nothing else is wrong
        parts = dict.fromkeys((d for d in DOCUMENTS if d != "small"), "0.25") | {"small": "5e-324"}
        parts = parts if name == "denormal" else {d: p for d, p in parts.items() if d != "small"}
    if name == "twice":  # the last of two would sum to 1 with the others
        parts, naming = EVEN, "`small` is in it twice"
    text = (
        ("{" if name != "twice" else '{"small": 0.9, ')
        + ", ".join(f"{json.dumps(d)}: {_json(p)}" for d, p in parts.items())
        + "}"
    )
    holder = json.dumps(document | {"weights": "@", "raw": "@"})
    path.write_text(holder.replace('"@"', text))
    done = CliRunner().invoke(weights_command, ["set", run, "--proposal", str(path), "--server", server.address])
    refused(done, naming)
    unchanged(server, run)


def _json(part: str) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(part, part)


@pytest.fixture
def make_result() -> Callable[[Path], dict[str, object]]:
    """Write a good result file; its document."""

    def make(path: Path) -> dict[str, object]:
        words = [word for name in DOCUMENTS for word in ("--domain", name)]
        assert CliRunner().invoke(mixer, ["compute", "uniform", *words, "--out", str(path)]).exit_code == 0
        document: dict[str, object] = json.loads(path.read_text())
        return document

    return make
