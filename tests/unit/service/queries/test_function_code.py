"""Functions that cannot be defined, and the code of those that can."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.queries.function_code import (
    check_arity,
    check_name,
    check_seconds,
    read_type,
    write_code,
)


@pytest.mark.parametrize(
    ("name", "code"), [("a b", "CQL-221"), ("1a", "CQL-221"), ("abs", "CQL-208")]
)
def test_a_name_is_a_plain_word_that_sql_does_not_use(name: str, code: str) -> None:
    check_name("distance_2")
    with pytest.raises(MillpondError, match=code):
        check_name(name)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(3, ["DOUBLE"]), (len, "DOUBLE"), (len, []), (lambda a: a, ["A", "B"])],
)
def test_a_function_takes_its_arguments(function: Any, arguments: Any) -> None:
    check_arity("f", lambda a, b=1: a, ["DOUBLE"])
    with pytest.raises(MillpondError, match="CQL-221"):
        check_arity("f", function, arguments)


def test_types_are_those_of_columns() -> None:
    assert read_type("f", "string") == "VARCHAR"
    with pytest.raises(MillpondError, match="CQL-210") as raised:
        read_type("f", "DUOBLE")
    assert "DOUBLE" in (raised.value.hint or "")
    with pytest.raises(MillpondError, match=r"CQL-210.*JSON"):
        read_type("f", "JSON")


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, "3"])
def test_a_limit_of_time_is_a_number(seconds: Any) -> None:
    check_seconds(0.5)
    with pytest.raises(MillpondError, match="CQL-221"):
        check_seconds(seconds)


def test_code_is_kept_by_value_or_refused() -> None:
    factor = 3
    assert pickle.loads(write_code("f", lambda v: v * factor))(4) == 12
    lock = threading.Lock()
    with pytest.raises(MillpondError, match=r"CQL-221.*cannot be defined"):
        write_code("f", lambda v: lock)
