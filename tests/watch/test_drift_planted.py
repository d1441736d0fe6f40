"""Planted drifts in real corpora are caught within the stated number of intervals, and a clean run stays quiet."""

from __future__ import annotations

import os
from itertools import islice

import numpy as np
import planted
import pytest
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.token_tables import TOKEN_FEATURES, TokenTables
from headrace.server.watch.drift.features import reference
from headrace.server.watch.drift_sample import choose
from headrace.server.watch.drift_settings import DriftSettings

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
WITHIN = 4
"""Intervals until the alarm, for every planted drift; two at least, by the rule."""
EXPECTED = {
    "10 % of another language, same script": "vocabulary",
    "25 % of another language, same script": "vocabulary",
    "10 % of another language, same letters": "vocabulary",
    "5 % of another language and script": "script",
    "one shard ten times": "near_duplicate",
    "one shard ten times, a word of each copy changed": "near_duplicate",
    "documents cut to 64 words": "document_length",
    "documents cut to 16 words": "document_length",
    "5 % of documents encoded twice": "byte_fallback",
    "all documents encoded twice": "byte_fallback",
    "another tokenizer": "vocabulary",
}
QUICK = tuple(EXPECTED)[::2]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> planted.Bench:
    return planted.Bench(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("name", EXPECTED if SLOW else QUICK)
def test_planted_drift_is_caught(bench: planted.Bench, name: str) -> None:
    interval, features = planted.caught(bench, bench.drifted(name), most=WITHIN)
    assert 2 <= interval <= WITHIN
    assert EXPECTED[name] in features


def test_a_clean_run_is_quiet(bench: planted.Bench) -> None:
    """Over several epochs of one corpus: windows that come again are no duplicates."""
    for figures in islice(bench.intervals(bench.corpus), 300 if SLOW else 25):
        assert not [figure for figure in figures if figure.alarm]


def test_an_interval_is_a_pure_function_of_the_plan(bench: planted.Bench) -> None:
    first, again = (list(islice(bench.intervals(bench.corpus), 2)) for _ in range(2))
    assert first == again
    assert first != list(islice(bench.intervals(bench.corpus, seed=2), 2))


def test_profile_in_the_manifest_is_what_the_tokens_are(bench: planted.Bench) -> None:
    """Against counts that are made from the ids themselves."""
    (record,) = bench.corpus.manifest.domains
    windows = np.arange(bench.corpus.view("d", 256, "concat").windows, dtype=np.uint64)
    rows = bench.corpus.read(256, "concat", ["d"], np.zeros(len(windows), np.uint32), windows)
    ids = np.frombuffer(rows.ids, "<u2").reshape(-1, 257)[:, :256]
    ids = ids[np.arange(256) < np.minimum(rows.real_ids, 256)[:, None]]
    tables = TokenTables.of(bench.tokenizer)
    counted = tables.of_rows(ids, np.zeros(len(ids), np.int64), 1)
    for name in TOKEN_FEATURES:
        found = reference(record.profile, name)
        assert found is not None
        assert found == pytest.approx(counted[name][0] / len(ids), abs=1e-12), name
    assert int(tables.widths[ids].sum()) == record.total("text_bytes")
    _, _, lengths = bench.corpus.documents_of("d", 256, "concat", windows, 256)
    assert int(lengths.sum()) == record.total("tokens")
    assert len(lengths) == record.total("documents")


def test_profiles_of_older_builds_give_no_reference_for_what_they_lack(bench: planted.Bench) -> None:
    (record,) = bench.corpus.manifest.domains
    whole = record.profile.to_json()
    old = Profile.from_json({"lengths": whole["lengths"], "ids": whole["ids"]})
    assert reference(old, "script") is None
    assert reference(old, "token_rank") is not None
    mixed = Profile.total([record.profile, old])
    assert not mixed.tokens
    assert sum(mixed.ids) == 2 * sum(old.ids)
    assert Profile.total([record.profile, record.profile]).tokens["script"] == tuple(
        2 * count for count in record.profile.tokens["script"]
    )


def test_sample_is_bounded(bench: planted.Bench) -> None:
    plan, library = planted.planned(bench.corpus, seed=1)
    for sizes, windows in (
        (DriftSettings(rows=50, one_in=1), 50),
        (DriftSettings(one_in=16, least=1), 64),  # of 1,024
        (DriftSettings(one_in=1024, least=20), 20),
        (DriftSettings(one_in=1024, least=1), 1),
    ):
        assert len(choose(plan, library, 0, 32, sizes).windows["d"]) == windows, sizes
