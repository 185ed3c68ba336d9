"""Metrics for Prometheus: counters that events increase, gauges that are read when scraped."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.function_names import restore_names
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.service.components import Components
from millpond.service.events import EpochTimes
from millpond.service.ingest.door import SHARES
from millpond.service.observe.health_metrics import collect_health
from millpond.service.observe.size_metrics import SizeMetrics
from millpond.state.version import DATA, SHED, Version

#: Microseconds a rate is taken over.
_RATED = 60_000_000
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """A pond's metrics, in a registry of their own."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self.registry = CollectorRegistry()
        self._elements = Counter(
            "millpond_elements", "Elements committed", ["stream"], registry=self.registry
        )
        self._rejects = Counter(
            "millpond_rejects", "Rows rejected", ["stream"], registry=self.registry
        )
        self._shed = Counter("millpond_shed", "Elements shed", ["stream"], registry=self.registry)
        self._matches = Counter(
            "millpond_matches",
            "Pairs of element and predicate matched",
            ["stream"],
            registry=self.registry,
        )
        self._changes = Counter(
            "millpond_changes", "Changes of followed queries committed", registry=self.registry
        )
        self._epochs = Counter("millpond_batches", "Batches committed", registry=self.registry)
        self._invocations = Histogram(
            "millpond_invocation_seconds",
            "Time to answer",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._freshness = Histogram(
            "millpond_freshness_seconds",
            "Time from the last arrival of a batch to its being visible",
            buckets=_SECONDS,
            registry=self.registry,
        )
        #: For the history: matches so far, and the freshness of the last batch, in seconds.
        self.matched, self.last_freshness = 0, 0.0
        self._visible_after: dict[int, float] = {}
        self._sizes = SizeMetrics(components)
        self._arrived: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def count_commit(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """A batch became an epoch."""
        self._epochs.inc()
        now = self._components.clock()
        for stream_id in {item.stream_id for item in built}:
            arrived_at = version.clock(stream_id).arrived_at
            if arrived_at is not None:
                self.last_freshness = max(now - arrived_at, 0) / 1e6
                self._freshness.observe(self.last_freshness)
                self._visible_after[stream_id] = self.last_freshness
        for item in built:
            if item.kind == DATA:
                held = self._arrived[item.stream_id]
                held.append((now, item.file.rows))
                _trim(held, now)
        for item in built:
            stream = version.streams.get(item.stream_id)
            if stream is not None:
                if item.kind == SHED:
                    self._shed.labels(stream.name).inc(item.shed)
                else:
                    counter = self._elements if item.kind == DATA else self._rejects
                    counter.labels(stream.name).inc(item.file.rows)
                self._matches.labels(stream.name).inc(item.matched)
                self.matched += item.matched

    def count_advance(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Derivations were advanced."""
        for item in built:
            stream = version.streams.get(item.stream_id)
            if stream is not None and stream.is_change_log:
                self._changes.inc(item.file.rows)
            elif stream is not None:
                self._elements.labels(stream.name).inc(item.file.rows)
                self._matches.labels(stream.name).inc(item.matched)

    def count_reset(self, stream: StreamDef, rejected: int) -> None:
        """A reset made elements, which are counted as such already, rejects."""
        self._rejects.labels(stream.name).inc(rejected)

    def rate(self, stream_id: int) -> float:
        """Elements a second over the last minute."""
        now = self._components.clock()
        held = self._arrived[stream_id]
        _trim(held, now)
        period = min(_RATED, max(now - self._components.started_at, 1_000_000))
        return sum(rows for _, rows in list(held)) * 1e6 / period

    def count_invocation(self, query: QueryDef, seconds: float) -> None:
        """A standing query was answered."""
        self._invocations.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """The gauges, as of now (called by the registry)."""
        version = self._components.log.version
        yield GaugeMetricFamily("millpond_epoch", "The last epoch", version.epoch)
        yield GaugeMetricFamily("millpond_queries", "Standing queries", len(version.queries))
        segments = GaugeMetricFamily("millpond_segments", "Kept segments", labels=["stream"])
        slots = GaugeMetricFamily("millpond_slots", "Predicates matched", labels=["stream"])
        for stream in version.named_streams():
            segments.add_metric([stream.name], len(version.segments(stream.id)))
            slots.add_metric([stream.name], version.slot_count(stream.id))
        yield from collect_health(self._components)
        yield from self._functions()
        yield from self._modules(version)
        yield from self._joins(version)
        yield segments
        yield slots
        behind = self._components.advancer.lag()
        yield from self._times_by_stream(version, behind)
        yield GaugeMetricFamily("millpond_derivations", "Followed queries and streams", len(behind))
        yield GaugeMetricFamily(
            "millpond_derivation_lag_seconds",
            "How far the last of them is behind what is final",
            max(behind.values(), default=0.0),
        )
        waiting = len(self._components.intake.list_waiting())
        yield GaugeMetricFamily("millpond_inbox_waiting", "Pushes not committed yet", waiting)
        yield from self._door(version)
        yield from self._disk()
        yield from self._sizes.collect()
        yield from self._sinks()
        yield from self._replicas()

    def _times_by_stream(self, version: Version, behind: Mapping[int, float]) -> Iterator[Metric]:
        """How long rows of each stream take to be seen, and to be followed."""
        freshness = GaugeMetricFamily(
            "millpond_stream_freshness_seconds",
            "Time from the last arrival of the stream's last batch to its being visible",
            labels=["stream"],
        )
        lag = GaugeMetricFamily(
            "millpond_stream_lag_seconds",
            "How far the last of what follows the stream is behind what is final; of a derived"
            " stream, also how far itself is",
            labels=["stream"],
        )
        lags: dict[int, float] = {}
        for id, seconds in behind.items():
            stream = version.streams.get(id)
            derivation = None if stream is None else self._components.derivations.known(stream)
            for of in (id, *(() if derivation is None else derivation.streams)):
                lags[of] = max(lags.get(of, 0.0), seconds)
        for stream in version.named_streams():
            if stream.id in self._visible_after:
                freshness.add_metric([stream.name], self._visible_after[stream.id])
            if stream.id in lags:
                lag.add_metric([stream.name], lags[stream.id])
        yield from (freshness, lag)

    def _door(self, version: Version) -> Iterator[Metric]:
        """What waits for its epoch, and what gave way because there was too much."""
        door = self._components.door
        yield GaugeMetricFamily(
            "millpond_inbox_bytes", "Bytes of pushes not committed yet", door.waiting_bytes
        )
        yield GaugeMetricFamily(
            "millpond_deferred_weight",
            "The weight up to which matching and followers of queries wait; 0: nobody's do",
            self._components.pressure.deferred_weight,
        )
        refused = CounterMetricFamily(
            "millpond_refused", "Rows refused because too much waited", labels=["stream"]
        )
        share = GaugeMetricFamily(
            "millpond_shedding", "Share of elements that is shed now", labels=["stream"]
        )
        for stream in version.named_streams():
            refused.add_metric([stream.name], door.refused.get(stream.id, 0))
            if stream.sheds:
                share.add_metric([stream.name], SHARES[door.step_of(stream)][1])
        yield from (refused, share)

    def _disk(self) -> Iterator[Metric]:
        """How much room the store's file system has."""
        room = self._components.disk_room
        if room is None:
            return
        yield GaugeMetricFamily(
            "millpond_disk_free_bytes", "Free bytes of the store's disk", room.free
        )
        yield GaugeMetricFamily(
            "millpond_disk_floor_bytes",
            "Below so many free bytes no rows are taken",
            room.floor,
        )

    def _sinks(self) -> Iterator[Metric]:
        """What sinks have delivered, and which of them deliver no more."""
        figures = (
            ("deliveries", "Deliveries that arrived"),
            ("changes", "Changes delivered"),
            ("failures", "Attempts to deliver that failed since the start"),
        )
        described = self._components.sinks.describe()
        yield from _count_each("sink", described, figures)
        dead = GaugeMetricFamily(
            "millpond_sink_dead", "1 where a sink delivers no more", labels=["sink"]
        )
        for sink in described:
            dead.add_metric([sink["name"]], float(sink["dead"] is not None))
        yield dead

    def _replicas(self) -> Iterator[Metric]:
        """What servers keep of their logs for the relations that follow their tables."""
        retained = GaugeMetricFamily(
            "millpond_postgres_retained_bytes",
            "Bytes of its log that a server of PostgreSQL keeps for a slot",
            labels=["slot"],
        )
        still = GaugeMetricFamily(
            "millpond_postgres_stopped", "1 where a slot is not read", labels=["slot"]
        )
        for replica in self._components.replicas.describe():
            retained.add_metric([replica["slot"]], float(replica["retained"]))
            still.add_metric([replica["slot"]], float(replica["trouble"] is not None))
        yield from (retained, still)

    def _modules(self, version: Version) -> Iterator[Metric]:
        """The rates of streams, and the share that each module lets through."""
        rate = GaugeMetricFamily(
            "millpond_stream_rate", "Elements a second, over the last minute", labels=["stream"]
        )
        labels = ["stream", "module"]
        survive = GaugeMetricFamily(
            "millpond_filter_survival", "Share of elements a module lets through", labels=labels
        )
        cost = GaugeMetricFamily(
            "millpond_filter_cost_seconds", "Time a module spends on an element", labels=labels
        )
        for stream in version.named_streams():
            rate.add_metric([stream.name], self.rate(stream.id))
            for name, (share, ns) in self._components.stems.filters(stream.id).items():
                survive.add_metric([stream.name, name or "other factors"], share)
                cost.add_metric([stream.name, name or "other factors"], ns / 1e9)
        yield from (rate, survive, cost)
        kept = [
            self._components.invoker.kept_answers.of(id)
            for id in self._components.invoker.kept_answers.ids()
        ]
        served = "Answers served from what is kept"
        yield GaugeMetricFamily(
            "millpond_kept_answers", "Answers kept", sum(k.table is not None for k in kept)
        )
        yield CounterMetricFamily(
            "millpond_kept_answers_served", served, sum(k.served for k in kept)
        )

    def _joins(self, version: Version) -> Iterator[Metric]:
        """Shared joins, their SteMs, and how far they are behind."""
        joins, kept = version.joins, self._components.joins
        yield GaugeMetricFamily("millpond_joins", "Joins queries share", len(joins.cores))
        runs = sum(len(own) for own in joins.runs_of.values())
        yield GaugeMetricFamily("millpond_stem_runs", "Sorted runs of SteMs", runs)
        pairs = GaugeMetricFamily("millpond_join_pairs", "Pairs stored", labels=["streams"])
        for core in joins.cores.values():
            stored = sum(file.pairs for file in joins.pairs(core.id))
            pairs.add_metric([", ".join(kept.plan(core).streams)], stored)
        yield pairs
        visited = GaugeMetricFamily(
            "millpond_modules_visited", "Modules a tuple visits, on the average", labels=["stream"]
        )
        tickets = GaugeMetricFamily(
            "millpond_tickets", "A module's tickets", labels=["stream", "module"]
        )
        for stream in version.named_streams():
            ledger = self._components.stems.ledger(stream.id)
            if ledger is None or not ledger.routed:
                continue
            visited.add_metric([stream.name], ledger.visited_per_tuple)
            # Two functions of one name (one was defined anew) are one module to look at.
            shown = {restore_names(name): account for name, account in ledger.accounts.items()}
            for name, account in list(shown.items())[:100]:
                tickets.add_metric([stream.name, name], account.tickets)
        yield visited
        yield tickets

    def _functions(self) -> Iterator[Metric]:
        """What user-defined functions have cost."""
        figures = (
            ("calls", "Calls of user-defined functions"),
            ("rows", "Rows user-defined functions were given"),
            ("seconds", "Seconds spent in user-defined functions"),
        )
        described = self._components.function_registry.describe()
        yield from _count_each("function", described, figures)

    def describe(self) -> list[Metric]:
        """Names are not known in advance; the registry need not check them."""
        return []


def _count_each(
    kind: str, described: Iterable[Mapping[str, Any]], figures: Iterable[tuple[str, str]]
) -> Iterator[Metric]:
    """A counter for each of some figures, labelled with the names of what has them."""
    for figure, text in figures:
        family = CounterMetricFamily(f"millpond_{kind}_{figure}", text, labels=[kind])
        for one in described:
            family.add_metric([one["name"]], one[figure])
        yield family


def _trim(held: deque[tuple[int, int]], now: int) -> None:
    """Forget arrivals from before the minute that rates are taken over."""
    while held and held[0][0] <= now - _RATED:
        held.popleft()
