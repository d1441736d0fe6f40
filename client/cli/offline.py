"""A control store, opened with no server, as the source of the `run` and `weights` commands.

Reading is always allowed, also beside a running server; writing takes the store's lock and is refused while a server
holds it. Steps are computed from the pure functions and the corpus that the run's spec names.
"""

from __future__ import annotations

from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Wish
from headrace.server.control.store import Store
from headrace.server.corpus.manifest import Corpus
from headrace.server.service.changes import checker
from headrace.server.service.convert import cancel_wish, event_messages, event_response, run_info, weights_wish
from headrace.server.service.explain import digest_of, explain
from headrace.server.service.loading import Corpora, new_run, open_view
from headrace.server.service.view import View


class Offline:
    """Answers from the store; a view of each run is read once."""

    def __init__(self, url: str, *, write: bool) -> None:
        self.store = Store(url, writable=write)
        self._corpora = Corpora()
        self._views: dict[str, tuple[View, Corpus]] = {}

    def __enter__(self) -> Offline:
        return self

    def __exit__(self, *exc: object) -> None:
        self.store.close()

    def view(self, name: str) -> tuple[View, Corpus]:
        """The run as the store had it when first asked."""
        if name not in self._views:
            snapshot = self.store.snapshot(name)
            self._views[name] = open_view(snapshot, self.store.anchors(snapshot.run.id), self._corpora)
        return self._views[name]

    def runs(self) -> list[pb.RunInfo]:
        return [self.run(run.name) for run in self.store.runs()]

    def run(self, name: str) -> pb.RunInfo:
        return run_info(self.view(name)[0])

    def events(self, name: str) -> list[pb.Event]:
        return event_messages(self.view(name)[0].events)

    def explain(self, name: str, step: int) -> pb.ExplainResponse:
        return explain(*self.view(name), step)

    def digest(self, name: str, step: int) -> bytes:
        return digest_of(*self.view(name), step)

    def create(self, request: pb.CreateRunRequest) -> pb.CreateRunResponse:
        new = new_run(
            request.spec_toml,
            place="RUN.toml",
            base_dir=request.base_dir,
            author=request.author,
            corpora=self._corpora,
        )
        run, created = self.store.create_run(new)
        return pb.CreateRunResponse(run=self.run(run.name), created=created)

    def set_weights(self, request: pb.SetWeightsRequest) -> pb.EventResponse:
        return self._append(request.run, weights_wish(request))

    def cancel(self, request: pb.CancelEventRequest) -> pb.EventResponse:
        return self._append(request.run, cancel_wish(request))

    def _append(self, name: str, wish: Wish) -> pb.EventResponse:
        view, _ = self.view(name)
        appended = self.store.append(view.run.id, wish, checker(view))
        return event_response(appended)
