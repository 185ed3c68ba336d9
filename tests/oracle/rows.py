"""How the oracle compares and orders rows: equal where SQL finds them equal, canonical order."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

Row = tuple[Any, ...]


class _NotANumber(float):
    """NaN as SQL has it: equal to itself."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isnan(other)

    def __hash__(self) -> int:
        return 0


class _Struct(tuple[tuple[str, Any], ...]):
    """A struct's names and values, which can be hashed."""


def normalize(value: Any) -> Any:
    """Make values equal in Python that SQL finds equal: one NaN, one zero."""
    if isinstance(value, float):
        return _NotANumber("nan") if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(normalize, value))
    if isinstance(value, dict):
        return _Struct((key, normalize(inner)) for key, inner in value.items())
    return value


def restore(value: Any) -> Any:
    """Make arrays and structs of what `normalize` made of them.

    >>> restore(normalize({"a": [1, {"b": None}]}))
    {'a': [1, {'b': None}]}
    """
    if isinstance(value, _Struct):
        return {key: restore(inner) for key, inner in value}
    if type(value) is tuple:  # an interval, which is a tuple with names, is no array
        return list(map(restore, value))
    return value


def sort_key(row: Row) -> tuple[Any, ...]:
    """Make the sort key of a row: each value in turn, NULLs last, NaNs just before NULLs.

    >>> sorted([(None,), (float("nan"),), (2.0,), (1.0,)], key=sort_key)[:2]
    [(1.0,), (2.0,)]
    """
    return tuple(map(_value_sort_key, row))


def _value_sort_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return (2, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    if isinstance(value, str):
        return (0, value.encode())
    if isinstance(value, datetime):
        return (0, value.replace(tzinfo=None))
    if isinstance(value, _Struct):
        return (0, tuple(_value_sort_key(part) for _, part in value))
    if isinstance(value, tuple):
        return (0, tuple(map(_value_sort_key, value)))
    return (0, value)
