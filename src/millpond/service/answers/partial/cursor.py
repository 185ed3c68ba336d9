"""Cursors of answers in parts: they say of which answer how much was given, and hold no state.

`3f2a9c.81d3f0aa.1700000000000000.5000.70.1699999998,120,-5` is: the store's incarnation, the query,
the instant, the probes made, the rows given, and for each of its streams the line its summary was
at, how many elements had arrived, and the instant from which they were kept. What came later is no
part of the answer that is gone on with.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from millpond.errors import MillpondError


@dataclass(frozen=True)
class ResumePoint:
    """Where an answer goes on.

    Attributes:
        at: The answer's instant.
        done: How many probes have been made.
        rows: How many rows have been given.
        leaves: For each stream leaf the line of its summary (or 0), the arrival number of the first
            element that is not seen, and the instant from which elements were kept.
    """

    at: int
    done: int
    rows: int
    leaves: tuple[tuple[int, int, int], ...]

    def write(self, incarnation: str, query: str) -> str:
        """The cursor; `query` says what the answer is of."""
        leaves = "_".join(",".join(map(str, leaf)) for leaf in self.leaves)
        numbers = f"{self.at}.{self.done}.{self.rows}.{leaves}"
        return f"{incarnation}.{_digest(f'{query} {numbers}')}.{numbers}"


def read_place(text: str, incarnation: str, query: str, leaves: int) -> ResumePoint:
    """Read a cursor.

    Raises:
        MillpondError: POND-412, it is no cursor of this query's answers.
    """
    parts = text.split(".")
    try:
        own, digest, at, done, rows, rest = parts
        found = ResumePoint(
            int(at),
            int(done),
            int(rows),
            tuple(_numbers(leaf) for leaf in rest.split("_")),
        )
    except ValueError:
        raise _error(text, "A cursor is what came with the part before.") from None
    # The digest is of the numbers, too: they are those of a part that was given.
    if own != incarnation or digest != _digest(f"{query} {text.split('.', 2)[2]}"):
        raise _error(
            text,
            "It is of another store or query, or was changed, or a stream's clock was set back "
            "since, or a stream or summary was made again.",
        )
    is_read = len(found.leaves) == leaves and min(found.done, found.rows) >= 0
    if not is_read or max(map(len, parts)) > 200:
        raise _error(text, "A cursor is what came with the part before.")
    return found


def _numbers(text: str) -> tuple[int, int, int]:
    first, second, third = (int(number) for number in text.split(","))
    return first, second, third


def _digest(query: str) -> str:
    return f"{zlib.crc32(query.encode()):08x}"


def _error(text: str, detail: str) -> MillpondError:
    return MillpondError(
        "POND-412",
        f'"{text[:80]}" is not a cursor of this answer',
        detail=detail,
        hint="INVOKE … BUDGET … without AFTER begins with the most promising part.",
    )
