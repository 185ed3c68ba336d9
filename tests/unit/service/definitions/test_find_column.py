"""Columns that another part of a statement names."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError, Span
from millpond.model.schema import Field, Schema
from millpond.service.definitions.find_column import find_column

SCHEMA = Schema((Field("Delay", "BIGINT"), Field("city", "VARCHAR")))
TEXT = "CREATE STREAM s (...) TIMESTAMP BY dely"


def test_a_name_in_any_case_finds_the_column_as_declared() -> None:
    assert find_column(SCHEMA, "dELAY", "to order by", TEXT).name == "Delay"


@pytest.mark.parametrize(("name", "hint"), [("dely", "Delay"), ("zzzzzz", "Declare the column.")])
def test_what_is_missing_is_said_with_its_place_and_the_columns(name: str, hint: str) -> None:
    with pytest.raises(MillpondError) as caught:
        find_column(SCHEMA, name, "to order by", TEXT, Span(34, 38))
    assert caught.value.code == "CQL-202"
    assert caught.value.primary == f'no column "{name}" to order by'
    assert caught.value.detail == "The columns are Delay, city."
    assert hint in (caught.value.hint or "")
    assert caught.value.column == 35
