"""Which job trains in a folder: the same one at each start, its attempt one higher.

What holds: a training that was killed is started again at once: its new attempt takes the lease of the run from the
dead one (or from one that still runs by mistake, which is told so), instead of waiting until the server has heard
nothing of it for a minute. The name is random, so that a folder that was removed and made again is another job.
"""

from __future__ import annotations

import json
import secrets
import socket
from pathlib import Path
from typing import Any

from headrace.mixer.files import write_atomic
from headrace.proto.errors import ConfigError


def next_attempt(folder: Path) -> dict[str, Any]:
    """The loader's `job` and `attempt` for one more start in the folder. Raises ConfigError for a damaged file."""
    path = folder / "job.json"
    try:
        last = json.loads(path.read_text(encoding="utf-8"))
        now = {"job": str(last["job"]), "attempt": int(last["attempt"]) + 1}
    except FileNotFoundError:
        now = {"job": f"proxy-{socket.gethostname()}-{secrets.token_hex(4)}", "attempt": 0}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"`{path}`: cannot be read as a job and its attempt: {error}; remove it") from error
    write_atomic(path, json.dumps(now).encode())
    return now
