"""Instants as programs give them: text, datetimes, dates, also of NumPy and pandas."""

from __future__ import annotations

from datetime import date, datetime
from operator import index

import numpy as np

from millpond.errors import MillpondError
from millpond.model import time

#: What is taken for an instant: µs since 1970, text, a datetime or date, also of NumPy and pandas.
Time = int | str | date | np.datetime64


def to_instant(at: Time | None) -> int | None:
    """Convert text, a datetime, a date or microseconds to an instant. Raises CQL-103.

    NumPy's and pandas's times are taken too; what is finer than a microsecond is cut off.
    """
    if at is None or isinstance(at, int):
        return at
    try:
        if isinstance(at, np.datetime64):
            if np.isnat(at):
                raise ValueError("NaT")
            ticks, whole = at.astype("datetime64[us]"), np.datetime_data(at.dtype)[0]
            if whole not in ("ns", "ps", "fs", "as") and ticks.astype(at.dtype) != at:
                raise OverflowError("beyond 64 bits")
            return int(ticks.astype(np.int64))
        if isinstance(at, datetime):
            if at != at:  # pandas's NaT is a datetime that equals nothing
                raise ValueError("NaT")
            return time.from_datetime(at)
        if isinstance(at, date):
            return time.from_datetime(datetime(at.year, at.month, at.day))
        return time.parse_instant(at) if isinstance(at, str) else index(at)
    except (ValueError, TypeError, OverflowError) as error:
        raise MillpondError(
            "CQL-103",
            f'"{at}" is not a timestamp',
            hint="Write it as 2013-01-31 12:00:00.",
        ) from error
