"""Who selects an element, for shared logs; and how changes are laid out by the queries' logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import parse_one

from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.predicates.factors import factorize
from millpond.model.schema import Field, Schema
from millpond.runtime.shared_log_task import LogMembers, lay_out, select_for_members

SCHEMA = Schema((Field("v", "INTEGER"),))


@pytest.fixture
def members(tmp_path: Path) -> LogMembers:
    """Logs 10 and 11 of queries of one slot, and log 12 of another; slot 2 is nobody's."""
    predicates = ("v > 1", "v = 2", "v < 9")
    trees = (parse_one(predicate, read="duckdb") for predicate in predicates)
    queries = [(slot, factorize(tree, SCHEMA)) for slot, tree in enumerate(trees)]
    snapshot_queries(queries, SCHEMA).save(tmp_path / "stem")
    slots, logs = np.array([0, 0, 1]), np.array([10, 11, 12])
    starts, numbers = np.array([-1, 5, -1]), np.array([0, 7, 3])
    return LogMembers("s", slots, logs, starts, numbers, str(tmp_path / "stem"))


@pytest.mark.parametrize("counts_all", [False, True])
def test_elements_are_given_with_the_logs_that_want_them(
    members: LogMembers, counts_all: bool
) -> None:
    wanted = replace(members, counts_all=counts_all)
    found = select_for_members(pa.table({"v": pa.array([1, 2, 3], pa.int32())}), wanted)
    rows = list(zip(found["v"].to_pylist(), found[wanted.column].to_pylist(), strict=True))
    if counts_all:
        assert rows == [(1, []), (2, [10, 11, 12]), (3, [10, 11])]
    else:
        assert rows == [(2, 10), (2, 11), (2, 12), (3, 10), (3, 11)]


def test_changes_are_numbered_by_their_logs(members: LogMembers) -> None:
    changes = pa.table({"v": [1, 2, 3, 4], "__log": [11, 12, 11, 99], "__ts": [5, 6, 7, 8]})
    laid, counted = lay_out(changes, members)
    assert [tuple(row.values()) for row in laid.to_pylist()] == [(3, 11, 7, 7), (2, 12, 6, 3)]
    assert (counted.logs.tolist(), counted.first.tolist()) == ([11, 12], [7, 3])
    assert (counted.counts.tolist(), counted.last.tolist()) == ([1, 1], [7, 6])
