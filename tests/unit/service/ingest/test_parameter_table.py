"""Tables of parameters: read by their types, and one query a row."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.cql.print.parameters import write_constant
from millpond.errors import MillpondError
from millpond.service.ingest.parameter_table import fill_table, read_parameters
from millpond.service.queries.given_registration import table_of_parameters

TEXT = "SELECT * FROM s WHERE k = $k AND v < $v"


def test_each_row_is_a_query_with_its_name_and_the_options() -> None:
    table = pa.table({"name": ["a", None], "k": ["it's", "x' OR TRUE --"], "v": [1, -2]})
    assert fill_table(TEXT, table, {"weight": 2}) == [
        (TEXT, "a", {"weight": 2, "params": {"k": "it's", "v": 1}}),
        (TEXT, None, {"weight": 2, "params": {"k": "x' OR TRUE --", "v": -2}}),
    ]
    assert fill_table(TEXT, table.slice(0, 0), {}) == []


def test_an_error_says_which_row_it_is_of() -> None:
    table = pa.table({"k": ["a", "b"], "v": [1.0, float("nan")]})
    with pytest.raises(MillpondError, match="CQL-103") as caught:
        fill_table(TEXT, table, {})
    assert (caught.value.detail or "").startswith("Query 1 of 2 (counting from 0).")
    with pytest.raises(MillpondError, match="CQL-102"):
        fill_table(TEXT, table.select(["k"]), {})
    with pytest.raises(MillpondError, match="CQL-103"):
        fill_table("SELECT 1 FROM s WHERE k = $k", table, {})


def test_values_of_csv_have_the_types_of_their_columns() -> None:
    csv = "name,k,v,d,b,city\n7,007,1.5,2026-03-01,true,007\n8,x,2,2026-03-02,false,8\n"
    (row, _) = read_parameters(csv, None, {"CITY".lower(): "string"}).to_pylist()
    assert row == {
        "name": "7",
        "k": "007",
        "v": 1.5,
        "d": "2026-03-01",
        "b": True,
        "city": "007",
    }
    assert read_parameters("v\n007\n", None).to_pylist() == [{"v": 7}]
    exact = read_parameters("v\n1.50\n", None, {"v": "decimal(10,2)"})
    assert exact.to_pylist() == [{"v": Decimal("1.50")}]


def test_numbers_of_csv_are_taken_as_they_are_written() -> None:
    written = ["9007199254740993", "1.5", "-0.25", "123456789012345678.91", "9223372036854775808"]
    for texts in ([text] for text in written):
        _check_exact(texts)
    _check_exact(written)
    (value,) = read_parameters("v\n1.5e3\n", None)["v"].to_pylist()
    assert isinstance(value, float)
    assert value == 1500.0
    assert read_parameters("v,w\n1.5,1\n,2\n", None)["v"].to_pylist() == [Decimal("1.5"), None]


def _check_exact(texts: list[str]) -> None:
    table = read_parameters("\n".join(["k", *texts]), None)
    rows = fill_table("SELECT * FROM s WHERE v < $k", table, {})
    constants = [write_constant(options["params"]["k"]) for _, _, options in rows]
    assert [Decimal(c.strip("()")) for c in constants] == [Decimal(text) for text in texts]


@pytest.mark.parametrize(
    "values",
    [("1" * 39,), ("1" * 30, "0." + "1" * 20), ("9007199254740993", "1e3")],
    ids=["long", "long together", "one with an exponent"],
)
def test_numbers_that_would_be_rounded_are_refused(values: tuple[str, ...]) -> None:
    with pytest.raises(MillpondError, match="DATA-501") as caught:
        read_parameters("\n".join(["v", *values]), None)
    assert '"types"' in (caught.value.hint or "")


def test_what_looks_like_a_time_stays_a_text_unless_its_type_is_given() -> None:
    csv = "city,at,t\n2026-01-01,2026-01-01 12:00:00,12:30\n"
    (row,) = read_parameters(csv, None).to_pylist()
    assert row == {"city": "2026-01-01", "at": "2026-01-01 12:00:00", "t": "12:30"}
    (row,) = read_parameters(csv, None, {"city": "DATE"}).to_pylist()
    assert row["city"] == date(2026, 1, 1)


@pytest.mark.parametrize(
    ("csv", "arrow", "types", "code"),
    [
        ("", None, {}, "DATA-501"),
        ("a,b\n1\n", None, {}, "DATA-501"),
        ("v\nx\n", None, {"v": "BIGINT"}, "DATA-501"),
        ("v\n1\n", None, {"v": "UUID"}, "CQL-103"),
        ("v\n1\n", None, {"w": "BIGINT"}, "CQL-103"),
        ("\ud800", None, {}, "DATA-501"),
        ("," * 20_000, None, {}, "DATA-501"),
        (None, b"no stream", {}, "DATA-501"),
    ],
    ids=["empty", "ragged", "wrong", "no type", "no column", "surrogate", "wide", "no arrow"],
)
def test_what_cannot_be_read(
    csv: str | None, arrow: bytes | None, types: dict[str, str], code: str
) -> None:
    with pytest.raises(MillpondError, match=code):
        read_parameters(csv, arrow, types)


def test_programs_give_dictionaries_or_tables() -> None:
    rows = [{"k": "a", "at": datetime(2026, 3, 1)}, {"k": None, "v": 1}]
    table = table_of_parameters(row for row in rows)
    assert table.to_pylist() == [
        {"k": "a", "at": datetime(2026, 3, 1), "v": None},
        {"k": None, "at": None, "v": 1},
    ]
    assert table_of_parameters(table) is table or table_of_parameters(table).equals(table)
    given: Any
    for given in ("text", 7, {"k": 1}, [1], [{"k": "a"}, {"k": 1}]):
        with pytest.raises(MillpondError, match="DATA-501"):
            table_of_parameters(given)


@pytest.mark.parametrize("name", ["k", "name"])
def test_a_column_that_is_there_twice_is_refused(name: str) -> None:
    twice = pa.table([pa.array(["a"])] * 3, ["k", "v", name] if name == "k" else [name, name, "k"])
    with pytest.raises(MillpondError, match="DATA-501") as caught:
        fill_table(TEXT, twice, {})
    assert caught.value.detail == f'The column "{name}" is there 2 times.'
    with pytest.raises(MillpondError, match="DATA-501"):
        fill_table(TEXT, read_parameters(f"{name},v,{name}\n1,2,3\n", None, {"v": "BIGINT"}), {})
