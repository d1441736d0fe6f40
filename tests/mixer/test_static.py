"""Static rules and epoch arithmetic against published and hand-checked values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from headrace.mixer import epochs as ep
from headrace.mixer.simplex import normalise
from headrace.mixer.static import document_weights, from_epochs, manual, natural, temperature, uniform, unimax
from headrace.proto.errors import UsageError

NAMES = ("web", "code", "math", "books", "multi")
POOL = dict(zip(NAMES, (3000, 200, 25, 100, 500), strict=True))
TEACHING = dict(zip(NAMES, (0.5, 0.2, 0.1, 0.08, 0.12), strict=True))


def close(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    assert dict(found) == pytest.approx(dict(expected), abs=5e-7)


def test_epochs_of_a_mixture() -> None:
    close(ep.epochs(TEACHING, POOL, 1500), dict(zip(NAMES, (0.25, 1.5, 6.0, 1.2, 0.36), strict=True)))


def test_weights_from_target_epochs() -> None:
    tokens = {"web": 2000, "code": 200, "math": 20, "books": 60}
    result = from_epochs(tokens, {"web": 0.2, "code": 2, "math": 5, "books": 3}, 800)
    close(result.weights, {"web": 0.370370, "code": 0.370370, "math": 0.092593, "books": 0.166667})
    close(result.realized, {"web": 0.148148, "code": 1.481481, "math": 3.703704, "books": 2.222222})
    assert result.scale == pytest.approx(0.740741, abs=5e-7)


def test_weights_from_target_epochs_of_five_domains() -> None:
    tokens = dict(zip(NAMES, (3000, 250, 30, 80, 400), strict=True))
    result = from_epochs(tokens, dict(zip(NAMES, (0.25, 1.5, 4, 2, 0.6), strict=True)), 1000)
    close(result.weights, dict(zip(NAMES, (0.455927, 0.227964, 0.072948, 0.097264, 0.145897), strict=True)))
    close(result.realized, dict(zip(NAMES, (0.151976, 0.911854, 2.431611, 1.215805, 0.364742), strict=True)))
    assert result.scale == pytest.approx(0.607903, abs=5e-7)


def test_an_anneal_counts_towards_the_epochs() -> None:
    tokens = {"math": 30, "rest": 3000}
    phases = [({"math": 0.04, "rest": 0.96}, 1700), ({"math": 0.25, "rest": 0.75}, 300)]
    assert ep.schedule_epochs(phases, tokens)["math"] == pytest.approx(4.766667, abs=5e-7)


def test_when_data_runs_out() -> None:
    assert ep.first_exhausted(TEACHING, POOL) == pytest.approx(250)
    stop = ep.all_exhausted(TEACHING, POOL)
    assert stop == pytest.approx(6000)
    assert ep.epochs(TEACHING, POOL, stop)["math"] == pytest.approx(24)


def test_epochs_of_what_was_really_drawn() -> None:
    """200 batches of 32 windows of 1,024 tokens, drawn by NumPy's generator from pools of millions of tokens."""
    weights = np.array([0.456, 0.228, 0.073, 0.097, 0.146])
    drawn = [np.random.default_rng([1337, step]).choice(5, size=32, p=weights / weights.sum()) for step in range(200)]
    assert drawn[0][:10].tolist() == [4, 0, 4, 4, 4, 0, 0, 0, 1, 4]
    counts = np.bincount(np.concatenate(drawn), minlength=5)
    assert counts.tolist() == [2919, 1474, 462, 605, 940]
    pools = {"web": 3_000_000, "code": 250_000, "math": 30_000, "books": 80_000, "multi": 400_000}
    realised = dict(zip(pools, (counts / counts.sum()).tolist(), strict=True))
    assert list(realised.values()) == pytest.approx([0.456094, 0.230313, 0.072188, 0.094531, 0.146875], abs=6e-7)
    read = ep.epochs(realised, pools, 200 * 32 * 1024)
    assert [read[name] for name in pools] == pytest.approx([0.996352, 6.037504, 15.7696, 7.744, 2.4064], abs=5e-7)


def test_temperature() -> None:
    tokens = {"a": 1e12, "b": 1e11, "c": 1e9}
    close(temperature(tokens, 1 / 0.3), {"a": 0.614598, "b": 0.308029, "c": 0.077373})
    close(ep.epochs(temperature(tokens, 1 / 0.3), tokens, 1e12), {"a": 0.614598, "b": 3.080287, "c": 77.373306})
    close(temperature(tokens, 10), {"a": 0.435632, "b": 0.346035, "c": 0.218333})
    close(ep.epochs(temperature(tokens, 10), tokens, 1e12), {"a": 0.435632, "b": 3.460348, "c": 218.333198})
    close(ep.epochs(temperature(tokens, 1), tokens, 1e12), dict.fromkeys(tokens, 0.908265))
    assert temperature(tokens, 1) == pytest.approx(natural(tokens))
    assert temperature({"a": 1.0, "b": 1e300}, 0.01)["b"] == 1.0  # no overflow


@pytest.mark.parametrize(
    ("counts", "budget", "epochs", "shares", "shortfall"),
    [
        ((100, 200, 300, 400, 500), 1000, 1, (0.1, 0.2, 0.233333, 0.233333, 0.233333), 0),
        ((10, 100, 1000), 600, 1, (0.016667, 0.166667, 0.816667), 0),
        ((10, 100, 1000), 600, 4, (0.066667, 0.466667, 0.466667), 0),
        ((25, 100, 200, 500, 3000), 1500, 4, (0.066667, 0.233333, 0.233333, 0.233333, 0.233333), 0),
        ((10, 100), 1000, 4, (0.090909, 0.909091), 560),
    ],
)
def test_unimax(
    counts: tuple[int, ...], budget: float, epochs: float, shares: tuple[float, ...], shortfall: float
) -> None:
    result = unimax({f"d{i}": count for i, count in enumerate(counts)}, budget, epochs)
    assert tuple(result.weights.values()) == pytest.approx(shares, abs=5e-7)
    assert result.shortfall == pytest.approx(shortfall)


def test_repetition_law() -> None:
    found = [ep.effective_tokens(1.0, n) for n in (1, 2, 4, 6, 8, 16, 40)]
    assert found == pytest.approx([1, 1.968199, 3.725673, 5.268944, 6.624119, 10.582457, 15.167465], abs=5e-7)
    assert ep.predicted_loss(6.34e9, 242e9, 25e9) == pytest.approx(2.2256440889984477, abs=1e-12)
    assert ep.predicted_loss(8.67e9, 178e9, 25e9) == pytest.approx(2.2269634075087867, abs=1e-12)


def test_equal_document_weights_are_not_equal_token_weights() -> None:
    found = document_weights({"a": 1, "b": 1, "c": 1}, {"a": 1e3, "b": 5e3, "c": 50e3})
    close(found, {"a": 0.017857, "b": 0.089286, "c": 0.892857})


@pytest.mark.parametrize(
    "parts",
    [
        {"a": 0.333333, "b": 0.333333, "c": 0.333333},
        {f"d{i}": 0.1 for i in range(10)},
        {"a": 70, "b": 30},
        {"a": 0.10000000149011612, "b": 0.8999999761581421},
        {"a": 1e308, "b": 1e308},
        {"a": 1e-320, "b": 1},
        {"a": -0.0, "b": 1},
    ],
)
def test_any_finite_parts_are_normalised(parts: dict[str, float]) -> None:
    found = manual(parts)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(str(value)[0] != "-" for value in found.values())


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"a": 1.1, "b": -0.1}, "`b`"),
        ({"a": float("nan"), "b": 0.5}, "`a`"),
        ({"a": float("inf"), "b": 0.5}, "`a`"),
        ({"a": "0.5", "b": 0.5}, "`a`"),
        ({"a": None, "b": 1}, "`a`"),
        ({"a": True, "b": 1}, "`a`"),
        ({}, "no domain"),
        ({"a": 0, "b": 0}, "every weight is 0"),
        ({"code ": 1}, "`code `"),
    ],
)
def test_bad_parts_are_refused_by_name(parts: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        normalise(parts, place="test")


def test_domains_without_tokens_are_refused() -> None:
    with pytest.raises(UsageError, match="`b` has no tokens"):
        natural({"a": 1, "b": 0})
    with pytest.raises(UsageError, match="`b` has a token count or a target but not both"):
        from_epochs({"a": 1, "b": 2}, {"a": 1, "c": 2}, 10)


def test_uniform() -> None:
    assert uniform(["b", "a"]) == {"a": 0.5, "b": 0.5}
