"""Records of a range come in batches of so many records, and of so many bytes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="pip install millpond[kafka]")

from millpond.runtime.kafka import read_range
from millpond.runtime.kafka.read_range import BATCH, BATCH_BYTES, OffsetRange
from millpond.runtime.kafka.settings import KafkaOptions

OPTIONS = KafkaOptions(
    "s", "h:1", ("t",), "raw", "earliest", "stop", "read_committed", 9, None, None, None, ",", {}
)


class Message:
    def __init__(self, offset: int, value: bytes) -> None:
        self._offset, self._value = offset, value

    def __len__(self) -> int:
        return len(self._value)

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Consumer:
    """Gives as many records as it is asked for, each of one value."""

    def __init__(self, value: bytes) -> None:
        self._value, self._next = value, 0

    def consume(self, count: int, timeout: float) -> list[Any]:
        first, self._next = self._next, self._next + count
        return [Message(offset, self._value) for offset in range(first, self._next)]


def sizes_of(value: bytes, count: int) -> list[int]:
    given = list(
        read_range._consume(OPTIONS, Consumer(value), OffsetRange("t", 0, 0, count), first=0)
    )
    assert [offset for records in given for offset in records.offsets] == list(range(count))
    return [len(records.offsets) for records in given]


def test_large_records_are_not_held_by_the_thousand():
    size = 1 << 20
    sizes = sizes_of(bytes(size), 2_000)
    assert max(sizes) * size <= 3 * BATCH_BYTES


def test_small_records_are_decoded_by_the_thousand():
    assert sizes_of(b"v", BATCH + 10) == [BATCH, 10]
