"""A relation's rows with their intervals, at the edges of those."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.model.time import BEGINNING, END
from millpond.service.ingest.versioned_rows import VersionedRows


def held(*rows: tuple[int, int, int]) -> VersionedRows:
    """Rows of a value, the instant from which and the instant up to which it holds."""
    values, starts, ends = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"v": values, "__rid": range(len(rows)), "__from": starts, "__to": ends}
    table = pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})
    return VersionedRows(table, np.array(starts, np.int64), np.array(ends, np.int64))


def test_a_row_holds_from_its_first_instant_and_not_at_its_last() -> None:
    rows = held((7, 10, 20), (8, 20, END))
    shown = {at: rows.at(at, ("v",))["v"].to_pylist() for at in (9, 10, 19, 20, 10**15)}
    assert shown == {9: [], 10: [7], 19: [7], 20: [8], 10**15: [8]}


def test_the_latest_change_is_a_start_or_an_end_that_is_known() -> None:
    assert held((7, 10, END)).latest == 10
    assert held((7, 10, 30), (8, 20, END)).latest == 30
    assert held().latest == BEGINNING - 1


def test_changes_after_an_instant_up_to_another() -> None:
    rows = held((7, 10, 20))
    intervals = {(9, 10): True, (10, 19): False, (10, 20): True, (20, 99): False}
    assert {each: rows.changes_within(*each) for each in intervals} == intervals


def test_versions_have_their_interval_under_names_of_the_caller() -> None:
    found = held((7, 10, 20)).versions(("v",), ("a", "b"))
    assert found.to_pylist() == [{"v": 7, "a": 10, "b": 20}]
