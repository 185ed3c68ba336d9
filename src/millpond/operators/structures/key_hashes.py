"""Hashes of join keys: functions of the values alone, equal for keys that a join finds equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

Hashes = npt.NDArray[np.uint64]


def hash_keys(columns: Sequence[pa.Array]) -> Hashes:
    """Hash rows without NULLs, of types that `is_hashable` names.

    Args:
        columns: The key's columns, at least one.

    Returns:
        uint64, a hash of each row (SplitMix64's finaliser over the columns' words).
    """
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = found * np.uint64(0x9E3779B97F4A7C15) + find_words(column).view(np.uint64)
        mixed += np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found = mixed ^ (mixed >> np.uint64(31))
    return found


def is_hashable(type_: pa.DataType) -> bool:
    """Whether values of a type have words that are equal if a join finds the values equal."""
    known = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_decimal,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_timestamp,
        pa.types.is_date32,
    )
    return any(is_of(type_) for is_of in known)


def find_words(column: pa.Array) -> npt.NDArray[np.int64]:
    """Read values as int64 words: whole numbers in their order, texts by their hash."""
    type_ = column.type
    if pa.types.is_floating(type_):
        # Both zeros are one, and so are all NaNs.
        values = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.int64)
    if pa.types.is_decimal(type_):
        column, type_ = column.cast(pa.string()), pa.string()
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        encoded = column.dictionary_encode()
        words = [
            xxhash.xxh3_64_intdigest(value.encode() if isinstance(value, str) else value)
            for value in encoded.dictionary.to_pylist()
        ]
        places = encoded.indices.to_numpy(zero_copy_only=False)
        return np.array(words, np.uint64).view(np.int64)[places]
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(type_):
        column = column.cast(pa.int32())
    if column.type != pa.int64():
        column = pc.cast(column, pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
