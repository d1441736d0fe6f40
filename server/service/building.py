"""Corpora that are not built when the server starts: it builds them first, answers no call meanwhile, and says why.

Of several servers that share a folder one builds; the others wait for its manifest. A build that was cut off goes on
where it was. A corpus that is there is served as it is: whether its sources have changed since is not looked at.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from headrace.proto.errors import HeadraceError
from headrace.server.corpus.build import Advance
from headrace.server.corpus.progress import Pace
from headrace.server.corpus.ready import make_ready, missing_spec
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.plan.spec import RunSpec

logger = logging.getLogger("headrace.server")

_LOG_SECONDS = 10.0


class StoppedError(HeadraceError):
    """The server was told to stop before it was ready."""


async def build_missing(run: Path, say: Callable[[str], None], stopped: Callable[[], bool]) -> None:
    """Builds the corpus of a RUN.toml if it is not there; `say` gets the words to put callers off with."""
    spec = await asyncio.to_thread(missing_corpus, run)
    if spec is not None:
        await asyncio.to_thread(make_ready, spec, **_watchers(spec, say, stopped))
    if stopped():
        raise StoppedError("the server was told to stop before it was ready")


def missing_corpus(run: Path) -> CorpusSpec | None:
    """What would make the corpus of a RUN.toml; None when it is there, or nothing is known of it."""
    try:
        text = run.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None  # opening the run tells
    folder = run.resolve().parent
    return missing_spec(folder / RunSpec.from_toml(text, place=str(run)).corpus, folder)


def _watchers(
    spec: CorpusSpec, say: Callable[[str], None], stopped: Callable[[], bool]
) -> dict[str, Callable[..., None]]:
    """What a build calls as it goes on, and while another process builds; both stop it when the server is to stop."""
    pace = Pace()
    logged = {"building": -_LOG_SECONDS, "waiting": -_LOG_SECONDS}

    def tell(kind: str, doing: str) -> None:
        if stopped():
            raise StoppedError(f"stopped while {doing}; start the server again to go on")
        say(f"this server is not ready, it is {doing}; try again later")
        if time.monotonic() - logged[kind] >= _LOG_SECONDS:
            logged[kind] = time.monotonic()
            logger.info("%s", doing)

    def progress(advance: Advance) -> None:
        tell("building", f"building the corpus {spec.manifest_path} first: {pace.words(advance)}")

    def waiting() -> None:
        tell("waiting", f"waiting for another process that builds the corpus {spec.manifest_path}")

    return {"progress": progress, "waiting": waiting}
