"""The client: a loader that streams a run's batches and can resume it exactly. No torch here.

Names are loaded when they are first used, so that the command starts fast.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

# Without its handlers gRPC hangs in a forked child. It reads this when it is first imported, so it is set before
# anything here can import it; a value that the user set is left alone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

if TYPE_CHECKING:
    from headrace.client.batch import IGNORE, Batch
    from headrace.client.feedback import DomainLoss
    from headrace.client.fork import ForkError
    from headrace.client.launch import ranks_from_env
    from headrace.client.loader import Loader
    from headrace.client.prefetch import StallError, Stats
    from headrace.client.retry import ClosedError
    from headrace.client.session import Opened
    from headrace.client.settings import Settings, Tls
    from headrace.client.state import State
    from headrace.client.stopping import exit_on_signal

_HOMES = {
    "IGNORE": "batch",
    "Batch": "batch",
    "ClosedError": "retry",
    "DomainLoss": "feedback",
    "ForkError": "fork",
    "Loader": "loader",
    "Opened": "session",
    "Settings": "settings",
    "StallError": "prefetch",
    "State": "state",
    "Stats": "prefetch",
    "Tls": "settings",
    "exit_on_signal": "stopping",
    "ranks_from_env": "launch",
}

__all__ = [
    "IGNORE",
    "Batch",
    "ClosedError",
    "DomainLoss",
    "ForkError",
    "Loader",
    "Opened",
    "Settings",
    "StallError",
    "State",
    "Stats",
    "Tls",
    "exit_on_signal",
    "ranks_from_env",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
