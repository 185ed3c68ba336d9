"""Counted rows: a bag that changes are added to."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.counted_rows import CountedRows

SCHEMA = pa.schema(
    [("__at", pa.int64()), ("__sign", pa.int8()), ("v", pa.int64()), ("t", pa.string())]
)
Row = tuple[int | None, str]


def changes(*rows: tuple[int, Row]) -> pa.Table:
    values, texts = [v for _, (v, _) in rows], [t for _, (_, t) in rows]
    columns = [[1] * len(rows), [sign for sign, _ in rows], values, texts]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def read(bag: CountedRows) -> list[Row]:
    table = bag.read()
    assert table.column_names == ["v", "t"]
    return list(zip(table["v"].to_pylist(), table["t"].to_pylist(), strict=True))


def test_rows_are_in_the_order_in_which_they_came() -> None:
    bag = CountedRows(SCHEMA)
    assert read(bag) == []
    bag.add(changes((1, (3, "a")), (1, (1, "b")), (1, (3, "a")), (1, (None, "c"))))
    assert read(bag) == [(3, "a"), (3, "a"), (1, "b"), (None, "c")]
    bag.add(changes((-1, (3, "a")), (-1, (1, "b"))))
    assert read(bag) == [(3, "a"), (None, "c")]
    bag.add(changes((-1, (3, "a"))))
    bag.add(changes((1, (3, "a"))))
    assert read(bag) == [(None, "c"), (3, "a")]
    assert len(bag) == 2


def test_a_row_that_is_not_there_cannot_leave() -> None:
    bag = CountedRows(SCHEMA)
    bag.add(changes((1, (1, "a"))))
    with pytest.raises(ValueError, match="does not have it"):
        bag.add(changes((-1, (2, "a"))))


_ROW = st.tuples(st.none() | st.integers(0, 9), st.sampled_from("ab"))


@settings(max_examples=20)
@given(st.lists(st.lists(_ROW, min_size=1, max_size=40), max_size=12))
def test_it_is_the_bag_of_what_came_and_has_not_left(steps: list[list[Row]]) -> None:
    """Each step's rows come, and those of the step before leave."""
    bag, before = CountedRows(SCHEMA), []
    for step in steps:
        bag.add(changes(*((1, row) for row in step), *((-1, row) for row in before)))
        before = step
        assert Counter(read(bag)) == Counter(step)
        assert len(bag) == len(set(step))
