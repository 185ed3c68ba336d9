"""Labels of rows in an order of several numbers, with a value behind each row.

An aggregate such as `arg_max(v, x)` wants the value of the row that is first in an order: by x, by
timestamp and by arrival. What it keeps of a row is a text: the numbers, each as eight bytes that
compare as the numbers do, and behind them the value. Texts get labels (`ordered_texts`), so rows
are kept, found and spilled as values of any other order are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.synopses.order_keys import Bools, Ints, LabelKeys, make_order_keys
from millpond.synopses.text_numbers import from_texts, read_texts, to_texts

#: Bytes of a number.
_WIDTH = 8
_SIGN = np.uint64(1 << 63)
#: Behind the numbers of a row that has a value; a row whose value is NULL ends with its numbers.
_HAS_VALUE = pa.scalar(b"\1", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


class ValuedKeys(LabelKeys):
    """Keys of rows that `write_rows` has written, which are decoded to the rows' values.

    Args:
        numbers: How many numbers order a row.
        of: The type of the values, one that has an order (`can_be_ordered`).
    """

    def __init__(self, numbers: int, of: pa.DataType) -> None:
        super().__init__(pa.binary())
        self._head = _WIDTH * numbers + 1
        self._of = of

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        return read_values(self.cut_values(keys, valid), self._of)

    def cut_values(self, keys: Ints, valid: Bools | None) -> pa.Array:
        """Cut the values' texts out of rows: equal for equal values, NULL for NULL."""
        return self.take_texts(keys, valid, self._head)


def write_rows(order: Sequence[Ints], values: pa.Array) -> pa.Array:
    """Write rows as texts (large binary).

    Args:
        order: The numbers by which rows are in order, int64 each.
        values: A value for each row.
    """
    count, width = len(values), _WIDTH * len(order)
    heads = np.empty((count, len(order)), ">u8")
    for place, numbers in enumerate(order):
        heads[:, place] = numbers.view(np.uint64) ^ _SIGN
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(heads)]
    written = pa.Array.from_buffers(pa.large_binary(), count, buffers)
    behind = pc.binary_join_element_wise(_HAS_VALUE, _write_values(values), _NOTHING)
    return pc.binary_join_element_wise(written, pc.fill_null(behind, _NOTHING), _NOTHING)


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
