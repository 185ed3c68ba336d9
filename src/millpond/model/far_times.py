"""Instants and days Python has no object for: before the year 1, after 9999, and the infinities.

Texts of them are spelled as DuckDB reads them: a year before 0 has a sign and four digits.
"""

from __future__ import annotations

import numpy as np

#: DuckDB's infinities, in microseconds and in days; their negatives are the others.
_ENDS = {"us": 2**63 - 1, "D": 2**31 - 1}


def format_ticks(moments: np.ndarray) -> list[str]:
    """Write the ISO 8601 texts of an array of datetime64[us] or datetime64[D]; NaT is 'NaT'.

    >>> format_ticks(np.array([-735_629, 0, 6_585_434, 2**31 - 1], "datetime64[D]"))
    ['-0045-12-02', '1970-01-01', '20000-04-22', 'infinity']
    """
    texts: list[str] = np.datetime_as_string(moments).tolist()
    ticks = moments.astype(np.int64)
    end = _ENDS[np.datetime_data(moments.dtype)[0]]
    for place in np.flatnonzero((np.abs(ticks) == end) | (moments < np.datetime64("0000-01-01"))):
        if abs(int(ticks[place])) == end:
            texts[place] = "infinity" if ticks[place] > 0 else "-infinity"
        elif texts[place].startswith("-"):
            year, behind = texts[place][1:].split("-", 1)
            texts[place] = f"-{year:0>4}-{behind}"
    return texts


def parse_ticks(text: str, unit: str) -> int:
    """Read a text by `format_ticks` as ticks since 1970, in microseconds ('us') or days ('D').

    Raises:
        ValueError: it is no such text.

    >>> parse_ticks("-0045-12-02", "D"), parse_ticks("infinity", "us") == 2**63 - 1
    (-735629, True)
    """
    if text.endswith("infinity"):
        return -_ENDS[unit] if text.startswith("-") else _ENDS[unit]
    return int(np.array([text], f"datetime64[{unit}]").astype(np.int64)[0])
