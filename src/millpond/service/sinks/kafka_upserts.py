"""A compacted topic that is kept equal to the answer of a query: one record a key.

A record's key is the row's key, its value the row; a row that goes is a tombstone, a record without
a value. Whoever has read the topic to its end, and keeps the last record of each key, has the
answer as it was at some instant.

INV-UPSERTS-1: the keys that are held here are those that have a row in the topic, as far as
    deliveries were committed; a delivery that would give a key a second row is not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from millpond.service.json_values import dumps, json_columns
from millpond.service.sinks.keyed_rows import (
    KeyedChanges,
    Row,
    duplicate_key,
    fold_answer,
    fold_changes,
)
from millpond.service.sinks.sender import Delivery, DeliveryError

#: A record: its key, and its value; None for a tombstone.
Record = tuple[bytes, bytes | None]


class Upserts:
    """The keys that have a row in a topic, and the records that deliveries become.

    It holds the keys themselves: 100 MB for a million short ones.
    """

    def __init__(self, key: Sequence[str], topic: str, records: Iterable[Record]) -> None:
        """Learn from the topic which keys have a row.

        Args:
            key: The columns of the key.
            topic: The topic's name, for errors.
            records: All committed records of the topic, in the order of their partitions.
        """
        self._key = key
        self._topic = topic
        self._held: set[bytes] = set()
        for name, value in records:
            self._note(name, value)
        self._undone: list[Record] = []

    def __len__(self) -> int:
        return len(self._held)

    def count_rows(self) -> int:
        """How many rows the topic has once the records that were written last are committed."""
        count = len(self._held)
        for name, value in dict(self._undone).items():
            count += (value is not None) - (name in self._held)
        return count

    def check_rows(self, expected: int | None) -> None:
        """Hold the topic to what the sink's last record says of it.

        Raises:
            DeliveryError: final, rows are gone, or somebody else's are there.
        """
        if expected is not None and len(self) != expected:
            raise DeliveryError(
                f'the topic "{self._topic}" has {len(self)} rows, and this sink has made them '
                f"{expected}: somebody else writes to it or deletes from it, or it was made anew; "
                "DROP and CREATE the sink with another topic",
                is_final=True,
            )

    def write(self, delivery: Delivery, is_first: bool) -> list[Record]:
        """Return the records of a delivery; `settle` says that they are committed.

        Args:
            delivery: Changes of whole instants, or the whole answer.
            is_first: Whether the sink has delivered nothing yet.

        Raises:
            DeliveryError: final: two rows have one key, or the topic is not what the sink wrote.
        """
        if delivery.answer is None:
            self._undone = self._write_changes(delivery)
        else:
            if is_first and self._held:
                raise DeliveryError(
                    f'the topic "{self._topic}" has rows that this sink has not written; name '
                    "another one, or send tombstones for its keys first",
                    is_final=True,
                )
            self._undone = self._write_answer(fold_answer(delivery.answer, self._key, json_columns))
        return self._undone

    def settle(self) -> None:
        """Note that the last records that were written are committed."""
        for name, value in self._undone:
            self._note(name, value)
        self._undone = []

    def _write_answer(self, rows: KeyedChanges) -> list[Record]:
        """Replace all rows; those that stay are written again."""
        put = [(self._name(key), self._encode(rows, row)) for key, row in _pairs(rows)]
        gone = self._held.difference(name for name, _ in put)
        return [*((name, None) for name in sorted(gone)), *put]

    def _write_changes(self, delivery: Delivery) -> list[Record]:
        changes = fold_changes(delivery.changes, self._key, json_columns)
        for values in changes.fresh.values():
            if self._name(values) in self._held:
                raise duplicate_key(self._key, values)
        for values in changes.held.values():
            if self._name(values) not in self._held:
                raise DeliveryError(
                    f'the topic "{self._topic}" lacks rows that this sink has written: somebody '
                    "else writes to it, or it is not compacted but deleted from; DROP and CREATE "
                    "the sink with another topic",
                    is_final=True,
                )
        gone = self._held.intersection(map(self._name, changes.gone.values()))
        tombstones = [(name, None) for name in sorted(gone)]
        return [
            *tombstones,
            *((self._name(k), self._encode(changes, row)) for k, row in _pairs(changes)),
        ]

    def _note(self, name: bytes, value: bytes | None) -> None:
        if value is None:
            self._held.discard(name)
        else:
            self._held.add(name)

    def _name(self, values: Row) -> bytes:
        """Make the record key of a row's key. Zeros are equal whatever their sign."""
        plain = [v + 0.0 if isinstance(v, float) else v for v in values]
        return dumps(dict(zip(self._key, plain, strict=True)))

    @staticmethod
    def _encode(changes: KeyedChanges, row: Row) -> bytes:
        return dumps(dict(zip(changes.columns, row, strict=True)))


def _pairs(changes: KeyedChanges) -> Iterable[tuple[Row, Row]]:
    """The rows that are put, each behind the values of its key."""
    named: dict[Any, Row] = changes.held | changes.fresh
    return ((named[folded], row) for folded, row in changes.put.items())
