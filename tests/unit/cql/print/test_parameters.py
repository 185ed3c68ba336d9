"""Parameters of a text: every value is one constant, and nothing else."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.cql.print.dialect import parse_query
from millpond.cql.print.parameters import fill_parameters, write_constant
from millpond.errors import MillpondError
from millpond.testing.local_runtime import open_local

TEXT = "SELECT * FROM s WHERE v = $value"
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.decimals(-1000, 1000, places=3),
)


@given(VALUES)
def test_a_value_is_one_constant(value: object) -> None:
    text = fill_parameters(TEXT, {"value": value})
    compared = parse_query(text).args["where"].this.expression.unnest()
    shape = {"Literal", "Boolean", "Neg"}
    assert {type(node).__name__ for node in compared.walk()} <= shape
    if isinstance(value, str):
        assert compared.is_string
        assert compared.this == value


def test_what_the_values_are_to_the_engine(tmp_path: Path) -> None:
    with open_local(tmp_path / "store") as pond:
        pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, d DATE, k STRING, v DOUBLE, n BIGINT, b BOOLEAN)"
            " TIMESTAMP BY ts;"
        )
        row = {"ts": "2026-01-01 12:00:00", "d": "2026-01-02", "k": "o'\\ $v", "v": -1.5}
        pond.ingest("s", [{**row, "n": -3, "b": True}])
        pond.catch_up()
        east = timezone(timedelta(hours=2))
        params = {
            "at": datetime(2026, 1, 1, 14, tzinfo=east),
            "day": date(2026, 1, 2),
            "k": "o'\\ $v",
            "v": np.float64(-1.5),
            "n": -3,
            "b": True,
        }
        text = (
            "SELECT n - $n AS none FROM s WHERE ts = $at AND d = $day AND k = $k AND v = $v"
            " AND b = $b AND n = $n"
        )
        assert pond.register(text, "q", params=params).invoke().rows() == [(0,)]
        made = pond.register("CREATE QUERY made AS SELECT k FROM s WHERE n < $n", params={"n": 0})
        assert len(made.invoke().rows()) == 1
        several = [("SELECT n FROM s WHERE n = $n", f"q{n}", {"params": {"n": n}}) for n in (-3, 4)]
        assert [len(h.invoke().rows()) for h in pond.register_many(several)] == [1, 0]


def test_strings_names_and_comments_have_no_parameters() -> None:
    text = "SELECT '$a' AS \"$b\" FROM s -- $c\n WHERE /* $d */ v = $e"
    assert fill_parameters(text, {"e": 1}) == text.replace("$e", "1")


def test_what_the_parser_takes_for_a_comment_has_no_parameters() -> None:
    """The constant in a comment within a comment could end it, so that what is behind is read."""
    for text in ("SELECT v FROM s /* /* */ $a */", "SELECT v FROM s /* -- */ /* /* $a */ */"):
        with pytest.raises(MillpondError, match="CQL-103: the query has no parameter"):
            fill_parameters(text, {"a": "*/ WHERE v = 1 --"})
    text = "SELECT v FROM s -- /*\n WHERE v = $a /* /* */ */"
    assert fill_parameters(text, {"a": 1}) == text.replace("$a", "1")


@pytest.mark.parametrize(
    ("text", "values", "code"),
    [
        (TEXT, {}, "CQL-102: the parameter"),
        (TEXT, {"value": 1, "other": 2}, "CQL-103: the query has no parameter"),
        (TEXT, {"value": [1]}, "CQL-103"),
        (TEXT, {"value": float("nan")}, "CQL-103"),
        (TEXT, {"value": b"x"}, "CQL-103"),
        (TEXT, {"value": "a\0b"}, "CQL-103"),
    ],
)
def test_what_is_refused(text: str, values: dict[str, object], code: str) -> None:
    with pytest.raises(MillpondError, match=code):
        fill_parameters(text, values)


def test_times() -> None:
    assert write_constant(datetime(2026, 1, 1, tzinfo=UTC)) == "TIMESTAMP '2026-01-01 00:00:00'"
    assert write_constant(Decimal("-1.50")) == "(-1.50)"
    assert (
        write_constant(np.datetime64("2026-01-01T12:00", "ns")) == "TIMESTAMP '2026-01-01 12:00:00'"
    )
    assert write_constant(np.datetime64("2026-01-01")) == "DATE '2026-01-01'"
    assert write_constant(np.datetime64("NaT", "us")) == write_constant(pd.NaT) == "NULL"
