"""Spans of epochs and invocations, as an exporter of OpenTelemetry gets them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from millpond.service.observe.spans import Spans, are_spans_wanted, follow_caller
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def pond(tmp_path: Path, exporter: InMemorySpanExporter) -> Iterator[Pond]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with open_local(tmp_path / "store") as pond:
        pond._components.events.observers.append(Spans(provider))
        pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
            "CREATE QUERY large AS SELECT v FROM s WHERE v > 1"
        )
        yield pond


def find(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def push(pond: Pond) -> None:
    pond.ingest("s", [{"ts": f"2026-01-01 00:00:0{v}", "v": v} for v in range(4)] + [{"ts": "x"}])
    pond.wait_until_matched()
    pond.catch_up(timeout=60)


def test_a_batch_has_a_span_with_its_tasks_and_its_commit(
    pond: Pond, exporter: InMemorySpanExporter
) -> None:
    push(pond)
    (epoch,) = find(exporter, "epoch of batch")
    assert epoch.attributes is not None
    assert dict(epoch.attributes) == {
        "millpond.epoch": epoch.attributes["millpond.epoch"],
        "millpond.streams": ("s",),
        "millpond.elements": 4,
        "millpond.rejects": 1,
        "millpond.matches": 2,
    }
    assert epoch.parent is None
    (tasks,), (commit,) = find(exporter, "tasks"), find(exporter, "commit")
    assert tasks.parent == commit.parent == epoch.context
    assert None not in (epoch.start_time, tasks.end_time)
    assert epoch.start_time == tasks.start_time
    assert tasks.end_time == commit.start_time
    assert commit.end_time == epoch.end_time
    assert epoch.start_time <= tasks.end_time <= epoch.end_time  # type: ignore[operator]


def test_a_step_of_those_who_follow_has_one(pond: Pond, exporter: InMemorySpanExporter) -> None:
    pond.query("large").fetch()
    push(pond)
    pond.query("large").fetch()
    spans = find(exporter, "epoch of changes")
    assert sum(s.attributes["millpond.changes"] for s in spans if s.attributes) == 1  # type: ignore[misc]


def test_an_invocation_belongs_to_its_callers_trace(
    pond: Pond, exporter: InMemorySpanExporter
) -> None:
    pond.query("large").invoke()
    with follow_caller({"traceparent": f"00-{TRACE}-{PARENT}-01"}):
        pond.query("large").invoke()
    alone, called = find(exporter, "invocation")
    for span in (alone, called):
        assert span.attributes is not None
        assert span.attributes["millpond.query"] == "large"
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time < span.end_time
    assert alone.parent is None
    assert called.parent is not None
    assert (f"{called.parent.trace_id:032x}", f"{called.parent.span_id:016x}") == (TRACE, PARENT)


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"tracestate": "a=b"}])
def test_a_caller_without_a_trace_is_followed_nowhere(
    pond: Pond, exporter: InMemorySpanExporter, headers: dict[str, str]
) -> None:
    with follow_caller(headers):
        pond.query("large").invoke()
    (span,) = find(exporter, "invocation")
    assert span.parent is None


def test_without_a_provider_nothing_is_made() -> None:
    assert not are_spans_wanted()
