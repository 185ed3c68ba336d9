"""Metrics of what stands still, and of the process: what alerts are about."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from millpond.errors import MillpondError
from millpond.service.components import Components
from millpond.state.machine_memory import find_memory_limit


def collect_health(components: Components) -> Iterator[Metric]:
    """Whether the pond is ready, and what of it stands still, as of now."""
    version = components.log.version
    yield GaugeMetricFamily(
        "millpond_ready", "1 while rows are taken and shown", float(components.trouble is None)
    )
    yield GaugeMetricFamily(
        "millpond_spark_down",
        "1 while the runtime, Spark's JVM, does not work",
        float(components.runtime.trouble is not None),
    )
    stopped = GaugeMetricFamily(
        "millpond_stream_stopped", "1 where a stream stands still", labels=["stream"]
    )
    arrived = GaugeMetricFamily(
        "millpond_stream_arrived_seconds",
        "When the last row of a stream arrived, in seconds since 1970",
        labels=["stream"],
    )
    for stream in version.named_streams():
        trouble = components.sources.trouble(stream)
        stopped.add_metric([stream.name], float(isinstance(trouble, MillpondError)))
        at = version.clock(stream.id).arrived_at
        if at is not None:
            arrived.add_metric([stream.name], at / 1e6)
    yield from (stopped, arrived)
    queries = list(version.queries.values())
    logs = [log for query in queries if (log := version.change_log(query.id)) is not None]
    yield GaugeMetricFamily(
        "millpond_changes_stopped",
        "Followed queries whose changes stand still",
        sum(isinstance(components.sources.trouble(log), MillpondError) for log in logs),
    )
    yield GaugeMetricFamily(
        "millpond_queries_suspended",
        "Queries suspended because their predicate failed",
        sum(query.suspended is not None for query in queries),
    )
    yield GaugeMetricFamily(
        "millpond_memory_limit_bytes",
        "Memory of the machine, or of the container if that has less",
        float(find_memory_limit()),
    )
