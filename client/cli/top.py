"""`headrace top`: a run in a terminal, with the figures of the live page.

Asks the live page's address (`metrics` in SERVER.toml) over HTTP, since that is where these figures are made; or opens
the control store itself with --store, with no server at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import click
from headrace.client.cli.common import find_page, json_option, print_json
from headrace.client.cli.terminal import Screen, has_colour, is_terminal, screen
from headrace.client.cli.top_text import lines_of
from headrace.client.cli.web import Web
from headrace.proto.errors import HeadraceError, NotFoundError, UsageError

_ENDPOINT = "http://127.0.0.1:7751"
_PLAIN_COLUMNS = 110


class Figures(Protocol):
    """Where figures come from."""

    def runs(self) -> list[str]: ...
    def snapshot(self, run: str) -> dict[str, Any]: ...


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--endpoint",
    metavar="URL",
    help=f"Address of the live page (default: HEADRACE_PAGE, else `page` in headrace.toml, else {_ENDPOINT}).",
)
@click.option("--store", metavar="URL", help="Open the control store itself, with no server.")
@click.option("--ca", type=click.Path(path_type=Path), help="CA that signed the server, for https.")
@click.option("--cert", type=click.Path(path_type=Path), help="This client's certificate, for mTLS.")
@click.option("--key", type=click.Path(path_type=Path), help="The key of --cert.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File that holds a bearer token of scope read.")
@click.option("--once", is_flag=True, help="Print the figures once and stop, as without a terminal.")
@click.option("--every", type=click.FloatRange(min=0.5), default=2.0, show_default=True, help="Seconds between looks.")
@json_option
def top(
    run: str | None,
    endpoint: str | None,
    store: str | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    token_file: Path | None,
    once: bool,
    every: float,
    as_json: bool,
) -> None:
    """Watch RUN (the first one by default): mixture, epochs, drift, ranks, events.

    On a terminal: arrows scroll, n shows the next run, q ends. NO_COLOR is respected.
    """
    source = _source(endpoint, store, ca=ca, cert=cert, key=key, token_file=token_file)
    names = source.runs()
    name = _chosen(run, names)
    if as_json:
        print_json(source.snapshot(name))
    elif once or not is_terminal():
        width = max(_PLAIN_COLUMNS, int(os.environ.get("COLUMNS") or 0))
        lines = lines_of(source.snapshot(name), width=width, height=None, colour=has_colour())
        click.echo("\n".join(line.rstrip() for line in lines))
    else:
        with screen() as opened:
            _Watching(source, opened, every).go(name)


def _source(endpoint: str | None, store: str | None, **options: Path | None) -> Figures:
    if store is not None:
        if endpoint is not None:
            raise UsageError("--endpoint and --store exclude each other: ask a live server, or open its store")
        from headrace.client.cli.store_figures import StoreFigures

        return StoreFigures(store)
    found = find_page(endpoint, **options)
    return Web(found.page or _ENDPOINT, ca=found.ca, cert=found.cert, key=found.key, token_file=found.token_file)


def _chosen(run: str | None, names: list[str]) -> str:
    if run is not None and run not in names:
        raise NotFoundError(f"there is no run `{run}`; there are {', '.join(names) or 'none'}")
    if not names:
        raise NotFoundError("there is no run yet; `headrace run create RUN.toml` makes one")
    return run or names[0]


class _Watching:
    """Paints a run again and again until somebody presses q."""

    def __init__(self, source: Figures, opened: Screen, every: float) -> None:
        self._source = source
        self._screen = opened
        self._every = every
        self._shown: dict[str, Any] | None = None
        self._said = ""
        self._first = 0

    def go(self, run: str) -> None:
        """Returns when it is over."""
        due = 0.0
        while True:
            if time.monotonic() >= due:
                self._look(run)
                due = time.monotonic() + self._every
            self._paint()
            pressed = self._screen.key(max(0.0, due - time.monotonic()))
            if pressed in ("q", "Q"):
                return
            if pressed == "n":
                names = self._source.runs()
                run = names[(names.index(run) + 1) % len(names)] if run in names else names[0]
                self._first, due = 0, 0.0
            self._scroll(pressed)

    def _look(self, run: str) -> None:
        """The newest figures; while there are none, the last ones (of whichever run) and why."""
        try:
            self._shown, self._said = self._source.snapshot(run), ""
        except HeadraceError as error:
            if self._shown is None:
                raise
            self._said = f"as last seen: {error}"

    def _paint(self) -> None:
        width, height = self._screen.size()
        if self._shown is not None:
            lines = lines_of(
                self._shown,
                width=max(20, width - 1),
                height=max(5, height),
                colour=has_colour(),
                first=self._first,
                said=self._said,
            )
            self._screen.paint(lines)

    def _scroll(self, pressed: str) -> None:
        page = max(1, self._screen.size()[1] // 2)
        moves: dict[str, Callable[[int], int]] = {
            "up": lambda first: first - 1,
            "k": lambda first: first - 1,
            "down": lambda first: first + 1,
            "j": lambda first: first + 1,
            "page up": lambda first: first - page,
            "page down": lambda first: first + page,
        }
        if pressed in moves and self._shown is not None:
            most = max(0, len(self._shown["domains"]) - 1)
            self._first = min(most, max(0, moves[pressed](self._first)))
