"""What the subcommands share: which server or store, how to print, and how to say progress.

    @click.command()
    @click.argument("run")
    @target_options          # --server, --store, environment, headrace.toml  ->  target: Target
    @access_options          # the same, with --ca, --cert, --key and --token-file
    @json_option             # --json     ->  as_json: bool
    @dry_run_option          # --dry-run  ->  dry_run: bool
    def show(run: str, target: Target, as_json: bool, dry_run: bool) -> None: ...

Only click and the standard library are imported here: `headrace --help` stays fast.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from headrace.proto.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from headrace.client.settings import Tls

F = TypeVar("F", bound=Callable[..., Any])

CONFIG_FILE = "headrace.toml"
_PLACES = ("server", "store")
_ACCESS = ("ca", "cert", "key", "token_file")
_KEYS = (*_PLACES, "page", *_ACCESS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where to ask: a live server's address, or a control store's URL. At most one is set.

    `page` is the address of the server's live page. `ca`, `cert`, `key` are PEM files for TLS, `token_file` holds a
    bearer token: how a server is talked to.
    """

    server: str | None = None
    store: str | None = None
    page: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        if self.server and self.store:
            raise UsageError("--server and --store exclude each other: ask a live server, or open its store")

    def required(self) -> Target:
        """Itself; raises UsageError when neither is known."""
        if not self.server and not self.store:
            raise UsageError(
                "no server and no store: give --server HOST:PORT or --store URL, or set HEADRACE_SERVER or "
                f"HEADRACE_STORE, or write one of them into {CONFIG_FILE} in this folder"
            )
        return self

    def tls(self) -> Tls | None:
        """How to speak TLS; None without any of its files. Raises UsageError for --cert without --key."""
        if not (self.ca or self.cert or self.key):
            return None
        from headrace.client.settings import Tls

        return Tls(ca=self.ca, cert=self.cert, key=self.key)

    def connection(self) -> dict[str, Any]:
        """How a server is talked to, as the keywords `tls` and `token_file` of the client's classes."""
        return {"tls": self.tls(), "token_file": self.token_file}

    def need_server(self) -> str:
        """The server's address; raises UsageError when only a store, or nothing, is known."""
        if not self.server:
            raise UsageError(
                "this needs a live server: give --server HOST:PORT, or set HEADRACE_SERVER, or write `server` into "
                f"{CONFIG_FILE}"
            )
        return self.server


def find_target(server: str | None, store: str | None, *, folder: Path | None = None, **access: Path | None) -> Target:
    """The target of options, else of the environment, else of headrace.toml: the first that names a place.

    Files for TLS and the token come from options, else from the environment, else from a headrace.toml that names the
    same server: what was written down for one server is not shown to another, and a line says so.
    """
    found, path = _access(access), (folder or Path.cwd()) / CONFIG_FILE
    places: dict[str, Any] = {"server": server, "store": store}
    if not any(places.values()):
        places = {name: _environ(name) for name in _PLACES}
    if not any(places.values()):
        return replace(_target_of_file(path), **found)
    return Target(**places, **(found or _written_for(places["server"], path)))


def _written_for(server: str | None, path: Path) -> dict[str, Any]:
    """Files that headrace.toml has for this very server."""
    written = _target_of_file(path) if server else Target()
    files = {name: file for name in _ACCESS if (file := getattr(written, name))}
    if files and written.server != server:
        click.echo(
            f"note: {', '.join(files)} of {path.name} are for {written.server or written.page}, not used for {server}",
            err=True,
        )
        return {}
    return files


def find_page(page: str | None, *, folder: Path | None = None, **access: Path | None) -> Target:
    """As `find_target`, for the live page: its address, and the files for TLS and the token that go with it."""
    found = _access(access)
    if page := page or _environ("page"):
        return Target(page=page, **found)
    written = _target_of_file((folder or Path.cwd()) / CONFIG_FILE)
    return replace(written if written.page else Target(), **found)


def _access(given: dict[str, Path | None]) -> dict[str, Any]:
    """Files for TLS and the token: options, else the environment."""
    environment = {name: Path(value) for name in _ACCESS if (value := _environ(name))}
    return {**environment, **{name: path for name, path in given.items() if path}}


def _environ(key: str) -> str | None:
    return os.environ.get(f"HEADRACE_{key.upper()}") or None


def _target_of_file(path: Path) -> Target:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Target()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for key, value in table.items():
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key `{key}`; known are {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: `{key}` must be a string, not {value!r}")
    try:
        return Target(**{key: path.parent / value if key in _ACCESS else value for key, value in table.items()})
    except UsageError:
        raise ConfigError(f"{path}: `server` and `store` exclude each other; keep one") from None


def target_options(command: F) -> F:
    """Adds --server and --store; the command receives `target`. Given options win over the environment and the file."""

    @click.option("--server", metavar="ADDR", help="Ask the live server at HOST:PORT (default: HEADRACE_SERVER).")
    @click.option(
        "--store", metavar="URL", help="Open the control store itself, with no server (default: HEADRACE_STORE)."
    )
    @functools.wraps(command)
    def with_target(*args: Any, server: str | None, store: str | None, **kwargs: Any) -> Any:
        return command(*args, target=find_target(server, store), **kwargs)

    return with_target  # type: ignore[return-value]


def access_options(command: F) -> F:
    """As `target_options`, with --ca, --cert, --key and --token-file, which `target` carries too."""

    @click.option("--ca", type=click.Path(path_type=Path), help="CA that signed the server: talk to it over TLS.")
    @click.option("--cert", type=click.Path(path_type=Path), help="This client's certificate, for mTLS.")
    @click.option("--key", type=click.Path(path_type=Path), help="The key of --cert.")
    @click.option("--token-file", type=click.Path(path_type=Path), help="File that holds a bearer token.")
    @click.option("--server", metavar="ADDR", help="Ask the live server at HOST:PORT (default: HEADRACE_SERVER).")
    @click.option(
        "--store", metavar="URL", help="Open the control store itself, with no server (default: HEADRACE_STORE)."
    )
    @functools.wraps(command)
    def with_target(*args: Any, server: str | None, store: str | None, **kwargs: Any) -> Any:
        access = {name: kwargs.pop(name) for name in _ACCESS}
        return command(*args, target=find_target(server, store, **access), **kwargs)

    return with_target  # type: ignore[return-value]


def json_option(command: F) -> F:
    """Adds --json; the command receives `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document for programs.")(command)


def dry_run_option(command: F) -> F:
    """Adds --dry-run; the command receives `dry_run`."""
    return click.option("--dry-run", is_flag=True, help="Check everything, say what would be done, change nothing.")(
        command
    )


def print_json(value: Any) -> None:
    """One JSON document on stdout. Bytes are printed as hexadecimal digits."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values in two columns."""
    rows = [(name, str(value)) for name, value in pairs]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; numbers to the right, the rest to the left."""
    cells = [list(row) for row in rows]
    texts = [list(header), *([_cell(value) for value in row] for row in cells)]
    widths = [max(len(text[column]) for text in texts) for column in range(len(header))]
    right = [
        bool(cells) and all(isinstance(row[column], int | float) for row in cells) for column in range(len(header))
    ]
    for text in texts:
        padded = (t.rjust(w) if r else t.ljust(w) for t, w, r in zip(text, widths, right, strict=True))
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


class Progress:
    """Progress of long work on stderr: one line that changes on a terminal, now and then a line in a log."""

    def __init__(self, what: str, *, every: float = 10.0) -> None:
        self._what = what
        self._terminal = sys.stderr.isatty()
        self._every = 0.2 if self._terminal else every
        self._last = float("-inf")

    def update(self, done: int, total: int | None, *, now: float) -> None:
        """`now` is time.monotonic(); lines come at most as often as the constructor said, and at the end."""
        if now - self._last < self._every and done != total:
            return
        self._last = now
        share = f" ({100 * done / total:.0f} %)" if total else ""
        line = f"{self._what}: {done:,}{f' of {total:,}' if total else ''}{share}"
        click.echo(f"\r\x1b[K{line}" if self._terminal else line, err=True, nl=not self._terminal)

    def finish(self) -> None:
        if self._terminal:
            click.echo("", err=True)


def named_files(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, list[Path]]:
    """NAME=FILE options, a name several times for several files."""
    files: dict[str, list[Path]] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(f"`{value}` is not NAME=FILE", param=parameter)
        files.setdefault(name, []).append(Path(path))
    return files
