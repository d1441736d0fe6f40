"""Runs that are far along, made in a moment: the store is told what a long training would have told it.

Nothing is faked: events go through the validator, the seal rises with its anchors, ranks confirm under a lease. Only
that nobody trained is not true.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corpora import build_small_corpus
from headrace.server.control.events import Wish
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import Heard
from headrace.server.control.seal import Raise
from headrace.server.control.store import Store
from headrace.server.plan.log import WeightsBody
from headrace.server.service.changes import checker
from headrace.server.service.loading import Opener, new_run

_LANGUAGES = (
    "deu fra spa ita por nld pol ces swe dan fin hun ron bul ell tur ara heb hin ben tam tel tha vie ind jpn kor zho "
    "rus ukr"
)
_SOURCES = ("web", "books", "code", "wiki", "news", "papers", "forum")


_REASONS = (
    "more of what the evaluation of step 4k was weak in",
    "mixer: krls pretrain",
    "licence of one source is under review, less of it until then",
    "",
)


@dataclass(frozen=True, kw_only=True)
class World:
    """A run to make."""

    domains: int = 12
    steps: int = 20_000
    confirmed: int = 14_000
    batch: int = 16
    seq_len: int = 32
    events: int = 6
    ranks: int = 8
    documents: int = 40
    draw: str = "balanced"
    reasons: tuple[str, ...] = _REASONS


def domain_names(count: int) -> list[str]:
    """Names as people give them, one of them as long as a name may be."""
    names = [f"{source}-{language}" for source in _SOURCES for language in _LANGUAGES.split()]
    return [*names[: count - 1], "crawl-2026.14+dedup-" + "x" * 44][:count]


def weights_of(names: list[str], words: random.Random) -> dict[str, float]:
    """An uneven mixture."""
    return {name: round(words.paretovariate(1.3), 4) for name in names}


def make_world(folder: Path, world: World) -> Path:
    """A store with the run `pretrain-7b`, and its corpus; the RUN.toml."""
    words = random.Random(5)
    names = domain_names(world.domains)
    sizes = {name: max(3, int(world.documents * words.paretovariate(1.5))) for name in names}
    build_small_corpus(folder, documents=sizes)
    run = folder / "RUN.toml"
    run.write_text(run_toml(world, weights_of(names, words), names))
    store = Store(f"sqlite:///{folder}/control.db", writable=True)
    try:
        _live(store, run, world, names, words)
    finally:
        store.close()
    with contextlib.closing(sqlite3.connect(folder / "control.db")) as database, database:
        database.execute("UPDATE runs SET lead = 8")  # it was long, so that the seal could come here in a few steps
    return run


def run_toml(world: World, weights: Mapping[str, float], names: list[str]) -> str:
    """A RUN.toml of two phases; some domains have caps."""
    entries = ", ".join(f'"{name}" = {weight}' for name, weight in weights.items())
    tokens = world.steps * world.batch * world.seq_len
    caps = "".join(
        f'[domain."{name}"]\ncap = {max(1, round(tokens / 40_000 / len(names) * factor, 1))}\n'
        for name, factor in zip(names[1::3], (3, 8, 1.7, 30, 5, 2.2, 12) * len(names), strict=False)
    )
    phases = "".join(
        f'[[phase]]\nname = "{name}"\nsteps = {steps}\nseq_len = {world.seq_len}\nbatch = {world.batch}\n'
        f"weights = {{ {entries} }}\n"
        for name, steps in (("warmup", world.steps // 10), ("stable", world.steps - world.steps // 10))
    )
    return (
        f'[run]\nname = "pretrain-7b"\ncorpus = "corpus/manifest.json"\nseed = 11\nlead = {1 << 20}\n'
        f'draw = "{world.draw}"\n{phases}{caps}'
    )


def _live(store: Store, run: Path, world: World, names: list[str], words: random.Random) -> None:
    opener = Opener(store)
    text = run.read_text()
    new = new_run(text, place="RUN.toml", base_dir=str(run.parent), author="ann", corpora=opener.corpora)
    store.create_run(new)
    tokens = _open(store, opener, world)
    for stage in range(world.events + 1):
        view = opener.view("pretrain-7b")
        to = world.confirmed * (stage + 1) // (world.events + 1)
        raised = Raise(to=to + (8 if stage == world.events else 0), head=view.run.head, anchors=view.anchors(to))
        store.advance(view.run.id, heard=[Heard(token=tokens[0], next_step=view.run.confirmed)], wish=raised)
        heard = [Heard(token=token, next_step=to - place % 3) for place, token in enumerate(tokens)]
        store.advance(view.run.id, heard=heard)
        if stage < world.events:
            body = WeightsBody(weights=_normal(weights_of(names, words)))
            wish = Wish(
                body=body, author=("ann", "krls", "bo")[stage % 3], reason=world.reasons[stage % len(world.reasons)]
            )
            store.append(view.run.id, wish, checker(opener.view("pretrain-7b")))


def _open(store: Store, opener: Opener, world: World) -> list[bytes]:
    """Lease tokens of the ranks."""
    run = opener.view("pretrain-7b").run.id
    return [
        store.open_lease(
            run,
            OpenLease(
                job="slurm-48213",
                attempt=2,
                label=str(rank),
                world=world.ranks,
                holder=f"node{rank // 8:03}:{4000 + rank}",
                next_step=0,
            ),
        ).token
        for rank in range(world.ranks)
    ]


def _normal(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
