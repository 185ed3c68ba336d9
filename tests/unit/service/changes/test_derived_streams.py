"""Which queries may define a stream, and the columns that it has."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.changes.derived_streams import derived_stream_query, derived_stream_schema
from millpond.service.pond import Pond


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER, d DECIMAL(10, 2), k STRING) TIMESTAMP BY ts"
    )
    return pond


def bound(pond: Pond, text: str) -> BoundQuery:
    return components_of(pond).registrar.bind(text)


def test_rows_that_only_come_are_the_elements(s: Pond) -> None:
    assert derived_stream_query(bound(s, "SELECT v FROM s WHERE v > 3")).to_stream == "istream"


@pytest.mark.parametrize("kind", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_who_says_which_rows_has_these(s: Pond, kind: str) -> None:
    stated = bound(s, f"{kind}(SELECT v FROM s [RANGE 1 HOUR])")
    assert derived_stream_query(stated) is stated


@pytest.mark.parametrize(
    "text",
    ["SELECT v FROM s [RANGE 1 HOUR]", "SELECT count(*) AS n FROM s", "SELECT v FROM s [NOW]"],
)
def test_of_rows_that_leave_it_must_be_said(s: Pond, text: str) -> None:
    with pytest.raises(MillpondError) as failure:
        derived_stream_query(bound(s, text))
    assert failure.value.code == "CQL-222"
    assert failure.value.snippet is not None


def test_columns_have_types_of_streams(s: Pond) -> None:
    text = "SELECT sum(v) AS total, avg(v) AS mean, v::UINTEGER AS u, d, k FROM s GROUP BY ALL"
    assert [(f.name, f.type) for f in derived_stream_schema(bound(s, text)).fields] == [
        ("total", "DECIMAL(38,0)"),
        ("mean", "DOUBLE"),
        ("u", "DECIMAL(38,0)"),
        ("d", "DECIMAL(10,2)"),
        ("k", "VARCHAR"),
    ]


@pytest.mark.parametrize("column", ["MAP([v], [v])", "ts - ts", "k::UUID"])
def test_a_type_that_no_stream_has_is_refused(s: Pond, column: str) -> None:
    with pytest.raises(MillpondError, match='CQL-210: the column "l" has a type') as failure:
        derived_stream_schema(bound(s, f"SELECT {column} AS l FROM s"))
    assert "CAST(l AS STRING)" in (failure.value.hint or "")
