"""Labels of rows in an order of several values, with a value behind each row.

An aggregate such as `arg_max(v, x)` wants the value of the row that is first in an order: by x, by
timestamp and by arrival. What it keeps of a row is a text: what orders the row, and behind it the
value. A number is written as eight bytes that compare as the numbers do, a text so that it says
where it ends, and a byte before either says whether it is NULL. Texts get labels (`ordered_texts`),
so rows are kept, found and spilled as values of any other order are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.synopses.order_keys import Bools, Ints, LabelKeys, make_order_keys, to_two_words
from millpond.synopses.text_numbers import (
    FALLING,
    RISING,
    from_texts,
    mark_ends,
    read_texts,
    to_texts,
)

Bytes = npt.NDArray[np.uint8]

#: Bytes of a number.
_WIDTH = 8
_SIGN = np.uint64(1 << 63)
#: Behind the numbers of a row that has a value; a row whose value is NULL ends with its numbers.
_HAS_VALUE = pa.scalar(b"\1", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True)
class OrderTerm:
    """How the values of a column order rows.

    Attributes:
        of: The column's type, one that has an order (`can_be_ordered`).
        falling: Whether the greatest value comes first.
        nulls_first: Whether NULLs come before all values.
    """

    of: pa.DataType
    falling: bool = False
    nulls_first: bool = False

    @property
    def is_text(self) -> bool:
        """Whether values are written as texts of any length."""
        return not pa.types.is_decimal128(self.of) and _has_labels(self.of)

    def write(self, values: pa.Array) -> list[Bytes | pa.Array]:
        """Write values so that they compare as they order rows.

        Returns:
            Pieces that stand one behind the other: uint8[n, width], or large binary.
        """
        missing = values.is_null().to_numpy(zero_copy_only=False)
        present = missing != self.nulls_first
        head = present.astype(np.uint8).reshape(-1, 1)
        if self.is_text:
            return [
                head,
                mark_ends(
                    values.fill_null(b"" if pa.types.is_binary(self.of) else ""), self.falling
                ),
            ]
        if _has_labels(self.of):
            words = to_two_words(values)
            keys = [words[:, 1], (words[:, 0].view(np.uint64) ^ _SIGN).view(np.int64)]
        else:
            keys = [make_order_keys(self.of).encode(values, np.ones(len(values), np.int64))]
        flip = np.int64(-1 if self.falling else 0)
        return [head, *(_write_numbers(np.where(missing, 0, key ^ flip)) for key in keys)]

    @property
    def head(self) -> tuple[int, ...]:
        """The parts that `write` writes, as `TextNumbers.take` leaves them out."""
        if self.is_text:
            return (1, FALLING if self.falling else RISING)
        return (1 + _WIDTH * (2 if _has_labels(self.of) else 1),)


@dataclass(frozen=True)
class RowOrder:
    """What orders rows: values of columns, and behind them numbers.

    Attributes:
        terms: How the columns order.
        numbers: How many numbers stand behind their values.
    """

    terms: tuple[OrderTerm, ...]
    numbers: int

    @property
    def head(self) -> tuple[int, ...]:
        """What stands in front of a row's value, with the byte that says that it has one."""
        parts = [part for term in self.terms for part in term.head]
        return (*parts, _WIDTH * self.numbers + 1)

    def write(self, columns: Sequence[pa.Array], numbers: Sequence[Ints]) -> pa.Array:
        """Write what orders rows, as texts (large binary) in the order of the rows.

        Args:
            columns: The columns' values.
            numbers: The numbers behind them, int64 each.
        """
        written: list[pa.Array] = []
        matrices: list[Bytes] = []
        for term, column in zip(self.terms, columns, strict=True):
            for piece in term.write(column):
                if isinstance(piece, np.ndarray):
                    matrices.append(piece)
                else:
                    written += [_to_binary(matrices), piece]
                    matrices = []
        written.append(_to_binary([*matrices, *(_write_numbers(some) for some in numbers)]))
        return pc.binary_join_element_wise(*written, _NOTHING)


class ValuedKeys(LabelKeys):
    """Keys of rows that `write_rows` has written, which are decoded to the rows' values.

    Args:
        order: What orders the rows.
        of: The type of the values, one that has an order (`can_be_ordered`).
    """

    def __init__(self, order: RowOrder, of: pa.DataType) -> None:
        super().__init__(pa.binary())
        self._head = order.head
        self._of = of

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        return read_values(self.cut_values(keys, valid), self._of)

    def cut_values(self, keys: Ints, valid: Bools | None) -> pa.Array:
        """Cut the values' texts out of rows: equal for equal values, NULL for NULL."""
        return self.take_texts(keys, valid, self._head)


def write_rows(written: pa.Array, values: pa.Array) -> pa.Array:
    """Write rows as texts (large binary): what orders them (`RowOrder.write`), and their values."""
    behind = pc.binary_join_element_wise(_HAS_VALUE, _write_values(values), _NOTHING)
    return pc.binary_join_element_wise(written, pc.fill_null(behind, _NOTHING), _NOTHING)


def _write_numbers(numbers: Ints) -> Bytes:
    """Write numbers as bytes that compare as the numbers do."""
    return (numbers.view(np.uint64) ^ _SIGN).astype(">u8").view(np.uint8).reshape(-1, _WIDTH)


def _to_binary(matrices: Sequence[Bytes]) -> pa.Array:
    """Make texts (large binary) of bytes that stand side by side."""
    matrix = np.hstack(matrices)
    count, width = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(matrix)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def _has_labels(type_: pa.DataType) -> bool:
    """Whether values have no key of 64 bits."""
    return isinstance(make_order_keys(type_), LabelKeys)


def read_values(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Make the values again of which rows were written; NULL for NULL."""
    keys = make_order_keys(type_)
    if isinstance(keys, LabelKeys):
        return from_texts(texts, type_)
    starts, data = read_texts(texts)
    present = texts.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.zeros(len(texts), np.int64)
    words = data[starts[0] : starts[-1]].view(">u8").astype(np.uint64)
    numbers[present] = (words ^ _SIGN).view(np.int64)
    return keys.decode(numbers, present)


def _write_values(values: pa.Array) -> pa.Array:
    """Write values as texts, those that have a key of 64 bits by their key."""
    keys = make_order_keys(values.type)
    if not isinstance(keys, LabelKeys):
        numbers = keys.encode(values, np.ones(len(values), np.int64))
        missing = values.is_null().to_numpy(zero_copy_only=False)
        values = pa.array(numbers, mask=missing if values.null_count else None)
    return to_texts(values).cast(pa.large_binary())
