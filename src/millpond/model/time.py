"""Instants: whole numbers of microseconds since 1970 UTC (SEMANTICS, section 1)."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import index
from typing import Any, NewType

import numpy as np

from millpond.errors import MillpondError
from millpond.model.far_times import format_ticks, parse_ticks

Instant = NewType("Instant", int)

#: Before every element: whatever holds "from the beginning of time" holds from here.
BEGINNING = Instant(-(2**62))
#: After every element: the heartbeat of a stream that has ended.
END = Instant(2**62)
#: The last instant of a history that has ended: every element and expiration is long past. Changes
#: up to here are computed at once. Later updates of relations come at the instants after it, of
#: which there are enough before `END`.
LAST = Instant(2**62 - 2**40)
#: Later updates of relations that hold from the beginning come at the instants up to here.
_FIRST = BEGINNING + 2**40

_EPOCH = datetime(1970, 1, 1)
#: An instant Python has no object for: its year has another number of digits, or a sign.
_FAR = re.compile(r"(-\d{4,6}|\d{5,6})-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


def now() -> Instant:
    """Read this machine's clock."""
    return Instant(time.time_ns() // 1_000)


def from_datetime(at: datetime) -> Instant:
    """Convert a datetime to an instant; a naive datetime is taken as UTC.

    >>> from_datetime(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    naive = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
    return Instant((naive - _EPOCH) // timedelta(microseconds=1))


def to_datetime(at: int) -> datetime | None:
    """Convert an instant to a naive UTC datetime; None outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return None


def format_instant(at: int) -> str:
    """Write an instant as text, without the fraction when it is zero.

    >>> format_instant(1_500_000)
    '1970-01-01 00:00:01.500000'
    >>> format_instant(END), format_instant(3_093_527_894_400_000_000)
    ('end of time', '99999-12-31 00:00:00')
    """
    if at <= _FIRST:
        return "beginning of time"
    if at >= LAST:
        return "end of time"
    return spell_instant(at)


def spell_instant(at: int) -> str:
    """Write an instant as text, also an instant that counts as an end of time.

    >>> spell_instant(1_500_000), spell_instant(BEGINNING + 1)
    ('1970-01-01 00:00:01.500000', '-144169-06-28 09:59:32.612097')
    """
    moment = to_datetime(at)
    if moment is not None:
        return moment.isoformat(sep=" ")
    (text,) = format_ticks(np.array([at], "datetime64[us]"))
    return text.replace("T", " ").removesuffix(".000000")


def format_interval(months: int, days: int, nanoseconds: int) -> str:
    """Write a length of time as DuckDB does; its three parts have no fixed ratio.

    >>> format_interval(14, 3, 14_706_789_000_000), format_interval(0, -1, 0)
    ('1 year 2 months 3 days 04:05:06.789', '-1 day')
    >>> format_interval(0, 0, -90_000_000_000), format_interval(0, 0, 0)
    ('-00:01:30', '00:00:00')
    """
    sign = -1 if months < 0 else 1
    years, rest = divmod(abs(months), 12)
    counts = (("year", sign * years), ("month", sign * rest), ("day", days))
    parts = [f"{n} {unit}{'' if abs(n) == 1 else 's'}" for unit, n in counts if n]
    if nanoseconds or not parts:
        seconds, fraction = divmod(abs(nanoseconds) // 1_000, 1_000_000)
        minutes, hours = seconds // 60, seconds // 3_600
        clock = f"{hours:02d}:{minutes % 60:02d}:{seconds % 60:02d}"
        shown = f"{clock}.{fraction:06d}".rstrip("0") if fraction else clock
        parts.append(f"-{shown}" if nanoseconds < 0 else shown)
    return " ".join(parts)


def timedelta_text(length: timedelta) -> str:
    """Write a Python timedelta as text that `parse_duration` reads.

    >>> timedelta_text(timedelta(minutes=1, microseconds=1)), timedelta_text(timedelta(hours=2))
    ('60000001 us', '7200000000 us')
    """
    return f"{length // timedelta(microseconds=1)} us"


def parse_instant(text: str) -> Instant:
    """Read the instant of an ISO 8601 text, also of a year beyond 9999 or before 1.

    Raises:
        ValueError: the text is not a timestamp.

    >>> parse_instant("1970-01-01 00:00:01"), parse_instant("99999-12-31 00:00:00")
    (1000000, 3093527894400000000)
    """
    try:
        return from_datetime(datetime.fromisoformat(text.strip()))
    except ValueError:
        if _FAR.fullmatch(text.strip()) is None:
            raise
    return Instant(parse_ticks(text.strip().replace(" ", "T"), "us"))


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
            return from_datetime(at)
        if isinstance(at, date):
            return from_datetime(datetime(at.year, at.month, at.day))
        return parse_instant(at) if isinstance(at, str) else index(at)
    except (ValueError, TypeError, OverflowError) as error:
        raise MillpondError(
            "CQL-103",
            f'"{at}" is not a timestamp',
            hint="Write it as 2013-01-31 12:00:00.",
        ) from error


def plain_value(value: Any) -> Any:
    """A value of Python or NumPy as `plain_value` gives it.

    >>> plain_value(np.datetime64("2026-01-01T12:00:00.000000000")), plain_value(np.int8(3))
    (datetime.datetime(2026, 1, 1, 12, 0), 3)
    """
    if isinstance(value, np.datetime64):
        days = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
        value = value.astype("datetime64[D]" if days else "datetime64[us]")
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, datetime):
        return value
    if value != value:
        return None  # pandas's NaT is a datetime that equals nothing
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def check_value(value: Any, name: str) -> Any:
    """Return the value of a parameter, `$name`, as `plain_value` gives it.

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
