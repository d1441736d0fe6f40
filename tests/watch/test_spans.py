"""Spans of real calls, where OpenTelemetry's SDK is installed: run, step, status and parent, and no secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from headrace.proto.errors import ConfigError
from headrace.proto.v1 import control_pb2 as control
from headrace.proto.v1 import data_pb2 as data
from headrace.server.service import spans
from headrace.server.service.app import Server
from headrace.server.service.audit import Audit
from headrace.server.service.config import ServerConfig
from headrace.server.service.metrics import Metrics
from headrace.server.service.registry import Registry
from rig import headrace, write_run

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def calls(folder: Path, corpus: Path, provider: Any) -> str:
    """A run is opened, a batch read, an unknown run asked for; the secret of the lease."""
    from headrace.server.control.aio import AsyncStore
    from headrace.server.control.store import Store

    run = write_run(folder, corpus)
    config = ServerConfig(
        place="test", listen="127.0.0.1:0", store=f"sqlite:///{folder}/control.db", runs=(run,), drift=None
    )
    store = AsyncStore(Store(config.store, writable=True))
    audit = Audit(store)
    server = Server(config, Registry(store), Metrics("test"), audit, (spans.Traced(provider),))
    await server.start()
    await server.open_runs(lambda: False)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:

            async def call(name: str, request: Any, answer: Any, service: str = "DataService") -> Any:
                method = channel.unary_unary(
                    f"/headrace.v1.{service}/{name}",
                    request_serializer=type(request).SerializeToString,
                    response_deserializer=answer.FromString,
                )
                return await method(request, metadata=(("traceparent", PARENT),))

            wish = data.OpenRunRequest(run="r", mode=data.OPEN_MODE_TRAIN)
            opened = await call("OpenRun", wish, data.OpenRunResponse)
            request = data.GetBatchRequest(run_id=opened.run_id, lease=opened.lease, step=3, rows=8)
            await call("GetBatch", request, data.GetBatchResponse)
            with pytest.raises(grpc.aio.AioRpcError):
                await call("GetRun", control.GetRunRequest(run="nowhere"), control.GetRunResponse, "ControlService")
            return str(opened.lease)
    finally:
        await server.stop()
        await audit.close()
        store.close()


def test_calls_are_spans(tmp_path: Path, corpus: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    secret = asyncio.run(calls(tmp_path, corpus, provider))
    found = {span.name.rpartition("/")[2]: span for span in exporter.get_finished_spans()}
    assert set(found) == {"OpenRun", "GetBatch", "GetRun"}
    batch = found["GetBatch"]
    assert batch.attributes["headrace.step"] == 3
    assert batch.attributes["rpc.grpc.status_code"] == 0
    assert found["OpenRun"].attributes["headrace.run"] == "r"
    assert found["GetRun"].attributes["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]
    assert not found["GetRun"].status.is_ok
    assert batch.status.is_ok
    for span in found.values():
        assert f"{span.context.trace_id:032x}" == PARENT[3:35]
        assert f"{span.parent.span_id:016x}" == PARENT[36:52]
        assert secret not in span.to_json()


def test_off_unless_the_environment_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spans.ENDPOINT:
        monkeypatch.delenv(name, raising=False)
    assert not spans.wanted()
    monkeypatch.setenv(spans.ENDPOINT[0], "http://127.0.0.1:4318")
    assert spans.wanted()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not spans.wanted()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setenv(spans.ENDPOINT[0], "http://127.0.0.1:4318")
    with pytest.raises(ConfigError, match="headrace\\[otel\\]"):
        spans.exporting()
    path = tmp_path / "SERVER.toml"
    path.write_text(f'[server]\nlisten = "127.0.0.1:0"\nstore = "sqlite:///{tmp_path}/control.db"\n')
    done = headrace("serve", str(path))
    assert done.returncode != 0
    assert "pip install 'headrace[otel]'" in done.stderr
    assert "Traceback" not in done.stderr
