"""Compares a column with a whole number or a text, without asking DuckDB.

Asking DuckDB costs part of a millisecond however few rows there are, and a followed query advances
by steps of a few rows. The commonest expressions, `column < 5`, `column = 'x'` and conjunctions of
such (HAVING, FILTER, WHERE), are computed here where the value is certain to be DuckDB's; no other
expression is recognized.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_COMPARISON = re.compile(r"(c\d+) (=|<>|<|<=|>|>=) (-?\d{1,18})")
_EQUALITY = re.compile(r"(c\d+) (=|<>) '([^']*)'")
_BOOLEAN = re.compile(r"CAST\((.*) AS BOOLEAN\)", re.DOTALL)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Whole numbers below these are exact as floats and doubles.
_EXACT = {pa.float32(): 1 << 24, pa.float64(): 1 << 53}
#: NaN is greater than every number and equal to itself.
_TRUE_OF_NAN = ("<>", ">", ">=")

_Term = tuple[str, str, int | str]


def evaluate_comparison(sql: str, rows: pa.RecordBatch) -> pa.Array | None:
    """Compute an expression over `c0`, `c1`, …; None if it is not a conjunction recognized here."""
    terms = _find_certain(sql, rows)
    if terms is None:
        return None
    true, nulls = _compare(rows, terms)
    return pa.array(true, mask=nulls)


def find_true(sql: str, rows: pa.RecordBatch) -> np.ndarray | None:
    """Find the rows of which such an expression is true; None if it is not recognized here."""
    terms = _find_certain(sql, rows)
    return None if terms is None else _compare(rows, terms)[0]


def _find_certain(sql: str, rows: pa.RecordBatch) -> tuple[_Term, ...] | None:
    terms = _terms(sql)
    return terms if terms is not None and all(_is_certain(rows, t) for t in terms) else None


def _compare(
    rows: pa.RecordBatch, terms: tuple[_Term, ...]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Find where all comparisons are true, and where their conjunction is NULL, if anywhere."""
    true = unknown = false = None
    for name, sign, number in terms:
        column = rows.column(name)
        holds, fails = _holds(column, sign, number), None
        if column.null_count:
            known = column.is_valid().to_numpy(zero_copy_only=False)
            unknown = ~known if unknown is None else unknown | ~known
            fails = known & ~holds
            holds &= known
        true = holds if true is None else true & holds
        if len(terms) > 1:
            fails = ~holds if fails is None else fails
            false = fails if false is None else false | fails
    assert true is not None
    # FALSE AND NULL is FALSE.
    return true, unknown if unknown is None or false is None else unknown & ~false


def _holds(column: pa.Array, sign: str, number: int | str) -> np.ndarray:
    if isinstance(number, str):
        equal = pc.equal(column, pa.scalar(number, column.type)).fill_null(False)
        found = np.asarray(equal.to_numpy(zero_copy_only=False), bool)
        return found if sign == "=" else ~found
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    holds = np.asarray(_SIGNS[sign](values, values.dtype.type(number)))
    if sign in _TRUE_OF_NAN and pa.types.is_floating(column.type):
        holds |= np.isnan(values)
    return holds


def _is_certain(rows: pa.RecordBatch, term: _Term) -> bool:
    name, _, number = term
    # Rows may have lost the columns that nobody reads, so a column is not at its number's place.
    place = rows.schema.get_field_index(name)
    if place < 0:
        return False
    type_ = rows.schema.field(place).type
    if isinstance(number, str):
        return bool(pa.types.is_string(type_))
    if pa.types.is_signed_integer(type_):
        return -(1 << type_.bit_width - 1) <= number < 1 << type_.bit_width - 1
    return abs(number) < _EXACT.get(type_, 0)


@lru_cache(maxsize=4096)
def _terms(sql: str) -> tuple[_Term, ...] | None:
    """Read the comparisons an expression is the conjunction of; None if it is something else."""
    text = sql.strip()
    if cast := _BOOLEAN.fullmatch(text):
        text = cast[1].strip()
    text = peel(text)
    # A text constant with " AND " or a quote in it is cut into parts that are no comparisons.
    terms: list[_Term] = []
    for part in text.split(" AND "):
        term = _term(peel(part.strip()))
        if term is None:
            return None
        terms.append(term)
    return tuple(terms)


def _term(text: str) -> _Term | None:
    if match := _COMPARISON.fullmatch(text):
        return (match[1], match[2], int(match[3]))
    if match := _EQUALITY.fullmatch(text):
        return (match[1], match[2], match[3])
    return None


def peel(text: str) -> str:
    """Strip the brackets around the whole of an expression."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for at, char in enumerate(text):
            depth += (char == "(") - (char == ")")
            if depth == 0 and at < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text
