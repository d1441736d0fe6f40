"""Exact duplicates: documents of one domain whose text equals that of an earlier one.

They make epochs dishonest: a text that is there three times is seen three times a pass. They are always counted, and
dropped where the domain says so, by writing the shards concerned again without them. Memory is bounded: the digests
are looked at in as many rounds as it takes, each round those of one range.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from headrace.native import Blake3
from headrace.server.corpus.durable import new_folder
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.shard import ShardInfo, ShardWriter
from headrace.server.corpus.shard_read import is_whole, read_batches, read_digests
from headrace.server.corpus.token_tables import TokenTables

ROUND_DOCUMENTS = 8 << 20  # documents looked at in one round: 16 bytes each, and as much again while they are sorted
Flags = npt.NDArray[np.bool_]


def find_duplicates(paths: Sequence[Path], documents: Sequence[int]) -> list[Flags]:
    """For each shard, which of its documents repeat an earlier one, in the order of the shards."""
    flags = [np.zeros(count, np.bool_) for count in documents]
    rounds = max(1, -(-sum(documents) // ROUND_DOCUMENTS))
    for number in range(rounds if paths else 0):
        _one_round(paths, flags, number, rounds)
    return flags


def _one_round(paths: Sequence[Path], flags: list[Flags], number: int, rounds: int) -> None:
    found, shards, places = [], [], []
    for shard, path in enumerate(paths):
        digests = read_digests(path).view([("low", "<u8"), ("high", "<u8")])[:, 0]
        place = np.flatnonzero(digests["high"] % np.uint64(rounds) == number)
        found.append(digests[place])
        shards.append(np.full(len(place), shard))
        places.append(place)
    digests, shard_of, place_of = np.concatenate(found), np.concatenate(shards), np.concatenate(places)
    order = np.lexsort((np.arange(len(digests)), digests["low"], digests["high"]))
    ordered = digests[order]
    repeats = order[1:][ordered[1:] == ordered[:-1]]
    for shard in np.unique(shard_of[repeats]):
        flags[shard][place_of[repeats[shard_of[repeats] == shard]]] = True


def without(
    path: Path, shard: ShardInfo, drop: Flags, store: Path, tables: TokenTables, *, id_bytes: int, keeps: bool
) -> tuple[Path, ShardInfo, Profile]:
    """The shard written again without some of its documents: its new folder, itself, and its profile.

    The folder is named by what goes in. One that is there already is taken only if it is whole.
    """
    key = Blake3()
    key.update(bytes.fromhex(shard.content) + np.packbits(drop).tobytes())
    folder = store / "unique" / key.digest().hex()[:32]
    made: list[tuple[ShardInfo, Profile]] = []
    name: Callable[[], str] = lambda: folder.name  # noqa: E731
    with new_folder(folder.parent, name) as temporary:
        writer = ShardWriter(temporary, shard.domain, shard.part, id_bytes=id_bytes, keeps=keeps)
        try:
            first = 0
            for batch in read_batches(path):
                last = first + len(batch.ends)
                writer.add(batch.select(~drop[first:last]))
                first = last
            # A batch that was read again does not know how long its texts were; their tokens do, since none is lost.
            info = replace(writer.close(), text_bytes=writer.text_bytes(tables))
            made.append((info, writer.profile(tables)))
        finally:
            writer.abort()
        if folder.is_dir() and not is_whole(folder, info, blocks=True):
            shutil.rmtree(folder)
    return folder, *made[0]
