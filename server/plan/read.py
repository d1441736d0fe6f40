"""Reads RUN.toml into a spec. Every mistake is an error that names file, line, key and remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from headrace.proto.errors import ConfigError, UsageError
from headrace.server.plan.spec import (
    AT_CAP,
    BLOCK_TOKENS,
    CURVES,
    DRAWS,
    KINDS,
    LARGEST_BATCH,
    LARGEST_SEQ_LEN,
    NAME,
    ORDERS,
    PACKINGS,
    DomainPolicy,
    Phase,
    Point,
    RunSpec,
)
from headrace.server.plan.strict import Table, finite, parse, show

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_MOST_STEPS = 1 << 62
_PHASE_KEYS = ("steps", "tokens", "seq_len", "batch", "batch_tokens", "packing", "weights", "schedule")
_Made = TypeVar("_Made")


def read_run(text: str, *, place: str) -> RunSpec:
    """The spec of a RUN.toml; raises ConfigError."""
    root = parse(text, place=place)
    run = root.table("run")
    kind = run.choice("kind", KINDS, "train")
    phases = tuple(_phase(table, may_be_whole=kind == "eval") for table in root.tables("phase"))
    policies = _policies(root.table("domain", {}))
    root.done()
    spec = _checked(
        run,
        lambda: RunSpec(
            name=run.text("name"),
            corpus=run.text("corpus"),
            seed=run.integer("seed", 0, (1 << 63) - 1, 0 if all(not phase.steps for phase in phases) else ...),
            kind=kind,
            lead=run.integer("lead", 1, 1 << 20, 8),
            draw=run.choice("draw", DRAWS, "balanced"),
            order=run.choice("order", ORDERS, "full"),
            block_tokens=_amount(run, "block_tokens") if run.has("block_tokens") else BLOCK_TOKENS,
            phases=phases,
            domains=policies,
        ),
    )
    run.done({"[[phase]]": _PHASE_KEYS, "[domain.NAME]": ("cap", "at_cap")})
    return spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What a branch changes: phases from the branch point on (None: the parent's), and policies by domain."""

    phases: tuple[Phase, ...] | None
    domains: Mapping[str, DomainPolicy]


def read_changes(text: str, *, place: str) -> Changes:
    """The [[phase]] and [domain.NAME] tables of a branch, written as in RUN.toml; raises ConfigError."""
    root = parse(text, place=place)
    phases = tuple(_phase(table) for table in root.tables("phase")) if root.has("phase") else None
    root.take("phase", None)
    policies = _policies(root.table("domain", {}))
    root.done()
    return Changes(phases=phases, domains=policies)


def _checked(table: Table, make: Callable[[], _Made]) -> _Made:
    """Makes a value; what it says against itself becomes an error at the table."""
    try:
        return make()
    except ConfigError:
        raise
    except UsageError as error:
        raise table.error(table.named_in(str(error)), str(error)) from None


def _phase(table: Table, *, may_be_whole: bool = False) -> Phase:
    name = _name(table, "name")
    seq_len = table.integer("seq_len", 1, LARGEST_SEQ_LEN)
    batch = _batch(table, seq_len)
    whole = may_be_whole and not table.has("steps") and not table.has("tokens")
    steps = 0 if whole else _steps(table, batch * seq_len)
    packing = table.choice("packing", PACKINGS, "concat")
    points = () if whole and not table.has("weights") and not table.has("schedule") else _points(table)
    table.done()
    return _checked(
        table,
        lambda: Phase(name=name, steps=steps, seq_len=seq_len, batch=batch, packing=packing, points=points),
    )


def _name(table: Table, key: str) -> str:
    name = table.text(key)
    if not NAME.fullmatch(name):
        raise table.error(key, f"`{name}` is not a name: a letter or digit, then up to 63 letters, digits and ._+-")
    return name


def _one_of(table: Table, first: str, second: str) -> str:
    """Which of two keys is there; both or neither is an error."""
    if table.has(first) == table.has(second):
        what = "both stand there" if table.has(first) else "neither stands there"
        raise table.error(
            second if table.has(second) else None, f"`{table.name()}` needs either `{first}` or `{second}`; {what}"
        )
    return first if table.has(first) else second


def _batch(table: Table, seq_len: int) -> int:
    if _one_of(table, "batch", "batch_tokens") == "batch":
        return table.integer("batch", 1, LARGEST_BATCH)
    tokens = _amount(table, "batch_tokens")
    batch, rest = divmod(tokens, seq_len)
    if rest:
        raise table.error(
            "batch_tokens",
            f"`batch_tokens` is {tokens}, which seq_len {seq_len} does not divide; {batch * seq_len} or "
            f"{(batch + 1) * seq_len} would do",
        )
    if batch > LARGEST_BATCH:
        raise table.error("batch_tokens", f"{batch} windows a batch are more than {LARGEST_BATCH}")
    return batch


def _steps(table: Table, tokens_a_step: int) -> int:
    if _one_of(table, "steps", "tokens") == "steps":
        return table.integer("steps", 1, _MOST_STEPS)
    return -(-_amount(table, "tokens") // tokens_a_step)


def _amount(table: Table, key: str) -> int:
    """A whole number above 0, or a text such as "80B" (K, M, B, T are powers of 1,000)."""
    value = table.take(key)
    number, unit = value, ""
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        unit = text[-1:].upper() if text[-1:].isalpha() else ""
        try:
            number = Decimal(text[: len(text) - len(unit)])
        except ArithmeticError:
            number = None
    exact = finite(number)
    amount = exact * _UNITS.get(unit, 0) if exact is not None else Decimal(0)
    if amount <= 0 or amount != amount.to_integral_value() or amount > _MOST_STEPS:
        raise table.error(
            key, f'`{table.name(key)}` must be a whole number above 0 or a text such as "80B", not {show(value)}'
        )
    return int(amount)


def _points(table: Table) -> tuple[Point, ...]:
    if _one_of(table, "weights", "schedule") == "weights":
        return (_checked(table, lambda: Point(at=0, weights=_weights(table))),)
    return tuple(_point(point) for point in table.tables("schedule"))


def _point(table: Table) -> Point:
    at = table.integer("at", 0, _MOST_STEPS)
    curve = table.choice("curve", CURVES, "hold")
    weights = _weights(table)
    table.done()
    return _checked(table, lambda: Point(at=at, weights=weights, curve=curve))


def _weights(table: Table) -> dict[str, float]:
    weights = table.table("weights")
    read = {name: _weight(weights, name) for name in weights.keys()}  # noqa: SIM118  (a table, not a dict)
    if not any(read.values()):
        raise table.error("weights", f"`{table.name('weights')}` must give some domain a weight above 0")
    return read


def _weight(table: Table, name: str) -> float:
    value = table.take(name)
    number = finite(value)
    if number is None or number < 0:
        raise table.error(name, f"weight of `{name}` must be a finite number of at least 0, not {show(value)}")
    if not NAME.fullmatch(name):
        raise table.error(name, f"`{name}` is not a domain name")
    weight = float(number)
    if weight == float("inf"):
        raise table.error(name, f"weight of `{name}` is too large: {show(value)}")
    return weight


def _policies(table: Table) -> dict[str, DomainPolicy]:
    return {name: _policy(table.table(name)) for name in table.keys()}  # noqa: SIM118


def _policy(table: Table) -> DomainPolicy:
    cap = table.number("cap") if table.has("cap") else None
    at_cap = table.choice("at_cap", AT_CAP, "redistribute")
    table.take("cap", None)
    table.done()
    if cap is not None and cap <= 0:
        raise table.error(
            "cap", f"`{table.name('cap')}` must be above 0 epochs, not {cap}; weight 0 switches a domain off"
        )
    return DomainPolicy(cap=cap, at_cap=at_cap)
