"""ORDER BY … LIMIT as dataflows, held to the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import check_changes

SECOND = 1_000_000


def world_of(rows):
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM s (at TIMESTAMP, k VARCHAR, v INTEGER, p DOUBLE) "
        "TIMESTAMP BY at DELAY 0 SECONDS"
    )
    pond.ingest(
        "s",
        [
            {"at": f"1970-01-01 00:00:{at:02d}", "k": k, "v": v, "p": p}
            for at, k, v, p in sorted(rows, key=lambda r: r[0])
        ],
    )
    return pond.world


W = "s [RANGE 5 SECONDS]"
INCREMENTAL = [
    f"SELECT k, v FROM {W} ORDER BY v DESC LIMIT 3",
    f"SELECT * FROM {W} ORDER BY p LIMIT 2",
    f"SELECT k FROM {W} ORDER BY v, p DESC NULLS FIRST LIMIT 2 OFFSET 1",
    f"SELECT v FROM {W} LIMIT 4",
    f"SELECT v FROM {W} ORDER BY v OFFSET 2",
    f"SELECT DISTINCT v FROM {W} ORDER BY v DESC LIMIT 2",
    f"SELECT k, COUNT(*) AS n FROM {W} GROUP BY k ORDER BY n DESC LIMIT 1",
    f"SELECT k FROM {W} GROUP BY k ORDER BY SUM(v) DESC, k LIMIT 2",
    f"SELECT upper(k) AS u FROM {W} ORDER BY v + 1, 1 LIMIT 3",
    f"SELECT COUNT(*) FROM (SELECT v FROM {W} ORDER BY v LIMIT 3) x WHERE v > 1",
    f"SELECT v FROM {W} UNION ALL SELECT v FROM s [NOW] ORDER BY v DESC LIMIT 3",
    f"SELECT v FROM {W} ORDER BY v LIMIT 0",
]


@pytest.mark.parametrize("text", INCREMENTAL)
@settings(max_examples=12)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 12),
            st.none() | st.sampled_from("abc"),
            st.none() | st.integers(0, 4),
            st.none() | st.sampled_from([0.5, -0.0, 0.0, 2.0]),
        ),
        min_size=1,
        max_size=25,
    ),
    cuts=st.lists(st.integers(0, 20), max_size=3, unique=True),
)
def test_the_first_rows_are_followed(text, rows, cuts):
    instants = [*(c * SECOND for c in sorted(cuts)), 60 * SECOND]
    plan = check_changes(world_of(rows), text, instants, pickled=True)
    assert plan.fallback is None, plan.fallback


@pytest.mark.parametrize("limit", ["LIMIT 20000", f"LIMIT {2**63 - 1} OFFSET 1", "OFFSET 1"])
def test_how_many_rows_does_not_matter(limit):
    rows = [(0, "a", 1, 0.5), (1, "b", 2, 0.5), (3, "b", 2, 0.5)]
    plan = check_changes(world_of(rows), f"SELECT v FROM {W} ORDER BY v {limit}", [60 * SECOND])
    assert plan.fallback is None, plan.fallback
