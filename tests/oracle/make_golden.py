"""Writes golden.json from the oracle: `python tests/oracle/make_golden.py`. A change in it is a new plan version."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import blake3
import xxhash
from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, GenerationFacts, ViewFacts
from headrace.server.plan.spec import RunSpec

sys.path.insert(0, str(Path(__file__).resolve().parent))

from oracle_rng import key, permute, random_u64
from oracle_shares import half_cosine, parts, shares
from random_runs import RandomRun, make_run

FILE = Path(__file__).resolve().parent / "golden.json"
KEYS = ((0, "pass", 0, "a"), (1234, "pass", 3, "web-fra"), ((1 << 63) - 1, "slots", 1 << 40, ""), (7, "draw", 5, "é"))
RUNS = (4, 6, 18, 23, 44, 45)
SIZES = (1, 2, 3, 10, 64, 65, 1000, 10**10, (1 << 63) - 1, 1 << 63)


def vectors() -> dict[str, Any]:
    """Numbers that must never change, from the oracle alone."""
    made = [key(*args) for args in KEYS]
    return {
        "keys": [[list(args), list(value)] for args, value in zip(KEYS, made, strict=True)],
        "random": [[list(made[0]), counter, random_u64(made[0], counter)] for counter in (0, 1, 2**32, 2**64 - 1)],
        "permutations": [
            [list(made[1]), n, index, permute(made[1], n, index)] for n in SIZES for index in sorted({0, n // 3, n - 1})
        ],
        "half_cosine": [half_cosine(i) for i in range(257)],
        "shares": _shares(),
        "rows": _rows(),
    }


def _shares() -> list[Any]:
    views = [(10, 75, 8), (1, 5, 8), (1000, 8000, 8)]
    weights = [{"a": 1, "b": 1, "c": 1}, {"a": 0.3, "b": 0, "c": 0.7}, {"a": 1e-6, "b": 0.1, "c": 1e9}]
    return [[w, views, shares(parts(w, ["a", "b", "c"]), views)] for w in weights]


def _rows() -> list[Any]:
    rows = [(b"\x01\x00\x02\x00\x03\x00", [1, 2], "a", 1.0), (b"\xff" * 12, [], "web-fra", 0.5)]
    digests = [row_digest(*row) for row in rows]
    plain = [[ids.hex(), edges, name, weight] for ids, edges, name, weight in rows]
    return [plain, [digest.hex() for digest in digests], blake3.blake3(b"".join(digests)).hexdigest()]


def row_digest(ids: bytes, edges: list[int], name: str, loss_weight: float) -> bytes:
    """XXH3-128 of a row, as served."""
    parts = [ids, *(struct.pack("<I", edge) for edge in edges), struct.pack("<I", len(edges))]
    parts += [name.encode(), struct.pack("<I", len(name.encode())), struct.pack("<f", loss_weight)]
    return xxhash.xxh3_128_digest(b"".join(parts))


def _run(seed: int) -> dict[str, Any]:
    """A random run, written out so that no library's random numbers matter; its first steps, and a hash of all."""
    run = make_run(seed)
    steps = list(run.oracle())
    whole = hashlib.sha256(json.dumps([step.slots for step in steps]).encode()).hexdigest()
    document = {"spec": run.spec.to_json(), "tokens": dict(run.facts.tokens), "events": run.plain_events()}
    views = [[*key, view.windows, view.real_tokens] for key, view in run.facts.views.items()]
    generations = [
        [*key, one.tokens, [[*shape, view.windows, view.real_tokens] for shape, view in one.views.items()]]
        for key, one in run.facts.generations.items()
    ]
    document |= {"views": views, "generations": generations}
    return {**document, "steps": len(steps), "first": [s.slots for s in steps[:2]], "sha256": whole}


def run_of(golden: dict[str, Any]) -> RandomRun:
    """The run that a golden entry describes."""
    views = {(name, s, p): ViewFacts(windows=n, real_tokens=r) for name, s, p, n, r in golden["views"]}
    generations = {
        (digest, name): GenerationFacts(
            tokens=tokens, views={(s, p): ViewFacts(windows=n, real_tokens=r) for s, p, n, r in shapes}
        )
        for digest, name, tokens, shapes in golden["generations"]
    }
    facts = CorpusFacts(
        digest=bytes(32), tokens=golden["tokens"], vocab_size=100, pad_id=1, views=views, generations=generations
    )
    events: list[log.Event] = []
    for plain in golden["events"]:
        body = log.body_from_json(plain["kind"], json.dumps(plain["body"]))
        steps = {"from_step": plain["from_step"], "until_step": plain["until_step"]}
        events.append(log.append(events, body=body, **steps, author="", reason="", time_us=0))
    return RandomRun(seed=-1, spec=RunSpec.from_json(golden["spec"]), facts=facts, events=tuple(events))


if __name__ == "__main__":
    FILE.write_text(
        json.dumps({**vectors(), "runs": [_run(seed) for seed in RUNS]}, separators=(",", ":")).replace('],"', '],\n"')
        + "\n"
    )
