"""`headrace mixer`: find weights, keep them with their provenance, and let them follow a running job."""

from __future__ import annotations

import click
from headrace.client.cli import mixer_ablate, mixer_compute, mixer_learned, mixer_proxy, mixer_serve, mixer_view


@click.group()
def mixer() -> None:
    """Find mixture weights, and push them."""


for _command in (
    mixer_compute.compute,
    mixer_proxy.proxy,
    mixer_proxy.embed,
    mixer_learned.doremi,
    mixer_learned.doge,
    mixer_learned.aioli,
    mixer_ablate.ablate,
    mixer_serve.serve,
    mixer_view.compare,
    mixer_view.content,
):
    mixer.add_command(_command)
