"""What the page's address answers: files, figures as JSON, a stream of them, `/metrics` and `/healthz`.

/                                    the page; a browser that must log in is sent to /login
/metrics                             for Prometheus, which needs scope read like everybody
/healthz                             200 while the server takes requests, 503 while it starts or stops; for everybody
/api/runs                            names of runs, and why some are not served here
/api/runs/RUN                        snapshot: run, domains, ranks, newest events, what needs a look
/api/runs/RUN/stream                 the same as server-sent events, whenever it has changed, at most once a second
/api/runs/RUN/history?domain=NAME    series of some domains over the steps
/api/runs/RUN/log?before=N           events below a number, newest first
/api/runs/RUN/batch?step=N           domain of every slot of a step; with `slot=N` one row with its text
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.proto.errors import HeadraceError, UnauthenticatedError, UsageError
from headrace.server.watch import batch
from headrace.server.watch.access import Access
from headrace.server.watch.feed import Feed, Feeds, to_json
from headrace.server.watch.files import static_files
from headrace.server.watch.log_figures import event_figures
from headrace.server.watch.login import Login
from headrace.server.watch.requests import PACK_ABOVE, PRIVATE, credentials, pack, takes_gzip, whole_number
from headrace.server.watch.stream import Streams
from headrace.server.watch.values import plain
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

MOST_SERIES = 32
MOST_LOG = 200
ROW_TOKENS = 512
Answer = Callable[[Request], Awaitable[Response]]


class Routes:
    """The answers of one server."""

    def __init__(
        self,
        feeds: Feeds,
        access: Access,
        registry: CollectorRegistry,
        *,
        open_metrics: bool,
        version: str,
        closed: Callable[[], str],
    ) -> None:
        self._feeds = feeds
        self._access = access
        self._registry = registry
        self._open_metrics = open_metrics
        self._version = version
        self._closed = closed
        self._files = static_files()
        self._login = Login(access, self._files["login.html"])
        self._scraping = asyncio.Lock()
        self.streams = Streams()

    def routes(self) -> list[Route]:
        """For Starlette; the files, the login and the health are for everybody."""
        guarded = {
            "/api/runs": self.runs,
            "/api/runs/{run}": self.run,
            "/api/runs/{run}/stream": self.stream,
            "/api/runs/{run}/history": self.history,
            "/api/runs/{run}/log": self.log,
            "/api/runs/{run}/batch": self.batch,
        }
        return [
            Route("/healthz", self.health),
            Route("/metrics", self.metrics),
            Route("/", self.page),
            Route("/login", self._login.form),
            Route("/login", self._login.log_in, methods=["POST"]),
            Route("/logout", self._login.log_out, methods=["POST"]),
            Route("/static/{path:path}", self.file),
            *(Route(path, self._guarded(answer)) for path, answer in guarded.items()),
        ]

    def _judge(self, request: Request) -> None:
        """Raises UnauthenticatedError or AuthError for who may not look."""
        self._access.reader(credentials(request))

    def _guarded(self, answer: Answer) -> Answer:
        async def guarded(request: Request) -> Response:
            self._judge(request)
            return await answer(request)

        return guarded

    # -- for machines --------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Whether the server takes requests, and which runs it does not serve."""
        words = "this server is stopping" if self.streams.stopping.is_set() else self._closed()
        if words:
            return Response(f"{words}\n", status_code=503, headers=PRIVATE, media_type="text/plain")
        return Response(f"serving{self._but_not(request)}\n", headers=PRIVATE, media_type="text/plain")

    def _but_not(self, request: Request) -> str:
        """Runs that are refused here while the others are served: their names for who may look, else their number."""
        refused = self._feeds.refused
        if not refused:
            return ""
        try:
            self._judge(request)
        except HeadraceError:
            return f", but not {len(refused)} of the runs"
        return f", but not {', '.join(refused)}"

    async def metrics(self, request: Request) -> Response:
        """One scrape at a time, in the thread of the page."""
        if not self._open_metrics:
            self._judge(request)
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        async with self._scraping:
            content = await self._feeds.away(lambda: encode(self._registry))
        return await self._packed(request, content, kind)

    # -- for people ----------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """The page, or the way to the login."""
        try:
            self._judge(request)
        except UnauthenticatedError:
            return RedirectResponse("/login", status_code=303, headers=PRIVATE)
        return self._static("index.html", request)

    async def file(self, request: Request) -> Response:
        """A style, a script or a picture."""
        path = request.path_params["path"]
        if path not in self._files or path.endswith(".html"):
            return Response("there is no such file\n", status_code=404, media_type="text/plain")
        return self._static(path, request)

    def _static(self, path: str, request: Request) -> Response:
        file = self._files[path]
        headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept-encoding", "content-type": file.kind}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if takes_gzip(request):
            return Response(file.packed, headers={**headers, "content-encoding": "gzip"})
        return Response(file.content, headers=headers)

    # -- figures -------------------------------------------------------------------------------------------------

    async def runs(self, request: Request) -> Response:
        """The names of all runs, those that are refused here with the reason, and whether a login may be ended."""
        refused = self._feeds.refused  # one that never was opened is not in the store
        value = {
            "version": self._version,
            "runs": list(dict.fromkeys((*await self._feeds.names(), *refused))),
            "refused": refused,
            "logged_in": bool(credentials(request).session),
        }
        return await self._json(request, value)

    async def run(self, request: Request) -> Response:
        """A run's newest snapshot."""
        shown = await (await self._of(request)).now()
        return await self._packed(request, shown.body, "application/json")

    async def stream(self, request: Request) -> Response:
        """A run's snapshots as they come."""
        feed = await self._of(request)
        self.streams.check()
        messages = self.streams.of(feed, lambda: self._judge(request))
        headers = {**PRIVATE, "x-accel-buffering": "no"}
        return StreamingResponse(messages, media_type="text/event-stream", headers=headers)

    async def history(self, request: Request) -> Response:
        """Series of the domains that are named."""
        wanted = request.query_params.getlist("domain")
        if len(wanted) > MOST_SERIES:
            raise UsageError(f"at most {MOST_SERIES} domains at once, {len(wanted)} were asked for; leave some out")
        return await self._json(request, await (await self._of(request)).columns(wanted))

    async def log(self, request: Request) -> Response:
        """A page of the event log."""
        before = whole_number(request, "before")
        feed = await self._of(request)
        events = await feed.on(lambda view: event_figures(view.plan, view.events, view.run.confirmed, MOST_LOG, before))
        return await self._json(request, {"events": events})

    async def batch(self, request: Request) -> Response:
        """The slots of a step, or one of its rows."""
        step, slot, tokens = (whole_number(request, name) for name in ("step", "slot", "tokens"))
        feed = await self._of(request)
        if slot is None:
            return await self._json(request, await feed.on(lambda view: batch.batch(view, step)))
        count = ROW_TOKENS if tokens is None else tokens
        return await self._json(request, await feed.on(lambda view: batch.row(view, step, slot, count)))

    # -- inside --------------------------------------------------------------------------------------------------

    async def _of(self, request: Request) -> Feed:
        return await self._feeds.of(request.path_params["run"])

    async def _json(self, request: Request, value: dict[str, Any]) -> Response:
        content = to_json({name: plain(part) for name, part in value.items()})
        return await self._packed(request, content, "application/json")

    async def _packed(self, request: Request, content: bytes, kind: str) -> Response:
        headers = {**PRIVATE, "content-type": kind, "vary": "accept-encoding"}
        if len(content) < PACK_ABOVE or not takes_gzip(request):
            return Response(content, headers=headers)
        packed = await self._feeds.away(lambda: pack(content))
        return Response(packed, headers={**headers, "content-encoding": "gzip"})
