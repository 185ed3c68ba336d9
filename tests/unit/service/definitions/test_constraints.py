"""Constraints in a pond: checked, altered, kept; what joins hold by them, and what breaks them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

START = datetime(2026, 1, 1)
TABLES = """
CREATE STREAM orders (ts TIMESTAMP, id BIGINT, amount INTEGER, UNIQUE (ID)) TIMESTAMP BY ts;
CREATE STREAM parts (ts TIMESTAMP, id BIGINT, item INTEGER, CONSTRAINT c CLUSTERED BY (id))
  TIMESTAMP BY ts;
"""
SHIPPED = (
    "SELECT p.item, o.amount FROM parts [RANGE 1 DAY] p, orders [RANGE 1 DAY] o WHERE p.id = o.id"
)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store") as pond:
        pond.execute(TABLES)
        yield pond


def shown(pond: Pond) -> dict[str, dict[str, Any]]:
    (result,) = pond.execute("SHOW CONSTRAINTS")
    assert result.table is not None
    return {row["name"]: row for row in result.table.to_pylist()}


def ingest(pond: Pond, first: int, last: int) -> None:
    """Orders and their parts, one a second."""
    at = [START + timedelta(seconds=i) for i in range(first, last)]
    rows = range(first, last)
    pond.ingest("orders", [{"ts": t, "id": i, "amount": i} for i, t in zip(rows, at, strict=True)])
    pond.ingest("parts", [{"ts": t, "id": i, "item": i} for i, t in zip(rows, at, strict=True)])
    pond.catch_up()


def changes(pond: Pond) -> list[tuple[Any, ...]]:
    """The rows of all changes, without cursor, instant and sign."""
    return [tuple(row.values())[3:] for row in pond.query("q").fetch().table.to_pylist()]


def test_what_a_join_holds_is_shown_and_explained(pond: Pond) -> None:
    pond.register(SHIPPED, "q")
    assert shown(pond)["c"]["held"] is None
    pond.query("q").fetch()
    assert "rows by key, both sides, released by" in pond.explain("q", "rewritten")
    ingest(pond, 0, 400)
    assert len(changes(pond)) == 399
    unique, clustered = shown(pond)["unique_id"], shown(pond)["c"]
    assert (unique["held"], unique["without"], unique["violations"]) == (0, 399, 0)
    assert (clustered["held"], clustered["without"], clustered["observed"]) == (1, 399, "0 ROWS")
    assert "1 row held, 798 without" in pond.explain("q", "rewritten")


def test_what_nobody_declared_is_observed_and_used_until_it_is_broken(tmp_path: Path) -> None:
    """Both streams have more elements than are needed to see what they satisfy."""
    with open_local(tmp_path / "store") as pond:
        for name in ("orders", "parts"):
            pond.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, amount INTEGER, item INTEGER)"
                " TIMESTAMP BY ts"
            )
        pond.register("SELECT item, count(*) AS n FROM parts GROUP BY item", "before", follow=True)
        ingest(pond, 0, 1_500)
        pond.register(SHIPPED, "q")
        pond.query("q").fetch()
        assert "released by observed unique (id) of parts" in pond.explain("q", "rewritten")
        ingest(pond, 1_500, 2_500)
        found = pond.execute("SHOW CONSTRAINTS")[0].table.to_pylist()
        assert {row["name"] for row in found} == {
            "observed unique (id)",
            "observed ordered (id)",
            "observed foreign key (id) references orders",
            "observed foreign key (id) references parts",
        }
        assert all(row["held"] < 10 < row["without"] for row in found), found
        late = START + timedelta(seconds=9_000)
        pond.ingest("parts", [{"ts": late, "id": 7, "item": -7}, {"ts": late, "id": 8, "item": -8}])
        ingest(pond, 9_001, 9_100)
        ingest(pond, 9_101, 9_200)
        assert {(-7, 7), (-8, 8)} <= set(changes(pond))
        broken = {
            row["violations"] for row in pond.execute("SHOW CONSTRAINTS")[0].table.to_pylist()
        }
        assert broken == {0, 2}


def test_observed_references_release_what_a_selection_left_alone(tmp_path: Path) -> None:
    """Every part refers to an order that came: most of the orders are not selected."""
    with open_local(tmp_path / "store") as pond:
        for name in ("orders", "parts"):
            pond.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, amount INTEGER, item INTEGER)"
                " TIMESTAMP BY ts"
            )
        before = "SELECT item, count(*) AS n FROM parts GROUP BY item"
        pond.register(before, "before", follow=True)
        ingest(pond, 0, 1_500)
        pond.register(f"{SHIPPED} AND o.amount % 100 = 7", "q")
        pond.query("q").fetch()
        name = "observed foreign key (id) references orders"
        assert f"{name} of parts" in pond.explain("q", "rewritten")
        ingest(pond, 1_500, 2_500)
        found = shown(pond)[name]
        assert found["constraint"] == "FOREIGN KEY (id) REFERENCES orders WITHIN 0 ROWS"
        assert found["held"] < 64 < 2_000 < found["without"]
        assert found["violations"] == 0
        held = len(changes(pond))
        # An order comes long after its part, though every other one came in time.
        late, later = (START + timedelta(seconds=s) for s in (9_000, 9_050))
        pond.ingest("parts", [{"ts": late, "id": 100_007, "item": -7}])
        ingest(pond, 9_001, 9_040)
        pond.ingest("orders", [{"ts": later, "id": 100_007, "amount": 100_007}])
        ingest(pond, 9_101, 9_200)
        assert (-7, 100_007) in changes(pond)
        assert len(changes(pond)) == held + 3  # of 9,007, 9,107 and this one
        assert shown(pond)[name]["violations"] == 1
        ingest(pond, 9_201, 9_500)
        assert shown(pond)[name]["held"] > 290  # it is used no more


def test_keys_of_two_columns_are_observed_where_a_join_compares_them(tmp_path: Path) -> None:
    with open_local(tmp_path / "store") as pond:
        for name in ("orders", "parts"):
            pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, a INT, b INT) TIMESTAMP BY ts")
        pond.register("SELECT b FROM parts", "before", follow=True)

        def feed(first: int, last: int) -> None:
            at = [START + timedelta(seconds=i) for i in range(first, last)]
            rows = [
                {"ts": t, "a": i * 7 % 50, "b": i // 50}
                for i, t in zip(range(first, last), at, strict=True)
            ]
            pond.ingest("orders", rows)
            pond.ingest("parts", rows)
            pond.catch_up()

        feed(0, 1_500)
        join = "orders [RANGE 1 DAY] o, parts [RANGE 1 DAY] p WHERE o.a = p.a AND o.b = p.b"
        pond.register(f"SELECT p.a, p.b FROM {join}", "q")
        pond.query("q").fetch()
        assert "released by" in pond.explain("q", "rewritten")
        feed(1_500, 2_500)
        found = shown(pond)["observed unique (a, b)"]
        assert (found["constraint"], found["violations"]) == ("UNIQUE (a, b)", 0)
        assert found["held"] < 64 < 900 < found["without"]
        count = len(changes(pond))
        late = START + timedelta(seconds=2_600)
        pond.ingest("parts", [{"ts": late, "a": 7, "b": 1}])  # once more
        feed(2_701, 2_703)
        feed(2_703, 2_900)
        assert (7, 1) in changes(pond)[count:]
        # The key was forgotten; that its row had to be read back says that it came twice.
        assert shown(pond)["observed unique (a, b)"]["held"] > 190


def test_what_breaks_them_is_answered(pond: Pond) -> None:
    pond.register(SHIPPED, "q")
    pond.query("q").fetch()
    ingest(pond, 0, 300)
    late = START + timedelta(seconds=400)
    pond.ingest("parts", [{"ts": late, "id": 7, "item": -7}])
    pond.ingest("orders", [{"ts": late, "id": 9, "amount": -9}])
    ingest(pond, 500, 502)
    assert set(changes(pond)) >= {(-7, 7), (9, -9)}
    assert len(changes(pond)) == 303


def test_altered_constraints_hold_at_once_and_stay(tmp_path: Path) -> None:
    with open_local(tmp_path / "store") as pond:
        pond.execute(TABLES)
        pond.execute("ALTER STREAM orders DROP CONSTRAINT unique_id")
        pond.execute("ALTER STREAM parts DROP CONSTRAINT C")
        assert shown(pond) == {}
        pond.register(SHIPPED, "q")
        pond.query("q").fetch()
        ingest(pond, 0, 200)
        assert "released" not in pond.explain("q", "rewritten")
        pond.execute("ALTER STREAM orders ADD CONSTRAINT one UNIQUE (id)")
        ingest(pond, 200, 300)
        assert shown(pond)["one"]["held"] == 0
        count = len(changes(pond))
    with open_local(tmp_path / "store") as pond:
        ingest(pond, 300, 301)
        assert shown(pond)["one"]["constraint"] == "UNIQUE (id)"
        assert shown(pond)["one"]["held"] < 64
        assert len(changes(pond)) == count + 1


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER STREAM parts ADD CONSTRAINT c UNIQUE (item)", "CQL-208"),
        ("ALTER STREAM parts ADD UNIQUE (id, none)", "CQL-202"),
        ("ALTER STREAM parts ADD CONSTRAINT k FOREIGN KEY (id) REFERENCES q", "CQL-201"),
        ("ALTER STREAM parts ADD CONSTRAINT k FOREIGN KEY (id) REFERENCES parts", "CQL-216"),
        ("ALTER STREAM parts ADD CONSTRAINT k FOREIGN KEY (id, item) REFERENCES orders", "CQL-216"),
        ("ALTER STREAM parts DROP CONSTRAINT k", "CQL-201"),
        ("ALTER STREAM none ADD UNIQUE (id)", "CQL-201"),
        ("CREATE STREAM s (v DOUBLE, CONSTRAINT o ORDERED BY (v))", "CQL-301"),
        ("CREATE STREAM s (v INT, UNIQUE (v), UNIQUE (v))", "CQL-208"),
        ("CREATE STREAM s (v INT, CONSTRAINT o ORDERED BY (v) WITHIN -1 ROWS)", "CQL-103"),
        ("CREATE STREAM s (v INT, CONSTRAINT o ORDERED BY (v) WITHIN 2000000 ROWS)", "CQL-103"),
        ("CREATE STREAM s (v INT, w INT, CONSTRAINT o ORDERED BY (v, w))", "CQL-103"),
    ],
)
def test_what_cannot_be_a_constraint_is_refused(pond: Pond, statement: str, code: str) -> None:
    with pytest.raises(MillpondError) as error:
        pond.execute(statement)
    assert error.value.code == code
    assert set(shown(pond)) == {"c", "unique_id"}


def test_a_stream_may_refer_to_itself(pond: Pond) -> None:
    text = "CREATE STREAM s (v INT, w INT, UNIQUE (v), CONSTRAINT k FOREIGN KEY (w) REFERENCES S)"
    pond.execute(text)
    assert shown(pond)["k"]["constraint"] == "FOREIGN KEY (w) REFERENCES S WITHIN 0 ROWS"


def test_clusters_of_two_columns_are_observed_where_a_grouping_groups_by_them(
    tmp_path: Path,
) -> None:
    """Neither column is clustered alone; each pair comes four times in a row."""

    def push(pond: Pond, first: int, last: int) -> None:
        at = [START + timedelta(seconds=i) for i in range(first, last)]
        rows = zip(range(first, last), at, strict=True)
        pond.ingest("w", [{"ts": t, "a": i // 4 % 40, "b": i // 160, "v": i} for i, t in rows])
        pond.catch_up()

    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM w (ts TIMESTAMP, a BIGINT, b BIGINT, v BIGINT) TIMESTAMP BY ts")
        push(pond, 0, 8_000)
        pond.register("SELECT a, b, sum(v) AS t FROM w GROUP BY a, b", "q", strategy="aware")
        pond.query("q").fetch()
        push(pond, 8_000, 8_400)
        found = [tuple(row.values())[2:] for row in pond.query("q").fetch().table.to_pylist()]
        assert ("+", 2_098 % 40, 52, sum(range(8_392, 8_396))) in found
        assert "released by observed clustered (a, b) of w" in pond.explain("q", "rewritten")
        listed = shown(pond)["observed clustered (a, b)"]
        assert listed["held"] < 110 < 2_000 < listed["without"]  # the last step's, till the next
