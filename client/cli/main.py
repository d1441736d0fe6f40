"""The `headrace` command: a table of subcommands, each loaded when it is used.

A user's mistake never shows a traceback: every `HeadraceError` is printed as one message and becomes its exit code
(0 done, 1 failed, 2 wrong use, 75 try again). A command whose extra is not installed says which one to install.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import sys

import click
from headrace.native import __version__
from headrace.proto.errors import HeadraceError

# name -> (module below headrace.client.cli, attribute, help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo.command", "demo", "Run the whole path on text that this machine already has."),
    "doctor": ("doctor", "doctor", "Check this machine, the way to a server, and its runs."),
    "state": ("state", "state", "Look at a loader's state in a checkpoint."),
    "tokenizer": ("tokenizer", "tokenizer", "Train, measure and use tokenizers."),
    "corpus": ("corpus", "corpus", "Build, verify and show a corpus."),
    "serve": ("serve", "serve", "Serve the runs of a control store over gRPC."),
    "run": ("run", "run", "Make runs, and see exactly what they hold."),
    "weights": ("weights", "weights", "Show and change the mixture of a run."),
    "top": ("top", "top", "Watch a run in the terminal: mixture, epochs, drift, ranks, events."),
    "mixer": ("mixer", "mixer", "Find mixture weights, and push them."),
}

_EXTRA_OF_MODULE = {
    "torch": "torch",
    "pyarrow": "server",
    "sqlalchemy": "server",
    "prometheus_client": "server",
    "starlette": "server",
    "uvicorn": "server",
    "zstandard": "server",
    "grpc_health": "server",
    "scipy": "mixer",
    "django": "demo",
    "babel": "demo",
    "psycopg": "postgres",
}

# Python does not say of a file that it writes to, or of standard output, which one it is.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MissingExtraError(HeadraceError):
    """A command needs packages that the base install leaves out."""

    exit_code = 2


def missing_extra(error: ModuleNotFoundError) -> HeadraceError | None:
    """What to install when an import failed, or None when the module is no extra of ours."""
    extra = _EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return MissingExtraError(
        f"this command needs the package `{error.name}`, which the base install leaves out; "
        f"install it with: pip install 'headrace[{extra}]'"
    )


class LazyGroup(click.Group):
    """A click group that imports a subcommand's module when it is called, so that `headrace --help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"headrace.client.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "see `headrace --help`"
            raise click.UsageError(f"no command `{args[0]}`; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if COMMANDS:
            with formatter.section("Commands"):
                formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Headrace: a streaming data server for LLM pretraining."""


def run() -> None:
    """Entry point of the `headrace` command."""
    try:
        main.main(standalone_mode=True)
    except HeadraceError as error:
        fail(error)
    except ModuleNotFoundError as error:
        known = missing_extra(error)
        if known is None:
            raise
        fail(known)
    except OSError as error:
        if error.filename is None and error.errno not in _NO_ROOM:
            raise
        where = "cannot write what was asked for" if error.filename is None else error.filename
        room = "; make room and run it again" if error.errno in _NO_ROOM else ""
        fail(HeadraceError(f"{where}: {error.strerror}{room}"))


def fail(error: HeadraceError) -> None:
    """Print the message and leave with the error's exit code."""
    click.echo(f"error: {error}", err=True)
    sys.exit(error.exit_code)
