"""A query inside a window's WHERE is moved behind the window, which counts by hidden columns."""

from __future__ import annotations

import pytest

from millpond.testing.local_runtime import open_local

PREDICATE = "v IN (SELECT v FROM r)"
#: A window, and what its FROM item becomes.
MOVED = {
    "[NOW WHERE {}]": "(SELECT * FROM leaf_0 AS s WHERE {})",
    "[RANGE 1 HOUR WHERE {}]": "(SELECT * FROM leaf_0 AS s WHERE {})",
    "[ROWS 2 WHERE {}]": "(SELECT * EXCLUDE (__ts_leaf_0, __seq_leaf_0) FROM leaf_0 AS s WHERE {}"
    " QUALIFY row_number() OVER (ORDER BY __ts_leaf_0 DESC, __seq_leaf_0 DESC) <= 2)",
    "[PARTITION BY k ROWS 2 WHERE {}]": "(SELECT * EXCLUDE (__ts_leaf_0, __seq_leaf_0)"
    " FROM leaf_0 AS s WHERE {} QUALIFY row_number() OVER"
    " (PARTITION BY k ORDER BY __ts_leaf_0 DESC, __seq_leaf_0 DESC) <= 2)",
}


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with open_local(tmp_path_factory.mktemp("windows") / "store") as pond:
        pond.execute("CREATE STREAM s (k STRING, v INTEGER); CREATE RELATION r (v INTEGER)")
        return {
            window: pond.explain(f"SELECT v FROM s {window.format(PREDICATE)}", "rewritten")
            for window in MOVED
        }


@pytest.mark.parametrize("window", MOVED)
def test_the_predicate_is_behind_the_window(rewritten: dict[str, str], window: str) -> None:
    within = MOVED[window].format("v IN (SELECT v FROM rel_0 AS r)")
    assert within in " ".join(rewritten[window].split())
