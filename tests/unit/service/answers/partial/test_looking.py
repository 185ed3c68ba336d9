"""Budgets in steps."""

from __future__ import annotations

import time
from itertools import islice

import pytest
from tests.unit.service.conftest import rows

from millpond.errors import MillpondError
from millpond.model.budget import Budget
from millpond.service.answers.partial.looking import spend
from millpond.service.pond import Pond


def test_a_budget_in_probes_is_one_step():
    assert list(spend(Budget(probes=70), 0.0)) == [70]


def test_a_budget_in_time_gives_one_step_at_least_and_then_larger_ones():
    assert list(spend(Budget(microseconds=1), time.perf_counter() - 1)) == [256]
    steps = list(islice(spend(Budget(microseconds=60_000_000), time.perf_counter()), 3))
    assert steps == [256, 512, 1024]


def test_a_predicate_that_fails_is_reported(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER, t VARCHAR) TIMESTAMP BY ts")
    query = pond.register("SELECT v FROM s WHERE CAST(t AS INTEGER) > 1", materialize="none")
    pond.ingest("s", rows(1, 2, t="x"))
    pond.catch_up()
    with pytest.raises(MillpondError, match="POND-404"):
        query.invoke(budget="5 probes")
