"""Aligned segments: one meaning in every language, from Django's translations and the CLDR names in Babel.

A segment is found by its key (app, file, context and msgid in Django; kind and code in CLDR). Of a message with
plural forms the last form is taken, the plural in every language here. A segment counts as aligned when all languages
have it and none of its texts holds a line end, so that a split is one line a segment; the others still serve as
training text of the languages that have them. Nothing else is filtered: what is left out is counted by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import django
from babel import Locale
from babel.messages.mofile import read_mo
from headrace.client.cli.demo.languages import Language

Key = tuple[str, ...]
"""Source, catalogue and id of a segment; the last element is the msgid or the CLDR code."""

_CLDR_MAPS = ("territories", "languages", "scripts", "currencies", "variants")


def segments(language: Language) -> dict[Key, str]:
    """Every segment that the language has, in the order of the keys."""
    found = dict(_cldr_names(language.cldr))
    found |= dict(_django_messages(language.django) if language.django else _django_ids())
    return {key: found[key] for key in sorted(found)}


def aligned_keys(texts: Mapping[str, Mapping[Key, str]]) -> list[Key]:
    """Keys that every language has, as one line each, sorted.

    `texts` maps language names to their segments; raises ValueError when there is no language.
    """
    if not texts:
        raise ValueError("no languages to align")
    first, *others = texts.values()
    return [
        key
        for key in sorted(first)
        if all(key in other for other in others) and all(_is_line(text[key]) for text in texts.values())
    ]


def _is_line(text: str) -> bool:
    return len(text.splitlines()) == 1


def _mo_files(locale: str) -> Iterator[tuple[str, Path]]:
    base = Path(django.__file__).parent
    patterns = (f"conf/locale/{locale}/LC_MESSAGES/*.mo", f"contrib/*/locale/{locale}/LC_MESSAGES/*.mo")
    for path in sorted(path for pattern in patterns for path in base.glob(pattern)):
        app = path.relative_to(base).parts[1] if "contrib" in path.relative_to(base).parts else "conf"
        yield f"{app}/{path.stem}", path


def _messages(locale: str) -> Iterator[tuple[Key, str, str]]:
    """(key, English text, translation) of all catalogues of a locale."""
    for catalogue, path in _mo_files(locale):
        with path.open("rb") as file:
            for message in read_mo(file):
                ids, strings = _forms(message.id), _forms(message.string)
                if ids[0] and strings[-1]:
                    yield ("django", catalogue, message.context or "", ids[0]), ids[-1], strings[-1]


def _forms(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)


def _django_messages(locale: str) -> Iterator[tuple[Key, str]]:
    for key, _, translation in _messages(locale):
        yield key, translation


def _django_ids() -> Iterator[tuple[Key, str]]:
    """English: the msgids of the most complete catalogues (German's), whose English files are empty."""
    for key, english, _ in _messages("de"):
        yield key, english


def _cldr_names(identifier: str) -> Iterator[tuple[Key, str]]:
    locale = Locale.parse(identifier)
    for kind in _CLDR_MAPS:
        for code, name in getattr(locale, kind).items():
            yield ("cldr", kind, str(code)), str(name)
    for code, forms in locale.unit_display_names.items():
        if "long" in forms:
            yield ("cldr", "units", str(code)), str(forms["long"])
    for kind in ("months", "days"):
        for number, name in getattr(locale, kind)["format"]["wide"].items():
            yield ("cldr", kind, str(number)), str(name)
