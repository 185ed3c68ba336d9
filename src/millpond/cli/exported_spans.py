"""Sends OpenTelemetry spans to where the environment says, as OpenTelemetry's own variables do."""

from __future__ import annotations

import os

from opentelemetry import trace

from millpond.errors import MillpondError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def export_spans() -> None:
    """Have spans sent, by OTLP over HTTP, if the environment names an endpoint.

    Raises:
        MillpondError: DATA-502, what sends them is not installed.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MillpondError(
            "DATA-502",
            "spans need the packages of OpenTelemetry",
            detail=f"The environment has {' or '.join(_ENDPOINTS)}, but {error.name} is missing.",
            hint="pip install 'millpond[otel]', or unset the variable.",
        ) from error
    name = os.environ.get("OTEL_SERVICE_NAME", "millpond")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
