"""Spans leave the process: to a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from local_http import local_client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from millpond.api.app import create_app
from millpond.cli.exported_spans import export_spans
from millpond.errors import MillpondError
from millpond.service.observe.spans import Spans
from millpond.testing.local_runtime import open_local

PROGRAM = """
import asyncio, sys
import httpx
from millpond.api.app import create_app
from millpond.cli.exported_spans import export_spans
from millpond.testing.local_runtime import open_local

async def call(app):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        for path in ("/v1/queries/q/result", "/v1/changes?ticket=magpie", "/v1/plan?query=magpie"):
            await http.get(path)

export_spans()
with open_local(sys.argv[1]) as pond:
    pond.execute("CREATE STREAM s (v INTEGER); CREATE QUERY q AS SELECT v FROM s")
    pond.ingest("s", [{"v": 1}])
    pond.wait_until_matched()
    pond.query("q").invoke()
    asyncio.run(call(create_app(pond)))
"""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    came: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            came.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", came
        server.shutdown()


def test_a_collector_gets_the_spans(
    collector: tuple[str, list[ExportTraceServiceRequest]], tmp_path: Path
) -> None:
    url, came = collector
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store")]
    subprocess.run(command, env=environment, check=True, timeout=240)
    resources = [part for request in came for part in request.resource_spans]
    named = {
        a.value.string_value for r in resources for a in r.resource.attributes
        if a.key == "service.name"
    }  # fmt: skip
    assert named == {"millpond"}
    spans = [s for r in resources for scope in r.scope_spans for s in scope.spans]
    names = [span.name for span in spans]
    assert set(names) == {"epoch of batch", "tasks", "commit", "invocation"}
    assert names.count("invocation") == 2
    # What clients write, tickets above all, is in no span.
    assert "magpie" not in str(spans)


def test_a_request_names_the_span_it_belongs_to(tmp_path: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with open_local(tmp_path / "store") as pond, local_client(create_app(pond)) as http:
        pond._components.events.observers.append(Spans(provider))
        pond.execute("CREATE STREAM s (v INTEGER); CREATE QUERY q AS SELECT v FROM s")
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        http.get("/v1/queries/q/result", headers=headers).raise_for_status()
        http.get("/v1/queries/q/result").raise_for_status()
    called, alone = [s for s in exporter.get_finished_spans() if s.name == "invocation"]
    assert called.context is not None
    assert alone.context is not None
    assert f"{called.context.trace_id:032x}" == trace
    assert f"{alone.context.trace_id:032x}" != trace


def test_an_extra_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(MillpondError, match="DATA-502") as raised:
        export_spans()
    assert "millpond[otel]" in str(raised.value.hint)
