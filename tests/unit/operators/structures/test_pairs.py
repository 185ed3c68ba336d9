"""The pairs of a join: their intervals, order and columns, and how many are too many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.errors import MillpondError
from millpond.model.time import END
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.structures import pairs
from millpond.operators.structures.join_side import Side
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.pairs import PairFinder, number_rows

SCHEMA = positional_schema([pa.int64(), pa.string()])


def delta(keys: list[int | None], at: list[int], life: int, name: str) -> Delta:
    texts = pa.array([f"{name}{stamp}" for stamp in at])
    rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), texts], schema=SCHEMA)
    stamps = np.array(at, np.int64)
    return Delta(rows, stamps, stamps + life, np.ones(len(at), np.int64))


def find(finder: PairFinder, length: int | None = None, held_is_left: bool = True) -> list[tuple]:  # type: ignore[type-arg]
    """The pairs of two rows that come and three that are held, of one key."""
    side = Side(SCHEMA)
    held = delta([1, 1, 1], [2, 5, 6], 100, "held")
    side.build(held, np.zeros(3, np.int64), 1)
    new = delta([1, 1], [8, 7], 4, "new")
    found = side.probe_in_parts(new, np.zeros(2, np.int64), 1)
    parts = list(finder.find_pairs(new, found, side, held_is_left, DuckDBScalars(), length))
    assert len(parts) == 2
    return [
        (at, until, *row)
        for part in parts
        for at, until, *row in zip(
            part.at.tolist(), part.until.tolist(), *(c.to_pylist() for c in part.rows), strict=True
        )
    ]


def test_a_pair_is_there_while_both_rows_are() -> None:
    found = find(PairFinder(SCHEMA, SCHEMA, (), (3, 1), ""))
    assert found == [
        (at, at + 4, f"new{at}", f"held{other}") for at in (8, 7) for other in (6, 5, 2)
    ]
    found = find(PairFinder(SCHEMA, SCHEMA, (), (1,), ""), length=5, held_is_left=False)
    assert [until for _, until, _ in found] == [11, 10, 7, 11, 10, 7]
    assert {text for _, _, text in found} == {"new8", "new7"}


def test_predicates_see_all_columns_of_a_pair() -> None:
    found = find(PairFinder(SCHEMA, SCHEMA, ("c1 = 'held5'", "c3 <> 'new9'"), (0, 3), ""))
    assert [row[2:] for row in found] == [(1, "new8"), (1, "new7")]


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MOST_ROWS", 6)
    find(PairFinder(SCHEMA, SCHEMA, (), (1,), "a.k = b.k"))
    monkeypatch.setattr(pairs, "MOST_ROWS", 5)
    with pytest.raises(MillpondError, match="POND-405") as raised:
        find(PairFinder(SCHEMA, SCHEMA, (), (1,), "a.k = b.k"))
    assert "(a.k = b.k)" in str(raised.value.detail)


def test_rows_without_a_key_have_no_partner_unless_nulls_match() -> None:
    given = delta([4, None, 4, 9], [1, 2, 3, 4], END - 10, "")
    some, numbers = number_rows(given, (0,), KeyNumbers([pa.int64()]), False)
    assert (some.at.tolist(), numbers.tolist()) == ([1, 3, 4], [0, 0, 1])
    every, numbers = number_rows(given, (0,), KeyNumbers([pa.int64()]), True)
    assert (len(every), numbers.tolist()) == (4, [0, 1, 0, 2])
    every, numbers = number_rows(given, (), KeyNumbers([]), False)
    assert (len(every), numbers.tolist()) == (4, [0, 0, 0, 0])
