"""A server that wants tokens, and the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rig import ServerProcess

SECRETS = {"read": "read-0123456789abcdef", "report": "report-0123456789abcdef"}


@dataclass(frozen=True)
class Guarded:
    """A server with tokens of scopes `read` and `report`, in a file."""

    server: ServerProcess
    tokens: Path

    def write(self, secrets: dict[str, str]) -> None:
        """The token file with these."""
        self.tokens.write_text(token_entries(secrets))


def token_entries(secrets: dict[str, str]) -> str:
    """A token file; each token is named after its scope."""
    return "\n".join(f'[[token]]\nname = "{n}"\nscope = "{n}"\ntoken = "{t}"\n' for n, t in secrets.items())
