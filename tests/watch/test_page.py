"""The live page in a real browser: what it shows, without network and under its policy, by keyboard, in both themes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import chromium, page_of, problems_of
from playwright.sync_api import Browser, Page, expect
from rig import Raw, ServerProcess, Trainer, serving, write_run
from tokens import SECRETS, Guarded
from worlds import World, make_world


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def server(browser: Browser, watched: ServerProcess) -> ServerProcess:
    """After the browser: where there is none, nothing else is started."""
    return watched


def open_page(page: Page, server: ServerProcess) -> None:
    page.goto(f"http://127.0.0.1:{server.metrics_port}/")
    expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=30_000)
    expect(page.locator("#chart canvas")).to_be_visible(timeout=30_000)
    expect(page.locator("#text .token").first).to_be_visible(timeout=30_000)


def test_page_shows_the_run(browser: Browser, server: ServerProcess) -> None:
    with page_of(browser) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        open_page(page, server)
        expect(page.locator("h1")).to_have_text("pretrain-7b")
        expect(page.locator("#tiles")).to_contain_text("14,000")
        expect(page.locator("#mixture tbody tr")).to_have_count(20)
        expect(page.locator("#events .event")).to_have_count(3)
        expect(page.locator("#events")).to_contain_text("more of what the evaluation of step 4k was weak in")
        expect(page.locator("#events")).to_contain_text("ann")
        expect(page.locator("#ranks tbody tr").first).to_contain_text("2")
        expect(page.locator("#slots button")).to_have_count(32)
        page.get_by_role("button", name="Show all 60 domains").first.click()
        expect(page.locator("#mixture tbody tr")).to_have_count(60)
        page.get_by_label("Find a domain").fill("books-d")
        expect(page.locator("#mixture tbody tr")).to_have_count(2)
        assert {re.sub(r"(https?://[^/]+).*", r"\1", url) for url in asked} == {
            f"http://127.0.0.1:{server.metrics_port}"
        }


def test_urgent_domains_come_first_and_columns_sort(browser: Browser, server: ServerProcess) -> None:
    with page_of(browser) as page:
        open_page(page, server)
        states = page.locator("#mixture tbody .chip").all_inner_texts()
        order = ["quarantine", "drift", "off", "near cap", "capped", "ok", "unused"]
        assert states == sorted(states, key=order.index)
        page.get_by_role("button", name="Domain", exact=True).click()
        names = page.locator("#mixture tbody th").all_inner_texts()
        assert names == sorted(names)
        expect(page.locator("#mixture th[aria-sort=ascending]")).to_have_text("Domain")


def test_figures_change_while_the_run_goes_on(browser: Browser, tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(12)
        trainer.settle()
        with page_of(browser, expected="net::ERR_") as page:
            open_page(page, server)
            expect(page.locator("#tiles .value").first).to_have_text("12")
            trainer.take(9).settle()
            expect(page.locator("#tiles .value").first).to_have_text("21")
            raw("SetWeights", run="r", weights={"a": 0.2, "b": 0.3, "c": 0.5}, author="ann", reason="<b>more</b> of c")
            expect(page.locator("#events .why")).to_have_text("<b>more</b> of c")
            expect(page.locator("#events .chip")).to_have_text("scheduled, from step 29")
            server.kill()
            expect(page.locator("#link")).to_have_attribute("data-state", "lost", timeout=20_000)
            server.start()
            expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=20_000)
            expect(page.locator("#failure")).to_be_hidden()


def test_a_page_too_many_asks_instead(browser: Browser, server: ServerProcess) -> None:
    with page_of(browser, expected="429") as page:
        page.route("**/stream", lambda route: route.fulfill(status=429, body="{}"))
        page.goto(f"http://127.0.0.1:{server.metrics_port}/")
        expect(page.locator("#link-text")).to_contain_text("Refreshed every few seconds")
        expect(page.locator("#mixture tbody tr")).to_have_count(20)


def test_a_run_that_cannot_be_shown_says_why(browser: Browser, server: ServerProcess) -> None:
    with page_of(browser, expected="409") as page:
        said = '{"error": {"kind": "ConflictError", "message": "the corpus is another one"}}'
        page.route("**/pretrain-7b*/**", lambda route: route.fulfill(status=409, body=said))
        page.route("**/pretrain-7b", lambda route: route.fulfill(status=409, body=said))
        page.goto(f"http://127.0.0.1:{server.metrics_port}/")
        expect(page.locator("#link-text")).to_have_text("the corpus is another one")
        expect(page.locator("#batch-line")).to_have_text("the corpus is another one")


def test_keyboard_reaches_and_works_everything(browser: Browser, server: ServerProcess) -> None:
    with page_of(browser) as page:
        open_page(page, server)
        seen = []
        for _ in range(70):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label') || ''")
            )
        wanted = ["run", "theme", "chart", "find", "step", "text"]
        assert [name for name in seen if name in wanted][: len(wanted)] == wanted
        page.locator("#chart").focus()
        page.keyboard.press("End")
        expect(page.locator("#readout")).to_contain_text("Step 14,000")
        page.keyboard.press("Home")
        expect(page.locator("#readout")).not_to_contain_text("14,000")
        page.locator("#slots button").first.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#row-title")).to_contain_text("Slot 1:")
        expect(page.locator("#slots button[aria-selected=true]")).to_be_focused()
        page.locator("#modes input").first.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#modes input[value=so_far]")).to_be_checked()
        page.locator("#chart-table summary").click()
        expect(page.locator("#chart-table tbody tr")).to_have_count(25)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_page_is_readable(browser: Browser, server: ServerProcess, scheme: str, width: int) -> None:
    with page_of(browser, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        open_page(page, server)
        assert problems_of(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        keep(page, f"{scheme}-{width}")


def test_theme_can_be_chosen_and_is_kept(browser: Browser, server: ServerProcess) -> None:
    with page_of(browser, color_scheme="light") as page:
        open_page(page, server)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for _ in range(2):
            page.locator("#theme").click()
        expect(page.locator("#theme")).to_have_text("Theme: dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
        page.reload()
        expect(page.locator("#theme")).to_have_text("Theme: dark")


def test_who_has_a_token_logs_in_and_out(browser: Browser, guarded: Guarded) -> None:
    with page_of(browser) as page:
        page.goto(f"http://127.0.0.1:{guarded.server.metrics_port}/")
        expect(page).to_have_url(re.compile("/login$"))
        assert problems_of(page) == []
        page.get_by_label("Access token").fill(SECRETS["read"])
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("r")
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(re.compile("/login$"))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
def test_200_domains_and_a_million_steps_do_not_freeze_it(browser: Browser, tmp_path: Path) -> None:
    world = World(domains=200, steps=1_100_000, confirmed=1_000_000, batch=4, seq_len=16, events=20, documents=20)
    with serving(tmp_path, [make_world(tmp_path, world)]) as server, page_of(browser) as page:
        page.add_init_script(
            "window.tasks = []; new PerformanceObserver((list) => window.tasks.push("
            "...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask', buffered: true })"
        )
        open_page(page, server)
        page.get_by_role("button", name="Show all 200 domains").first.click()
        expect(page.locator("#mixture tbody tr")).to_have_count(200)
        expect(page.locator("#readout")).to_be_attached()
        for box in page.locator("#mixture tbody input").all()[:8]:
            box.check()
        page.locator("#modes label").nth(3).click()
        page.locator("#chart").focus()
        page.keyboard.press("End")
        expect(page.locator("#readout")).to_contain_text("Step 1,000,000")
        assert problems_of(page) == []
        keep(page, "200-domains")
        assert max([0, *page.evaluate("window.tasks")]) < 1000


def keep(page: Page, name: str) -> None:
    """Pictures to look at, where HEADRACE_SHOTS names a folder."""
    folder = os.environ.get("HEADRACE_SHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
