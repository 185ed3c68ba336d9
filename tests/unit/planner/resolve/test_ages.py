"""Ages of rows: a row is as old as the youngest element it is made of."""

from __future__ import annotations

import duckdb
from tests.unit.planner.refusing import Binding

from millpond.cql.print.dialect import to_duckdb
from millpond.planner.resolve.ages import find_aged_parts, write_aged
from millpond.planner.resolve.negation import find_negations


def test_the_age_is_one_more_column(binding: Binding) -> None:
    bound = binding("SELECT origin FROM flights EXCEPT ALL SELECT origin FROM weather BY (origin)")
    (negation,) = find_negations(bound.tree)
    assert list(find_aged_parts(negation.this)) == [negation.this]
    aged = write_aged(negation.this.copy(), ["origin"])
    assert len(aged.selects) == len(negation.this.selects) + 1
    assert to_duckdb(aged)


def test_the_youngest_row_of_a_key_leaves_first(binding: Binding) -> None:
    """v1 rows of a key on the left, v2 on the right: the v1 - v2 oldest are left."""
    bound = binding("SELECT origin FROM flights EXCEPT ALL SELECT origin FROM weather BY (origin)")
    with duckdb.connect() as connection:
        left, right = (leaf.table for leaf in bound.streams)
        connection.execute(
            f"CREATE TABLE {left} AS SELECT make_timestamp(n) AS __ts_leaf_0, 'a' AS origin"
            " FROM range(3) t(n)"
        )
        connection.execute(f"CREATE TABLE {right} AS SELECT 'a' AS origin")
        assert connection.execute(bound.residual_sql).fetchall() == [("a",), ("a",)]
