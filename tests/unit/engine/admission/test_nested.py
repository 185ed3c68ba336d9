"""Admission of arrays, structs and JSON: parts are cast as columns of their own would be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.admission.admit import Admission, AdmittedRows, admit
from millpond.model.schema import Field, Schema, canonical_type

TYPE = "STRUCT(a INTEGER, b VARCHAR, t TIMESTAMP, l DOUBLE[])"


def judged(column: pa.Array | list[Any], type_: str) -> AdmittedRows:
    canonical = canonical_type(type_)
    assert canonical is not None
    rows = pa.table({"v": column})
    return admit(rows, Admission(Schema((Field("v", canonical),)), None, 0, 0))


def values(admitted: AdmittedRows) -> list[Any]:
    return list(admitted.elements["v"].to_pylist())


@pytest.mark.parametrize(
    ("text", "type_", "reason"),
    [
        ('{"a": "x"}', TYPE, "column \"v.a\": 'x' is not an INTEGER"),
        ('{"l": [1, "x"]}', TYPE, "column \"v.l[]\": 'x' is not a DOUBLE"),
        ('{"l": 5}', TYPE, 'column "v.l": 5 is not DOUBLE[]'),
        ("[1]", TYPE, f'column "v": [1] is not {TYPE}'),
        ("{", TYPE, f"column \"v\": '{{' is not {TYPE}"),
        ("[" * 100_000, "INTEGER[]", 'column "v"'),
        ("[" + "1" * 5_000 + "]", "INTEGER[]", 'column "v"'),
        ("ann", "JSON", "column \"v\": 'ann' is not a JSON"),
        ('["a", "{"]', "JSON[]", "column \"v[]\": 'a' is not a JSON"),
    ],
)
def test_what_does_not_fit_is_rejected_by_its_part(text: str, type_: str, reason: str) -> None:
    found = judged([text, None], type_)
    assert values(found) == [None]
    assert reason in found.rejects["reason"][0].as_py()


def test_fields_are_found_in_any_case_and_the_others_passed_over() -> None:
    given = [{"A": "1", "b": "x", "more": 1}, None, {"A": None, "b": None, "more": 2}]
    found = values(judged(pa.array(given), "STRUCT(a INTEGER, b VARCHAR, c DATE)"))
    assert found == [{"a": 1, "b": "x", "c": None}, None, {"a": None, "b": None, "c": None}]


def test_bytes_inside_are_utf_8_or_rejected() -> None:
    column = pa.array([[b"x"], [b"\xff", b"x"]], pa.list_(pa.binary()))
    found = judged(column, "VARCHAR[]")
    assert values(found) == [["x"]]
    assert found.reject_rows.tolist() == [1]


def test_a_text_with_a_zone_is_the_instant_it_names() -> None:
    found = values(judged(['["1970-01-01 02:00:00+02"]'], "TIMESTAMP[]"))
    assert [[at.isoformat() for at in row] for row in found] == [["1970-01-01T00:00:00"]]


@given(st.data())
def test_lists_of_any_layout_are_admitted_alike(data: st.DataObject) -> None:
    lists = st.lists(st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)), max_size=6)
    rows = data.draw(lists)
    start = data.draw(st.integers(0, len(rows)))
    kind = data.draw(st.sampled_from([pa.list_, pa.large_list]))
    column = pa.array(rows, kind(pa.int64())).slice(start)
    assert values(judged(column, "VARCHAR[]")) == [
        None if row is None else [str(item) for item in row] for row in rows[start:]
    ]


def test_lists_of_a_fixed_size_are_lists() -> None:
    column = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    assert values(judged(column, "INTEGER[]")) == [[1, 2], None, [3, 4]]
    assert values(judged(column.slice(1), "INTEGER[]")) == [None, [3, 4]]


def test_any_value_is_json() -> None:
    column = pa.array([{"a": 1, "b": [None]}, None])
    assert values(judged(column, "JSON")) == ['{"a":1,"b":[null]}', None]
    assert values(judged([1.5, None], "JSON")) == ["1.5", None]


def test_json_of_any_depth_is_admitted_or_rejected() -> None:
    deep = "[" * 100_000
    found = judged([deep, deep + "]" * 100_000, "[]"], "JSON")
    assert 0 in found.reject_rows
    assert values(found)[-1] == "[]"
