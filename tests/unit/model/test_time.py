"""Instants and lengths of time as text."""

from __future__ import annotations

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.time import format_interval

_MICROS = st.integers(-(10**11), 10**11) | st.integers(-(10**6), 10**6)


@given(st.integers(-30, 30), st.integers(-40, 40), _MICROS)
@settings(max_examples=200)
def test_an_interval_is_written_as_duckdb_writes_it(months: int, days: int, micros: int) -> None:
    parts = f"to_months({months}) + to_days({days}) + to_microseconds({micros})"
    (row,) = duckdb.sql(f"SELECT ({parts})::VARCHAR").fetchall()
    assert row == (format_interval(months, days, micros * 1_000),)
