"""Golden vectors: neither the oracle nor the Rust core may ever give other numbers under one plan version."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

import make_golden
import numpy as np
import pytest
from headrace import native
from make_golden import FILE, run_of

GOLDEN = json.loads(FILE.read_text())


def test_oracle_gives_the_golden_vectors() -> None:
    made = json.loads(json.dumps(make_golden.vectors()))
    assert made == {part: value for part, value in GOLDEN.items() if part != "runs"}
    for golden in GOLDEN["runs"]:
        slots = [step.slots for step in run_of(golden).oracle()]
        assert hashlib.sha256(json.dumps(slots).encode()).hexdigest() == golden["sha256"]


def test_keys_and_random_numbers() -> None:
    for (seed, purpose, number, name), expected in GOLDEN["keys"]:
        assert list(native.key(seed, purpose, number, name)) == expected
    for key, counter, expected in GOLDEN["random"]:
        assert native.random_u64(tuple(key), counter) == expected


def test_permutations() -> None:
    for key, n, index, expected in GOLDEN["permutations"]:
        assert native.permute(tuple(key), n, index) == expected
        assert native.permute_many(tuple(key), n, np.array([index], dtype=np.uint64)).tolist() == [expected]


def test_digests_of_rows_and_steps() -> None:
    rows, digests, step = GOLDEN["rows"]
    for (ids, edges, name, weight), expected in zip(rows, digests, strict=True):
        data = bytes.fromhex(ids)
        made = native.row_digests(
            data,
            len(data),
            np.array([len(edges)], dtype=np.uint32),
            np.array(edges, dtype=np.uint32),
            ["other", name],
            np.array([1], dtype=np.uint32),
            np.array([weight], dtype=np.float32),
        )
        assert made.hex() == expected
    whole = bytes.fromhex("".join(digests))
    assert native.step_digest(whole).hex() == step
    rows = np.frombuffer(whole, dtype=np.uint8).reshape(-1, 16)
    for pieces in ([whole[:16], whole[16:]], [rows[:1], rows[1:]], rows):
        assert native.step_digest(pieces).hex() == step


@pytest.mark.parametrize(
    ("given", "error"),
    [([], ValueError), (b"", ValueError), (b"short", ValueError), ("text", TypeError), (3, TypeError)],
)
def test_what_has_no_step_digest_is_told_what_has_one(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="row_digests of the step's rows in slot order"):
        native.step_digest(given)


@pytest.mark.parametrize("golden", GOLDEN["runs"], ids=itertools.count())
def test_whole_runs(golden: dict[str, Any]) -> None:
    plan = run_of(golden).plan()
    steps = []
    for step in range(plan.end or 0):
        draw = plan.draw(step)
        columns = (draw.domains, draw.passes, draw.indices, draw.windows)
        steps.append([[plan.domains[d], int(p), int(i), int(w)] for d, p, i, w in zip(*columns, strict=True)])
    assert len(steps) == golden["steps"]
    assert steps[:2] == golden["first"]
    assert hashlib.sha256(json.dumps(steps).encode()).hexdigest() == golden["sha256"]
