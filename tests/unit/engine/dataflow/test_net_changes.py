"""Net changes in canonical order, held to sorting and counting by Python."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.net_changes import net_changes
from millpond.operators.protocol.delta import Delta, positional_schema

VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, 1.5]),
    pa.string(): st.text("abé\U0001f600", max_size=2),
    pa.decimal128(38, 2): st.decimals(-(10**30), 10**30, places=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
}


def plain(value):
    """A value that Python compares as the canonical order does: NULL last, NaN before it."""
    if value is None:
        return (2, 0)
    if isinstance(value, float):
        return (1, 0) if math.isnan(value) else (0, value + 0.0)
    return (0, value.encode() if isinstance(value, str) else value)


@pytest.mark.parametrize("to_stream", [None, "istream", "dstream"])
@settings(max_examples=60)
@given(data=st.data())
def test_net_changes(to_stream, data):
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | VALUES[t] for t in types))
    some = data.draw(st.lists(row, min_size=1, max_size=6))
    last = data.draw(st.sampled_from([3, 40]))
    changes = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, last), st.sampled_from([-2, -1, 1, 1, 3]), st.sampled_from(some)
            ),
            max_size=70,
        )
    )
    changes.sort(key=lambda change: change[0])
    columns = [pa.array([c[2][i] for c in changes], t) for i, t in enumerate(types)]
    rows = pa.RecordBatch.from_arrays(columns, schema=positional_schema(types))
    at = np.array([c[0] for c in changes], np.int64)
    delta = Delta.of(rows, at, None, np.array([c[1] for c in changes], np.int64))
    stamps = [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8())]
    schema = pa.schema([*stamps, *positional_schema(types)])
    table = net_changes(delta, schema, to_stream)
    found = [
        (at, sign, tuple(map(plain, values)))
        for at, sign, *values in zip(*[c.to_pylist() for c in table.columns], strict=True)
    ]
    sums = Counter()
    for instant, weight, values in changes:
        sums[instant, tuple(map(plain, values))] += weight
    wanted = []
    for (instant, values), weight in sums.items():
        sign = 1 if weight > 0 else -1
        if to_stream is None:
            wanted += [(instant, sign, values)] * abs(weight)
        elif (sign > 0) == (to_stream == "istream"):
            wanted += [(instant, 1, values)] * abs(weight)
    assert found == sorted(wanted)


def test_a_crowded_instant_is_in_order():
    rng = np.random.default_rng(3)
    values = rng.integers(0, 500, 2_000)
    rows = pa.RecordBatch.from_arrays([pa.array(values)], schema=positional_schema([pa.int64()]))
    delta = Delta.of(rows, np.zeros(2_000, np.int64))
    schema = pa.schema(
        [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8()), pa.field("v", pa.int64())]
    )
    assert net_changes(delta, schema, None)["v"].to_pylist() == sorted(values.tolist())


def test_decimals_keep_their_values():
    type_ = pa.decimal128(38, 0)
    column = pa.array([Decimal(5), None, Decimal(-5), Decimal(2) ** 70], type_)
    rows = pa.RecordBatch.from_arrays([column], schema=positional_schema([type_]))
    schema = pa.schema(
        [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8()), pa.field("v", type_)]
    )
    table = net_changes(Delta.of(rows, np.zeros(4, np.int64)), schema, None)
    assert table["v"].to_pylist() == [Decimal(-5), Decimal(5), Decimal(2) ** 70, None]
