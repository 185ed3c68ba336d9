"""EXPLAIN of a running pond: what is shared, what is stored, and what was measured."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import components_of, rows

from millpond.service.pond import Pond


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE RELATION view AS SELECT v FROM s WHERE v > 3"
    )
    pond.register("SELECT v FROM s WHERE v > 1", "q")
    return pond


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def test_a_leaf_says_who_shares_it_and_what_is_stored(pond: Pond) -> None:
    pond.register("SELECT ts FROM s WHERE v > 1", "same")
    pond.register("SELECT v FROM s WHERE v > 2", "other")
    pond.ingest("s", rows(1, 2, 3, 4))
    pond.wait_until_matched()
    shared = lines(pond.query("q").plan("shared"))
    assert {"query: q", "slot: 0", "shared by: 2", "segments: 1", "matched segments: 1"} <= {
        *shared
    }
    assert "slot: 1" in lines(pond.query("other").plan("shared"))
    runtime = lines(pond.query("q").plan("runtime"))
    assert "matches: 2" in runtime
    assert "rate: 4 elements/s" in runtime
    assert not any(line.startswith("rate") for line in shared)


def test_segments_that_lack_matches_are_not_counted(pond: Pond) -> None:
    components_of(pond).maintenance.stop()
    pond.ingest("s", rows(1, 2))
    pond.register("SELECT v FROM s WHERE v > 0", "late")
    shown = lines(pond.query("late").plan("shared"))
    assert {"segments: 1", "matched segments: 0"} <= {*shown}
    assert "matches: 0" in lines(pond.query("late").plan("runtime"))


def test_changes_are_explained_once_somebody_follows(pond: Pond) -> None:
    assert "changes" not in pond.query("q").plan("shared")
    pond.query("q").fetch()
    pond.ingest("s", rows(1, 2, 3, 4))
    pond.query("q").fetch()
    shown = pond.query("q").plan("shared")
    # The element at 4 is not final.
    assert "changes: 1 up to 1970-01-01 00:00:03.999999" in lines(shown)
    assert "\nchanges (incremental, at every heartbeat, strategy aware)\n" in shown
    assert "µs/s" not in shown
    assert "µs/s more than runs without it" in pond.query("q").plan("runtime")
    assert "incremental" not in pond.query("q").plan("logical")


def test_who_waits_for_expirations_says_so(pond: Pond) -> None:
    pond.register("SELECT v FROM s [RANGE 1 HOUR]", "w", eager_expiration="5 seconds")
    pond.query("w").fetch()
    assert "for expirations alone within 5 SECONDS" in pond.query("w").plan("shared")


def test_operators_say_which_queries_read_them(pond: Pond) -> None:
    for name in ("one", "two"):
        pond.register("SELECT DISTINCT v FROM s [RANGE 1 HOUR]", name)
        pond.query(name).fetch()
    shown = pond.query("one").plan("shared")
    assert "two" in shown
    pond.register("SELECT DISTINCT v FROM s [RANGE 1 HOUR]", "apart", eager_expiration="1 second")
    pond.query("apart").fetch()
    assert "apart" not in pond.query("one").plan("shared")


def test_streams_and_views_have_plans_and_other_objects_none(pond: Pond) -> None:
    pond.execute("CREATE STREAM d AS SELECT v FROM s WHERE v > 5; CREATE RELATION r (v INTEGER)")
    parts = components_of(pond)
    version = parts.log.version
    explainer = pond._explainer
    assert "istream (incremental" in (explainer.explain_object(version.find("d"), "shared") or "")
    assert "v > 3" in (explainer.explain_object(version.find("view"), "logical") or "")
    for name in ("s", "r", "nothing"):
        assert explainer.explain_object(version.find(name), "logical") is None


def test_a_stream_valued_query_is_its_changes(pond: Pond) -> None:
    text = "ISTREAM(SELECT v FROM s WHERE v > 1)"
    assert pond.explain(text, "rewritten").startswith("istream (incremental, at every heartbeat")
    pond.register(text, "i")
    assert pond.query("i").plan("shared").startswith("query: i\nistream (incremental")


def test_kept_answers_and_functions_have_figures_at_run_time(pond: Pond) -> None:
    pond.function("same", lambda x: x, arguments=["INTEGER"], returns="INTEGER")
    pond.register("SELECT same(v) AS w FROM s", "kept", materialize="eager")
    pond.ingest("s", rows(1))
    components_of(pond).refresher.wait_until_idle(20)
    runtime = pond.query("kept").plan("runtime")
    assert "kept answer" in runtime
    assert "functions" in runtime
    shared = pond.query("kept").plan("shared")
    assert "kept answer" not in shared
    assert "functions" not in shared


def test_all_together_is_by_streams(pond: Pond) -> None:
    pond.execute("CREATE STREAM t (v INTEGER)")
    pond.ingest("s", rows(1, 2))
    shown = lines(pond.shared_plan())
    first, second = shown.index("stream s"), shown.index("stream t")
    assert shown[first + 1] == "2 elements, 2 elements/s, 1 segment"
    assert shown[first + 2] == "query stem: 1 predicate of 1 query"
    assert shown[second + 1] == "0 elements, 0 elements/s, 0 segments"
    assert shown[second + 2] == "query stem: 0 predicates of 0 queries"
    assert "relation view: deltas 0, rows 0, bytes 0" in shown


def test_a_query_followed_in_parts_says_its_budget_and_its_steps(pond: Pond) -> None:
    """And none of the operators of the exact changes, which nothing runs."""
    shape = "WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 3)"
    pond.execute(f"CREATE SUMMARY y ON s (v) {shape}")
    text = "WITH PREFERENCE ASC SUMMARY(y).ESTIMATE.COUNT(v) FADE FACTOR 0.5 BUDGET '0.5 probes'"
    some = pond.register(f"SELECT v FROM s [RANGE 20 SECONDS] WHERE v > 2 {text}")
    some.fetch()
    for level in ("logical", "rewritten", "shared", "runtime"):
        said = pond.explain(some.name, level)
        assert "by regions of y, faded by 0.5, 0.5 probes for each element" in said
        assert "incremental" not in said
        if level in ("shared", "runtime"):
            assert "changes (in parts, in steps of 1 SECOND, 0.5 probes for each element)" in said
            assert "match what is looked at with the Query SteM" in said
    pond.query("q").fetch()
    assert "incremental" in pond.explain("q", "shared")
