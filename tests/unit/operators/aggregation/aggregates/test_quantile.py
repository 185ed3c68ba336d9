"""Which calls of quantiles are incremental, and by which of the two ways."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.aggregation.aggregate import AggregateCall
from millpond.operators.aggregation.aggregates.quantile import (
    NAMES,
    ContinuousQuantile,
    DiscreteQuantile,
    duckdb_is_fused,
    recognize,
)
from millpond.operators.aggregation.measures import Argument

DOUBLE, TEXT = pa.float64(), pa.string()


def call(name: str, of: Any = DOUBLE, share: float | None = 0.25, **more: Any) -> AggregateCall:
    argument = Argument("x", distinct=more.pop("distinct", False))
    return AggregateCall(name, argument, of, of or DOUBLE, share, **more)


@pytest.mark.parametrize("of", [DOUBLE, pa.int32(), pa.timestamp("us"), pa.date32()])
def test_numbers_and_times_are_interpolated(of: pa.DataType) -> None:
    assert isinstance(recognize(call("quantile_cont", of)), ContinuousQuantile)
    assert isinstance(recognize(call("median", of)), ContinuousQuantile)
    assert isinstance(recognize(call("quantile_disc", of)), DiscreteQuantile)


def test_a_median_of_texts_is_one_of_them() -> None:
    found = recognize(call("median", TEXT, None))
    assert isinstance(found, DiscreteQuantile)
    assert found.share == 0.5
    assert recognize(call("quantile_cont", TEXT)) is None


def test_a_median_is_the_half_whatever_is_said() -> None:
    found = recognize(call("median", DOUBLE, 0.25))
    assert isinstance(found, ContinuousQuantile)
    assert found.share == 0.5


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_incremental(name: str) -> None:
    assert recognize(call(name, None)) is None
    assert recognize(call(name, distinct=True)) is None
    assert recognize(call(name, descending=True)) is None
    if name != "median":
        assert recognize(call(name, share=None)) is None
        assert recognize(call(name, share=1.5)) is None
        assert recognize(call(name, share=-0.1)) is None


def test_interpolation_rounds_as_duckdb_does() -> None:
    rng = np.random.default_rng(5)
    low, high, share = rng.random(200), 1 + rng.random(200), rng.random(200)
    quantile = ContinuousQuantile(Argument("x"), DOUBLE, 0.5, duckdb_is_fused())
    ours = quantile._mix(low, high, share)
    with duckdb.connect() as connection:
        theirs = [
            connection.execute(
                "SELECT quantile_cont(x, ?) FROM (VALUES (?::DOUBLE), (?::DOUBLE)) t(x)",
                [float(s), float(a), float(b)],
            ).fetchall()[0][0]
            for a, b, s in zip(low, high, share, strict=True)
        ]
    assert ours.tolist() == theirs
