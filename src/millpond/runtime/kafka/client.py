"""Clients of Kafka: which partitions topics have, and from where to where their records go."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from millpond.catalog.first_look import GOES_ON
from millpond.errors import MillpondError
from millpond.runtime.kafka.client_log import Complaints, log
from millpond.runtime.kafka.packages import import_kafka
from millpond.runtime.kafka.settings import KafkaOptions, read_start

#: Offsets by topic and by partition, as JSON has them.
Offsets = dict[str, dict[str, int]]

_SECONDS = 10.0
_RETRY_SECONDS = 0.1
#: Errors of a partition whose leader changes; one of a new topic has none for a moment.
_PASSING = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
)
#: What the client says where the records before an offset are others than those of an epoch; it
#: gives the offset in its text alone.
_TRUNCATED = re.compile(r"log truncation detected.*?broker end offset is (\d+)")


def make_consumer(options: KafkaOptions, **more: Any) -> Any:
    """A consumer that reads where it is told to; it joins no group and commits nothing."""
    kafka = import_kafka()
    settings = {
        **options.client(),
        **more,
        "group.id": "millpond",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": options.isolation,
        "fetch.wait.max.ms": 50,
        # What is fetched beyond the end of a range is thrown away: not much of it.
        "queued.max.messages.kbytes": 8192,
    }
    with naming_errors(options):
        return kafka.Consumer(settings, logger=log)


class Topics:
    """Asks the brokers about one source's topics; one thread at a time uses it."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._kafka = import_kafka()
        self._complaints = Complaints()
        #: The leaders' epochs of the last records, as of the last call of `latest`.
        self.epochs: Offsets = {}
        callback = {"error_cb": self._complaints.note}
        self._consumer = make_consumer(options, **callback)
        with naming_errors(options):
            self._admin = self._kafka.admin.AdminClient(options.client() | callback, logger=log)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def list_partitions(self) -> list[tuple[str, int]]:
        """The partitions the topics have now, sorted.

        Raises:
            MillpondError: DATA-502, there is no such topic, or no broker answers.
        """
        found = []
        with self._naming_reasons():
            for name in self._options.topics:
                topic = self._consumer.list_topics(name, timeout=_SECONDS).topics.get(name)
                if topic is None or topic.error is not None:
                    why = topic.error.str() if topic is not None else "it is not there"
                    raise source_error(self._options, f'Topic "{name}": {why}.')
                found += [(name, number) for number in topic.partitions]
        return sorted(found)

    @contextmanager
    def _naming_reasons(self) -> Iterator[None]:
        """Name errors, and the reason why nobody answers where the client was told one."""
        self._complaints.last = None
        try:
            with naming_errors(self._options):
                yield
        except MillpondError:
            self._consumer.poll(0)  # has it call back
            if (reason := self._complaints.last) is None:
                raise
            raise source_error(self._options, _without_secrets(reason, self._options)) from None

    def find_ids(self) -> dict[str, str]:
        """The id of each topic: a topic that was deleted and made anew has another.

        A broker that knows of no ids gives one of zeros, which says nothing.
        """
        found = {}
        with naming_errors(self._options):
            names = self._kafka.TopicCollection(list(self._options.topics))
            asked = self._admin.describe_topics(names, request_timeout=_SECONDS)
            for name, answer in asked.items():
                id = str(answer.result(timeout=_SECONDS + 5).topic_id)
                if id.strip("A="):
                    found[name] = id
        return found

    def latest(self, partitions: Iterable[tuple[str, int]]) -> Offsets:
        """The offsets after the last records that can be read; `epochs` are noted with them."""
        kafka = self._kafka
        self.epochs = {}
        return self._list_offsets({p: kafka.admin.OffsetSpec.latest() for p in partitions})

    def find_lost(self, read: Mapping[tuple[str, int], tuple[int, int]]) -> Offsets:
        """Ask whether partitions that have other leaders still have what was read of them.

        Args:
            read: Of each partition up to where it was read, and the leader's epoch at that time.

        Returns:
            Of partitions that have lost some of that: from where on.

        Raises:
            MillpondError: DATA-502, a broker does not answer.
        """
        kafka = self._kafka
        lost: Offsets = {}
        # A client looks at epochs only where it has heard nothing of a partition yet.
        consumer = make_consumer(self._options)
        try:
            with naming_errors(self._options):
                places = [
                    kafka.TopicPartition(topic, number, offset, leader_epoch=epoch)
                    for (topic, number), (offset, epoch) in read.items()
                ]
                consumer.assign(places)
                waiting, end = set(read), time.monotonic() + _SECONDS
                while waiting and time.monotonic() < end:
                    for message in consumer.consume(64, timeout=0.5):
                        place = message.topic(), message.partition()
                        error = message.error()
                        if place not in waiting or (error is not None and error.retriable()):
                            continue
                        waiting.remove(place)
                        consumer.pause([kafka.TopicPartition(*place)])
                        if error is not None and (rest := _TRUNCATED.search(error.str())):
                            lost.setdefault(place[0], {})[str(place[1])] = int(rest[1])
        finally:
            consumer.close()
        if waiting:
            topic, number = min(waiting)
            silent = f'Nobody says what partition {number} of topic "{topic}" still has.'
            raise source_error(self._options, silent)
        return lost

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> Offsets:
        """The offsets of the first records that are still there."""
        kafka = self._kafka
        return self._list_offsets({p: kafka.admin.OffsetSpec.earliest() for p in partitions})

    def find_start(self) -> Offsets:
        """Where the source starts, by its option `start`, in the partitions there are now."""
        partitions = self.list_partitions()
        start = read_start(self._options)
        if start == "latest":
            return self.latest(partitions)
        found = self.earliest(partitions)
        if isinstance(start, dict):
            for topic, given in start.items():
                if unknown := given.keys() - found[topic].keys():
                    missing = f'Topic "{topic}" has no partition {min(unknown)}.'
                    raise source_error(self._options, missing)
                found[topic] |= given
            self._check_start(start, self.latest(partitions))
        elif isinstance(start, int):
            found = self._offsets_at(partitions, start)
        return found

    def _check_start(self, start: Offsets, ends: Offsets) -> None:
        """Refuse an offset behind a partition's end, which nothing may ever reach."""
        for topic, number, offset, end in find_short(start, ends):
            short = f'Partition {number} of topic "{topic}" ends at {end}: it has no {offset}.'
            raise source_error(self._options, short)

    def _offsets_at(self, partitions: Iterable[tuple[str, int]], instant: int) -> Offsets:
        """The first offsets whose records are not older than an instant (µs); the end for none."""
        partitions = list(partitions)
        spec = self._kafka.admin.OffsetSpec.for_timestamp(max(-(-instant // 1000), 0))
        found, ends = self._list_offsets(dict.fromkeys(partitions, spec)), self.latest(partitions)
        for topic, offsets in found.items():
            for number, offset in offsets.items():
                offsets[number] = ends[topic][number] if offset < 0 else offset
        return found

    def _list_offsets(self, specs: Mapping[tuple[str, int], Any]) -> Offsets:
        kafka = self._kafka
        found: Offsets = {}
        if not specs:
            return found
        with naming_errors(self._options):
            level = kafka.IsolationLevel[self._options.isolation.upper()]
            wanted = {kafka.TopicPartition(*place): spec for place, spec in specs.items()}
            end = time.monotonic() + _SECONDS
            while wanted:
                asked = self._admin.list_offsets(
                    wanted, isolation_level=level, request_timeout=_SECONDS
                )
                for place, answer in asked.items():
                    try:
                        found_one = answer.result(timeout=_SECONDS + 5)
                    except kafka.KafkaException as error:
                        if error.args[0].name() not in _PASSING or time.monotonic() > end:
                            raise
                        continue
                    number = str(place.partition)
                    found.setdefault(place.topic, {})[number] = found_one.offset
                    if found_one.leader_epoch is not None and found_one.leader_epoch >= 0:
                        epochs = self.epochs.setdefault(place.topic, {})
                        epochs[number] = found_one.leader_epoch
                    del wanted[place]
                if wanted:
                    time.sleep(_RETRY_SECONDS)
        return found


def find_short(offsets: Offsets, ends: Offsets) -> list[tuple[str, str, int, int]]:
    """The partitions that end before an offset: topic, number, offset and end of each.

    >>> find_short({"t": {"0": 9, "1": 5, "2": 7}}, {"t": {"0": 5, "1": 5}})
    [('t', '0', 9, 5)]
    """
    return [
        (topic, number, offset, ends[topic][number])
        for topic, given in sorted(offsets.items())
        for number, offset in sorted(given.items(), key=lambda item: int(item[0]))
        if ends.get(topic, {}).get(number, offset) < offset
    ]


@contextmanager
def naming_errors(options: KafkaOptions) -> Iterator[None]:
    """Turn errors of the client into DATA-502, without what stands in the file `config`."""
    kafka = import_kafka()
    try:
        yield
    except kafka.KafkaException as error:
        given = error.args[0] if error.args else error
        text = given.str() if hasattr(given, "str") else str(given)
        raise source_error(options, _without_secrets(text, options)) from None


def source_error(options: KafkaOptions, detail: str, hint: str | None = None) -> MillpondError:
    """The error of a source that cannot be read."""
    return MillpondError(
        "DATA-502",
        f'the source of "{options.stream}" cannot be read',
        detail=detail[:600],
        hint=hint or GOES_ON,
    )


def _without_secrets(text: str, options: KafkaOptions) -> str:
    """A client's text without any value that the file `config` gives."""
    try:
        values = options.client().items() if options.config else ()
    except MillpondError:
        return "The client cannot be used."
    for name, value in values:
        if name not in ("bootstrap.servers", "client.id") and value:
            text = text.replace(value, "…")
    return text
