"""`headrace run` and `headrace weights` against a live server and against the store alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace.client import Loader
from headrace.client.cli.source import step_range
from headrace.client.cli.vectors import parse_parts
from headrace.proto.errors import UsageError
from rig import Raw, ServerProcess, Trainer, headrace, write_run

MakeRun = Callable[..., str]


def test_digest_online_and_offline_agree_with_what_was_served(
    raw: Raw, server: ServerProcess, make_run: MakeRun
) -> None:
    trainer = Trainer(raw, run=make_run()).open().take(5)
    for where in (("--server", server.address), ("--store", server.store)):
        done = headrace("run", "digest", trainer.run, "--steps", "0:5", "--json", *where)
        assert json.loads(done.stdout) == {str(step): digest.hex() for step, digest in trainer.digests.items()}


def test_weights_set_normalises_and_says_so(server: ServerProcess, make_run: MakeRun) -> None:
    run = make_run()
    done = headrace("weights", "set", run, "a=70", "b=30", "c=0", "--server", server.address, "--reason", "try")
    assert done.returncode == 0
    assert "from step 0" in done.stdout
    assert "a  0.700000" in done.stdout
    shown = json.loads(headrace("weights", "show", run, "--json", "--server", server.address).stdout)
    assert shown["weights"] == pytest.approx({"a": 0.7, "b": 0.3, "c": 0.0})
    (event,) = json.loads(headrace("weights", "history", run, "--json", "--store", server.store).stdout)
    assert event["reason"] == "try"
    assert headrace("weights", "cancel", run, "1", "--server", server.address).returncode == 0
    assert "(cancelled)" in headrace("run", "events", run, "--store", server.store).stdout
    assert "all good" in headrace("run", "verify", run, "--store", server.store).stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["weights", "set", "RUN", "a=x", "b=1", "c=1"], 2, "domain `a`: `x` is no number"),
        (["weights", "set", "RUN", "a=nan", "b=1", "c=1"], 2, "domain `a`"),
        (["weights", "set", "RUN", "a=1", "b=1"], 2, "`c`"),
        (["weights", "set", "RUN", "a=1", "b=1", "c=1", "zz=1"], 2, "`zz`"),
        (["weights", "set", "RUN", "a=0", "b=0", "c=0"], 2, "above 0"),
        (["weights", "set", "RUN", "a=1", "b=1", "c=1", "--expected-head", "12"], 2, "64 hex digits"),
        (["run", "explain", "nope", "--step", "1"], 1, "no run `nope`"),
        (["run", "digest", "RUN", "--steps", "9:3"], 2, "0 <= A < B"),
        (["run", "digest", "RUN", "--steps", "400:401"], 1, "cannot compute the digest of step 400 of run"),
        (["run", "create", "nowhere.toml"], 2, "cannot read nowhere.toml"),
    ],
)
def test_mistakes_get_a_message_and_no_traceback(
    server: ServerProcess, make_run: MakeRun, words: list[str], code: int, says: str
) -> None:
    run = make_run()
    done = headrace(*[run if word == "RUN" else word for word in words], "--server", server.address)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_server_that_is_away_is_try_again(make_run: MakeRun) -> None:
    done = headrace("run", "list", "--server", "127.0.0.1:1")
    assert done.returncode == 75
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:99999"])
def test_an_address_without_a_port_is_wrong_use(address: str) -> None:
    done = headrace("run", "list", "--server", address)
    assert done.returncode == 2
    assert "give host:port" in done.stderr


def test_a_mistake_in_a_spec_names_the_file_of_the_user(server: ServerProcess, tmp_path: Path) -> None:
    spec = tmp_path / "mine.toml"
    spec.write_text('[run]\nname = "r"\n')
    for target in (["--server", server.address], ["--store", f"sqlite:///{tmp_path}/own.db"]):
        done = headrace("run", "create", str(spec), *target)
        assert done.returncode == 2
        assert f"{spec}: `phase` is missing" in done.stderr


def test_writing_beside_a_server_is_refused_and_reading_is_not(server: ServerProcess, make_run: MakeRun) -> None:
    run = make_run()
    refused = headrace("weights", "set", run, "a=1", "b=1", "c=1", "--store", server.store)
    assert refused.returncode == 1
    assert "in use by another server" in refused.stderr
    assert headrace("weights", "show", run, "--store", server.store).returncode == 0


def test_diff(raw: Raw, server: ServerProcess, make_run: MakeRun) -> None:
    one, same, other = make_run(), make_run(), make_run(seed=8)
    equal = headrace("run", "diff", one, same, "--steps", "0:5", "--store", server.store)
    assert equal.returncode == 0
    assert "steps 0:5 are equal" in equal.stdout
    parted = headrace("run", "diff", one, other, "--steps", "0:5", "--store", server.store)
    assert parted.returncode == 1
    assert "seed: 7 -> 8" in parted.stdout
    assert "part at step 0" in parted.stdout


def test_diff_of_a_branch_begins_where_it_leaves(server: ServerProcess, make_run: MakeRun) -> None:
    parent, child, only_a = make_run(), "one-that-left", ["--weight", "a=1", "--weight", "b=0", "--weight", "c=0"]
    short = make_run(steps=30)
    with Loader(server.address, parent) as loader:
        for _ in range(20):
            next(loader)
    made = headrace("run", "branch", parent, child, "--at", "15", *only_a, "--server", server.address)
    assert made.returncode == 0, made.stderr
    parted = headrace("run", "diff", parent, child, "--store", server.store)
    assert parted.returncode == 1
    assert "part at step 15" in parted.stdout
    cut = headrace("run", "diff", short, parent, "--store", server.store)
    assert "steps 0:30 are equal" in cut.stdout


def test_settings_file_names_the_store(tmp_path: Path, corpus: Path) -> None:
    spec = write_run(tmp_path, corpus)
    missing = headrace("run", "list", cwd=tmp_path)
    assert missing.returncode == 2
    assert "--server HOST:PORT" in missing.stderr
    (tmp_path / "headrace.toml").write_text('store = "sqlite:///mine.db"\n')
    assert headrace("run", "create", str(spec), "--dry-run", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "mine.db").exists()
    assert "run r created" in headrace("run", "create", str(spec), cwd=tmp_path).stdout
    assert "exists already" in headrace("run", "create", str(spec), cwd=tmp_path).stdout
    assert json.loads(headrace("run", "list", "--json", cwd=tmp_path).stdout)[0]["name"] == "r"
    (tmp_path / "headrace.toml").write_text('stoer = "x"\n')
    assert "unknown key `stoer`" in headrace("run", "list", cwd=tmp_path).stderr


@pytest.mark.parametrize("word", ["a", "=1", "a=", "a=inf", "a=-1"])
def test_parts_that_are_none(word: str) -> None:
    with pytest.raises(UsageError):
        parse_parts((word,))


def test_steps() -> None:
    assert step_range("3:5") == range(3, 5)
    assert step_range("7") == range(7, 8)
    for text in ("", "a", "5:5", "-1:2", "1:2:3"):
        with pytest.raises(UsageError):
            step_range(text)


def test_explain_prints_where_each_row_comes_from_and_its_text(
    raw: Raw, server: ServerProcess, make_run: MakeRun, corpus: Path
) -> None:
    run = make_run()
    online = headrace("run", "explain", run, "--step", "3", "--json", "--text", "30", "--server", server.address)
    offline = headrace("run", "explain", run, "--step", "3", "--json", "--text", "30", "--store", server.store)
    assert online.stdout == offline.stdout
    answer = json.loads(offline.stdout)
    assert (answer["step"], len(answer["slots"])) == (3, 8)
    for slot in answer["slots"]:
        first = slot["sources"][0]
        line = (corpus.parent.parent / f"{slot['domain']}.jsonl").read_text().splitlines()[first["row"] - 1]
        assert json.loads(line)["text"][first.get("begin", 0) :].startswith(slot["text"].split("<|")[0])
    plain = headrace("run", "explain", run, "--step", "3", "--store", server.store).stdout
    assert "planned, not sealed yet" in plain
    assert plain.count(".jsonl:") >= 8
