"""The plain-Python twin of the trainer and the encoder: slow, short, and written from the rules alone."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Sequence
from fractions import Fraction

from headrace.tokenizer.byte_chars import to_chars

Word = tuple[str, ...]
Pair = tuple[str, str]
Vocabulary = Counter[Word]


def vocabulary(pieces: Sequence[bytes]) -> Vocabulary:
    """Pieces as words of byte characters, counted."""
    return Counter(tuple(to_chars(piece)) for piece in pieces)


def apply(word: Word, pair: Pair) -> Word:
    """Merge a pair in a word, left to right, without overlap."""
    out: list[str] = []
    at = 0
    while at < len(word):
        if word[at : at + 2] == pair:
            out.append(pair[0] + pair[1])
            at += 2
        else:
            out.append(word[at])
            at += 1
    return tuple(out)


def merge_all(words: Vocabulary, pair: Pair) -> Vocabulary:
    out: Vocabulary = Counter()
    for word, count in words.items():
        out[apply(word, pair)] += count
    return out


def pair_counts(words: Vocabulary) -> Counter[Pair]:
    counts: Counter[Pair] = Counter()
    for word, count in words.items():
        for pair in itertools.pairwise(word):
            counts[pair] += count
    return counts


def tokens(words: Vocabulary) -> int:
    return sum(len(word) * count for word, count in words.items())


def best_pair(words: Sequence[Vocabulary], least: int) -> Pair | None:
    """The most frequent pair; ties go to the largest (left, right) strings."""
    counts: Counter[Pair] = Counter()
    for part in words:
        counts += pair_counts(part)
    count, pair = max(((count, pair) for pair, count in counts.items()), default=(0, ("", "")))
    return pair if count >= least else None


def learn(
    train: Sequence[Vocabulary],
    dev: Sequence[Vocabulary],
    merges: int,
    *,
    least: int = 2,
    global_merges: int = 0,
    window: tuple[int, float] | None = None,
    ratio: Sequence[float] | None = None,
) -> list[Pair]:
    """Parity-aware BPE, one language passed over when it has no pair left."""
    train, dev = list(train), list(dev)
    start = [tokens(words) for words in train]
    recent: deque[int] = deque(maxlen=window[0] if window else 1)
    exhausted: set[int] = set()
    learned: list[Pair] = []

    def score(language: int) -> float:
        if ratio:
            return -((start[language] / tokens(train[language])) / (ratio[language] / ratio[0]))
        return tokens((dev or train)[language])

    while len(learned) < merges:
        if len(learned) < global_merges:
            pair = best_pair(train, least)
            if pair is None:
                break
        else:
            order = sorted((n for n in range(len(train)) if n not in exhausted), key=lambda n: (-score(n), n))
            if not order:
                break
            fits = [n for n in order if not window or recent.count(n) / window[0] <= window[1] / len(train)]
            language = (fits or order)[0]
            pair = best_pair([train[language]], least)
            if pair is None:
                exhausted.add(language)
                continue
            recent.append(language)
        learned.append(pair)
        train = [merge_all(words, pair) for words in train]
        dev = [merge_all(words, pair) for words in dev]
    return learned


def encode(piece: bytes, merges: Sequence[Pair]) -> Word:
    """Merge the pair of lowest rank, leftmost first, until none is left."""
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
    word = list(to_chars(piece))
    while True:
        found = [(ranks[pair], at) for at, pair in enumerate(itertools.pairwise(word)) if pair in ranks]
        if not found:
            return tuple(word)
        at = min(found)[1]
        word[at : at + 2] = [word[at] + word[at + 1]]


_NEARLY = 1 - Fraction(1, 10**12)


def learn_mixed(
    train: Sequence[Vocabulary],
    evidence: Sequence[Vocabulary],
    cost: Sequence[Vocabulary],
    merges: int,
    *,
    sizes: Sequence[tuple[int, int]],
    mix: Fraction,
    kappa: Fraction,
    power: int | None = None,
    rounded: Sequence[Pair] = (),
) -> list[Pair]:
    """Mixed evidence in exact fractions; with `power`, the fall of the p-norm of all costs (one line a language).

    `rounded` are merges chosen by floats: where the next of them is worth as much as the best, but for rounding, it is
    taken, since floats do not know which of two equal sums is the larger.
    """
    train, evidence, cost = list(train), list(evidence), list(cost)
    learned: list[Pair] = []
    while len(learned) < merges:
        gains = [
            {
                pair: mix * seen[pair] + (1 - mix) * Fraction(dev_size, train_size) * learnt[pair]
                for pair in {*seen, *learnt}
            }
            for learnt, seen, (train_size, dev_size) in zip(
                map(pair_counts, train), map(pair_counts, evidence), sizes, strict=True
            )
        ]
        if power is not None:
            total: dict[Pair, Fraction] = {}
            for gain, words in zip(gains, cost, strict=True):
                for pair, value in gain.items():
                    weight = Fraction(tokens(words), 100) ** (power - 1)
                    total[pair] = total.get(pair, Fraction(0)) + weight * value
            gains = [total]
        best = [max(((value, pair) for pair, value in gain.items() if value > 0), default=None) for gain in gains]
        most = max((found[0] for found in best if found), default=Fraction(0))
        able = [n for n, found in enumerate(best) if found and found[0] >= kappa * most]
        if not able:
            break
        language = max(able, key=lambda n: (tokens(cost[n]), -n)) if power is None else 0
        found = best[language]
        assert found is not None
        pair = found[1]
        if (other := next(iter(rounded[len(learned) :]), None)) and gains[language].get(other, 0) >= found[0] * _NEARLY:
            pair = other
        learned.append(pair)
        train, evidence, cost = ([merge_all(words, pair) for words in part] for part in (train, evidence, cost))
    return learned
