"""Reads a range of one partition's records; runs in tasks.

Offsets have gaps, where records were compacted away, aborted, or are marks of transactions. So a
range ends when a record at its end or behind it comes, or the partition's own end is reached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import MillpondError
from millpond.runtime.kafka.client import make_consumer, naming_errors, source_error
from millpond.runtime.kafka.packages import import_kafka
from millpond.runtime.kafka.settings import KafkaOptions

#: How many records are decoded together, unless they have more bytes than this.
BATCH, BATCH_BYTES = 16_384, 32 << 20
#: How many records the client is asked for at once: it does not count their bytes.
_STEP = 64
#: How long a broker may give nothing before the task fails; the streaming query tries it again.
_PATIENCE = 30.0

_LOCAL = threading.local()


@dataclass(frozen=True)
class OffsetRange:
    """Records of one partition: from offset `first` to before `stop`.

    A `first` of -1 is the first there is. Below that it is the first there is of a topic that was
    made anew, and says how far the old one was read (`make_anew`).

    `read` is up to where the partition was read, if the brokers have lost records from `first` on
    since, and others may have come in their places; else -1.
    """

    topic: str
    partition: int
    first: int
    stop: int
    read: int = field(default=-1, repr=False)

    @property
    def old_end(self) -> int | None:
        """Up to where the old topic was read, if the topic was made anew."""
        return -2 - self.first if self.first < -1 else None

    @staticmethod
    def make_anew(old_end: int) -> int:
        """The `first` of a topic that was made anew when the old one was read up to an offset."""
        return -2 - old_end


@dataclass
class Records:
    """Records of one partition in the order of their offsets, field by field.

    Attributes:
        topic, partition: Where they are.
        keys, values: Bytes or None.
        times: Milliseconds since 1970, None where a record has no time.
        headers: Lists of (name, bytes or None), or None.
        lost: The first and last offset of records that were gone before they were read, before
            these; None for none. Of a topic that was made anew nobody knows the last.
        read: Whether what is lost had been read: the brokers have lost it since.
        follows: Whether what came in the places of what was lost is read behind this.
    """

    topic: str
    partition: int
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    lost: tuple[int, int | None] | None = None
    read: bool = False
    follows: bool = False


def read_range(options: KafkaOptions, range: OffsetRange) -> Iterator[Records]:
    """Yield the records of a range, at most `BATCH` at a time, or about `BATCH_BYTES`.

    Raises:
        MillpondError: DATA-502, the broker does not answer, or (unless the source says 'continue')
            records were deleted before they were read.
    """
    kafka = import_kafka()
    consumer = _consumer(options)
    place = kafka.TopicPartition(range.topic, range.partition)
    with naming_errors(options):
        earliest, end = consumer.get_watermark_offsets(place, timeout=_PATIENCE)
    first = range.first
    lost: tuple[int, int | None] | None = None
    if first < 0:
        first = earliest
        if range.old_end is not None:
            lost = range.old_end, None
    if first > range.stop:  # it became shorter, and nobody knows from where on it has others
        yield Records(range.topic, range.partition, lost=(range.stop, first - 1), read=True)
        return
    if end < range.stop:
        raise _loss_error(options, range, end, range.stop - 1)
    if first < earliest:
        if options.on_loss == "stop":  # all that is gone, not only what this range has of it
            raise _loss_error(options, range, first, earliest - 1)
        first, lost = earliest, (first, min(earliest, range.stop) - 1)
    if range.read >= 0:
        lost_since = range.first, range.read - 1
        yield Records(range.topic, range.partition, lost=lost_since, read=True, follows=True)
    if lost is not None:
        yield Records(range.topic, range.partition, lost=lost)
    if first >= range.stop:
        return
    place.offset = first
    try:
        with naming_errors(options):
            consumer.assign([place])
        yield from _consume(options, consumer, range, first)
    finally:
        consumer.unassign()


def _consume(
    options: KafkaOptions, consumer: Any, range: OffsetRange, first: int
) -> Iterator[Records]:
    kafka = import_kafka()
    next_offset, heard = first, time.monotonic()
    while next_offset < range.stop:
        with naming_errors(options):
            messages = _take(consumer, min(BATCH, range.stop - next_offset))
        records = Records(range.topic, range.partition)
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == kafka.KafkaError._PARTITION_EOF:
                    next_offset = max(next_offset, message.offset())
                    continue
                if not error.retriable() and error.code() != kafka.KafkaError._ALL_BROKERS_DOWN:
                    raise source_error(options, f'Topic "{range.topic}": {error.str()}.')
                continue
            offset = message.offset()
            next_offset = offset + 1
            if offset >= range.stop:
                break
            kind, at = message.timestamp()
            records.offsets.append(offset)
            records.keys.append(message.key())
            records.values.append(message.value())
            records.times.append(at if kind != kafka.TIMESTAMP_NOT_AVAILABLE else None)
            records.headers.append(message.headers())
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > _PATIENCE:
            silent = f"The broker gave nothing for {_PATIENCE:g} seconds"
            raise source_error(options, f'{silent} (topic "{range.topic}").')
        if records.offsets:
            yield records


def _take(consumer: Any, most: int) -> list[Any]:
    """Messages that are there or come soon; no more than a step after `BATCH_BYTES` of them."""
    taken: list[Any] = []
    size = 0
    while len(taken) < most and size < BATCH_BYTES:
        asked = min(_STEP, most - len(taken))
        given = consumer.consume(asked, timeout=1.0)
        taken += given
        size += sum(len(message) for message in given)
        if len(given) < asked:
            break
    return taken


def _consumer(options: KafkaOptions) -> Any:
    """This thread's consumer: to connect takes longer than to read a small batch."""
    kept: tuple[Any, Any] | None = getattr(_LOCAL, "consumer", None)
    asked = options.client(), options.isolation
    if kept is not None and kept[0] == asked:
        return kept[1]
    if kept is not None:
        kept[1].close()
    _LOCAL.consumer = None
    consumer = make_consumer(options)
    _LOCAL.consumer = asked, consumer
    return consumer


def _loss_error(options: KafkaOptions, range: OffsetRange, first: int, last: int) -> MillpondError:
    return loss_error(options, describe_loss(range, first, last))


def loss_error(options: KafkaOptions, loss: str) -> MillpondError:
    """The error of a stream that stops because records are lost; `loss` says which."""
    return source_error(
        options,
        f"{loss} The stream has stopped, so that nobody takes what is left for everything.",
        "DROP the stream (CASCADE drops what reads it, too) and CREATE it again; with the option "
        "on_loss 'continue' it goes on, and the loss is one of its rejects.",
    )


def describe_loss(range: OffsetRange, first: int, last: int) -> str:
    """Say which records are lost."""
    return (
        f'Records {first} to {last} of partition {range.partition} of topic "{range.topic}" '
        "were gone before they were read."
    )


def describe_truncated(topic: str, partition: str, read: int, end: int) -> str:
    """Say that a partition lacks records that were read of it, from an offset on."""
    return (
        f'Partition {partition} of topic "{topic}" was read up to {read}, and has what was read '
        f"only up to {end}: the brokers have lost records, and others may have come in their "
        "places."
    )


def describe_short(topic: str, partition: str, offset: int, end: int) -> str:
    """Say that a partition ends before what was read of it."""
    return (
        f'Partition {partition} of topic "{topic}" was read up to {offset} and ends at {end}: '
        "the brokers have lost records, and others may have come in their places."
    )
