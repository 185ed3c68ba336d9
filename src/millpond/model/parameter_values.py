"""Which values a parameter of a query's text, `$name`, can have."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

from millpond.errors import MillpondError
from millpond.model.time import plain_value


def check_value(value: Any, name: str) -> Any:
    """Return the value of a parameter as a plain one of Python; a moment in UTC, without its zone.

    Raises:
        MillpondError: CQL-103, CQL has no constant for it.

    >>> check_value(0.5, "most")
    0.5
    """
    value = plain_value(value)
    match value:
        case None | bool() | int() | date():
            return value
        case float() if math.isfinite(value):
            return value
        case Decimal() if value.is_finite():
            return value
        case str() if "\0" not in value:
            return value
    raise MillpondError(
        "CQL-103",
        f'the value of "${name}" is none that CQL has a constant for',
        detail=f"It is {value!r:.100} ({type(value).__name__}).",
        hint="A parameter is one value: for a list write IN ($a, $b)."
        if isinstance(value, list | tuple | set)
        else "Texts, finite numbers, booleans, null, dates and times can be given.",
    )
