"""The runs of a server: opened when somebody asks for them, then kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from headrace.proto.errors import ConfigError, ElsewhereError, HeadraceError, NotFoundError
from headrace.server.control.aio import AsyncStore
from headrace.server.control.records import RunRecord
from headrace.server.service.handle import RunHandle
from headrace.server.service.loading import Opener, new_run
from headrace.server.service.rows import build_rows
from headrace.server.service.view import View


class Registry:
    """Handles by name and by id. Opening reads files, so it runs in a thread, one at a time."""

    def __init__(self, store: AsyncStore, *, bad_blocks: str = "fail") -> None:
        self.store = store
        self._bad_blocks = bad_blocks
        self.on_built: Callable[[float], None] = lambda seconds: None
        self.opener = Opener(store.store)
        self._by_name: dict[str, RunHandle] = {}
        self._opening = asyncio.Lock()
        self.refused: dict[str, HeadraceError] = {}  # runs of the configuration that cannot be opened here, and why

    def listen(self) -> None:
        """Looks at a run at once when another server on the same store has changed it."""
        loop = asyncio.get_running_loop()

        def heard(run_id: str, kind: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(self._news, run_id, kind)

        self.store.store.listen(heard)

    def _news(self, run_id: str, kind: str) -> None:
        for handle in self.handles:
            if run_id in ("", handle.view.run.id):
                handle.news(kind)

    @property
    def handles(self) -> tuple[RunHandle, ...]:
        """Every run that is open here, by name."""
        return tuple(self._by_name[name] for name in sorted(self._by_name))

    async def by_name(self, name: str) -> RunHandle:
        """The handle of a run; raises NotFoundError naming the runs there are, ElsewhereError for one refused here."""
        if name in self.refused:
            raise ElsewhereError(f"run `{name}` is not served by this server: {self.refused[name]}")
        return await self.open(name)

    def refuse(self, name: str, error: HeadraceError, corpus: Path) -> None:
        """Refuses a run in these words until it was opened; its corpus is opened anew then."""
        self.refused[name] = error
        self.opener.corpora.forget(corpus)

    async def open(self, name: str) -> RunHandle:
        """The handle of a run, which is refused no more."""
        if name not in self._by_name:
            async with self._opening:
                if name not in self._by_name:
                    view = await self.store.call(lambda _: _warmed(self.opener.view(name)))
                    handle = RunHandle(self.store, self.opener, view, bad_blocks=self._bad_blocks)
                    handle.on_built = self.on_built
                    self._by_name[name] = handle
        self.refused.pop(name, None)
        return self._by_name[name]

    async def by_id(self, run_id: str) -> RunHandle:
        """The handle of a run by its id, which clients learn from OpenRun."""
        for handle in self._by_name.values():
            if handle.view.run.id == run_id:
                return handle
        for run in await self.store.call(lambda store: store.runs()):
            if run.id == run_id:
                return await self.by_name(run.name)
        raise NotFoundError(f"the store holds no run with id `{run_id}`; open the run by its name again")

    async def create(self, text: str, *, place: str, base_dir: str, author: str) -> tuple[RunRecord, bool]:
        """Makes a run from the text of a RUN.toml, or answers an equal one."""
        return await self.store.call(
            lambda store: store.create_run(
                new_run(text, place=place, base_dir=base_dir, author=author, corpora=self.opener.corpora)
            )
        )

    async def create_from_file(self, path: Path) -> tuple[RunRecord, bool]:
        """Makes the run of a file that the server's configuration names."""
        try:
            text = await asyncio.to_thread(path.read_text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; check `runs` of the server's file") from None
        folder = str(path.resolve().parent)
        run, created = await self.create(text, place=str(path), base_dir=folder, author="server")
        self.opener.folders[run.name] = folder  # where this server has the corpus; another one may have it elsewhere
        return run, created

    async def rehearse(self) -> None:
        """Has the store compile what the first trainer needs; one that takes no writes says so when they are needed."""
        if self.handles:
            run_id = self.handles[0].view.run.id
            with contextlib.suppress(HeadraceError):
                await self.store.call(lambda store: store.rehearse(run_id))

    async def close(self) -> None:
        """Writes what is still unwritten and stops every task."""
        await asyncio.gather(*(handle.close() for handle in self.handles))


def _warmed(view: View) -> View:
    """The view, with that done which the first answer would wait for: hashes of a long log, the end, a first read."""
    with contextlib.suppress(HeadraceError):  # what cannot be read is told to whoever asks for it
        step = min(view.run.confirmed, view.run.seal - 1)
        view.plan.hash(view.run.seal)
        if view.plan.first <= step < (view.plan.end or 0):
            build_rows(view.plan, view.library, step, 0, view.plan.shape(step).batch)
    return view
