"""Ports for servers that are killed and come back: below the range from which the system hands out its own.

A port of that range may be taken by any other process while the server is away, and then a client talks to a stranger.
"""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port that nobody listens on just now."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
