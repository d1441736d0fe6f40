"""KRLS against hand-checked values, and the cases in which the released code fails."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.mixer.krls import Convention, KrlsSpec, centre, gram, krls, leverage_scores
from headrace.proto.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

A1 = {"a": (1, 0), "b": (0, 1)}
A2 = {"a": (1, 0), "b": (1, 0)}
A3 = {"a": (1, 0), "b": (1, 0), "c": (0, 1)}


def matrix(rows: dict[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    return {name: np.array(row, dtype=np.float64) for name, row in rows.items()}


def paper(purpose: str) -> KrlsSpec:
    return KrlsSpec(convention="paper", purpose=purpose, lam=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "scores", "pretrain", "finetune"),
    [
        (A1, (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)),
        (A2, (0.333333, 0.333333), (0.5, 0.5), (0.5, 0.5)),
        (
            A3,
            (0.285714, 0.285714, 0.4),
            (0.422319, 0.422319, 0.155362),
            (0.320403, 0.320403, 0.359195),
        ),
    ],
)
def test_paper_convention(
    rows: dict[str, tuple[int, int]],
    scores: tuple[float, ...],
    pretrain: tuple[float, ...],
    finetune: tuple[float, ...],
) -> None:
    result = krls(matrix(rows), paper("pretrain"))
    assert tuple(result.scores.values()) == pytest.approx(scores, abs=5e-7)
    assert tuple(result.weights.values()) == pytest.approx(pretrain, abs=5e-7)
    assert tuple(krls(matrix(rows), paper("finetune")).weights.values()) == pytest.approx(finetune, abs=5e-7)


@pytest.mark.parametrize("lam", [0.5, 10.0])
def test_reference_convention(lam: float) -> None:
    result = krls(matrix(A3), KrlsSpec(lam=lam))
    assert tuple(result.scores.values()) == pytest.approx((0.166667, 0.166667, 0.666667), abs=5e-7)
    assert tuple(result.weights.values()) == pytest.approx((0.415529, 0.415529, 0.168942), abs=5e-7)
    finetune = krls(matrix(A3), KrlsSpec(lam=lam, purpose="finetune"))
    assert tuple(finetune.weights.values()) == pytest.approx((0.070509, 0.070509, 0.858981), abs=5e-7)


@pytest.mark.parametrize(
    "rows", [matrix(A2), {"only": np.array([3.0, -1.0])}, {"x": np.full(7, 0.1), "y": np.full(7, 0.1)}]
)
def test_equal_embeddings_give_uniform_weights_and_a_warning(rows: dict[str, np.ndarray]) -> None:
    result = krls(rows)
    assert tuple(result.weights.values()) == pytest.approx([1 / len(rows)] * len(rows))
    assert "equal" in result.warnings[0]


def test_scale_matters_and_is_reported() -> None:
    small, large = (
        krls(matrix(A3), paper("pretrain")),
        krls({n: 10 * v for n, v in matrix(A3).items()}, paper("pretrain")),
    )
    assert tuple(large.scores.values()) == pytest.approx((0.496278, 0.496278, 0.985222), abs=5e-7)
    assert small.relative_lam == pytest.approx(100 * large.relative_lam)
    relative = [
        krls({n: scale * v for n, v in matrix(A3).items()}, KrlsSpec(convention="paper", relative_lam=0.5))
        for scale in (1.0, 10.0)
    ]
    assert tuple(relative[0].weights.values()) == pytest.approx(tuple(relative[1].weights.values()))


@pytest.mark.parametrize("convention", ["paper", "reference"])
def test_unit_length_ignores_how_long_an_embedding_is(convention: Convention) -> None:
    one, two = np.array([1.0, 0.2, 0.0]), np.array([0.1, 1.0, 0.3])
    rows = {"a": one, "b": -one, "c": two, "d": -two}  # pairs, so that the mean stays where it is
    longer = rows | {"a": 3 * one, "b": -3 * one}
    plain = KrlsSpec(convention=convention, relative_lam=0.1)
    unit = KrlsSpec(convention=convention, relative_lam=0.1, unit_length=True)
    assert krls(longer, unit).weights == pytest.approx(krls(rows, unit).weights, abs=1e-9)
    assert krls(longer, plain).weights != pytest.approx(krls(rows, plain).weights, abs=1e-3)


@pytest.mark.parametrize(("lam", "says"), [(1e-6, "near 1"), (0.5, ""), (1e3, "length only")])
def test_a_lambda_off_the_scale_is_said(lam: float, says: str) -> None:
    found = krls(matrix(A3), KrlsSpec(convention="paper", lam=lam)).warnings
    assert says in found[0] if says else not found


def test_only_the_centred_form_ignores_a_common_shift() -> None:
    rows = np.array([(1, 0), (1, 0), (0, 1)], dtype=np.float64)
    for shifted in (rows, rows + 5):
        assert leverage_scores(centre(gram(shifted)), 0.5) == pytest.approx((0.078431, 0.078431, 0.313725), abs=5e-7)
    assert leverage_scores(gram(rows + 5), 0.5) == pytest.approx((0.409639, 0.409639, 0.642892), abs=5e-7)


def test_a_domain_near_the_centre_is_named() -> None:
    rows = {f"d{i}": np.eye(6)[i] for i in range(6)} | {"middle": np.full(6, 1 / 6) + 1e-3 * np.eye(6)[0]}
    result = krls(rows)
    assert result.weights["middle"] > 0.99
    assert any("`middle`" in warning and "largest share" in warning for warning in result.warnings)


def test_a_new_domain_needs_only_its_own_embedding() -> None:
    rng = np.random.default_rng(7)
    old = {f"d{i}": rng.normal(size=16) for i in range(7)}
    new = krls(old | {"eighth": rng.normal(size=16)}, KrlsSpec(convention="paper", lam=1.0))
    both = np.stack([*old.values(), rng.normal(size=16)])  # another vector: the old scores must depend on the new one
    assert set(new.weights) == {*old, "eighth"}
    other = krls(dict(zip([*old, "eighth"], both, strict=True)), KrlsSpec(convention="paper", lam=1.0))
    assert new.scores["d0"] != pytest.approx(other.scores["d0"], abs=1e-9)


@pytest.mark.parametrize("convention", ["paper", "reference"])
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 30), scale=st.sampled_from([1e-6, 1.0, 1e4]))
def test_weights_are_a_distribution_and_ignore_order(convention: Convention, seed: int, k: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    rows = {f"d{i}": scale * rng.normal(size=5) for i in range(k)}
    spec = KrlsSpec(convention=convention, relative_lam=0.1)
    result = krls(rows, spec)
    values = np.array(list(result.weights.values()))
    assert np.isfinite(values).all()
    assert values.min() >= 0
    assert values.sum() == pytest.approx(1.0)
    assert krls(dict(reversed(rows.items())), spec) == result


def test_unusable_embeddings_are_refused_by_name() -> None:
    good = np.array([1.0, 2.0])
    for bad in (np.array([1.0, np.nan]), np.array([1.0]), np.zeros((1, 2))):
        with pytest.raises(UsageError, match="`z`"):
            krls({"a": good, "z": bad})
    with pytest.raises(UsageError, match="`z` is all zeros"):
        krls({"a": good, "z": np.zeros(2)}, KrlsSpec(convention="paper"))
    with pytest.raises(UsageError, match="no domain"):
        krls({})


@pytest.mark.parametrize(
    "wrong",
    [
        {"convention": "x"},
        {"purpose": "x"},
        {"lam": 0.0},
        {"lam": 1.0, "relative_lam": 1.0},
        {"temperature": float("nan")},
    ],
)
def test_spec_checks_itself(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        KrlsSpec(**wrong)  # type: ignore[arg-type]
