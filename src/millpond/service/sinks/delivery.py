"""Deliveries of one sink: reads its feed, has each batch sent, and notes in the journal how far.

INV-SINK-1: every change of the sink's feed is in a delivery that arrived, or in one still to be
made, wherever the process dies. Two deliveries with one id have the same changes.

A delivery is two epochs. The first settles its number and what it has: everything between the
sink's cursor and the pending cursor, and a checksum of which changes those are. Then it is sent, as
often as needed. The second epoch moves the cursor behind it. A process that finds a pending
delivery reads the feed from cursor to cursor again, so it sends the same under the same id. Should
changes be gone meanwhile (a query was dropped, a change log trimmed), what is left gets another
number, because a receiver that has seen the first must not take it for that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import xxhash

from millpond.catalog.objects import fold_name
from millpond.catalog.options import OPTIONS
from millpond.catalog.sink_def import PendingDelivery, SinkDef, SinkPosition
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed import Feed
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feeds import Feeds
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.sinks.sender import Delivery, DeliveryError, Sender
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.fail_points import reach
from millpond.state.version import Version

log = logging.getLogger("millpond.sinks")

#: The most changes a delivery can have (the option `batch`).
MOST_BATCH = 10_000
#: How many seconds a failed delivery waits at first; the wait doubles each time, up to the longest.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 600.0


class Deliverer:
    """Delivers for one sink; `deliver` is for use by one thread.

    Attributes:
        failures: How many attempts failed since the last that did not.
        failed: How many attempts failed in all since the pond was opened.
        trouble: Why the last attempt failed; None if it did not.
    """

    def __init__(self, definition: SinkDef, log: EpochLog, feeds: Feeds, sender: Sender) -> None:
        self._id = definition.id
        self._name = definition.name
        self._log = log
        self._feeds = feeds
        self._sender = sender
        self._feed: Feed | None = None
        self._rest: list[FeedEvent] = []
        self._ready: Delivery | None = None
        #: How many changes a delivery has at most, because the receiver refused larger ones.
        self._most = MOST_BATCH
        self.failures = 0
        self.failed = 0
        self.trouble: str | None = None

    def deliver(self) -> bool:
        """Make one delivery, or go on with the one that is pending.

        Returns:
            Whether there was one, which may have been too large and is cut. False if there is
            nothing to deliver now.

        Raises:
            DeliveryError: it did not arrive; the next call tries again.
            MillpondError: the sink's feed cannot be read, or the store cannot be written.
            StaleChange: the sink was dropped.
        """
        if self._ready is None:
            sink = self.find_sink()
            pending = sink.position.pending
            self._ready = self._begin(sink) if pending is None else self._resume(sink, pending)
        if self._ready is None:
            self.failures, self.trouble = 0, None
            return False
        try:
            self._sender.send(self._ready)
        except DeliveryError as error:
            if error.is_too_large and len(self._ready.changes) > 1:
                self._ready = self._halve(self._ready)
                return True
            self.failures, self.failed = self.failures + 1, self.failed + 1
            self.trouble = str(error)
            raise
        reach("sink.after_send")
        self._settle(self._ready)
        self.failures, self.trouble, self._ready = 0, None, None
        self._most = min(MOST_BATCH, self._most + 1 + self._most // 8)
        return True

    def wait_seconds(self) -> float:
        """How long to wait for the next attempt after the last failed."""
        return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self.failures - 1, 30))

    def find_sink(self) -> SinkDef:
        """The sink as it is now. Raises StaleChange if it was dropped."""
        return self._find(self._log.version)

    def die(self, reason: str) -> None:
        """Have the sink deliver no more until somebody activates it, and say why."""
        self._replace(lambda sink: replace(sink, dead=reason))
        log.warning("delivers no more: %s", reason, extra={"sink": self._name})

    # -- what is delivered ---------------------------------------------------------------------

    def _begin(self, sink: SinkDef) -> Delivery | None:
        """Settle the next delivery; None while there is nothing to deliver."""
        number = sink.position.deliveries + 1
        if sink.key and sink.position.cursor is None:
            return self._begin_with_answer(sink, number)
        if self._feed is None:
            self._feed, self._rest = self._feeds.open(self._select(sink), sink.position.cursor), []
        batch = min(option_of(sink, "batch"), self._most)
        if sink.key:
            changes, told = self._read_instants(self._feed, batch)
            if _is_trimmed(told):
                return self._begin_with_answer(sink, number)
            told = []  # a table has no place for it
        else:
            changes, told = _divide(self._feed.read(batch))
        if not changes and not told:
            self._select(sink)  # there will be no more of a query that is gone
            return None
        cursor = changes[-1].cursor if self._rest else self._feed.cursor
        assert cursor is not None
        return self._settle_pending(number, cursor, changes, told)

    def _read_instants(self, feed: Feed, batch: int) -> tuple[list[FeedEvent], list[FeedEvent]]:
        """Read changes up to the end of an instant, about as many as asked for; keep the rest."""
        changes = self._rest
        told: list[FeedEvent] = []
        while True:
            events = feed.read(batch)
            more, also = _divide(events)
            changes, told = changes + more, told + also
            if not more or any(event.kind == "mark" for event in events):
                self._rest = []  # all that is known was given, and of whole instants
                return changes, told
            instants = [_instant_of(event) for event in changes]
            end = instants.index(instants[-1])
            if end:
                self._rest = changes[end:]
                return changes[:end], told

    def _begin_with_answer(self, sink: SinkDef, number: int) -> Delivery | None:
        """Settle a delivery of the whole answer; None while the query has none."""
        feed = self._feeds.open(self._select(sink), snapshot=True)
        cursor = feed.cursor
        events = feed.read()
        self._feed = None  # what it has read behind the answer is read again
        if any(event.kind == "suspended" for event in events):
            return None
        found = next((event for event in events if event.kind == "answer"), None)
        query = self._log.version.queries.get(sink.query_id or 0)
        if query is None or not query.active:
            return None
        if found is not None and found.answer is None:
            error = found.facts["error"]
            raise DeliveryError(f"the query has no answer: {error['code']}: {error['message']}")
        # A query of which nothing is final yet has no answer, and all its changes are to come.
        answer = pa.table({}) if found is None or found.answer is None else found.answer.table
        pending = PendingDelivery(number, cursor, "answer")
        self._move(lambda position: replace(position, pending=pending))
        reach("sink.before_send")
        return self._make(number, cursor, [], [], answer)

    def _resume(self, sink: SinkDef, pending: PendingDelivery) -> Delivery | None:
        """Read again what a delivery has that was begun before this process, or before a change."""
        if sink.key and sink.position.cursor is None:
            return self._begin_with_answer(sink, pending.number + 1)
        feed = self._feeds.open(self._select(sink), sink.position.cursor)
        changes, told = _divide(feed.read_to(pending.cursor, pending.changes or MOST_BATCH))
        if sink.key and _is_trimmed(told):
            return self._begin_with_answer(sink, pending.number + 1)
        self._feed = None  # the next one begins behind what is pending
        if not changes and not told:
            # The receiver may have seen its number, which no other delivery gets then.
            number, cursor = pending.number, pending.cursor
            self._move(lambda p: replace(p, cursor=cursor, deliveries=number, pending=None))
            return self._begin(self.find_sink())
        if _prove(changes) != pending.proof:
            return self._settle_pending(pending.number + 1, pending.cursor, changes, told)
        return self._make(pending.number, pending.cursor, changes, told)

    def _halve(self, refused: Delivery) -> Delivery:
        """Settle the first half of a delivery of which the receiver took nothing.

        It has another number: one id always stands for the same changes.
        """
        self._most = len(refused.changes) // 2
        self._feed = None  # the next one begins behind this half
        changes = refused.changes[: self._most]
        cursor = changes[-1].cursor
        assert cursor is not None
        return self._settle_pending(refused.number + 1, cursor, changes, refused.told)

    def _select(self, sink: SinkDef) -> QuerySelection:
        return select_queries(sink, self._log.version)

    # -- the journal ---------------------------------------------------------------------------

    def _settle_pending(
        self, number: int, cursor: str, changes: Sequence[FeedEvent], told: Sequence[FeedEvent]
    ) -> Delivery:
        pending = PendingDelivery(number, cursor, _prove(changes), len(changes))
        self._move(lambda position: replace(position, pending=pending))
        reach("sink.before_send")
        return self._make(number, cursor, changes, told)

    def _settle(self, delivery: Delivery) -> None:
        """Move the sink's position behind a delivery that arrived."""

        def behind(position: SinkPosition) -> SinkPosition:
            number, changes = delivery.number, position.changes + len(delivery.changes)
            is_filled = bool(delivery.changes) or delivery.answer is not None
            filled = number if is_filled else position.filled
            return SinkPosition(delivery.cursor, number, changes, None, number, filled)

        self._move(behind)

    def _move(self, where: Callable[[SinkPosition], SinkPosition]) -> None:
        self._replace(lambda sink: replace(sink, position=where(sink.position)))

    def _replace(self, make: Callable[[SinkDef], SinkDef]) -> None:
        def change(version: Version) -> EpochChange:
            return EpochChange(kind="sink", replace_sinks=[make(self._find(version))])

        self._log.commit(change)

    def _find(self, version: Version) -> SinkDef:
        found = version.sinks.get(fold_name(self._name))
        if found is None or found.id != self._id:
            raise StaleChange(f'sink "{self._name}" is not there any more')
        return found

    def _make(
        self,
        number: int,
        cursor: str,
        changes: Sequence[FeedEvent],
        told: Sequence[FeedEvent],
        answer: pa.Table | None = None,
    ) -> Delivery:
        id, sink = f"{self._log.incarnation}.{self._id}.{number}", self.find_sink()
        received, filled = sink.position.received, sink.position.filled
        return Delivery(
            id, self._name, cursor, changes, told, answer, sink.origin, received, filled
        )


def run(deliverer: Deliverer, news: threading.Event, stopped: threading.Event) -> None:
    """Deliver until the sink is dropped, inactive or dead, or somebody stops it.

    Args:
        deliverer: What delivers.
        news: Set by others when there may be more, and when this is to stop.
        stopped: Set by others when this is to stop.
    """
    while not stopped.is_set():
        news.clear()
        try:
            sink = deliverer.find_sink()
            if not sink.active:
                return
            if not _try_once(deliverer, sink) and not stopped.is_set():
                news.wait()
        except DeliveryError:
            stopped.wait(deliverer.wait_seconds())
        except StaleChange:
            return


def _try_once(deliverer: Deliverer, sink: SinkDef) -> bool:
    """Deliver once; whether there was something. What cannot get better makes the sink dead."""
    try:
        return deliverer.deliver()
    except DeliveryError as error:
        deliverer.trouble = str(error)  # also where there was nothing to send yet
        if error.is_final or deliverer.failures >= option_of(sink, "attempts"):
            times = f" ({deliverer.failures} attempts failed)" if deliverer.failures > 1 else ""
            deliverer.die(f"{error}{times}")
        raise
    except MillpondError as error:
        if error.code == "POND-410":
            raise StaleChange("the pond is closed") from error
        if error.code in ("CQL-201", "POND-412"):
            deliverer.die(f"{error.code}: {error.primary}")
            return False
        deliverer.failures += 1
        deliverer.trouble = f"{error.code}: {error.primary}"
        raise DeliveryError(deliverer.trouble) from error
    except StaleChange:
        raise
    except Exception as error:  # of a client, or of a disk: to stop would be silent
        log.exception("an attempt fails", extra={"sink": sink.name})
        deliverer.failures, deliverer.failed = deliverer.failures + 1, deliverer.failed + 1
        deliverer.trouble = f"{type(error).__name__}: {error}"
        if deliverer.failures >= option_of(sink, "attempts"):
            deliverer.die(f"{deliverer.trouble} ({deliverer.failures} attempts failed)")
        raise DeliveryError(deliverer.trouble) from error


def select_queries(sink: SinkDef, version: Version) -> QuerySelection:
    """The queries whose changes a sink delivers. Raises CQL-201 if its query was dropped."""
    if sink.query_id is None:
        return QuerySelection(tag=sink.tag, owner=sink.owner)
    query = version.queries.get(sink.query_id)
    if query is None:
        raise MillpondError("CQL-201", f'its query "{sink.query}" was dropped')
    return QuerySelection(names=(query.name,))


def option_of(sink: SinkDef, name: str) -> int:
    """A sink's option that is a number, given or not."""
    return int(sink.options.get(name, OPTIONS[name].default))


def _divide(events: Sequence[FeedEvent]) -> tuple[list[FeedEvent], list[FeedEvent]]:
    """The changes, and what else is to be told."""
    changes = [event for event in events if event.kind == "change"]
    told = [event for event in events if event.kind not in ("change", "mark", "note")]
    return changes, told


def _is_trimmed(told: Sequence[FeedEvent]) -> bool:
    """Whether changes are gone that were not delivered."""
    return any(event.kind == "trimmed" for event in told)


def _instant_of(event: FeedEvent) -> int:
    assert event.changes is not None
    instant: int = event.changes.table["timestamp"][event.index].as_py()
    return instant


def _prove(changes: Sequence[FeedEvent]) -> str:
    """A checksum of which changes these are, in whatever order."""
    names = sorted(f"{event.id}.{event.number}" for event in changes)
    return xxhash.xxh3_64_hexdigest(" ".join(names).encode())
