"""The languages of the demo: fourteen in eight scripts, and how much of each language's text is trained on.

`share` is the part of a language's training text that is kept, so that sizes are skewed as the web is: English is
whole, the small ones are thinned. Development and test splits are never thinned: they must stay aligned.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """One language: the domain's name (ISO 639-3) and where its text is found."""

    name: str
    script: str
    """ISO 15924."""
    django: str
    """Folder below `locale/` in Django; empty for English, whose text is the msgid itself."""
    cldr: str
    """Identifier of the locale in Babel."""
    share: float
    """Part of the training text that is kept, above 0 and at most 1."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"language `{self.name}`: share {self.share} is not above 0 and at most 1")


def _language(name: str, script: str, django: str, cldr: str, share: float) -> Language:
    return Language(name=name, script=script, django=django, cldr=cldr, share=share)


LANGUAGES = (
    _language("eng", "Latn", "", "en", 1.0),
    _language("rus", "Cyrl", "ru", "ru", 0.5),
    _language("deu", "Latn", "de", "de", 0.8),
    _language("fra", "Latn", "fr", "fr", 0.7),
    _language("jpn", "Jpan", "ja", "ja", 0.6),
    _language("spa", "Latn", "es", "es", 0.7),
    _language("zho", "Hans", "zh_Hans", "zh_Hans", 0.6),
    _language("por", "Latn", "pt_BR", "pt_BR", 0.5),
    _language("tur", "Latn", "tr", "tr", 0.4),
    _language("ara", "Arab", "ar", "ar", 0.4),
    _language("ukr", "Cyrl", "uk", "uk", 0.3),
    _language("kor", "Hang", "ko", "ko", 0.3),
    _language("ell", "Grek", "el", "el", 0.3),
    _language("heb", "Hebr", "he", "he", 0.25),
)
