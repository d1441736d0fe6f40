"""Row 39: domains that end, are tiny, have weight 0 or come in the middle of a run. The counts are exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.server.control.store import Store
from headrace.server.corpus.manifest import Corpus
from headrace.server.service.loading import Opener
from history import History, check
from rig import Raw, ServerProcess, Trainer, serving, write_run

CAPS = '[domain.b]\ncap = 1.5\nat_cap = "{}"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[ServerProcess]:
    """A server of three runs: one without caps, and one for each policy."""
    folder = tmp_path_factory.mktemp("domains")
    runs = [write_run(folder, corpus, name=name) for name in ("rests", "redistribute", "stop")]
    for path in runs[1:]:
        path.write_text(path.read_text() + CAPS.format(path.stem))
    with serving(folder, runs) as started:
        yield started


def served(store_url: str, run: str, step: int) -> dict[str, int]:
    """Plan tokens of each domain below a step."""
    store = Store(store_url, writable=False)
    try:
        plan = Opener(store).view(run).plan
    finally:
        store.close()
    return dict(zip(plan.domains, map(int, plan.cursor(step).tokens), strict=True))


def test_a_domain_that_is_capped_gives_way_and_one_that_is_tiny_goes_round(server: ServerProcess, corpus: Path) -> None:
    """`b` stops at 1.5 epochs, `c` repeats many times, the run fills every batch to its last step."""
    history, sizes = History(), {name: Corpus.open(corpus).tokens(name) for name in "abc"}
    with Raw(server.address) as raw:
        trainer = Trainer(raw, run="redistribute").open().take(400)
        assert trainer.next_step == 400
        check(trainer, history, server.store, steps=400)
        tokens = served(server.store, "redistribute", 400)
        assert 1.5 * sizes["b"] - 32 < tokens["b"] <= 1.5 * sizes["b"]
        assert tokens["c"] > 2 * sizes["c"]


def test_a_cap_that_stops_ends_the_run_for_every_rank(server: ServerProcess, corpus: Path) -> None:
    history, size = History(), Corpus.open(corpus).tokens("b")
    with Raw(server.address) as raw:
        trainer = Trainer(raw, run="stop", world=4).open().take(400)
        end = trainer.next_step
        assert end < 400
        answers = trainer.fetch(end)
        assert [answer.end.end_step for answer in answers] == [end] * 4
        assert "`b` has reached its cap of 1.5 epochs" in answers[0].end.reason
        check(trainer, history, server.store, steps=end)
        assert served(server.store, "stop", end)["b"] <= 1.5 * size


def test_weight_0_and_a_domain_that_comes_in_the_middle(server: ServerProcess, tmp_path: Path) -> None:
    """`b` rests for a while and goes on where it was; `d` joins and has its part from the step that names it."""
    history = History()
    (tmp_path / "new").mkdir()
    manifest = build_small_corpus(tmp_path / "new", seed=5, documents={"d": 12})
    with Raw(server.address) as raw:
        trainer = Trainer(raw, run="rests").open().take(5)
        rest = raw("SetWeights", run="rests", weights={"a": 0.7, "b": 0.0, "c": 0.3}, idempotency_key="rest")
        history.note("rest", rest)
        trainer.take(30)
        resting = rest.event.from_step
        tokens = served(server.store, "rests", trainer.next_step)
        assert tokens["b"] == served(server.store, "rests", resting)["b"]
        grown = raw("GrowDomain", run="rests", domain="d", manifest=str(manifest), idempotency_key="grow")
        history.note("grow", grown)
        named = raw(
            "SetWeights",
            run="rests",
            weights={"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25},
            from_step=grown.event.from_step,
            idempotency_key="named",
        )
        history.note("named", named)
        trainer.take(60)
        check(trainer, history, server.store, steps=trainer.next_step)
        before, after = (
            served(server.store, "rests", named.event.from_step),
            served(server.store, "rests", trainer.next_step),
        )
        assert before["d"] == 0
        assert after["d"] > 0
        assert after["b"] > before["b"] == tokens["b"]
