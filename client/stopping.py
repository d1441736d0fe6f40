"""Lets a signal end a trainer the way an exception does, so that its loader closes and the lease is free at once.

SIGTERM kills a Python process where it stands: nothing is confirmed, and the run's lease lapses only after a minute of
silence. Launchers send it (Slurm, Kubernetes, torchrun when another rank has failed). Who wants an orderly end asks for
it here; nothing is done unasked, for a trainer may have a handler of its own that saves a checkpoint first.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType


def exit_on_signal(number: int = signal.SIGTERM) -> None:
    """From now on the signal raises SystemExit (128 + number) in the main thread, where `with` and `finally` see it.

    A second one kills at once. A handler that is set already is left alone. Call it in the main thread. While a thread
    stands in a collective or a kernel, Python handles the signal only when that returns.
    """
    if signal.getsignal(number) is signal.SIG_DFL:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)
