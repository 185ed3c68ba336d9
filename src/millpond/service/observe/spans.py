"""OpenTelemetry spans of epochs and invocations.

    epoch (a batch)      from its plan to the end of its commit
      tasks              until the last of Spark's tasks has ended
      commit
    epoch (changes)      likewise, of a step of those who follow
    invocation           of a standing query; below the caller's span, if the request names it

A span is made when its work is done, from the times that are measured anyway; with no exporter
nothing is made at all. Who embeds a pond sets a provider of the SDK before opening it; `millpond
serve` and `millpond run` set one (`cli/exported_spans.py`).
"""

from __future__ import annotations

import time as clock_time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import context, propagate, trace
from opentelemetry.util.types import AttributeValue

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.service.events import EpochTimes
from millpond.state.version import DATA, REJECTS, Version


def are_spans_wanted() -> bool:
    """Whether a provider of the SDK was set, so that somebody gets the spans."""
    return not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
    )


@contextmanager
def follow_caller(headers: Mapping[str, str]) -> Iterator[None]:
    """Make spans of the block children of the one that a request's trace headers name."""
    if not headers:
        yield
        return
    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


class Spans:
    """Makes the spans of a pond: an observer, as the metrics are."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """Make spans with a provider; without one, with the process's."""
        self._tracer = trace.get_tracer("millpond", tracer_provider=provider)

    def count_commit(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Make the spans of a batch."""
        rows = {
            kind: sum(item.file.rows for item in built if item.kind == kind)
            for kind in (DATA, REJECTS)
        }
        ids = sorted({item.stream_id for item in built} & version.streams.keys())
        self._make_epoch(
            "batch",
            version,
            times,
            {
                "millpond.streams": [version.streams[id].name for id in ids],
                "millpond.elements": rows[DATA],
                "millpond.rejects": rows[REJECTS],
                "millpond.matches": sum(item.matched for item in built),
            },
        )

    def count_advance(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Make the spans of a step of those who follow."""
        changes = sum(item.file.rows for item in built)
        self._make_epoch("changes", version, times, {"millpond.changes": changes})

    def count_reset(self, stream: StreamDef, rejected: int) -> None:
        """A reset is no span."""

    def count_invocation(self, query: QueryDef, seconds: float) -> None:
        """Make the span of an invocation that has just ended."""
        end = clock_time.time_ns()
        self._tracer.start_span(
            "invocation",
            start_time=end - int(seconds * 1e9),
            attributes={"millpond.query": query.name, "millpond.query_id": query.id},
        ).end(end)

    def _make_epoch(
        self,
        kind: str,
        version: Version,
        times: EpochTimes,
        figures: Mapping[str, AttributeValue],
    ) -> None:
        end = clock_time.time_ns()
        epoch = self._tracer.start_span(
            f"epoch of {kind}",
            context=context.Context(),  # nobody called for it
            start_time=times.began,
            attributes={"millpond.epoch": version.epoch, **figures},
        )
        below = trace.set_span_in_context(epoch, context.Context())
        for name, began, ended in (
            ("tasks", times.began, times.built),
            ("commit", times.built, end),
        ):
            self._tracer.start_span(name, context=below, start_time=began).end(ended)
        epoch.end(end)
