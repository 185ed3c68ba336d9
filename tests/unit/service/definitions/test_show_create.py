"""SHOW CREATE: what it gives makes an equal object; and IF NOT EXISTS, which compares with it."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from tests.unit.catalog.test_options import KEPT

from millpond.catalog.option import Scope
from millpond.catalog.options import list_options
from millpond.cql import parse_script
from millpond.cql.tree.statements import Created
from millpond.errors import MillpondError
from millpond.service.pond import Pond

CREATED = {
    "stream s": """CREATE STREAM s (ts TIMESTAMP, v INT NOT NULL, w DOUBLE AS (v / 2))
        TIMESTAMP BY ts DELAY 5 SECONDS IDLE AFTER '30 s' AHEAD UNBOUNDED RETAIN 7 ROWS
        WITH (overload = 'shed random')""",
    "stream arrivals": "CREATE STREAM arrivals (a INT) RETAIN INTERVAL 2 DAYS",
    "relation r": 'CREATE NON RETROACTIVE RELATION r (k STRING, "a b" INT, PRIMARY KEY (k))',
    "relation fed": """CREATE RELATION fed (at TIMESTAMP, k INT, PRIMARY KEY (k)) TIMESTAMP BY at
        USING push OPTIONS (op_column 'op')""",
    "stream d": "CREATE STREAM d (x) AS ISTREAM(SELECT v FROM s [ROWS 3])",
    "relation view": "CREATE RELATION view AS SELECT x FROM d WHERE x > 1",
    "summary y": """CREATE SUMMARY y ON s (v) WITH GRANULARITY 1 MINUTE AND COLLAPSE (4, 6)
        USING HISTOGRAM MEMORY '2 MB'""",
    "query q": """CREATE QUERY q WITH (weight = 2, tags = 'b, a', comment = 'it''s')
        AS SELECT v FROM s [RANGE 1 HOUR] -- of it
        WHERE v > 1""",
    "sink k": """CREATE SINK k USING http (url 'http://127.0.0.1:9/', key_env 'MILLPOND_SHOW_KEY',
        active false) FROM QUERY q""",
    "sink tagged": """CREATE SINK tagged USING http (url 'http://127.0.0.1:9/', active false,
        key_env 'MILLPOND_SHOW_KEY') FROM QUERIES TAGGED x""",
    "sink owned": """CREATE SINK owned USING http (url 'http://127.0.0.1:9/', active false,
        key_env 'MILLPOND_SHOW_KEY') FROM QUERIES OF OWNER 'ann'""",
}


@pytest.fixture
def full(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> Pond:
    monkeypatch.setenv("MILLPOND_SHOW_KEY", "0123456789abcdef")
    pond.execute(";".join(CREATED.values()))
    return pond


def show_create(pond: Pond, what: str) -> str:
    (result,) = pond.execute(f"SHOW CREATE {what}")
    assert result.text is not None
    return result.text


def describe(pond: Pond, name: str) -> dict[str, Any]:
    (result,) = pond.execute(f"DESCRIBE {name}")
    assert result.facts is not None
    return result.facts


def test_what_it_gives_makes_the_same(full: Pond) -> None:
    shown = {what: show_create(full, what) for what in CREATED}
    for what in reversed(list(CREATED)):
        full.execute(f"DROP {what}")
    full.execute("".join(shown.values()))
    assert {what: show_create(full, what) for what in CREATED} == shown


def test_a_statement_that_is_run_again_says_that_it_is_there(full: Pond) -> None:
    for what, statement in CREATED.items():
        kind = what.split()[0]
        again = statement.replace(f" {kind.upper()} ", f" {kind.upper()} IF NOT EXISTS ", 1)
        (done,) = full.execute(again)
        assert done.message == f"{what}: is there already"


@pytest.mark.parametrize("words", ["{} IF NOT EXISTS", "OR REPLACE {}"])
def test_a_script_that_is_run_twice_is_harmless(full: Pond, words: str) -> None:
    """Every kind of CREATE statement; those that have no OR REPLACE say IF NOT EXISTS."""
    script = []
    for what, statement in CREATED.items():
        kind = what.split()[0].upper()
        said = words.format(kind) if kind == "QUERY" else f"{kind} IF NOT EXISTS"
        script.append(statement.replace(f"{kind} ", f"{said} ", 1))
    parsed = parse_script("; ".join(script))
    assert {type(statement) for statement in parsed} == set(get_args(Created))
    full.ingest("s", [{"ts": "2026-03-01 00:00:00", "v": 5}])
    full.catch_up()
    cursor, shown = full.query("q").fetch().cursor, {w: show_create(full, w) for w in CREATED}
    epoch = full.status()["epoch"]
    full.execute("; ".join(script))
    assert full.status()["epoch"] == epoch
    assert {what: show_create(full, what) for what in CREATED} == shown
    assert full.query("q").fetch(cursor).cursor == cursor


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM IF NOT EXISTS arrivals (a INT) RETAIN INTERVAL 3 DAYS",
        "CREATE STREAM IF NOT EXISTS arrivals (a INT) RETAIN INTERVAL 2 DAYS USING csv",
        "CREATE STREAM IF NOT EXISTS d AS SELECT * FROM s",
        "CREATE STREAM IF NOT EXISTS s (v INT)",
        "CREATE RELATION IF NOT EXISTS r (k STRING)",
        "CREATE RELATION IF NOT EXISTS fed (k INT)",
        "CREATE RELATION IF NOT EXISTS view AS SELECT x FROM d",
        "CREATE QUERY IF NOT EXISTS q AS SELECT v FROM s [RANGE 1 HOUR] WHERE v > 1",
        "CREATE SINK IF NOT EXISTS tagged USING http (url 'http://127.0.0.1:9/') FROM QUERY q",
        "CREATE SUMMARY IF NOT EXISTS y ON s (v) WITH GRANULARITY 1 DAY AND COLLAPSE (4, 6)",
    ],
)
def test_what_is_there_and_otherwise_stays_and_is_said(full: Pond, statement: str) -> None:
    shown = {what: show_create(full, what) for what in CREATED}
    (done,) = full.execute(statement)
    assert done.message is not None
    assert done.message.endswith(": is there already, and otherwise: see SHOW CREATE")
    assert {what: show_create(full, what) for what in CREATED} == shown


def test_what_was_altered_is_shown(full: Pond) -> None:
    full.execute("ALTER STREAM s SET (overload = 'block'); ALTER QUERY q SET (active = false)")
    assert "overload" not in show_create(full, "stream s")
    full.execute("ALTER STREAM s ADD CONSTRAINT c UNIQUE (v)")
    assert "w DOUBLE AS (v / 2), CONSTRAINT c UNIQUE (v))" in show_create(full, "stream s")
    full.execute("ALTER STREAM fed$changes SET (delay = '5 s')")
    assert "TIMESTAMP BY at DELAY INTERVAL 5 SECONDS USING" in show_create(full, "relation fed")
    assert "active = FALSE" in show_create(full, "query q")


def literal(value: Any) -> str:
    """Write a value of an option in CQL: of several values a text with commas."""
    if isinstance(value, bool | int | float):
        return str(value)
    text = ", ".join(value) if isinstance(value, list | tuple) else str(value)
    return "'" + text.replace("'", "''") + "'"


def test_every_option_is_shown_and_described(full: Pond) -> None:
    """Those of queries and of declared streams; what is altered last counts."""
    altered = {
        "overload": "shed random",
        "delay": "1 minute",
        "idle_after": "30 s",
        "ahead": "unbounded",
        "retain": "7 rows",
    }
    assert altered.keys() == {*list_options(Scope.INPUT), *list_options(Scope.CLAUSE)}
    full.execute("CREATE STREAM bare (ts TIMESTAMP) TIMESTAMP BY ts")
    for name, value in altered.items():
        before = show_create(full, "stream bare"), describe(full, "bare")
        full.execute(f"ALTER STREAM bare SET ({name} = {literal(value)})")
        assert show_create(full, "stream bare") != before[0], name
        assert describe(full, "bare") != before[1], name
    for name in list_options(Scope.QUERY):
        given = KEPT[name][0][0]
        full.execute(f"CREATE QUERY one WITH ({name} = {literal(given)}) AS SELECT v FROM s")
        assert f"WITH ({name} = " in show_create(full, "query one"), name
        assert name in describe(full, "one"), name
        full.execute("DROP QUERY one")


@pytest.mark.parametrize("what", CREATED)
def test_every_kind_of_object_is_described(full: Pond, what: str) -> None:
    kind, name = what.split()
    assert kind in describe(full, name)["kind"]


@pytest.mark.parametrize(
    "what", ["stream system$actions", "stream s$rejects", "stream fed$changes"]
)
def test_what_no_statement_creates_has_none(full: Pond, what: str) -> None:
    with pytest.raises(MillpondError, match="CQL-216"):
        full.execute(f"SHOW CREATE {what}")


def test_two_that_create_the_same_at_once_find_one(
    full: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the creation somebody else creates it."""
    registrar = full._components.registrar
    register = registrar.register

    def be_late(requests: object) -> object:
        monkeypatch.setattr(registrar, "register", register)
        full.execute("CREATE QUERY late AS SELECT v FROM s")
        return register(requests)  # type: ignore[arg-type]

    monkeypatch.setattr(registrar, "register", be_late)
    (done,) = full.execute("CREATE QUERY IF NOT EXISTS late AS SELECT v FROM s")
    assert done.message == "query late: is there already"
