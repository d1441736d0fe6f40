"""Gradient-boosted regression trees for small tables: what RegMix predicts losses of mixtures with.

    F_0 = mean(y);   F_t = F_{t-1} + rate * tree_t(residuals);   squared error, splits by largest gain, best leaf first

What holds: exact splits, no randomness, NumPy alone; at least `leaf` rows a leaf, 5 by default, because the usual 20
leave trees blind on some fifty runs. On the public proxy runs it ranks held-out mixtures like LightGBM with the same
leaves. What was given up: histograms, so that it is for thousands of rows, not millions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from headrace.mixer.simplex import Vector
from headrace.proto.errors import UsageError

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class TreesSpec:
    """trees: how many; rate: of learning; leaves: most of a tree; leaf: least rows of a leaf."""

    trees: int = 200
    rate: float = 0.05
    leaves: int = 31
    leaf: int = 5

    def __post_init__(self) -> None:
        if min(self.trees, self.leaf) < 1 or self.leaves < 2 or not 0 < self.rate <= 1:
            raise UsageError("trees: trees and leaf must be at least 1, leaves at least 2, rate above 0 and at most 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """Nodes by number from 0, the root. feature: -1 in a leaf; x <= threshold goes left; value: of a leaf."""

    feature: npt.NDArray[np.intp]
    threshold: Vector
    left: npt.NDArray[np.intp]
    right: npt.NDArray[np.intp]
    value: Vector

    def predict(self, rows: Vector) -> Vector:
        """(n,) values of (n, m) rows."""
        at = np.zeros(len(rows), dtype=np.intp)
        moving = np.arange(len(rows))
        while len(moving := moving[self.feature[at[moving]] >= 0]):
            node = at[moving]
            goes_left = rows[moving, self.feature[node]] <= self.threshold[node]
            at[moving] = np.where(goes_left, self.left[node], self.right[node])
        result: Vector = self.value[at]
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """The sum of the trees."""

    base: float
    rate: float
    trees: tuple[Tree, ...]

    def predict(self, rows: Vector) -> Vector:
        """(n,) predictions of (n, m) rows."""
        total = np.full(len(rows), self.base)
        for tree in self.trees:
            total += self.rate * tree.predict(rows)
        return total


@dataclass(frozen=True, kw_only=True, slots=True)
class _Split:
    gain: float
    feature: int
    threshold: float


def fit_trees(rows: Vector, targets: Vector, spec: TreesSpec | None = None) -> Forest:
    """Fit (n, m) rows to (n,) targets. Raises UsageError for fewer rows than two leaves hold."""
    spec = spec or TreesSpec()
    if len(rows) != len(targets) or len(rows) < 2 * spec.leaf:
        raise UsageError(f"trees: {len(targets)} targets of {len(rows)} rows; at least {2 * spec.leaf} rows are needed")
    base, trees = float(targets.mean()), list[Tree]()
    left = targets - base
    for _ in range(spec.trees):
        tree = _grow(rows, left, spec)
        trees.append(tree)
        left = left - spec.rate * tree.predict(rows)
    return Forest(base=base, rate=spec.rate, trees=tuple(trees))


def _grow(rows: Vector, left: Vector, spec: TreesSpec) -> Tree:
    """One tree: the leaf whose best split gains most is split next."""
    members: list[Rows] = [np.arange(len(rows))]
    splits: list[_Split | None] = [_best_split(rows, left, members[0], spec.leaf)]
    nodes: list[tuple[int, float, int, int]] = [(-1, 0.0, 0, 0)]
    for _ in range(spec.leaves - 1):
        gains = [split.gain if split else 0.0 for split in splits]
        number = int(np.argmax(gains))
        split = splits[number]
        if split is None or split.gain <= 0:
            break
        goes_left = rows[members[number], split.feature] <= split.threshold
        nodes[number] = (split.feature, split.threshold, len(nodes), len(nodes) + 1)
        splits[number] = None
        for part in (members[number][goes_left], members[number][~goes_left]):
            nodes.append((-1, 0.0, 0, 0))
            members.append(part)
            splits.append(_best_split(rows, left, part, spec.leaf))
    columns: Sequence[Sequence[float]] = list(zip(*nodes, strict=True))
    feature, below, above = (np.array(columns[i], dtype=np.intp) for i in (0, 2, 3))
    values = np.array([left[part].mean() for part in members])
    return Tree(feature=feature, threshold=np.array(columns[1]), left=below, right=above, value=values)


def _best_split(rows: Vector, left: Vector, part: Rows, leaf: int) -> _Split | None:
    """The split of a node that lowers the squared error most, or None."""
    n = len(part)
    if n < 2 * leaf:
        return None
    values = rows[part]
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    sums = np.cumsum(left[part][order], axis=0)[leaf - 1 : n - leaf]
    total, count = float(left[part].sum()), np.arange(leaf, n - leaf + 1)[:, None]
    gain = sums**2 / count + (total - sums) ** 2 / (n - count) - total**2 / n
    gain[ordered[leaf - 1 : n - leaf] == ordered[leaf : n - leaf + 1]] = -1.0  # equal values cannot be parted
    place, feature = np.unravel_index(int(np.argmax(gain)), gain.shape)
    at = leaf - 1 + int(place)
    middle = float(ordered[at, feature] + ordered[at + 1, feature]) / 2
    threshold = min(middle, float(np.nextafter(ordered[at + 1, feature], -np.inf)))  # rounding never moves a row over
    return _Split(gain=float(gain[place, feature]), feature=int(feature), threshold=threshold)
