"""Chunks: the rows of one split of a source, as tasks take them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: How many rows of small files are judged at once at most; no more than a segment may have.
_TOGETHER_ROWS = 16_384
#: The bytes of rows that are judged at once, about.
PIECE_BYTES = 64 << 20


@dataclass(frozen=True)
class Chunk:
    """Rows of one split, in order: raw rows of a source, or pushed rows, which were judged before.

    `accepted_at` is set for pushed rows: the clock when they were judged. `name_row` is set for
    records of a topic: it says of a row where it is, and their key begins with topic and partition.
    `most` is set for rows of files, whose key begins with the file: how many bytes of rows the file
    may become in this task. `places` is set for records: each one's offset in its partition.
    """

    stream_id: int
    key: tuple[Any, ...]
    rows: pa.Table
    accepted_at: int | None = None
    name_row: Callable[[int], str] | None = None
    most: int | None = None
    places: Sequence[int] | None = None


def gather_small(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Gather chunks of few rows that can be judged at once; each other chunk stays alone.

    To judge rows takes milliseconds however few they are, and archives have many small files.
    """
    together: list[Chunk] = []
    rows = size = 0
    for chunk in chunks:
        count, length = chunk.rows.num_rows, chunk.rows.nbytes
        is_small = (
            (chunk.accepted_at is None and chunk.name_row is None)
            and count < _TOGETHER_ROWS
            and length < PIECE_BYTES
        )
        if together and not (
            is_small
            and rows + count <= _TOGETHER_ROWS
            and size + length <= PIECE_BYTES
            and chunk.stream_id == together[0].stream_id
            and chunk.rows.schema.equals(together[0].rows.schema)
        ):
            yield together
            together, rows, size = [], 0, 0
        together.append(chunk)
        rows, size = rows + count, size + length
        if not is_small:
            yield together
            together, rows, size = [], 0, 0
    if together:
        yield together


def divide(rows: pa.Table, most: int, most_bytes: int) -> Iterator[tuple[int, pa.Table]]:
    """Divide rows into pieces of at most so many rows and bytes, each with where it begins.

    A piece of one row may have more bytes. Rows differ, so pieces are halved, and not cut by what
    a row has on average. No rows are one piece.

    >>> texts = pa.table({"t": ["a" * 100, "b", "c", "d"]})
    >>> [(start, piece.num_rows) for start, piece in divide(texts, 3, 80)]
    [(0, 1), (1, 2), (3, 1)]
    """
    for first in range(0, max(rows.num_rows, 1), most):
        parts = [(first, min(most, rows.num_rows - first))]
        while parts:
            start, count = parts.pop()
            piece = rows.slice(start, count)
            if count <= 1 or piece.nbytes <= most_bytes:
                yield start, piece
                continue
            half = count // 2
            parts += [(start + half, count - half), (start, half)]
