"""A control store, opened with no server, as the source of the `run` and `weights` commands.

Reading is always allowed, also beside a running server; writing takes the store's lock and is refused while a server
holds it. Steps are computed from the pure functions and the corpus that the run's spec names.
"""

from __future__ import annotations

from headrace.proto.errors import HeadraceError
from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Wish
from headrace.server.control.records import RunRecord
from headrace.server.control.runs import Made
from headrace.server.control.store import Store
from headrace.server.plan.log import GrowBody
from headrace.server.service.branching import branch_notes, new_branch
from headrace.server.service.changes import checker
from headrace.server.service.convert import (
    event_messages,
    event_response,
    forecast,
    record_info,
    refusal_message,
    run_info,
)
from headrace.server.service.exchange import check_import, export_run, read_export
from headrace.server.service.explain import digest_of, explain
from headrace.server.service.loading import Opener, new_run
from headrace.server.service.view import View
from headrace.server.service.wishes import cancel_wish, grow_wish, mask_wish, weights_wish


class Offline:
    """Answers from the store; a view of each run is read once."""

    def __init__(self, url: str, *, write: bool) -> None:
        self.store = Store(url, writable=write)
        self._opener = Opener(self.store)
        self._views: dict[str, View] = {}

    def __enter__(self) -> Offline:
        return self

    def __exit__(self, *exc: object) -> None:
        self.store.close()

    def view(self, name: str) -> View:
        """The run as the store had it when first asked."""
        if name not in self._views:
            self._views[name] = self._opener.view(name)
        return self._views[name]

    def runs(self) -> pb.ListRunsResponse:
        """Every run; of one that cannot be opened here, what its row says, and why."""
        answer = pb.ListRunsResponse()
        for run in self.store.runs():
            try:
                answer.runs.append(self.run(run.name))
            except HeadraceError as error:
                answer.runs.append(record_info(run))
                answer.refused[run.name] = str(error)
        return answer

    def run(self, name: str) -> pb.RunInfo:
        return run_info(self.view(name))

    def events(self, name: str) -> list[pb.Event]:
        view = self.view(name)
        return event_messages(view.events, self.store.keys(view.run.id))

    def explain(self, name: str, step: int, text_characters: int = 0) -> pb.ExplainResponse:
        return explain(self.view(name), step, text_characters)

    def digest(self, name: str, step: int) -> bytes:
        return digest_of(self.view(name), step)

    def create(self, request: pb.CreateRunRequest) -> pb.CreateRunResponse:
        new = new_run(
            request.spec_toml,
            place=request.place or "RUN.toml",
            base_dir=request.base_dir,
            author=request.author,
            corpora=self._opener.corpora,
        )
        run, created = self.store.create_run(new)
        return pb.CreateRunResponse(run=self.run(run.name), created=created)

    def set_weights(self, request: pb.SetWeightsRequest) -> pb.EventResponse:
        return self._append(request.run, weights_wish(request))

    def cancel(self, request: pb.CancelEventRequest) -> pb.EventResponse:
        return self._append(request.run, cancel_wish(request))

    def branch(self, request: pb.BranchRunRequest) -> pb.CreateRunResponse:
        view = self.view(request.parent)
        new = new_branch(view, request, request.author)
        notes = branch_notes(view, request, new)
        if request.dry_run:
            info = pb.RunInfo(name=new.name, spec_json=new.spec_json, spec_digest=new.spec_digest, seal=new.seal)
            return pb.CreateRunResponse(run=info, notes=notes)
        run, created = self.store.create_run(new)
        return pb.CreateRunResponse(run=self.run(run.name), created=created, notes=notes if created else ())

    def grow(self, request: pb.GrowDomainRequest) -> pb.EventResponse:
        view = self.view(request.run)
        wish = grow_wish(request, self._opener, view)
        assert isinstance(wish.body, GrowBody)
        self._views[request.run] = self._opener.with_generation(view, wish.body)
        return self._append(request.run, wish)

    def mask(self, request: pb.MaskRequest) -> pb.EventResponse:
        wish, notes = mask_wish(request, self.view(request.run))
        return self._append(request.run, wish, notes)

    def forecast(self, name: str) -> pb.ForecastResponse:
        return forecast(self.view(name).plan)

    def export(self, name: str) -> str:
        return export_run(self.view(name))

    def import_run(self, request: pb.ImportRunRequest) -> pb.CreateRunResponse:
        imported = read_export(request.document, place="the export", base_dir=request.base_dir)

        def check(run: RunRecord) -> Made:
            return check_import(self._opener.view_of(run, imported.events), imported, "the export")

        run = self.store.import_run(imported, check, dry_run=request.dry_run)
        return pb.CreateRunResponse(run=record_info(run), created=not request.dry_run)

    def refusals(self, name: str) -> list[pb.Refusal]:
        return [refusal_message(refusal) for refusal in self.store.refusals(name)]

    def _append(self, name: str, wish: Wish, notes: tuple[str, ...] = ()) -> pb.EventResponse:
        view = self.view(name)
        appended = self.store.append(view.run.id, wish, checker(view, notes))
        return event_response(appended)
