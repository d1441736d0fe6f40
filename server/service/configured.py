"""The runs that the server's file names: opened at the start, and looked at again while they cannot be.

What is wrong with one run (a damaged shard, a corpus that is gone or another one, a log that was changed) keeps that
run from being served here and no other: it is refused in words, its health is NOT_SERVING, `headrace_run_refused` is 1,
and it is opened as soon as it can be, without a restart. A mistake in a RUN.toml itself keeps the server from starting,
and so does a server none of whose runs can be opened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.proto.errors import (
    ConfigError,
    ConflictError,
    DataLossError,
    ExistsError,
    HeadraceError,
    NotFoundError,
    UnavailableError,
)
from headrace.server.plan.spec import RunSpec
from headrace.server.service.building import build_missing
from headrace.server.service.loading import corpus_path
from headrace.server.service.logs import remedy_of, told
from headrace.server.service.registry import Registry

logger = logging.getLogger("headrace.server")

AGAIN_SECONDS = 5.0
_OF_ONE_RUN = (DataLossError, NotFoundError, ConflictError, ExistsError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A run that cannot be opened, the file that names it, and since when (monotonic seconds)."""

    path: Path
    spec: RunSpec
    error: HeadraceError
    since: float


class Configured:
    """The runs of these files, in a registry."""

    def __init__(self, paths: Sequence[Path], registry: Registry) -> None:
        self._paths = paths
        self._registry = registry
        self._refused: dict[str, Refused] = {}

    async def open(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> None:
        """Builds what is not built and opens each run; raises the first error where none can be served."""
        for path in self._paths:
            spec = await asyncio.to_thread(_read, path)
            try:
                await build_missing(path, say, stopped)
                await self._open(path, spec)
            except _OF_ONE_RUN as error:
                self._refuse(path, spec, error)
        if self._refused and not self._registry.handles:
            raise next(iter(self._refused.values())).error

    async def keep_looking(self) -> None:
        """Opens what can be opened by now, every few seconds."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            for refused in list(self._refused.values()):
                await self._look(refused)

    async def _look(self, refused: Refused) -> None:
        name = refused.spec.name
        try:
            await self._open(refused.path, await asyncio.to_thread(_read, refused.path))
        except UnavailableError:
            return  # the store is away: nothing is known that was not before
        except HeadraceError as error:
            self._refuse(refused.path, refused.spec, error)
        except Exception:
            logger.exception("run %s: it could not be looked at again", name)
        else:
            seconds = time.monotonic() - refused.since
            logger.info("run %s: is served now, after %d s", name, seconds, extra=told("run-back", run=name))

    async def _open(self, path: Path, spec: RunSpec) -> None:
        run, created = await self._registry.create_from_file(path)
        await self._registry.open(run.name)
        self._refused.pop(spec.name, None)
        what = "created" if created else "opened"
        fields = told(what, run=run.name, step=run.confirmed)
        logger.info("run %s: %s, digest %s", run.name, what, run.spec_digest.hex()[:16], extra=fields)

    def _refuse(self, path: Path, spec: RunSpec, error: HeadraceError) -> None:
        """One line when a run is refused, and when the reason changes."""
        name, known = spec.name, self._refused.get(spec.name)
        self._registry.refuse(name, error, corpus_path(str(path.resolve().parent), spec))
        if known is None or str(known.error) != str(error):
            fields = told("run-refused", run=name, remedy=remedy_of(error))
            logger.error("run %s is not served, the others are: %s", name, error, extra=fields)
        self._refused[name] = Refused(
            path=path, spec=spec, error=error, since=known.since if known else time.monotonic()
        )


def _read(path: Path) -> RunSpec:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check `runs` of the server's file") from None
    return RunSpec.from_toml(text, place=str(path))
