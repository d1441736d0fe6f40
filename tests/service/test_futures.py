"""What becomes of a run: branches, generations that join, forecasts, watching, and a store that is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.proto.errors import (
    ConfigError,
    ConflictError,
    DataLossError,
    ExistsError,
    StateMismatchError,
    UsageError,
)
from rig import Raw, ServerProcess, Trainer, headrace, health_of, planned_digests, serving, write_run

MakeRun = Callable[..., str]
EQUAL = {"a": 0.25, "b": 0.25, "c": 0.5}


def test_a_branch_shares_the_past_takes_the_parents_state_and_goes_its_own_way(
    raw: Raw, server: ServerProcess, make_run: MakeRun
) -> None:
    parent = make_run()
    trainer = Trainer(raw, run=parent).open().take(20)
    trainer.settle()
    child, plain = f"{parent}-child", f"{parent}-plain"
    made = raw("BranchRun", parent=parent, name=child, at=20, weights=EQUAL)
    assert (made.created, made.run.seal, made.run.confirmed, made.run.parent) == (True, 20, 20, parent)
    raw("BranchRun", parent=parent, name=plain, at=20)
    state = trainer.state()
    ours = Trainer(raw, run=child).open(state).take(20)
    same = Trainer(raw, run=plain).open(state).take(20)
    trainer.take(20)
    assert ours.opened.run_id != trainer.opened.run_id
    assert all(ours.digests[step] != trainer.digests[step] for step in range(20, 40))
    assert same.digests == {step: trainer.digests[step] for step in range(20, 40)}
    assert planned_digests(server.store, child, "0:20") == planned_digests(server.store, parent, "0:20")
    assert planned_digests(server.store, child, "20:40") == ours.digests
    resumed = Trainer(raw, run=child, attempt=1).open(ours.state())
    assert resumed.next_step == 40
    late = Trainer(raw, run=parent, attempt=1).open().take(30).state()
    with pytest.raises(StateMismatchError, match=f"run `{child}` left at step 20"):
        Trainer(raw, run=child, attempt=2).open(late)
    assert "all good" in headrace("run", "verify", child, "--store", server.store).stdout


def test_a_branch_that_skips_data(raw: Raw, server: ServerProcess, make_run: MakeRun) -> None:
    parent = make_run()
    trainer = Trainer(raw, run=parent).open().take(20)
    seal = trainer.settle()
    with pytest.raises(ConflictError, match="can begin at"):
        raw("BranchRun", parent=parent, name="too-far", at=seal - 2, skip=3)
    raw("BranchRun", parent=parent, name=f"{parent}-skips", at=10, skip=5)
    trainer.take(10)
    windows = {
        (slot.domain, slot.window) for step in range(10, 15) for slot in raw("Explain", run=parent, step=step).slots
    }
    after = [slot for step in range(10, 14) for slot in raw("Explain", run=f"{parent}-skips", step=step).slots]
    assert not windows & {(slot.domain, slot.window) for slot in after}


def windows_of(raw: Raw, run: str, steps: range) -> set[tuple[str, int, int]]:
    """Domain, pass and window of every slot."""
    slots = [slot for step in steps for slot in raw("Explain", run=run, step=step).slots]
    return {(slot.domain, getattr(slot, "pass"), slot.window) for slot in slots}


def test_a_branch_with_other_phases_and_batch(raw: Raw, make_run: MakeRun) -> None:
    parent = make_run()
    Trainer(raw, run=parent).open().take(12).settle()
    changes = '[[phase]]\nname = "anneal"\nsteps = 6\nseq_len = 16\nbatch = 4\nweights = { c = 1.0 }\n'
    raw("BranchRun", parent=parent, name=f"{parent}-anneal", at=12, changes_toml=changes)
    trainer = Trainer(raw, run=f"{parent}-anneal", world=4).open().take(100)
    assert sorted(trainer.digests) == list(range(18))
    assert [(s.from_step, s.to_step, s.batch, s.seq_len) for s in trainer.opened.shapes] == [
        (0, 12, 8, 32),
        (12, 18, 4, 16),
    ]
    raw("BranchRun", parent=parent, name=f"{parent}-wide", at=12, batch=16)
    with pytest.raises(ConflictError, match="world 16 does not divide the batch of 8 rows at step 0"):
        Trainer(raw, run=f"{parent}-wide", world=16).open()
    with pytest.raises(ConfigError, match=r"changes:7.*stesp"):
        raw("BranchRun", parent=parent, name="bad", at=12, changes_toml=changes + "stesp = 3\n")
    with pytest.raises(ExistsError):
        raw("BranchRun", parent=parent, name=f"{parent}-wide", at=12, batch=4)


def test_a_generation_joins_a_domain_and_a_new_one_is_born(
    raw: Raw, server: ServerProcess, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(steps=200)
    manifest = build_small_corpus(tmp_path, seed=5, documents={"a": 40, "d": 30})
    trainer = Trainer(raw, run=run).open().take(5)
    dry = raw("GrowDomain", run=run, domain="a", manifest=str(manifest), dry_run=True)
    assert raw("ListEvents", run=run).events == []
    first = raw("GrowDomain", run=run, domain="a", manifest=str(manifest), join="now", reason="more")
    assert first.event.from_step >= dry.event.from_step
    second = raw("GrowDomain", run=run, domain="d", manifest=str(manifest))
    assert any("new" in note for note in second.notes)
    with pytest.raises(ConflictError, match="already"):
        raw("GrowDomain", run=run, domain="a", manifest=str(manifest))
    with pytest.raises(UsageError, match="no domain `z`"):
        raw("GrowDomain", run=run, domain="z", manifest=str(manifest))
    swap = raw("SetWeights", run=run, weights={"a": 0.4, "b": 0.1, "c": 0.1, "d": 0.4}, from_step=60)
    with pytest.raises(ConflictError, match="names"):
        raw("CancelEvent", run=run, sequence=second.event.sequence)
    trainer.take(90)
    assert trainer.segments[60] != trainer.segments[59]
    assert trainer.digests == planned_digests(server.store, run, "0:95")
    files = {
        (slot.domain, source.file)
        for step in (70, 80, 90)
        for slot in raw("Explain", run=run, step=step).slots
        for source in slot.sources
    }
    assert {domain for domain, _ in files} == {"a", "b", "c", "d"}
    assert raw("GetRun", run=run).run.domains[-1] == "d"
    assert swap.event.sequence == 3


def test_a_generation_that_a_restarted_server_cannot_find(tmp_path: Path, corpus: Path) -> None:
    """Steps before it are served, the seal stops in front of it, and everything goes on when it is back."""
    more = tmp_path / "more"
    more.mkdir()
    manifest = build_small_corpus(more, seed=5, documents={"a": 40})
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(5)
        step = raw("GrowDomain", run="r", domain="a", manifest=str(manifest), join="now", from_step=30).event.from_step
        server.stop()
        manifest.rename(manifest.with_name("away.json"))
        server.start()
        trainer.take(step - 5)
        with pytest.raises(Exception, match="cannot be read here"):
            trainer.fetch(step, patience=0)
        assert raw("GetRun", run="r").run.seal == step
        assert (health_of(server, "run/r"), health_of(server, "")) == ("NOT_SERVING", "SERVING")
        manifest.with_name("away.json").rename(manifest)
        trainer.take(20)
        time.sleep(1)
        assert health_of(server, "run/r") == "SERVING"
        assert trainer.digests == planned_digests(server.store, "r", f"0:{step + 20}")


def test_forecast(raw: Raw, server: ServerProcess, make_run: MakeRun) -> None:
    run = make_run()
    answer = raw("Forecast", run=run)
    online = json.loads(answer.json)
    offline = json.loads(headrace("run", "forecast", run, "--json", "--store", server.store).stdout)
    assert online == offline
    assert online["end"] == 400
    assert {domain["name"] for domain in online["domains"]} == {"a", "b", "c"}
    assert raw("GetRun", run=run).run.seal == 0
    assert answer.lines[0] in headrace("run", "forecast", run, "--server", server.address).stdout


def test_forecast_of_a_file_before_there_is_a_run(tmp_path: Path, corpus: Path) -> None:
    """Neither a server nor a store, and what the run that is made of it foretells."""
    path, url = write_run(tmp_path, corpus), f"sqlite:///{tmp_path}/control.db"
    before = headrace("run", "forecast", str(path), "--json")
    assert before.returncode == 0, before.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["r.toml"]
    assert headrace("run", "create", str(path), "--store", url).returncode == 0
    assert before.stdout == headrace("run", "forecast", "r", "--json", "--store", url).stdout
    path.write_text(path.read_text().replace("a = 0.5", "nobody = 0.5"))
    wrong = headrace("run", "forecast", str(path))
    assert wrong.returncode == 2
    assert "`nobody`" in wrong.stderr


def test_watching_a_run_to_its_end(raw: Raw, make_run: MakeRun) -> None:
    run = make_run(steps=20)
    watched = raw.stream("WatchRun", run=run, timeout=60)
    first = next(watched)
    assert (first.run.confirmed, list(first.events), list(first.ranks)) == (0, [], [])
    trainer = Trainer(raw, run=run).open()
    raw("SetWeights", run=run, weights=EQUAL, from_step=10)
    trainer.take(100)
    messages = list(watched)
    assert [event.sequence for message in messages for event in message.events] == [1]
    assert any(rank.holder == "test:job" for message in messages for rank in message.ranks)
    last = messages[-1]
    assert last.run.confirmed == 20
    assert sum(one.share for one in last.figures) == pytest.approx(1)


def test_a_lost_store_is_made_anew_from_an_export(tmp_path: Path, corpus: Path) -> None:
    document = tmp_path / "run.json"
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(10)
        raw("SetWeights", run="r", weights=EQUAL, from_step=30)
        trainer.settle()
        document.write_text(headrace("run", "export", "r", "--server", server.address).stdout)
        state = trainer.state()
        trainer.take(30)
        newer = trainer.state()
        server.kill()
    for file in tmp_path.glob("control.db*"):
        file.unlink()
    store = f"sqlite:///{tmp_path}/control.db"
    dry = headrace("run", "import", str(document), "--dry-run", "--store", store)
    assert "could be imported" in dry.stdout
    done = headrace("run", "import", str(document), "--store", store)
    assert "imported: confirmed 10, seal 18" in done.stdout
    assert "already" in headrace("run", "import", str(document), "--store", store).stderr
    with serving(tmp_path, [tmp_path / "r.toml"]) as server, Raw(server.address) as raw:
        with pytest.raises(StateMismatchError, match="restore the one that served steps 18 to 39"):
            Trainer(raw).open(newer)
        again = Trainer(raw, digests=dict(trainer.digests)).open(state).take(30)
        assert again.segments[30] != again.segments[29]


@pytest.mark.parametrize("change", ["event", "digest", "head", "cut"])
def test_an_export_that_was_changed_is_refused(raw: Raw, make_run: MakeRun, change: str, tmp_path: Path) -> None:
    run = make_run()
    Trainer(raw, run=run).open().take(3).settle()
    raw("SetWeights", run=run, weights=EQUAL)
    document = json.loads(raw("ExportRun", run=run).document)
    document |= {"name": "other", "run_id": "0" * 16}
    if change == "event":
        document["events"][0]["author"] = "mallory"
    elif change == "digest":
        document["step_digests"]["4"] = "0" * 64
    elif change == "head":
        document["head"] = "0" * 64
    else:
        del document["seal"]
    with pytest.raises((DataLossError, ConfigError)):
        raw("ImportRun", document=json.dumps(document))
    assert "other" not in [info.name for info in raw("ListRuns").runs]
