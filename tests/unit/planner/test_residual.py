"""The texts of a bound query."""

from __future__ import annotations

from tests.unit.planner.refusing import Binding


def test_the_residual_reads_slices_and_has_no_windows(binding: Binding) -> None:
    bound = binding("SELECT delay FROM flights [RANGE 1 MINUTE] WHERE delay > 3")
    assert "RANGE" not in bound.residual_sql
    assert "leaf_0 AS flights" in bound.residual_sql


def test_a_query_has_its_own_constants(binding: Binding) -> None:
    one = binding("SELECT delay FROM flights WHERE delay > 3")
    other = binding("select  DELAY from flights where delay > 4")
    assert one.canonical == "SELECT delay FROM flights WHERE delay > 3"
    assert other.canonical == "SELECT delay FROM flights WHERE delay > 4"
