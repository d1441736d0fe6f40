"""What must hold between the languages of a run's texts: all of them everywhere, and aligned lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headrace.proto.errors import UsageError

_REMEDY = {
    "development text": "give each lines that are aligned with the others' (`--dev LANG=FILE`), leave it out of the "
    "training text, or give a ratio for every language instead of development text (`--ratio LANG=R`)",
    "ratio": "give one for each language (`--ratio LANG=R`), or leave the language out of the training text",
}


def check_covered(what: str, given: Iterable[str], names: Sequence[str]) -> None:
    """UsageError unless `given`, the languages that have a `what`, are those of the training text, `names`."""
    given = set(given)
    missing = [name for name in names if name not in given]
    if missing:
        raise UsageError(f"the training text has {_listed(missing)}, but the {what} has not; {_REMEDY[what]}")
    extra = sorted(given.difference(names))
    if extra:
        raise UsageError(
            f"the {what} has {_listed(extra)}, but the training text has not; give text of each "
            f"(`--train LANG=FILE`), or leave it out of the {what}"
        )


def check_aligned(lines: Mapping[str, Sequence[str]], what: str) -> None:
    """UsageError unless every language has as many lines, and at least one."""
    counts = {name: len(texts) for name, texts in lines.items()}
    if not any(counts.values()):
        raise UsageError(
            f"the {what} has no line; give each language a file of lines that are aligned with the others'"
        )
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = [f"`{name}` has {count}" for name, count in counts.items() if count != usual]
    if odd:
        raise UsageError(
            f"the {what} must be aligned, line i the same in each language, but {', '.join(odd)} lines where most "
            f"have {usual}; give files that are aligned, or cut all to the lines they have in common"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
