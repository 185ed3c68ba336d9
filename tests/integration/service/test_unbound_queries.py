"""A stored text that does not bind any more stops nothing but what it says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.planner.bind import bind
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

SCHEMA = """
CREATE STREAM f (ts TIMESTAMP, t STRING, n BIGINT) TIMESTAMP BY ts RETAIN 1 MINUTE;
CREATE RELATION r (t STRING, n BIGINT, PRIMARY KEY (t));
CREATE RELATION c (ts TIMESTAMP, t STRING, n BIGINT, PRIMARY KEY (t)) TIMESTAMP BY ts USING push;
CREATE SUMMARY s ON f (n) WITH GRANULARITY INTERVAL 1 MINUTE AND COLLAPSE (4, 6);
CREATE QUERY fine AS SELECT count(*) AS n FROM f;
CREATE QUERY fine_changes WITH (follow = true) AS SELECT n FROM f [RANGE 1 MINUTE] WHERE n > 1;
"""

#: What is registered, with `gone` and what derives from it.
KINDS = {
    "selection": "CREATE QUERY gone AS SELECT lower(t) AS l FROM f [RANGE 1 MINUTE]",
    "predicate": "CREATE QUERY gone AS SELECT n FROM f WHERE lower(t) = 'a'",
    "aggregate": "CREATE QUERY gone AS SELECT sum(n) AS n FROM f WHERE lower(t) <> 'x'",
    "eager": "CREATE QUERY gone WITH (materialize = 'eager') AS SELECT max(lower(t)) AS m FROM f",
    "followed": "CREATE QUERY gone WITH (follow = true) AS SELECT lower(t) AS l FROM f",
    "inactive": "CREATE QUERY gone WITH (active = false) AS SELECT lower(t) AS l FROM f",
    "join": "CREATE QUERY gone AS SELECT a.n FROM f a, f b WHERE a.n = b.n AND lower(a.t) = b.t",
    "relation": "CREATE QUERY gone AS SELECT count(*) AS n FROM r WHERE lower(t) = 'a'",
    "stream and relation": "CREATE QUERY gone AS SELECT f.n FROM f JOIN r ON lower(f.t) = r.t",
    "fed relation": "CREATE QUERY gone AS SELECT lower(t) AS l FROM c",
    "subquery": "CREATE QUERY gone AS SELECT n FROM f WHERE n IN"
    " (SELECT n FROM r WHERE lower(t) = 'a')",
    "query in FROM": "CREATE QUERY gone AS SELECT count(*) AS n"
    " FROM (SELECT ts, lower(t) AS l FROM f) [RANGE 1 MINUTE]",
    "stream-valued": "CREATE QUERY gone WITH (follow = true) AS"
    " ISTREAM(SELECT lower(t) AS l FROM f [RANGE 1 MINUTE])",
    "preference": "CREATE QUERY gone AS SELECT n FROM f WHERE lower(t) <> 'x'"
    " WITH PREFERENCE ASC SUMMARY(s).ESTIMATE.COUNT(n)",
    "over a derived relation": "CREATE RELATION v AS SELECT lower(t) AS l FROM f;"
    " CREATE QUERY gone AS SELECT count(*) AS n FROM v",
    "over a derived stream": "CREATE STREAM d AS SELECT ts, t FROM f;"
    " CREATE QUERY gone AS SELECT lower(t) AS l FROM d",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Exception]], None]:
    """Forbid what bound so far, as an upgrade may: calls of lower()."""
    real = bind.check_functions

    def install(kind: type[Exception] = MillpondError) -> None:
        def check(each: Any, sql: str, *rest: Any) -> None:
            if "lower(" in sql.lower():
                if kind is MillpondError:
                    raise MillpondError("CQL-212", "no function lower() any more")
                raise kind("lower")
            real(each, sql, *rest)

        monkeypatch.setattr(bind, "check_functions", check)

    return install


def fill(pond: Pond, minute: int) -> None:
    rows = [{"ts": f"2026-03-01 00:{minute:02}:0{s}", "t": "A", "n": s} for s in range(4)]
    pond.ingest("f", rows)
    pond.ingest("c$changes", [{"ts": rows[0]["ts"], "t": "A", "n": 1}])
    pond.catch_up(timeout=60)
    pond.wait_until_matched(timeout=60)


def check_that_all_else_goes_on(pond: Pond, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        fill(pond, 5)
        fill(pond, 9)
    assert [r.message for r in caplog.records if "failed" in r.message] == []
    assert pond.query("fine").invoke().rows() == [(12,)]
    assert [c.row for c in pond.query("fine_changes").fetch() if c.sign == "+"] == [
        *[(2,), (3,)] * 2,
        (2,),  # the last instant is not final
    ]
    pond.register("SELECT n FROM f WHERE n = 2", name="new")
    assert pond.query("new").invoke().rows() == [(2,), (2,), (2,)]
    pond.status()


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, MillpondError) for name in KINDS), ("predicate", ValueError), ("followed", KeyError)],
)
def test_a_query_that_does_not_bind_is_suspended_alone(
    store: Path,
    upgrade: Callable[[type[Exception]], None],
    caplog: pytest.LogCaptureFixture,
    name: str,
    kind: type[Exception],
) -> None:
    with open_local(store) as pond:
        pond.execute(SCHEMA + KINDS[name])
        pond.execute("INSERT INTO r VALUES ('a', 1)")
        fill(pond, 1)
    upgrade(kind)
    with open_local(store) as pond:
        check_that_all_else_goes_on(pond, caplog)
        gone = pond.query("gone")
        with pytest.raises(MillpondError, match="POND-402") as raised:
            gone.invoke()
        assert "It cannot be bound any more" in str(raised.value.detail)
        assert "lower" in str(raised.value.detail)
        (listed,) = pond.queries(state="suspended")
        assert listed.name == "gone"
        (table,) = pond.execute("SHOW QUERIES")
        assert table.table is not None
        assert "cannot be bound any more" in str(table.table.to_pydict())
        assert gone.describe()["suspended"] == listed.suspended
        gone.alter(owner="somebody")
        assert gone.describe()["options"]["owner"] == "somebody"
        with pytest.raises(Exception, match="lower"):
            gone.alter(active=True)
    with open_local(store) as pond:
        assert [q.name for q in pond.queries(state="suspended")] == ["gone"]
        pond.execute("DROP QUERY gone")
        assert pond.query("fine").invoke().rows() == [(12,)]


@pytest.mark.parametrize("name", KINDS)
def test_it_goes_on_when_it_binds_again(
    store: Path,
    upgrade: Callable[[type[Exception]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    def answers(pond: Pond) -> Any:
        query = pond.query("gone")
        if query.definition.options.get("follow"):
            return [(c.sign, c.timestamp, c.row) for c in query.fetch()]
        if not query.definition.active:
            return None
        return query.invoke().rows()

    with open_local(store) as pond:
        pond.execute(SCHEMA.replace(" RETAIN 1 MINUTE", "") + KINDS[name])
        pond.execute("INSERT INTO r VALUES ('a', 1)")
        for minute in (1, 5, 9):
            fill(pond, minute)
        wanted = answers(pond)
    store.rename(store.parent / "first")
    with open_local(store) as pond:
        pond.execute(SCHEMA + KINDS[name])
        pond.execute("INSERT INTO r VALUES ('a', 1)")
        fill(pond, 1)
    upgrade(MillpondError)
    with open_local(store) as pond:
        check_that_all_else_goes_on(pond, caplog)
    monkeypatch.undo()
    with open_local(store) as pond:
        pond.wait_until_matched(timeout=60)
        assert pond.queries(state="suspended") == []
        assert answers(pond) == wanted


def test_a_derived_stream_that_does_not_bind_stands_still_alone(
    store: Path, upgrade: Callable[[type[Exception]], None], caplog: pytest.LogCaptureFixture
) -> None:
    with open_local(store) as pond:
        pond.execute(SCHEMA)
        pond.execute(
            "CREATE STREAM d AS SELECT ts, lower(t) AS l FROM f;"
            "CREATE QUERY over AS SELECT count(*) AS n FROM d;"
            "CREATE QUERY above WITH (follow = true) AS SELECT l FROM d"
        )
        fill(pond, 1)
    upgrade(MillpondError)
    with open_local(store) as pond:
        with caplog.at_level(logging.WARNING):
            fill(pond, 5)
        assert [r.message for r in caplog.records if "maintenance failed" in r.message] == []
        assert pond.query("fine").invoke().rows() == [(8,)]
        with pytest.raises(MillpondError, match='POND-406: stream "d" has stopped'):
            pond.query("over").invoke()
        assert pond.query("over").invoke("2026-03-01 00:01:02").rows() == [(3,)]
        assert len(pond.query("above").fetch()) == 3
        (shown,) = pond.execute("SHOW STREAMS")
        assert shown.table is not None
        assert shown.table.to_pydict()["state"] == ["running", "running", "stopped"]
        assert "lower" in str(pond.status()["problems"])
        pond.execute("DROP QUERY over; DROP QUERY above; DROP STREAM d")
        fill(pond, 9)
        assert pond.query("fine").invoke().rows() == [(12,)]
