"""Kafka's topics as a streaming source: it gives ranges of offsets, which tasks read themselves.

Spark keeps in its checkpoint up to where each batch goes; records never pass through Spark's rows,
which is why a task needs no more than Kafka's client and admission.

Spark starts a process for each stream, which loads this file to ask the brokers. What only the
driver needs is loaded where it is called: it would be most of that process's work at the start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millpond.runtime.kafka.client import Offsets, Topics, find_short
from millpond.runtime.kafka.read_range import (
    OffsetRange,
    describe_short,
    describe_truncated,
    loss_error,
)
from millpond.runtime.kafka.settings import KafkaOptions
from millpond.runtime.spark.checkpoint import note_once

if TYPE_CHECKING:
    from millpond.catalog.objects import StreamDef

NAME = "millpond_kafka"
#: In an offset, beside the topics: how many records waited in them, and how many are left.
WAITING = "?waiting"
#: In an offset, beside the topics: the id of each, which changes when a topic is made anew.
IDS = "?ids"
#: In an offset, beside the topics: the leaders' epochs of the last records at that time. By them
#: the brokers say whether what was read is still there.
EPOCHS = "?epochs"
#: In an offset, beside the topics: of partitions that lost what the batch before had read, from
#: where on. The batch reads them from there.
LOST = "?lost"
_START = "kafka_start.json"
#: The columns of a frame of ranges.
COLUMNS = "topic string, partition int, first bigint, stop bigint, read bigint"
#: The least time between two questions to the brokers for new records, and the most between two for
#: new partitions.
_ASK_SECONDS, _LIST_SECONDS = 0.05, 5.0
#: How long a partition may end before what was read of it, until that is a loss and no election.
_SHORT_SECONDS = 10.0
#: Fewer records than this are not worth a task of their own.
_LEAST_RECORDS = 10_000


def check_topics(stream: StreamDef) -> None:
    """Look at a stream's topics for the first time.

    Raises:
        MillpondError: CQL-214 for its options and columns, DATA-502 for the topics.
    """
    from millpond.runtime.kafka.avro import check_avro
    from millpond.runtime.kafka.options import kafka_options, payload_names

    options = kafka_options(stream)
    if options.format == "avro":
        check_avro(options, payload_names(stream, options))
    topics = Topics(options)
    try:
        topics.find_start()
    finally:
        topics.close()


def ranges_frame(spark: SparkSession, stream: StreamDef, folder: Path) -> DataFrame:
    """Open the topics of a stream as a streaming frame of ranges.

    Args:
        spark: The session.
        stream: The stream.
        folder: Its checkpoint's folder, which also keeps where the stream began.
    """
    spark.dataSource.register(KafkaRanges)
    facts = describe_topics(stream, note_start(stream, folder))
    slots = str(spark.sparkContext.defaultParallelism)
    return spark.readStream.format(NAME).option("slots", slots).option("facts", facts).load()


def note_start(stream: StreamDef, folder: Path) -> dict[str, Any]:
    """The offset where a stream's topics are read from, written down when it was opened first."""
    found: dict[str, Any] = note_once(folder, _START, lambda: _find_start(stream))
    return found


def describe_topics(stream: StreamDef, start: dict[str, Any]) -> str:
    """What a reader of a stream's topics has to know, as an option of a data source."""
    from millpond.runtime.kafka.options import kafka_options

    return json.dumps([asdict(kafka_options(stream)), start])


def ranges_of(facts: str, slots: int) -> RangesReader:
    """Make the reader of a stream's topics from what `describe_topics` gave."""
    given, start = json.loads(facts)
    return RangesReader(KafkaOptions.from_json(given), start, slots)


def range_columns(share: list[OffsetRange]) -> dict[str, pa.Array]:
    """Ranges as the columns of the frame that tasks read."""
    return {
        "topic": pa.array([r.topic for r in share], pa.string()),
        "partition": pa.array([r.partition for r in share], pa.int32()),
        "first": pa.array([r.first for r in share], pa.int64()),
        "stop": pa.array([r.stop for r in share], pa.int64()),
        "read": pa.array([r.read for r in share], pa.int64()),
    }


def _find_start(stream: StreamDef) -> dict[str, Any]:
    """The offset where the stream would begin now."""
    from millpond.runtime.kafka.options import kafka_options

    topics = Topics(kafka_options(stream))
    try:
        return {**topics.find_start(), IDS: topics.find_ids()}
    finally:
        topics.close()


def deal_ranges(ranges: list[OffsetRange], slots: int) -> list[list[OffsetRange]]:
    """Deal ranges into at most about `slots` shares of about equal records, cutting large ones.

    >>> deal_ranges([OffsetRange("t", 0, 0, 30_000), OffsetRange("t", 1, 5, 5)], 2)
    [[OffsetRange(topic='t', partition=0, first=0, stop=15000)], \
[OffsetRange(topic='t', partition=0, first=15000, stop=30000), \
OffsetRange(topic='t', partition=1, first=5, stop=5)]]
    """
    total = sum(r.stop - max(r.first, 0) for r in ranges)
    goal = max(-(-total // max(slots, 1)), _LEAST_RECORDS)
    shares: list[list[OffsetRange]] = [[]]
    room = goal
    for given in ranges:
        rest = given
        # Where the first record is nobody knows yet, the range stays whole.
        while rest.first >= 0 and rest.stop - rest.first > room:
            if room:
                middle = rest.first + room
                shares[-1].append(replace(rest, stop=middle))
                rest = OffsetRange(rest.topic, rest.partition, middle, rest.stop)
            shares.append([])
            room = goal
        shares[-1].append(rest)
        room = max(room - (rest.stop - max(rest.first, 0)), 0)
    return [share for share in shares if share]


class KafkaRanges(DataSource):
    """Spark's data source of the ranges; its options are made by `ranges_frame`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ranges_of(self.options["facts"], int(self.options["slots"]))


class RangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says up to where the topics go; an offset is the offsets of all partitions."""

    def __init__(self, options: KafkaOptions, start: dict[str, Any], slots: int) -> None:
        self._options = options
        self._start = start
        self._slots = slots
        self._topics: Topics | None = None
        self._partitions: list[tuple[str, int]] = []
        self._ids: dict[str, str] = {}
        self._epochs: Offsets = {}
        #: Of partitions that have other leaders than when they were read: up to where they were
        #: read, the epochs of then and now, and from where on the brokers have lost some of that.
        self._said: dict[tuple[str, str], tuple[tuple[int, int, int], int | None]] = {}
        self._listed_at = self._asked_at = float("-inf")
        self._ends: Offsets | None = None
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._start

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ends = self._target if self._target is not None else self._ask()
        begins = topics_of(start)
        for topic in find_remade(start, {IDS: self._ids}):
            if self._options.on_loss == "stop":
                raise loss_error(self._options, f'The topic "{topic}" was deleted and made anew.')
            del begins[topic]
        ends, lost = self._find_lost(start, begins, ends)
        for topic, numbers in lost.items():
            for number, first in numbers.items():
                if self._options.on_loss == "stop":
                    read = begins[topic][number]
                    truncated = describe_truncated(topic, number, read, first)
                    raise loss_error(self._options, truncated)
            begins[topic] = begins[topic] | numbers
        if find_short(begins, ends):
            ends = self._wait_for_ends(begins, ends)
        for topic, number, offset, end in find_short(begins, ends):
            if self._options.on_loss == "stop":
                raise loss_error(self._options, describe_short(topic, number, offset, end))
            begins[topic] = {**begins[topic], number: end}
        limited = limit_offsets(begins, ends, self._options.max_records)
        if limited == topics_of(start):
            return start  # another number of waiting records alone is no batch
        counts = {"all": count_records(begins, ends), "left": count_records(limited, ends)}
        found = {**limited, WAITING: counts, IDS: self._ids, EPOCHS: self._epochs}
        return {**found, LOST: lost} if lost else found

    def _find_lost(
        self, start: dict[str, Any], begins: Offsets, ends: Offsets
    ) -> tuple[Offsets, Offsets]:
        """Find from where on partitions that have other leaders lack what was read of them.

        Returns:
            The ends, asked again if brokers were asked for that, and what was found.
        """
        while True:
            elected = {
                (topic, number): (begins[topic][number], epoch, self._epochs[topic][number])
                for topic, epochs in find_elected(start, {EPOCHS: self._epochs}).items()
                for number, epoch in epochs.items()
                if number in begins.get(topic, {})
            }
            asked = {
                (topic, int(number)): facts[:2]
                for (topic, number), facts in elected.items()
                if self._said.get((topic, number), ())[:1] != (facts,)
            }
            if not asked:
                break
            assert self._topics is not None
            found = self._topics.find_lost(asked)
            for topic, number in {(topic, str(number)) for topic, number in asked}:
                first = found.get(topic, {}).get(number)
                self._said[topic, number] = elected[topic, number], first
            # Another leader may have answered than the one whose epoch is noted with the ends.
            ends = self._ask()
            if self._target is not None:
                self._target = ends
        lost: Offsets = {}
        for topic, number in elected:
            if (first := self._said[topic, number][1]) is not None:
                lost.setdefault(topic, {})[number] = first
        return ends, lost

    def _wait_for_ends(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Ask again, for a while, as long as a partition ends before what was read of it."""
        until = time.monotonic() + _SHORT_SECONDS
        while find_short(begins, ends) and time.monotonic() < until:
            time.sleep(_SHORT_SECONDS / 20)
            ends = self._ask()
        if self._target is not None:
            self._target = ends
        return ends

    def _ask(self) -> Offsets:
        """The ends of all partitions, as they are now; asked at most twenty times a second.

        Which partitions there are is looked at behind the ends, as often as these have moved. So
        one that is made after that has only records that are newer than those before the ends.
        """
        time.sleep(max(0.0, self._asked_at + _ASK_SECONDS - time.monotonic()))
        if self._topics is None:
            self._topics = Topics(self._options)
        while True:
            ends = self._topics.latest(self._partitions)
            self._asked_at, self._epochs = time.monotonic(), self._topics.epochs
            if ends == self._ends and self._asked_at - self._listed_at < _LIST_SECONDS:
                return ends
            found = self._topics.list_partitions(), self._topics.find_ids()
            self._ends, self._listed_at = ends, time.monotonic()
            if found == (self._partitions, self._ids):
                return ends
            self._partitions, self._ids = found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begins, remade = topics_of(start), find_remade(start, end)
        for topic in remade:
            old = begins[topic]
            begins[topic] = {n: OffsetRange.make_anew(offset) for n, offset in old.items()}
        lost = end.get(LOST, {})
        ranges = [
            OffsetRange(
                topic,
                int(number),
                lost.get(topic, {}).get(number, begins.get(topic, {}).get(number, -1)),
                stop,
                begins[topic][number] if number in lost.get(topic, {}) else -1,
            )
            for topic, stops in sorted(topics_of(end).items())
            for number, stop in sorted(stops.items(), key=lambda item: int(item[0]))
        ]
        return [InputPartition(share) for share in deal_ranges(ranges, self._slots)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict(range_columns(partition.value))

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        if self._topics is not None:
            self._topics.close()


def topics_of(offset: dict[str, Any]) -> Offsets:
    """An offset without what it says besides."""
    besides = (WAITING, IDS, EPOCHS, LOST)
    return {topic: offsets for topic, offsets in offset.items() if topic not in besides}


def find_remade(start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The topics that were deleted and made anew between two offsets.

    An offset of before topics' ids were noted says nothing of that.

    >>> find_remade({"a": {}, "b": {}, IDS: {"a": "x", "b": "y"}}, {IDS: {"a": "z", "b": "y"}})
    ['a']
    """
    before, after = start.get(IDS, {}), end.get(IDS, {})
    return [t for t in topics_of(start) if t in before and after.get(t, before[t]) != before[t]]


def find_elected(start: dict[str, Any], end: dict[str, Any]) -> Offsets:
    """The epochs at the start, of partitions that had another leader since, which may lack records.

    >>> find_elected({EPOCHS: {"t": {"0": 3, "1": 3}}}, {EPOCHS: {"t": {"0": 3, "1": 4}}})
    {'t': {'1': 3}}
    """
    before, after = start.get(EPOCHS, {}), end.get(EPOCHS, {})
    return {
        topic: {n: e for n, e in epochs.items() if after.get(topic, {}).get(n, e) != e}
        for topic, epochs in before.items()
    }


def count_records(start: Offsets, ends: Offsets) -> int:
    """Count the records from some offsets to others; a partition that is new begins at 0.

    >>> count_records({"t": {"0": 10}}, {"t": {"0": 30, "1": 5}})
    25
    """
    return sum(
        max(end - max(start.get(topic, {}).get(number, 0), 0), 0)
        for topic, offsets in ends.items()
        for number, end in offsets.items()
    )


def limit_offsets(start: Offsets, ends: Offsets, most: int) -> Offsets:
    """Where a batch ends that has at most about `most` records: each partition gives its share.

    A partition never ends before it starts: the brokers may know less than they did.

    >>> limit_offsets({"t": {"0": 0, "1": 0}}, {"t": {"0": 300, "1": 100}}, 100)
    {'t': {'0': 75, '1': 25}}
    """
    behind = {
        (topic, number): end - start.get(topic, {}).get(number, 0)
        for topic, offsets in ends.items()
        for number, end in offsets.items()
    }
    waiting = sum(max(count, 0) for count in behind.values())
    # What was read of a partition stays read, also when it is not listed any more.
    limited = {topic: dict(offsets) for topic, offsets in start.items()}
    for (topic, number), count in behind.items():
        first = start.get(topic, {}).get(number, 0)
        take = count if waiting <= most else -(-count * most // waiting)
        limited.setdefault(topic, {})[number] = first + max(take, 0)
    return limited
