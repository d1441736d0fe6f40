"""A real Chromium, as Debian packages it: no download of a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the length of a block; skips the test where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not on this machine (apt-get install chromium)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Browser, *, expected: str = "", **options: Any) -> Iterator[Page]:
    """A page in a context of its own. What its scripts complain of fails the test, the policy's refusals too.

    `expected` is what the browser may say of a server that goes or refuses.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        yield page
        assert not [said for said in complaints if not (expected and expected in said)]
    finally:
        context.close()


SERIOUS = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")


def problems_of(page: Page) -> list[str]:
    """Serious problems of accessibility on a page as it stands."""
    found = page.evaluate(SERIOUS)
    assert isinstance(found, list)
    return [str(problem) for problem in found]
