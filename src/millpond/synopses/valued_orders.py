"""Orders of several numbers with a value behind them, each as one text.

An aggregate such as `arg_max(v, x)` wants the value of the row that is first in an order: by x, by
timestamp and by arrival. What it keeps of a row is a text: the numbers, each as eight bytes that
compare as the numbers do, whether the value is NULL, and the value. Texts get labels
(`ordered_texts`), so rows are kept, found and spilled as values of any other order are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.synopses.order_keys import Bools, Ints, LabelKeys, make_order_keys
from millpond.synopses.text_numbers import Bytes, from_texts, read_texts, to_texts

#: Bytes of a number.
_WIDTH = 8
_SIGN = np.uint64(1 << 63)
#: What `cut_values` gives for a row whose value is NULL.
NO_VALUE = pa.scalar(b"\0", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


def write_rows(order: Sequence[Ints], values: pa.Array) -> pa.Array:
    """Write rows as texts (large binary).

    Args:
        order: The numbers by which rows are in order, int64 each.
        values: A value for each row, of a type that has an order (`can_be_ordered`).
    """
    count = len(values)
    heads = np.empty((count, _WIDTH * len(order) + 1), np.uint8)
    for place, numbers in enumerate(order):
        words = (numbers.view(np.uint64) ^ _SIGN).astype(">u8")
        heads[:, _WIDTH * place : _WIDTH * (place + 1)] = words.view(np.uint8).reshape(count, -1)
    heads[:, -1] = values.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.arange(count + 1, dtype=np.int64) * heads.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(heads)]
    written = pa.Array.from_buffers(pa.large_binary(), count, buffers)
    texts = pc.fill_null(_write_values(values), _NOTHING)
    return pc.binary_join_element_wise(written, texts, _NOTHING)


def cut_values(rows: pa.Array, numbers: int) -> pa.Array:
    """Cut what says the value out of texts that have so many numbers: equal for equal values."""
    return _cut(rows, _WIDTH * numbers)


def read_values(cut: pa.Array, type_: pa.DataType) -> pa.Array:
    """Read the values of what `cut_values` cut; NULL where that is NULL."""
    flags, held = _first_bytes(cut)
    is_value = held & (flags == 1)
    texts = pc.if_else(pa.array(is_value), _cut(cut, 1), pa.scalar(None, cut.type))
    keys = make_order_keys(type_)
    if isinstance(keys, LabelKeys):
        return from_texts(texts, type_)
    numbers = np.zeros(len(cut), np.int64)
    starts, data = read_texts(texts)
    words = data[starts[0] : starts[-1]].view(">u8").astype(np.uint64)
    numbers[is_value] = (words ^ _SIGN).view(np.int64)
    return keys.decode(numbers, is_value)


def _first_bytes(texts: pa.Array) -> tuple[Bytes, Bools]:
    """Read the first byte of each text, and whether it has one."""
    starts, data = read_texts(texts)
    held = np.diff(starts) > 0
    flags = np.zeros(len(texts), np.uint8)
    flags[held] = data[starts[:-1][held]]
    return flags, held


def _cut(texts: pa.Array, width: int) -> pa.Array:
    """Cut the first bytes off texts that have so many, or are NULL."""
    assert texts.offset == 0
    starts, data = read_texts(texts)
    data = data[: starts[-1]]
    held = np.diff(starts) > 0
    stays = np.ones(len(data), np.bool_)
    stays[(starts[:-1][held][:, None] + np.arange(width)).ravel()] = False
    offsets = np.zeros(len(starts), np.int64)
    np.cumsum(np.diff(starts) - width * held, out=offsets[1:])
    buffers = [texts.buffers()[0], pa.py_buffer(offsets), pa.py_buffer(data[stays])]
    return pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)


def _write_values(values: pa.Array) -> pa.Array:
    """Write values as texts, those that have a key of 64 bits by their key."""
    keys = make_order_keys(values.type)
    if not isinstance(keys, LabelKeys):
        numbers = keys.encode(values, np.ones(len(values), np.int64))
        missing = values.is_null().to_numpy(zero_copy_only=False)
        values = pa.array(numbers, mask=missing if values.null_count else None)
    return to_texts(values).cast(pa.large_binary())
