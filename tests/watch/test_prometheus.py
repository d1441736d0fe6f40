"""A real Prometheus scrapes real servers: alerts fire, and every query of the dashboard has an answer."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus
import pytest
from headrace.proto.errors import HeadraceError
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.tokenizer import Tokenizer
from prometheus import Prometheus
from rig import Raw, ServerProcess, Trainer, serving, write_run

DRIFT = "[drift]\nsteps = 8\none_in = 1\nduty = 1.0\n"
CAP = "\n[domain.c]\ncap = 0.2\n"


def build(folder: Path) -> Path:
    """A corpus with rejected documents, of which `a` spans several blocks."""
    specials = {"<|endoftext|>": 0, "<|pad|>": 1}
    tokens = [name.encode() for name in specials] + [bytes([byte]) for byte in range(256)]
    Tokenizer(tokens=tokens, merges=(), special_ids=specials).save(folder / "tokenizer.json")
    entries = ""
    for name, documents in {"a": 3000, "b": 300, "c": 30}.items():
        texts = [f"{name} {number} " + "water turns the wheel " * (1 + number % 4) for number in range(documents)]
        lines = [json.dumps({"text": text}) for text in [*texts, texts[0]]]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        entries += f'[[domain]]\nname = "{name}"\nfiles = ["{name}.jsonl"]\ntext = "text"\nduplicates = "drop"\n'
    text = f'[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n{entries}'
    build_corpus(CorpusSpec.from_toml(text, root=folder), workers=1)
    return folder / "corpus" / "manifest.json"


def damaged(manifest: Path, folder: Path) -> Path:
    """A copy of a corpus with one bit of a block in the middle of its large shards turned over."""
    shutil.copytree(manifest.parent, folder / "corpus")
    large = [path for path in (folder / "corpus").rglob("*.arrow") if path.stat().st_size > 4 * (64 << 10)]
    assert large
    for shard in large:
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
    return folder / "corpus" / "manifest.json"


def start(folder: Path, name: str, manifest: Path) -> ServerProcess:
    place = folder / f"server-{name}"
    place.mkdir()
    run = write_run(place, manifest, name=name, steps=4000)
    run.write_text(run.read_text() + CAP)
    return ServerProcess(place, [run], extra=DRIFT)


def train(raw: Raw, trainer: Trainer, steps: int) -> None:
    """Takes steps as the client does: tells of losses and of waiting."""
    trainer.take(steps)
    lease = {"run_id": trainer.opened.run_id, "lease": trainer.opened.lease}
    said = {"next_step": trainer.next_step, "waited_us": 1000 * trainer.next_step, "stalls": 0}
    raw("Confirm", **lease, confirmation=said)
    for step in range(trainer.next_step - steps, trainer.next_step):
        losses = [{"domain": name, "loss_sum": 500.0, "tokens": 100} for name in "abc"]
        raw("ReportLosses", **lease, step=step, losses=losses)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, ServerProcess]]:
    """A good server with a run that goes on and a change refused, a damaged one, and a Prometheus over both."""
    prometheus.tool("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    manifest = build(folder)
    (folder / "damaged").mkdir()
    rules = folder / "headrace.rules.yml"
    rules.write_text(re.sub(r"for: \d+m", "for: 0s", prometheus.RULES.read_text()))
    good, bad = start(folder, "good", manifest), start(folder, "bad", damaged(manifest, folder / "damaged"))
    targets = [f"127.0.0.1:{server.metrics_port}" for server in (good, bad)]
    watch = Prometheus(folder, targets, rules)
    try:
        watch.wait(lambda: len(watch.query("up == 1")) == 2)
        with Raw(good.address) as raw, Raw(bad.address) as other:
            Trainer(other, run="bad").open()
            trainer = Trainer(raw, run="good").open()
            with pytest.raises(HeadraceError):
                raw("SetWeights", run="good", weights={"a": 1.0, "nowhere": 1.0})
            raw("SetWeights", run="good", weights={"a": 0.4, "b": 0.3, "c": 0.3}, author="test")
            raw("Mask", run="good", mask={"by": "source", "values": ["b.jsonl:1"]}, author="test")
            until = time.monotonic() + 4
            while time.monotonic() < until or trainer.next_step < 40:
                train(raw, trainer, 8)
                time.sleep(0.5)
            yield watch, good
    finally:
        watch.stop()
        for server in (good, bad):
            server.kill()


def expressions() -> list[tuple[str, str]]:
    made = json.loads((prometheus.ROOT / "deploy" / "grafana" / "headrace.json").read_text())
    return [(panel["title"], query["expr"]) for panel in made["panels"] for query in panel.get("targets", ())]


def test_every_query_of_the_dashboard_has_an_answer(scraped: tuple[Prometheus, ServerProcess]) -> None:
    watch, _ = scraped
    watch.wait(lambda: watch.query('headrace_drift_intervals_total{run="good"} > 3'))
    empty = []
    for title, expr in expressions():
        values = [sample["value"][1] for sample in watch.query(expr.replace("$run", "good"))]
        if set(values) <= {"NaN"}:  # a quantile of a method that was not called is NaN; not all may be
            empty.append((title, expr, values))
    assert not empty


def test_real_alerts_fire_and_others_do_not(scraped: tuple[Prometheus, ServerProcess]) -> None:
    watch, good = scraped

    def firing(*names: str) -> Any:
        return watch.wait(lambda: alerts if set(names) <= set(alerts := watch.alerts()) else None, seconds=30)

    alerts = firing("HeadraceDomainNearCap")
    alerts = firing("HeadraceSealStuck")
    alerts = firing("HeadraceChecksumFailure")
    assert {labels["domain"] for labels in alerts["HeadraceDomainNearCap"]} == {"c"}
    assert {labels["run"] for labels in alerts["HeadraceChecksumFailure"]} == {"bad"}
    assert {labels["run"] for labels in alerts["HeadraceSealStuck"]} == {"bad"}
    quiet = {"HeadraceServerDown", "HeadraceTrainerStarved", "HeadraceStoreDown", "HeadraceStoreReadOnly"}
    quiet |= {"HeadraceRowsReceivedWrong", "HeadraceMixerStale", "HeadraceCertificateNearExpiry"}
    assert not quiet & set(alerts), alerts
    good.kill()
    alerts = firing("HeadraceServerDown")
    assert {labels["instance"] for labels in alerts["HeadraceServerDown"]} == {f"127.0.0.1:{good.metrics_port}"}


def test_counters_never_fall_over_a_restart(tmp_path: Path, corpus: Path) -> None:
    """As Prometheus sees them: `resets` is 0 for what is durable, and no sample is NaN."""
    rules = tmp_path / "none.yml"
    rules.write_text("groups: []\n")
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        watch = Prometheus(tmp_path, [f"127.0.0.1:{server.metrics_port}"], rules)
        try:
            watch.wait(lambda: watch.query("headrace_confirmed_step == 0"))
            with Raw(server.address) as raw:
                Trainer(raw).open().take(30).settle()
            watch.wait(lambda: watch.query("headrace_confirmed_step == 30"))
            server.kill()
            server.start()
            with Raw(server.address) as raw:
                trainer = Trainer(raw, attempt=1).open()
                trainer.next_step = 30
                trainer.take(10).settle()
            watch.wait(lambda: watch.query("headrace_confirmed_step == 40"))
            for name in ("headrace_served_tokens_total", "headrace_log_events_total", "headrace_documents_read_total"):
                assert not watch.query(f"resets({name}[1h]) > 0"), name
            assert len(watch.query("resets(headrace_served_tokens_total[1h]) == 0")) == 3
            found = watch.query('{__name__=~"headrace_.*"}')
            assert len(found) > 50
            assert not [each for each in found if each["value"][1] == "NaN"]
        finally:
            watch.stop()
