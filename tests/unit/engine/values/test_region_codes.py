"""Coding columns: the number of cuts at or below each value, whatever the type and layout."""

from __future__ import annotations

import bisect
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.values.region_codes import CodableColumn, coder_for
from millpond.engine.values.value_sets import INT64_MAX, INT64_MIN, Cut, Domain, float_key

NULL = 99_999


def codes_of(column: pa.Array | pa.ChunkedArray, domain: Domain, cuts: list[Cut]) -> list[int]:
    codes = np.empty(len(column), np.int32)
    CodableColumn(column, domain).code(coder_for(domain, cuts), NULL, codes)
    return codes.tolist()


def expected(keys: list[Cut | None], cuts: list[Cut]) -> list[int]:
    return [NULL if key is None else bisect.bisect_right(cuts, key) for key in keys]


extremes = st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, 0, -1, 1])
integers = st.one_of(extremes, st.integers(-20, 20), st.integers(INT64_MIN, INT64_MAX))


@given(st.sets(integers, max_size=40), st.lists(st.none() | integers, max_size=40))
def test_integers(cuts: set[int], values: list[int | None]) -> None:
    ordered = sorted(cuts)
    column = pa.array([*values, *ordered], pa.int64())
    assert codes_of(column, Domain.INT64, ordered) == expected([*values, *ordered], ordered)


floats = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324])
)


@given(st.sets(floats, max_size=40), st.lists(st.none() | floats, max_size=40))
def test_doubles(cuts: set[float], values: list[float | None]) -> None:
    ordered = sorted({float_key(cut) for cut in cuts})
    keys = [None if v is None else float_key(v) for v in values]
    column = pa.array(values, pa.float64())
    assert codes_of(column, Domain.FLOAT, ordered) == expected(keys, ordered)


letters = st.text(st.sampled_from("ab\0ü\U0010ffff"), max_size=12)
texts = st.one_of(letters, letters.map(lambda t: "common prefix " + t))


@given(st.sets(texts, max_size=40), st.lists(st.none() | texts, max_size=40), st.booleans())
def test_texts(cuts: set[str], values: list[str | None], prefixed: bool) -> None:
    ordered = sorted(c.encode() for c in cuts if c.startswith("common") or not prefixed)
    keys = [None if v is None else v.encode() for v in values]
    assert codes_of(pa.array(values, pa.string()), Domain.TEXT, ordered) == expected(keys, ordered)


def test_many_texts_that_begin_alike() -> None:
    families = [f"family-{f}-of-names-{i:04d}" for f in "xy" for i in range(500)]
    cuts = sorted(t.encode() + tail for t in families for tail in (b"", b"\0"))
    values = families + [f + "5" for f in families] + ["family-z", "a", ""]
    want = expected([v.encode() for v in values], cuts)
    assert codes_of(pa.array(values), Domain.TEXT, cuts) == want


@pytest.mark.parametrize(
    ("column", "domain", "keys"),
    [
        (pa.array([True, None, False]), Domain.BOOL, [1, None, 0]),
        (pa.array([5, None, -7], pa.int8()), Domain.INT8, [5, None, -7]),
        (pa.array([0.5, None], pa.float32()), Domain.FLOAT, [float_key(0.5), None]),
        (pa.array([3, None], pa.date32()), Domain.INT32, [3, None]),
        (pa.array([3, None], pa.timestamp("ms")), Domain.INT64, [3000, None]),
        (pa.array([Decimal("-1.25"), None], pa.decimal128(10, 2)), Domain.INT64, [-125, None]),
        (pa.array(["b", None], pa.large_string()), Domain.TEXT, [b"b", None]),
        (pa.array(["b", None, "b"]).dictionary_encode(), Domain.TEXT, [b"b", None, b"b"]),
        (pa.array(["b", None], pa.string_view()), Domain.TEXT, [b"b", None]),
    ],
)
def test_every_layout(column: pa.Array, domain: Domain, keys: list[Cut | None]) -> None:
    present = sorted({k for k in keys if k is not None})
    assert codes_of(column, domain, present) == expected(keys, present)
    for layout in (
        pa.chunked_array([column.slice(0, 1), column.slice(1)]),
        pa.chunked_array([column]),
        column.slice(1),
    ):
        got = keys[1:] if len(layout) < len(keys) else keys
        assert codes_of(layout, domain, present) == expected(got, present)
        for step in (1, 2):
            sample = list(CodableColumn(layout, domain).sample(step))
            assert sample == sorted(key for key in got[::step] if key is not None)


@pytest.mark.parametrize("domain", [Domain.INT64, Domain.FLOAT, Domain.TEXT])
def test_without_rows_or_cuts(domain: Domain) -> None:
    kinds = {Domain.INT64: pa.int64(), Domain.FLOAT: pa.float64(), Domain.TEXT: pa.string()}
    assert codes_of(pa.array([], kinds[domain]), domain, []) == []
    assert codes_of(pa.chunked_array([], kinds[domain]), domain, []) == []
    assert codes_of(pa.array([None, None], kinds[domain]), domain, []) == [NULL, NULL]
