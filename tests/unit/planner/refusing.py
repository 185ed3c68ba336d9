"""Binds a query that is refused, and says where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery

Binding = Callable[[str], BoundQuery]


def refuse(binding: Binding, text: str) -> tuple[str, str]:
    """The code of the error of a query, and the part of its text that it marks."""
    with pytest.raises(MillpondError) as raised:
        binding(text)
    error = raised.value
    span = error.span
    return error.code, "" if span is None else text[span.start : span.end]
