"""Values as 64-bit words that compare as the values do, for one batch of rows.

Unlike the keys of `synopses.order_keys`, the words of texts and of values with parts are ranks
among the values of this one batch, so nothing is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.nested_values import needs_keys, rank
from millpond.operators.protocol.delta import Ints
from millpond.synopses.order_keys import is_whole, to_two_words, to_whole_numbers


def make_words(column: pa.Array) -> list[npt.NDArray[Any]]:
    """Compute keys that compare as a column's values do, most significant first, NULLs last."""
    type_ = column.type
    if is_whole(type_) or (pa.types.is_temporal(type_) and not pa.types.is_interval(type_)):
        words = [_to_integers(column)]
    elif pa.types.is_floating(type_):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        values[np.isnan(values)] = np.nan
        bits = values.view(np.int64)
        words = [bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))]
    elif pa.types.is_decimal128(type_):
        both = to_two_words(column)
        # An unsigned word compares as a signed word does whose highest bit is flipped.
        words = [both[:, 1], both[:, 0] ^ np.int64(-(2**63))]
    else:
        words = [_ranks(column)]
    if not column.null_count:
        return words
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return [missing.astype(np.int64), *(np.where(missing, 0, word) for word in words)]


def _to_integers(column: pa.Array) -> Ints:
    if pa.types.is_temporal(column.type) and column.type.bit_width == 32:
        column = column.view(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.view(pa.int64())
    return to_whole_numbers(column)


def _ranks(column: pa.Array) -> Ints:
    """Rank each value among the column's distinct values in order."""
    if needs_keys(column.type):
        column = rank(column)
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False)]
