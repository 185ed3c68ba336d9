"""Computed columns at admission: values, reasons, and what takes too much."""

from __future__ import annotations

import pyarrow as pa

from millpond.engine.admission.admit import Admission, AdmittedRows, admit
from millpond.engine.admission.computed import compute
from millpond.model.schema import Field, Schema


def judged(rows: pa.Table, *fields: Field) -> AdmittedRows:
    return admit(rows, Admission(Schema(fields), None, 0, 0))


def test_rows_on_which_it_fails_are_rejects_and_the_others_elements() -> None:
    rows = pa.table({"a": ["1", "x", None, "2"]})
    double = Field("twice", "INTEGER", computed="CAST(a AS INTEGER) * 2")
    found = judged(rows, Field("a", "VARCHAR"), double)
    assert found.elements["twice"].to_pylist() == [2, None, 4]
    assert found.reject_rows.tolist() == [1]
    assert found.rejects["reason"].to_pylist() == [
        "column \"twice\": Conversion Error: Could not convert string 'x' to INT32"
        " when casting from source column a"
    ]


def test_many_rows_fail_at_once() -> None:
    rows = pa.table({"a": [str(n) if n % 2 else "x" for n in range(5_000)]})
    values, reasons = compute(rows, Field("n", "BIGINT", computed="CAST(a AS BIGINT)"))
    assert sorted(reasons) == list(range(0, 5_000, 2))
    assert values.to_pylist() == [n if n % 2 else None for n in range(5_000)]
    assert reasons[4_998] == 'column "n": CAST(a AS BIGINT) fails'


def test_only_rows_without_another_reason_are_computed() -> None:
    rows = pa.table({"a": ["1", "x", "0"]})
    found = judged(rows, Field("a", "INTEGER"), Field("b", "INTEGER", computed="a + 10"))
    assert found.elements.select(["a", "b"]).to_pylist() == [{"a": 1, "b": 11}, {"a": 0, "b": 10}]
    assert found.rejects["reason"].to_pylist() == ["column \"a\": 'x' is not an INTEGER"]


def test_later_columns_are_computed_from_earlier_ones() -> None:
    fields = [
        Field("parts", "VARCHAR[]", computed="string_split(a, ',')"),
        Field("a", "VARCHAR"),
        Field("first", "STRUCT(x INTEGER)", computed="row(CAST(parts[1] AS INTEGER))"),
    ]
    found = judged(pa.table({"a": ["1,b", None]}), *fields)
    assert found.elements["first"].to_pylist() == [{"x": 1}, {"x": None}]


def test_a_text_with_a_zone_is_the_instant_it_names() -> None:
    field = Field("at", "TIMESTAMP", computed="d || 'T10:00:00+02:00'")
    found = judged(pa.table({"d": ["1970-01-01"]}), Field("d", "VARCHAR"), field)
    assert found.elements["at"].cast(pa.int64()).to_pylist() == [8 * 3600 * 1_000_000]


def test_a_row_whose_value_takes_too_much_is_a_reject_alone() -> None:
    rows = pa.table({"n": [1, 4_000_000_000, 3]})
    values, reasons = compute(rows, Field("n", "BIGINT", computed="length(repeat('x', n))"))
    assert values.to_pylist() == [1, None, 3]
    assert list(reasons) == [1]


def test_an_expression_that_is_none_any_more_rejects_the_rows_and_says_so() -> None:
    # A store of an earlier version may have one; no other stream must stop for it.
    rows = pa.table({"a": ["1", "2"]})
    found = judged(rows, Field("a", "VARCHAR"), Field("b", "INTEGER", computed="a +* 1"))
    assert found.elements.num_rows == 0
    assert found.reject_rows.tolist() == [0, 1]
    (reason,) = set(found.rejects["reason"].to_pylist())
    assert reason == 'column "b": "*" stands where none is allowed'
