"""Documents taken down while a run goes on: exactly their tokens become padding, from exactly one step on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headrace.client import IGNORE, Batch, Loader, Settings
from headrace.native import step_digest
from headrace.proto.errors import ConflictError, DataLossError, NotFoundError, StaleError, UsageError
from headrace.server.control.events import Wish
from headrace.server.control.store import Store
from headrace.server.corpus.manifest import Corpus
from headrace.server.plan.log import MaskBody
from headrace.server.service.changes import checker
from headrace.server.service.loading import Opener, new_run
from headrace.server.service.rows import StepRows, build_rows, slice_rows
from rig import Raw, ServerProcess, headrace, planned_digests, serving, write_run

STEPS = 40
QUICK = Settings(stall_timeout=30, open_timeout=30, backoff=0.01, backoff_max=0.2)


@pytest.fixture
def run(make_run: Callable[..., str]) -> str:
    """A run of its own on the server of the module."""
    return make_run(steps=STEPS, lead=4, seq_len=64)


def read(server: ServerProcess, run: str, *, job: str = "job", attempt: int = 0, state: Any = None) -> Loader:
    loader = Loader(server.address, run, job=job, attempt=attempt, settings=QUICK)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def digests(batches: list[Batch]) -> dict[int, bytes]:
    return {batch.step: step_digest(batch.row_digests.tobytes()) for batch in batches}


def check_rows(masked: Batch, plain: Batch, names: set[str]) -> int:
    """Rows of `names` are all padding without a label; the others are what they were. Returns how many were emptied."""
    assert masked.real_ids.tolist() == plain.real_ids.tolist()
    for row, name in enumerate(plain.names):
        if name in names:
            assert (masked.token_ids[row] == masked.pad_id).all()
            assert (masked.labels[row] == IGNORE).all()
            assert not masked.loss_mask[row].any()
            assert masked.loss_weight[row] == 0.0
            assert masked.emptied[row]
        else:
            assert (masked.token_ids[row] == plain.token_ids[row]).all()
            assert masked.labels[row].tolist() == plain.labels[row].tolist()
            assert masked.row_digests[row].tobytes() == plain.row_digests[row].tobytes()
            assert not masked.emptied[row]
    return int(masked.emptied.sum())


def test_a_domain_is_taken_down_live(server: ServerProcess, run: str, make_run: Callable[..., str]) -> None:
    with read(server, make_run(steps=STEPS, lead=4, seq_len=64)) as loader:
        plain = list(loader)
    with Raw(server.address) as raw, read(server, run) as loader:
        batches = [next(loader) for _ in range(10)]
        state = loader.state_dict()
        answer = raw("Mask", run=run, mask={"by": "source", "values": ["c.jsonl"]}, reason="licence withdrawn")
        first = answer.event.from_step
        assert 10 <= first <= 14
        assert any("takes down" in note and "c " in note for note in answer.notes)
        batches += list(loader)
    assert [batch.step for batch in batches] == list(range(STEPS))
    emptied = 0
    for masked, before in zip(batches, plain, strict=True):
        emptied += check_rows(masked, before, {"c"} if masked.step >= first else set())
        assert masked.tokens == int(masked.loss_mask.sum())
    assert emptied > 10
    assert digests(batches) == planned_digests(server.store, run, f"0:{STEPS}")
    server.kill()
    server.start()  # documents are looked up anew, and the past is served again
    with read(server, run, job="again", state=state) as loader:
        assert digests(list(loader)) == digests(batches[10:])


def test_rows_are_named_and_shown(server: ServerProcess, make_run: Callable[..., str]) -> None:
    run = make_run(steps=STEPS, seq_len=1000)
    with Raw(server.address) as raw:
        found = raw("Explain", run=run, step=0, text_characters=20)
        slot = next(slot for slot in found.slots if len(slot.sources) > 2)
        source = slot.sources[1]  # it lies within the row
        name = f"{source.file}:{source.row}"
        answer = raw("Mask", run=run, mask={"by": "source", "values": [name]}, from_step=0, author="eve")
        assert answer.event.from_step == 0
        again = raw("Explain", run=run, step=0, text_characters=20).slots[slot.slot]
        assert [part.masked for part in again.sources[:3]] == [False, True, False]
        begin, end = again.masks[:2]
        assert end - begin == source.end - source.begin
        assert begin == slot.sources[0].end - slot.sources[0].begin
        assert not again.emptied
        assert again.row_digest != slot.row_digest
    with read(server, run) as loader:
        batch = next(loader)
    row = slot.slot
    assert (batch.token_ids[row, begin:end] == batch.pad_id).all()
    assert (batch.labels[row, begin - 1 : end] == IGNORE).all()
    assert batch.labels[row, begin - 2] != IGNORE
    assert batch.labels[row, end] != IGNORE
    parts = list(batch.split(4))
    assert [line for part in parts for line in part.labels.tolist()] == batch.labels.tolist()
    assert sum(part.tokens for part in parts) == batch.tokens
    shown = headrace("run", "explain", run, "--step", "0", "--server", server.address)
    assert f"masked ids {begin}-{end}" in shown.stdout
    assert f"{name} tokens {source.begin}-{source.end} masked" in shown.stdout
    for words in (("run", "events"), ("weights", "history")):
        text = headrace(*words, run, "--server", server.address).stdout
        assert f"masks by source: {name}" in text
        assert "by eve" in text


def test_what_is_wrong_is_refused_and_changes_nothing(server: ServerProcess, run: str) -> None:
    with Raw(server.address) as raw:
        head = raw("GetRun", run=run).run.log_head
        wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (NotFoundError, "has no 'c.jsonl:9999'", {"by": "source", "values": ["c.jsonl:9999"]}),
            (NotFoundError, "domain `a` has no 'c.jsonl'", {"by": "source", "values": ["c.jsonl"], "domain": "a"}),
            (
                UsageError,
                "no domain `z` in the run; it has `a`, `b`, `c`",
                {"by": "source", "values": ["c.jsonl"], "domain": "z"},
            ),
            (UsageError, "not by `colour`", {"by": "colour", "values": ["red"]}),
            (UsageError, "one value at least", {"by": "source"}),
        ]
        for kind, message, mask in wrong:
            with pytest.raises(kind, match=message):
                raw("Mask", run=run, mask=mask)
        assert raw("GetRun", run=run).run.log_head == head
        good = {"run": run, "mask": {"by": "source", "values": ["c.jsonl"]}}
        assert raw("Mask", **good, dry_run=True).event.sequence == 1
        assert raw("GetRun", run=run).run.log_head == head
        made = raw("Mask", **good, idempotency_key="k")
        assert raw("Mask", **good, idempotency_key="k").event == made.event
        with pytest.raises(StaleError, match="has moved on"):
            raw("Mask", **good, expected_head=head)
        with read(server, run) as loader:
            next(loader)
            with pytest.raises(ConflictError, match="is sealed"):
                raw("Mask", **good, from_step=0)
        refused = raw("ListRefusals", run=run).refusals
    done = headrace(
        "run", "mask", run, "b.jsonl:2", "--by", "source", "--reason", "poisoned", "--server", server.address
    )
    assert done.returncode == 0, done.stderr
    assert "takes down" in done.stdout
    assert done.stdout.startswith("event 2 holds from step")
    again = headrace("run", "mask", run, "b.jsonl:2", "--by", "source", "--server", server.address)
    assert again.returncode == 1
    assert "`b.jsonl:2` is taken down already, by event 2 from step" in again.stderr
    with Raw(server.address) as raw:
        assert len(raw("ListEvents", run=run).events) == 2
        wider = raw("Mask", run=run, mask={"by": "source", "values": ["b.jsonl:2", "b.jsonl:3"]})
        assert wider.event.sequence == 3
        assert "taken down already by earlier events: `b.jsonl:2`" in wider.notes
    assert all(refusal.method == "Mask" for refusal in refused)


def test_a_cancelled_mask_never_held(server: ServerProcess, run: str, make_run: Callable[..., str]) -> None:
    twin = make_run(steps=STEPS, lead=4, seq_len=64)
    with Raw(server.address) as raw:
        raw("Mask", run=run, mask={"by": "source", "values": ["c.jsonl"]})
        raw("CancelEvent", run=run, sequence=1)
    everything = f"0:{STEPS}"
    assert planned_digests(server.store, run, everything) == planned_digests(server.store, twin, everything)


def test_slices_of_a_masked_step_are_the_rows_built_alone(tmp_path: Path, corpus: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/control.db", writable=True)
    opener = Opener(store)
    text = write_run(tmp_path, corpus, batch=12, seq_len=20).read_text()
    store.create_run(new_run(text, place="RUN.toml", base_dir=str(tmp_path), author="", corpora=opener.corpora))
    view = opener.view("r")
    body = MaskBody(by="source", values=("c.jsonl", "a.jsonl:3", "b.jsonl:5"))
    store.append(view.run.id, Wish(body=body), checker(view))
    view = opener.view("r")
    store.close()
    masked = 0
    for step in range(12):
        whole = build_rows(view.plan, view.library, step, 0, 12)
        masked += bool(whole.masks)
        for first_slot in range(12):
            for rows in range(1, 13 - first_slot):
                part, alone = (
                    slice_rows(whole, first_slot, rows),
                    build_rows(view.plan, view.library, step, first_slot, rows),
                )
                assert all(getattr(part, name) == getattr(alone, name) for name in StepRows.__dataclass_fields__)
    assert masked > 6


def test_tensors_have_the_same_labels(server: ServerProcess, run: str) -> None:
    torch = pytest.importorskip("torch")
    from headrace.client.torch.make import DeviceMaker, HostMaker

    with Raw(server.address) as raw:
        raw("Mask", run=run, mask={"by": "source", "values": ["c.jsonl", "a.jsonl:3", "a.jsonl:9"]})
    with read(server, run) as loader:
        batch = next(batch for batch in loader if batch.masks.size and not batch.emptied.all())
    for name in ("labels", "loss_mask", "position_ids", "document_ids"):
        host, device = (maker.make(name, batch) for maker in (HostMaker(), DeviceMaker(torch.device("cpu"))))
        assert torch.equal(host, device), name
    assert (HostMaker().make("labels", batch).numpy() == batch.labels).all()


def shard_of(manifest: Path, domain: str) -> str:
    """What masks call the only shard of a domain."""
    record = next(each for each in Corpus.open(manifest).manifest.domains if each.name == domain).generations[0][0]
    return f"{record.folder}/{record.shard.file}"


def damage(manifest: Path, domain: str) -> str:
    """Flips a bit in the ids of the only shard of a domain; returns what masks call the shard."""
    name = shard_of(manifest, domain)
    path = manifest.parent / name
    with path.open("r+b") as file:  # one byte in place: the server may read at any moment
        place = path.stat().st_size // 2
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    return name


@pytest.fixture
def own_corpus(tmp_path: Path, corpus: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(corpus.parent, tmp_path / "corpus")
    return tmp_path / "corpus" / corpus.name


def test_a_bad_shard_goes_into_quarantine(tmp_path: Path, corpus: Path, own_corpus: Path) -> None:
    run = write_run(tmp_path, own_corpus, steps=STEPS, lead=4, seq_len=64)
    with serving(tmp_path, [run], extra='bad_blocks = "quarantine"') as server, Raw(server.address) as raw:
        with read(server, "r") as loader:
            batches = [next(loader) for _ in range(5)]
            name = damage(own_corpus, "b")
            batches += list(loader)
        (event,) = raw("ListEvents", run="r").events
        assert (event.author, list(event.mask.values)) == ("server", [name])
        assert "fails its checksum" in event.reason
        assert all(batch.emptied.tolist() == [n == "b" for n in batch.names] for batch in batches[event.from_step :])
        shown = headrace("run", "explain", "r", "--step", str(STEPS - 1), "--text", "0", "--server", server.address)
        assert "in quarantine" in shown.stdout
        page = f"http://127.0.0.1:{server.metrics_port}"
        seen = headrace("top", "r", "--endpoint", page, "--once").stdout
        assert "alarm    Blocks failed their checksum: 1 found by this server" in seen
        served = digests(batches)
        planned = planned_digests(server.store, "r", f"{event.from_step}:{STEPS}")
        assert planned == {step: served[step] for step in planned}
        server.stop()
        server.start()  # the bad block does not keep it from opening the corpus again
        with Raw(server.address) as again, pytest.raises(DataLossError, match="checksum"):
            again("Explain", run="r", step=0)  # the past needs the bytes that are gone
        state = {**json.loads(json.dumps(loader.state_dict())), "next_step": STEPS - 5}
        state["plan_hash"] = batches[-6].next_plan_hash.hex()
        with read(server, "r", job="again", state=state) as loader:
            assert digests(list(loader)) == {step: served[step] for step in range(STEPS - 5, STEPS)}


def test_without_the_policy_the_seal_stops(tmp_path: Path, own_corpus: Path) -> None:
    run = write_run(tmp_path, own_corpus, steps=STEPS, lead=4, seq_len=64)
    quick = Settings(stall_timeout=5, open_timeout=30, backoff=0.01, backoff_max=0.2)
    with (
        serving(tmp_path, [run]) as server,
        Raw(server.address) as raw,
        Loader(server.address, "r", settings=quick) as loader,
    ):
        next(loader)
        name = damage(own_corpus, "b")
        with pytest.raises(DataLossError, match=Path(name).name):
            list(loader)
        assert not raw("ListEvents", run="r").events
        # By hand it is the same event.
        answer = raw("Mask", run="r", mask={"by": "shard", "values": [name]}, reason="disk 3 is gone")
        assert answer.event.from_step <= 8


def test_a_shard_that_is_mended_serves_the_trainer_that_starts_next(tmp_path: Path, own_corpus: Path) -> None:
    """What was found wrong before it was asked is no answer: the shard is read again."""
    run = write_run(tmp_path, own_corpus, steps=STEPS, lead=4, seq_len=64)
    with serving(tmp_path, [run]) as server:
        seen: dict[int, str] = {}
        state = None
        whole = {path: path.read_bytes() for path in own_corpus.parent.rglob("*.arrow")}
        for attempt in range(3):
            with read(server, "r", attempt=attempt, state=state) as loader:
                seen |= digests([next(loader)])
                damage(own_corpus, "b")
                taken: list[Batch] = []
                with pytest.raises(DataLossError, match=r"corpus build --check"):
                    taken.extend(loader)
                seen |= digests(taken)
                state = loader.state_dict()
            for path, content in whole.items():
                path.write_bytes(content)
        with read(server, "r", attempt=3, state=state) as loader:
            seen |= digests(list(loader))
        assert seen == planned_digests(server.store, "r", f"0:{STEPS}")
        assert "the seal goes on" in server.log.read_text()


def test_the_share_of_masked_tokens_is_exact(corpus: Path) -> None:
    opened = Corpus.open(corpus)
    mask = opened.mask([MaskBody(by="source", values=("c.jsonl",))])
    assert opened.masked_tokens(mask) == {"c": opened.tokens("c")}
    begins, ends = next(iter(mask.spans.values()))
    assert int(np.sum(ends - begins)) == opened.tokens("c")


def test_what_was_taken_down_stays_down_in_a_branch_from_before(server: ServerProcess, run: str) -> None:
    with Raw(server.address) as raw, read(server, run) as loader:
        for _ in range(10):
            next(loader)
        state = loader.state_dict()
        before = [next(loader) for _ in range(10)]
        event = raw("Mask", run=run, mask={"by": "source", "values": ["c.jsonl"]}, reason="licence withdrawn").event
    what = f"note: what event {event.sequence} of run `{run}` takes down from step {event.from_step} on"
    branch = ("run", "branch", run, "--at", "10", "--server", server.address)
    down, again = f"{run}-down", f"{run}-again"
    for words in ((down, "--dry-run"), (down,)):
        assert f"{what} is taken down from step 10 on here too: by source: c.jsonl" in headrace(*branch, *words).stdout
    assert f"{what} is served again: by source: c.jsonl" in headrace(*branch, again, "--without-masks").stdout
    assert "note" not in headrace(*branch, down).stdout  # it is there already: nothing was decided now
    log = headrace("run", "events", down, "--server", server.address).stdout
    assert f"as event {event.sequence} of run {run}: licence withdrawn" in log
    for name, taken in ((down, {"c"}), (again, set[str]())):
        with read(server, name, job=name, state=state) as loader:
            batches = [next(loader) for _ in range(10)]
        emptied = sum(check_rows(one, two, taken) for one, two in zip(batches, before, strict=True))
        assert (emptied > 0) == bool(taken)
    assert "all good" in headrace("run", "verify", down, "--store", server.store).stdout
    with Raw(server.address) as raw:
        assert headrace(*branch, f"{run}-new", "--without-masks").returncode == 0
        (note,) = raw("OpenRun", run=f"{run}-new", mode="OPEN_MODE_TRAIN", job={"id": "j", "world": 1}).notes
    assert f"leaves `{run}` at step 10, but this job names no state" in note
