"""The intervals of approximate values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.model.approximation import LEAST_HASHES
from millpond.service.answers.approximations import bound_approximations
from millpond.service.pond import Pond


@pytest.mark.parametrize(
    ("value", "interval"),
    [
        (0, (0.0, 0.0)),
        (LEAST_HASHES - 1, (LEAST_HASHES - 1.0, LEAST_HASHES - 1.0)),
        (LEAST_HASHES, (LEAST_HASHES / 1.02, LEAST_HASHES / 0.98)),
    ],
)
def test_counts(pond: Pond, value: int, interval: tuple[float, float]) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    query = pond._components.registrar.bind("SELECT approx_count_distinct(v) AS n FROM s")
    found = bound_approximations(query, pa.table({"n": [value]}))
    assert found is not None
    assert found.columns == {"n": [interval]}


def test_quantiles(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    bind = pond._components.registrar.bind
    query = bind("SELECT count(*) AS n, approx_quantile(v, 0.5) AS half FROM s")
    table = pa.table({"n": [1] * 5, "half": [102.0, -102.0, None, float("inf"), float("nan")]})
    found = bound_approximations(query, table)
    assert found is not None
    (low, high), (least, most), *others = found.columns["half"]
    assert (low, high) == (100.0, 102.0 / 0.98)
    assert (least, most) == (-102.0 / 0.98, -100.0)
    assert others == [None] * 3
    assert bound_approximations(bind("SELECT count(*) AS n FROM s"), table) is None
