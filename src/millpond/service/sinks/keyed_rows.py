"""What changes make of rows that are found by a key: which come, which are new, which go.

A receiver that keeps an answer has one row a key. So no two rows of the answer may have one key, at
any instant: where they do, the sink cannot say which of them it is to keep, and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.model.time import format_instant
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.results import python_values
from millpond.service.sinks.sender import DeliveryError

#: The values of a row, by its columns' order.
Row = tuple[Any, ...]
#: Makes of a table the values of each column.
ToColumns = Callable[[pa.Table], list[list[Any]]]


def python_columns(table: pa.Table) -> list[list[Any]]:
    """The values of each column as Python's."""
    return [python_values(column) for column in table.columns]


@dataclass
class KeyedChanges:
    """What becomes of the rows of a receiver, each found by its key.

    Attributes:
        columns: The rows' columns.
        put: The rows that come or are new, by their keys.
        gone: The values of the keys whose rows go.
        held: The keys (of `put` and `gone`, and of rows that came and went) that had a row before.
        fresh: The keys that had none.
    """

    columns: Sequence[str]
    put: dict[Row, Row] = field(default_factory=dict)
    gone: dict[Row, Row] = field(default_factory=dict)
    held: dict[Row, Row] = field(default_factory=dict)
    fresh: dict[Row, Row] = field(default_factory=dict)


def fold_changes(
    events: Iterable[FeedEvent], key: Sequence[str], to_columns: ToColumns = python_columns
) -> KeyedChanges:
    """Fold changes of one query, in order and of whole instants, into what is left to do.

    Raises:
        DeliveryError: final, two rows have one key at an instant, or a row has none.
    """
    found: KeyedChanges | None = None
    rows: dict[int, list[Row]] = {}
    for event in events:
        changes = event.changes
        assert changes is not None
        page = rows.get(id(changes))
        if page is None:
            page = rows[id(changes)] = list(zip(*to_columns(changes.table), strict=True))
        found = found or KeyedChanges(changes.columns)
        _, at, sign, *values = page[event.index]
        row = tuple(values)
        named = key_of(dict(zip(found.columns, row, strict=True)), key)
        folded = tuple(map(_fold, named))
        is_first = folded not in found.held and folded not in found.fresh
        if is_first:
            (found.fresh if sign == "+" else found.held)[folded] = named
        if sign == "-":
            found.put.pop(folded, None)
            found.gone[folded] = named
        elif folded in found.put:
            raise duplicate_key(key, named, at)
        else:
            found.gone.pop(folded, None)
            found.put[folded] = row
    return found or KeyedChanges(())


def fold_answer(
    answer: pa.Table, key: Sequence[str], to_columns: ToColumns = python_columns
) -> KeyedChanges:
    """Fold an answer into its rows by their keys, none of which is there yet.

    Raises:
        DeliveryError: as `fold_changes`.
    """
    found = KeyedChanges(answer.column_names)
    for row in zip(*to_columns(answer), strict=True):
        named = key_of(dict(zip(found.columns, row, strict=True)), key)
        folded = tuple(map(_fold, named))
        if folded in found.put:
            raise duplicate_key(key, named)
        found.put[folded] = row
        found.fresh[folded] = named
    return found


def key_of(row: Mapping[str, Any], key: Sequence[str]) -> Row:
    """The values of a row's key. Raises DeliveryError, final, if one of them is NULL."""
    values = tuple(row[name] for name in key)
    if None in values:
        shown = ", ".join(f"{n} = {v!r}" for n, v in zip(key, values, strict=True))
        raise DeliveryError(f"a row of the answer has a NULL in its key ({shown})", is_final=True)
    return values


def duplicate_key(key: Sequence[str], values: Row, at: int | None = None) -> DeliveryError:
    """The error of two rows with one key."""
    shown = ", ".join(f"{n} = {v!r}" for n, v in zip(key, values, strict=True))
    when = "" if at is None else f" at {format_instant(at)}"
    return DeliveryError(
        f"two rows of the answer have the key {shown}{when}; KEY has to name columns whose "
        "values no two rows share",
        is_final=True,
    )


def _fold(value: Any) -> Any:
    """A value that equals that of another row where the receiver's does."""
    if isinstance(value, float) and value != value:
        return "NaN"
    return repr(value) if isinstance(value, list | dict) else value
