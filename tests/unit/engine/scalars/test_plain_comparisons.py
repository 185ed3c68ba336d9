"""Plain comparisons are what DuckDB says they are, or are not recognized."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.engine.scalars.plain_comparisons import evaluate_comparison

COLUMNS = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    (pa.float32(), st.floats(width=32) | st.sampled_from([0.0, 2.0, math.nan])),
    (pa.float64(), st.floats() | st.sampled_from([-0.0, 2.0, math.nan, math.inf])),
]
TEXTS = ["", "a", "A", "a ", "'", "x' AND c4 = 'y", "a AND c4 = b", "(", "ä"]


@settings(max_examples=150)
@given(st.data())
def test_they_are_what_duckdb_says(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 5))
    arrays = [
        pa.array(data.draw(st.lists(st.none() | v, min_size=length, max_size=length)), t)
        for t, v in COLUMNS
    ]
    rows = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(4)])
    term = st.builds(
        "c{} {} {}".format,
        st.integers(0, 3),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.integers(-130, 130) | st.integers(-(10**17), 10**17),
    )
    words = data.draw(
        st.lists(st.none() | st.sampled_from(TEXTS), min_size=length, max_size=length)
    )
    rows = rows.append_column("c4", pa.array(words, pa.string()))
    quoted = st.sampled_from(TEXTS).map(lambda text: "'" + text.replace("'", "''") + "'")
    equal = st.builds("c4 {} {}".format, st.sampled_from(["=", "<>"]), quoted)
    terms = data.draw(st.lists(term | equal, min_size=1, max_size=3))
    sql = " AND ".join(f"({t}\n)" for t in terms)
    sql = data.draw(st.sampled_from([sql, f"CAST(({sql}) AS BOOLEAN)"]))
    found = evaluate_comparison(sql, rows)
    (wanted,) = DuckDBScalars()._ask(rows, [sql])
    if found is not None:
        assert found.to_pylist() == wanted.to_pylist()
    elif all(
        t.endswith("'a'") or (t[-1].isdigit() and abs(int(t.split()[2])) < 128) for t in terms
    ):
        raise AssertionError(f"{sql} is plain")


@pytest.mark.parametrize(
    "sql",
    [
        "c1 > 5 OR c1 < 2",
        "NOT c1 > 5",
        "c1 BETWEEN 1 AND 5",
        "c1 > 5 AND c1 < 7 OR c1 = 9",
        "(c1 > 5 AND (c1 < 7 OR c1 = 9))",
        "c1 > 5.5",
        "c1 > c0",
        "c0 > 1000",
        "c3 > 9007199254740993",
        "c1 > '5'",
        "c1 = '5'",
        "c9 > 5",
    ],
)
def test_anything_else_is_left_to_duckdb(sql: str) -> None:
    arrays = [pa.array([1], t) for t, _ in COLUMNS]
    rows = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(4)])
    assert evaluate_comparison(sql, rows) is None


def test_a_column_is_found_by_its_name_among_fewer_columns() -> None:
    names = ["c1", "c2", "c7"]
    rows = pa.RecordBatch.from_arrays([pa.array(["c2", "x"]), pa.array(["y", "c2"]), [1, 2]], names)
    for sql, wanted in {
        "c1 = 'c2'": [True, False],
        "c2 = 'c2'": [False, True],
        "c7 > 1": [False, True],
    }.items():
        found = evaluate_comparison(sql, rows)
        assert found is not None
        assert found.to_pylist() == wanted
