"""What a pond did in the last minutes and days: figures that are sampled and kept in memory.

Every `FINE_SECONDS` one sample is taken, and kept for an hour; every `COARSE_SECONDS` one is kept
for a week. So the history is bounded: about 2,400 samples of at most `MOST_FIGURES` figures, two
megabytes. It is gone when the pond is closed; the stream `system$actions` and a Prometheus that
reads `/metrics` keep for longer.
"""

from __future__ import annotations

import resource
import threading
import time as clock_time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from millpond.runtime.process_memory import measure_memory
from millpond.service.background import Background
from millpond.service.components import Components
from millpond.service.observe.metrics import Metrics

Span = Literal["hour", "week"]

FINE_SECONDS, COARSE_SECONDS = 10.0, 300.0
_KEPT = {"hour": int(3600 / FINE_SECONDS), "week": int(7 * 86_400 / COARSE_SECONDS)}
#: The most figures of a sample, and the most of them that are of streams.
MOST_FIGURES, _MOST_STREAMS = 80, 30
#: Of more derivations than this the lag is not looked at: that takes time for each.
_MOST_DERIVATIONS = 500

#: Figures that count since the pond was opened: their rates are told, and these are their units.
_COUNTED = ("rows/s of ", "matches/s", "rejects/s", "epochs/s", "processor share")


@dataclass(frozen=True)
class HistorySample:
    """Figures at one time, in the order of their names."""

    at: float
    names: tuple[str, ...]
    values: array[float]


class History(Background):
    """Samples the figures of a pond; safe to use from any thread."""

    def __init__(
        self,
        components: Components,
        metrics: Metrics,
        clock: Callable[[], float] = clock_time.time,
    ) -> None:
        super().__init__("history")
        self._metrics = metrics
        self._components = components
        self._clock = clock
        self._samples: dict[str, deque[HistorySample]] = {
            span: deque(maxlen=kept) for span, kept in _KEPT.items()
        }
        self._guard = threading.Lock()
        self._looked_at = clock_time.monotonic()

    def wait_seconds(self) -> float:
        return max(0.1, self._looked_at + FINE_SECONDS - clock_time.monotonic())

    def work(self) -> None:
        if clock_time.monotonic() - self._looked_at >= FINE_SECONDS:
            self._looked_at = clock_time.monotonic()
            self.look()

    def look(self) -> None:
        """Take a sample."""
        figures = dict(self._measure())
        names = tuple(figures)[:MOST_FIGURES]
        values = array("d", (figures[name] for name in names))
        with self._guard:
            last = self._samples["hour"][-1] if self._samples["hour"] else None
            if last is not None and last.names == names:
                names = last.names  # one tuple for all samples
            sample = HistorySample(self._clock(), names, values)
            self._samples["hour"].append(sample)
            coarse = self._samples["week"]
            if not coarse or sample.at - coarse[-1].at >= COARSE_SECONDS:
                coarse.append(sample)

    def tell(self, span: Span = "hour") -> dict[str, Any]:
        """Tell the series of a span: instants in seconds since 1970, and figures by name.

        What counts is told as the rate since the sample before; the first sample has none.
        """
        with self._guard:
            samples = list(self._samples[span])
        series: dict[str, list[float | None]] = {}
        for place, sample in enumerate(samples):
            before = samples[place - 1] if place else None
            known = {} if before is None else dict(zip(before.names, before.values, strict=True))
            for name, value in zip(sample.names, sample.values, strict=True):
                told: float | None = value
                if name.startswith(_COUNTED):
                    told = None
                    if before is not None and name in known and sample.at > before.at:
                        told = max(0.0, value - known[name]) / (sample.at - before.at)
                series.setdefault(name, [None] * place).append(told)
            for values in series.values():
                values += [None] * (place + 1 - len(values))
        every = FINE_SECONDS if span == "hour" else COARSE_SECONDS
        return {
            "every_seconds": every,
            "at": [sample.at for sample in samples],
            "series": series,
        }

    def _measure(self) -> Iterator[tuple[str, float]]:
        components, version = self._components, self._components.log.version
        yield "processor share", sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        yield "process memory", float(measure_memory())
        states = [one.state for one in components.advancer.accounts.list_operators(version)]
        yield "state in memory", float(sum(state.memory for state in states))
        yield "state in files", float(sum(state.files for state in states))
        room = components.disk_room
        if room is not None:
            yield "disk free", float(room.free)
        streams = version.named_streams()
        kept = sum(segment.bytes for s in streams for segment in version.segments(s.id))
        yield "disk of elements", float(kept)
        yield "bytes waiting in the inbox", float(components.door.waiting_bytes)
        yield "rungs of overload", float(components.pressure.step)
        yield "epochs/s", float(version.epoch)
        yield "matches/s", float(self._metrics.matched)
        yield "rejects/s", float(sum(version.clock(s.id).rejected for s in streams))
        yield "seconds until visible", self._metrics.last_freshness
        if len(components.derivations.list_streams(version)) <= _MOST_DERIVATIONS:
            yield "seconds behind", max(components.advancer.lag().values(), default=0.0)
        for stream in streams[:_MOST_STREAMS]:
            yield f"rows/s of {stream.name}", float(version.clock(stream.id).next_seq)
        for stream in streams[:_MOST_STREAMS]:
            for name, (survive, _) in components.stems.filters(stream.id).items():
                yield f"share let through by {stream.name}.{name or 'others'}", survive
