"""`python -m headrace.client.cli` is the `headrace` command."""

from headrace.client.cli.main import run

run()
