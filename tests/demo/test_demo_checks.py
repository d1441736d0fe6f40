"""The checks of the demo fail when they should: a demo that cannot fail shows nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from headrace.client.cli.demo.configs import SEQ_LEN
from headrace.client.cli.demo.processes import DemoError
from headrace.client.cli.demo.records import Record, check_digests, check_one_swap, read_records, whole_stream
from headrace.client.cli.demo.report import Scrape, check_complete, check_shares, mean_target, scrape, shares_table
from headrace.client.cli.demo.tokenizers import compare
from headrace.client.cli.demo.training import swapped_weights


def stream(begin: int, end: int, *, swap: int = 5) -> list[Record]:
    return [Record(step=s, segment=int(s >= swap), loss=1.0, digest=f"{s:064x}") for s in range(begin, end)]


def test_attempts_that_overlap_make_one_stream() -> None:
    assert whole_stream([stream(0, 7), stream(4, 10)], steps=10) == stream(0, 10)


def test_a_missing_step_is_named() -> None:
    with pytest.raises(DemoError, match=r"missing: \[5\]"):
        whole_stream([stream(0, 5), stream(6, 10)], steps=10)
    with pytest.raises(DemoError, match="seen: 11"):
        whole_stream([stream(0, 11)], steps=10)


@pytest.mark.parametrize("change", [{"digest": "ff"}, {"segment": 3}])
def test_a_step_that_came_again_differently_is_named(change: dict[str, object]) -> None:
    again = stream(4, 10)
    again[1] = replace(again[1], **change)
    with pytest.raises(DemoError, match="step 5 came again with other rows"):
        whole_stream([stream(0, 7), again], steps=10)


def test_a_digest_that_was_not_planned_is_named() -> None:
    planned = {record.step: record.digest for record in stream(0, 10)}
    check_digests(stream(0, 10), planned)
    with pytest.raises(DemoError, match="step 3 was received as"):
        check_digests(stream(0, 10), planned | {3: "ff"})
    with pytest.raises(DemoError, match=r"step 9 .* planned as None"):
        check_digests(stream(0, 10), {step: digest for step, digest in planned.items() if step < 9})


def test_a_swap_elsewhere_is_named() -> None:
    check_one_swap(stream(0, 10), at=5)
    with pytest.raises(DemoError, match=r"announced for step 6.*changed at steps \[5\]"):
        check_one_swap(stream(0, 10), at=6)
    with pytest.raises(DemoError, match=r"changed at steps \[\]"):
        check_one_swap(stream(0, 4), at=5)


def test_a_record_cut_short_by_a_crash_does_not_count(tmp_path: Path) -> None:
    whole = json.dumps({"step": 0, "segment": 0, "loss": 1.0, "digest": f"{0:064x}"})
    (tmp_path / "attempt-0.jsonl").write_text(f'{whole}\n{{"step": 1, "segm', encoding="utf-8")
    assert read_records(tmp_path / "attempt-0.jsonl") == stream(0, 1)
    assert read_records(tmp_path / "attempt-1.jsonl") == []


def test_the_parity_aware_tokenizer_must_be_the_fairer_one() -> None:
    def report(gini: float) -> dict[str, object]:
        return {"gini": gini, "tokens_per_line": 9.0, "languages": {"eng": {"tokens_per_line": 9.0}}}

    compare({"parity": report(0.01), "classical": report(0.1)})
    with pytest.raises(DemoError, match=r"not the fairer one: Gini 0\.100 against 0\.100"):
        compare({"parity": report(0.1), "classical": report(0.1)})


SCRAPED = Scrape(
    target={"a": 0.75, "b": 0.25},
    share={"a": 0.5, "b": 0.5},
    epochs={"a": 1.5, "b": 3.0},
    tokens={"a": 100.0 * SEQ_LEN, "b": 100.0 * SEQ_LEN},
)


def test_a_share_far_from_its_target_is_named() -> None:
    target = mean_target({"a": 0.25, "b": 0.75}, {"a": 0.75, "b": 0.25}, swapped=50, steps=100)
    assert target == {"a": 0.5, "b": 0.5}
    assert check_shares(target, SCRAPED, windows=1.0) == 0
    with pytest.raises(DemoError, match=r"domain `a` is 50\.00 windows from its target"):
        check_shares(SCRAPED.target, SCRAPED, windows=4.0)


def test_tokens_that_do_not_add_up_to_the_steps_are_named() -> None:
    check_complete(replace(SCRAPED, tokens={"a": 16.0 * SEQ_LEN}), steps=1)
    for windows in (17.0, 15.0):
        with pytest.raises(DemoError, match="/metrics counts"):
            check_complete(replace(SCRAPED, tokens={"a": windows * SEQ_LEN}), steps=1)


def test_the_table_has_the_biggest_target_first() -> None:
    lines = shares_table(SCRAPED.target, SCRAPED).splitlines()
    assert lines[0].split() == ["domain", "target", "share", "realized", "share", "epochs", "tokens"]
    assert lines[2].split() == ["a", "0.7500", "0.5000", "1.50", "12,800"]
    assert lines[3].split()[0] == "b"


def test_swapped_weights_are_others_of_the_same_domains() -> None:
    weights = {"eng": 0.25, "code": 0.25, "deu": 0.5}
    swapped = swapped_weights(weights)
    assert swapped == pytest.approx({"eng": 0.75 / 1.75, "code": 0.5 / 1.75, "deu": 0.5 / 1.75})


@pytest.fixture
def metrics_page() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            names = ("target_weight_ratio", "served_share_ratio", "domain_epochs", "served_tokens_total")
            body = "".join(f'headrace_{name}{{run="demo",domain="eng"}} 0.5\n' for name in names)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_metrics_are_read_by_run_and_a_missing_one_is_named(metrics_page: str) -> None:
    assert scrape(metrics_page, "demo").epochs == {"eng": 0.5}
    with pytest.raises(DemoError, match="has no 'headrace_target_weight_ratio' of run `other`"):
        scrape(metrics_page, "other")
