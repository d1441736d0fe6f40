"""Spans of calls for OpenTelemetry, where it is installed and asked for; without it nothing here costs anything.

They are on when the environment names where they go (OTEL_EXPORTER_OTLP_ENDPOINT, as for every program that speaks
OTLP), and need the extra `otel`. A span is a unary call, child of the caller's if it sends `traceparent`; it carries
run, step and the status. Metrics stay with Prometheus.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.native import __version__
from headrace.proto.errors import ConfigError, HeadraceError
from headrace.server.service.interceptors import Around, Context, Unary

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

ENDPOINT = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def wanted() -> bool:
    """Whether the environment says where spans go."""
    return any(os.environ.get(name) for name in ENDPOINT) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def exporting() -> TracerProvider:
    """A provider that sends spans to the endpoint of the environment; raises ConfigError when a package is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"{ENDPOINT[0]} is set, but {error.name} is not installed; unset it, or: pip install 'headrace[otel]'"
        ) from None
    about = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "headrace"), "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traced(Around):
    """Makes a span of each unary call; the outermost interceptor, so that refused calls have one too."""

    def __init__(self, provider: TracerProvider) -> None:
        super().__init__()
        self._tracer = provider.get_tracer("headrace", __version__)

    def unary(self, method: str, call: Unary) -> Unary:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        service, _, name = method.strip("/").partition("/")
        about = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}

        async def traced(request: Any, context: Context) -> Any:
            parent = propagator.extract(_metadata(context))
            with self._tracer.start_as_current_span(
                f"{service}/{name}",
                parent,
                SpanKind.SERVER,
                {**about, **_about(request)},
                set_status_on_exception=False,
            ) as span:
                try:
                    answer = await call(request, context)
                except BaseException as error:
                    _end(span, context, error)
                    raise
                _end(span, context, None)
                return answer

        return traced


def _metadata(context: Context) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _about(request: Any) -> dict[str, str | int]:
    """Run and step, where a request has them; nothing else of it, so that no secret can get there."""
    found: dict[str, str | int] = {}
    for name in ("run", "run_id", "step", "first_slot", "rows"):
        value = getattr(request, name, None)
        if isinstance(value, str | int) and value != "":
            found[f"headrace.{name}"] = value
    return found


def _end(span: Span, context: Context, error: BaseException | None) -> None:
    from opentelemetry.trace import StatusCode

    code: Any = error.status if isinstance(error, HeadraceError) else context.code()
    value = getattr(code, "value", code)
    span.set_attribute("rpc.grpc.status_code", int(value[0] if isinstance(value, tuple) else value or 0))
    if error is not None:
        span.set_status(StatusCode.ERROR)
