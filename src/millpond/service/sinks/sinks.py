"""The sinks of a pond: CREATE, ALTER and DROP SINK, and the threads that deliver.

Each active sink has a thread, because a receiver may keep it waiting. The thread sleeps while there
is nothing new, and ends when the sink is dropped, inactive or dead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from millpond.catalog.objects import fold_name
from millpond.catalog.sink_def import SinkDef, SinkPosition
from millpond.cql.tree.statements import Alter, CreateSink, Drop
from millpond.errors import MillpondError
from millpond.model.names import check_name
from millpond.model.secret_options import find_literal_secret
from millpond.planner.resolve.names import did_you_mean
from millpond.service.changes.feeds.feeds import Feeds
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.queries.options import check_sink_options
from millpond.service.queries.registration import Registrar
from millpond.service.sinks.check_sink import (
    KEYS,
    OWN,
    check_format,
    check_key,
    check_rows,
    default_options,
)
from millpond.service.sinks.delivery import Deliverer, run, select_queries
from millpond.service.sinks.delta import DeltaSender
from millpond.service.sinks.kafka import KafkaSender
from millpond.service.sinks.postgres import PostgresSender
from millpond.service.sinks.sender import Sender
from millpond.service.sinks.webhook import Webhook
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version

log = logging.getLogger("millpond.sinks")

#: The most sinks of a pond: each has a thread.
MOST_SINKS = 100
#: How long who closes a pond, or alters a sink, waits for the sink's thread, in seconds.
_END_SECONDS = 5.0

#: What makes the sender of a sink: by the formats there are, from it and all its options.
SENDERS: dict[str, Callable[[SinkDef, Mapping[str, Any]], Sender]] = {
    "http": lambda sink, options: Webhook(options, sink.hosts),
    "kafka": KafkaSender,
    "postgres": PostgresSender,
    "delta": DeltaSender,
}


@dataclass
class _Worker:
    """A sink's thread, and what ends it."""

    deliverer: Deliverer
    sender: Sender
    news: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Sinks:
    """Creates, alters and drops sinks, and has them deliver; safe to use from any thread."""

    def __init__(
        self,
        epochs: EpochLog,
        registrar: Registrar,
        feeds: Feeds,
        listen: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """Name the parts that sinks ask.

        Args:
            listen: Registers a function that is called when there may be more changes.
        """
        self._log = epochs
        self._registrar = registrar
        self._feeds = feeds
        self._listen = listen
        self._lock = threading.RLock()
        self._workers: dict[int, _Worker] = {}

    # -- definitions ---------------------------------------------------------------------------

    def create(self, statement: CreateSink, policy: AccessPolicy | None) -> SinkDef:
        """Create a sink; it delivers from the first change of each query on, or `after` a cursor.

        Raises:
            MillpondError: CQL-102 and CQL-208 for the name, CQL-201 for the query, CQL-214,
                CQL-301 for the format, POND-405 where there are too many, POND-412 for the cursor,
                POND-414 for what clients may not.
        """
        check_name(statement.name, statement.text, statement.name_span)
        if statement.format not in SENDERS:
            raise statement.error(
                "CQL-301",
                f"sinks USING {statement.format} are not available",
                hint=f"There is USING {', '.join(SENDERS)}.",
            )
        options = check_sink_options(statement.options, statement.text)
        query = None
        if statement.query is not None:
            query = self._registrar.find(statement.query, statement.text, statement.query_name_span)
        hosts = check_format(statement.format, options, policy, statement.text)
        bound = None if query is None else self._registrar.bind(query.text, query.text_epoch)
        key = check_key(statement, bound)
        if statement.format == "delta":
            check_rows(statement, bound)
        with self._lock:
            if len(self._log.version.sinks) >= MOST_SINKS:
                raise statement.error(
                    "POND-405",
                    f"there are {MOST_SINKS} sinks, the most there can be",
                    hint="One sink delivers the changes of many queries: QUERIES TAGGED t.",
                )
            definition = SinkDef(
                self._log.next_id(),
                statement.name,
                statement.format,
                options,
                None if query is None else query.id,
                None if query is None else query.name,
                None if statement.tag is None else statement.tag.strip().lower(),
                None if statement.owner is None else statement.owner.strip(),
                hosts,
                statement.text,
                key,
                position=SinkPosition(options.get("after")),
            )
            if "after" in options:
                self._feeds.open(select_queries(definition, self._log.version), options["after"])
            self._log.commit(EpochChange(kind="create sink", add_sinks=[definition]))
            self._begin(definition)
        return definition

    def alter(self, statement: Alter, policy: AccessPolicy | None) -> SinkDef:
        """Set options of a sink; what is dead and made active tries again at once.

        Raises:
            MillpondError: CQL-201, CQL-214, POND-414.
        """
        given = dict(statement.options)
        with self._lock:
            current = self.find(statement.name)
            kept = current.options
            if any(key.lower() in KEYS for key in given):
                kept = {k: v for k, v in kept.items() if k not in KEYS}
            options = check_sink_options({**kept, **_fold(given)}, statement.text)
            changed = {k: v for k, v in options.items() if current.options.get(k) != v}
            if "after" in changed:
                raise statement.error(
                    "CQL-214",
                    "where a sink begins cannot be altered",
                    hint="DROP the sink and CREATE it again with another `after`.",
                )
            hosts = current.hosts
            if any(name in changed for own in OWN.values() for name in own):
                hosts = check_format(current.format, options, policy, statement.text)
            self._end(current.id)
            altered = self._replace(
                current,
                lambda sink: replace(
                    sink,
                    options=options,
                    hosts=hosts,
                    dead=None if "active" in _fold(given) else sink.dead,
                ),
            )
            self._begin(altered)
        return altered

    def drop(self, statement: Drop) -> None:
        """Drop a sink; what it has not delivered it delivers no more. Raises CQL-201."""
        with self._lock:
            current = self.find(statement.name)
            self._end(current.id)
            self._log.commit(EpochChange(kind="drop sink", drop_sinks=[current]))

    @contextmanager
    def ending(self, dropped: Sequence[SinkDef]) -> Iterator[list[SinkDef]]:
        """End the threads of sinks while a block drops the sinks; give the sinks as they are then.

        If the block fails, the sinks deliver again.
        """
        with self._lock:
            for sink in dropped:
                self._end(sink.id)
            current = [self.find(sink.name) for sink in dropped]
            try:
                yield current
            except BaseException:
                for sink in current:
                    self._begin(sink)
                raise

    def find(self, name: str) -> SinkDef:
        """The sink of a name. Raises CQL-201."""
        sinks = self._log.version.sinks
        found = sinks.get(fold_name(name))
        if found is None:
            raise MillpondError(
                "CQL-201",
                f'no sink "{name}"',
                hint=did_you_mean(name, [s.name for s in sinks.values()])
                or "SHOW SINKS lists them.",
            )
        return found

    def _replace(self, sink: SinkDef, make: Callable[[SinkDef], SinkDef]) -> SinkDef:
        def change(version: Version) -> EpochChange:
            found = version.sinks.get(fold_name(sink.name))
            if found is None or found.id != sink.id:
                raise StaleChange(f'sink "{sink.name}" is not there any more')
            return EpochChange(kind="alter sink", replace_sinks=[make(found)])

        return self._log.commit(change).sinks[fold_name(sink.name)]

    # -- threads -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to deliver."""
        self._listen(self.wake)
        with self._lock:
            for definition in self._log.version.sinks.values():
                self._begin(definition)

    def wake(self) -> None:
        """Have all sinks look for changes."""
        for worker in list(self._workers.values()):
            worker.news.set()

    def stop(self) -> None:
        """End all threads; deliveries under way are made again at the next start."""
        with self._lock:
            for worker in self._workers.values():
                _interrupt(worker)
            for id in list(self._workers):
                self._end(id)

    def _begin(self, sink: SinkDef) -> None:
        if not sink.active:
            return
        options = {**default_options(), **sink.options}
        sender = SENDERS[sink.format](sink, options)
        worker = _Worker(Deliverer(sink, self._log, self._feeds, sender), sender)
        worker.thread = threading.Thread(
            target=_work, args=(sink.name, worker), name=f"sink {sink.name}", daemon=True
        )
        self._workers[sink.id] = worker
        worker.thread.start()

    def _end(self, id: int) -> None:
        worker = self._workers.pop(id, None)
        if worker is not None:
            _interrupt(worker)
            if worker.thread is not None:
                worker.thread.join(_END_SECONDS)

    # -- looking -------------------------------------------------------------------------------

    def describe(self) -> list[dict[str, Any]]:
        """Each sink: what it delivers to where, how it is, and its figures."""
        return [self._describe(sink) for sink in self._log.version.sinks.values()]

    def _describe(self, sink: SinkDef) -> dict[str, Any]:
        worker = self._workers.get(sink.id)
        deliverer = None if worker is None else worker.deliverer
        trouble = None if deliverer is None else deliverer.trouble
        if sink.dead is not None:
            state = f"dead: {sink.dead}"
        elif not sink.active:
            state = "inactive"
        else:
            state = "delivers" if trouble is None else f"retries: {trouble}"
        return {
            "name": sink.name,
            "of": describe_selection(sink),
            "to": _describe_receiver(sink),
            "state": state,
            "dead": sink.dead,
            "deliveries": sink.position.deliveries,
            "changes": sink.position.changes,
            "failures": 0 if deliverer is None else deliverer.failed,
        }


def describe_selection(sink: SinkDef) -> str:
    """Say for people whose changes a sink delivers."""
    if sink.query is not None:
        return f"query {sink.query}"
    return f"queries of owner {sink.owner}" if sink.tag is None else f"queries tagged {sink.tag}"


def _describe_receiver(sink: SinkDef) -> str:
    options = sink.options
    if sink.format == "postgres":
        return f"table {options['table']} of {options['database']} on {options['host']}"
    if sink.format == "delta":
        return f"table {options['path']}"
    if sink.format == "kafka":
        return f"topic {options['topic']}"
    url = str(options["url"])
    if find_literal_secret({"url": url}) is None:
        return url
    return f"{urlsplit(url).hostname} (the rest of the URL has a secret)"


def _interrupt(worker: _Worker) -> None:
    worker.stopped.set()
    worker.sender.interrupt()
    worker.news.set()


def _work(name: str, worker: _Worker) -> None:
    """The body of a sink's thread."""
    try:
        run(worker.deliverer, worker.news, worker.stopped)
    except Exception as error:  # a closed store, for one; the position says where to go on
        worker.deliverer.trouble = f"{type(error).__name__}: {error}"
        if not worker.stopped.is_set():
            log.exception("has stopped", extra={"sink": name})
    finally:
        worker.sender.close()


def _fold(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in options.items()}
