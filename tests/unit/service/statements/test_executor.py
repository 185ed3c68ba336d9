"""Statements: what each gives back, what DROP refuses, and that errors carry their text."""

from __future__ import annotations

import threading

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.service.results import StatementResult


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE RELATION r (v INTEGER);"
        "INSERT INTO s VALUES (TIMESTAMP '1970-01-01 00:00:01', 7)"
    )
    return pond


def run(pond: Pond, statement: str) -> StatementResult:
    (result,) = pond.execute(statement)
    return result


def test_a_query_lives_from_create_to_drop(pond: Pond) -> None:
    assert run(pond, "CREATE QUERY q AS SELECT v FROM s").message == "query q: registered"
    found = run(pond, "INVOKE Q")
    assert found.answer is not None
    assert (found.name, found.answer.rows()) == ("q", [(7,)])
    early = run(pond, "INVOKE q AT TIMESTAMP '1970-01-01 00:00:00.5'").answer
    assert early is not None
    assert early.rows() == []
    assert run(pond, "ALTER QUERY q SET (weight = 2)").message == "query q: altered"
    assert pond.query("q").definition.options == {"weight": 2}
    described = run(pond, "DESCRIBE q").table
    assert described is not None
    assert described.to_pylist() == [{"column": "v", "type": "INTEGER"}]
    assert run(pond, "DROP QUERY q").message == "query q: dropped"
    with pytest.raises(MillpondError, match="CQL-201"):
        run(pond, "INVOKE q")


def test_what_is_asked_once_is_answered(pond: Pond) -> None:
    found = run(pond, "SELECT v + 1 AS w FROM s").answer
    assert found is not None
    assert (found.columns, found.rows()) == (["w"], [(8,)])


def test_changes_are_fetched_by_cursor(pond: Pond) -> None:
    pond.register("SELECT v FROM s", "q", changes="from beginning")
    run(pond, "HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    found = run(pond, "FETCH q").changes
    assert found is not None
    assert found.rows() == [(1, 1_000_000, "+", 7)]
    later = run(pond, "FETCH q AFTER 1 LIMIT 5").changes
    assert later is not None
    assert len(later) == 0
    with pytest.raises(MillpondError, match='CQL-216: stream "s" is not derived'):
        run(pond, "FETCH s")


def test_derived_objects_are_made_of_queries(pond: Pond) -> None:
    assert run(pond, "CREATE STREAM d AS SELECT v FROM s").message == "stream d: created"
    assert run(pond, "CREATE RELATION w AS SELECT v FROM s").message == "relation w: created"
    with pytest.raises(MillpondError, match="CQL-208"):
        run(pond, "CREATE STREAM W AS SELECT v FROM s")
    with pytest.raises(MillpondError, match="CQL-222"):
        run(pond, "CREATE STREAM e AS SELECT count(*) AS n FROM s")
    with pytest.raises(MillpondError, match="CQL-216"):
        run(pond, "CREATE RELATION x AS ISTREAM(SELECT v FROM s)")
    assert run(pond, "ALTER STREAM d SET (active = true)").message == "stream d: goes on"


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        (
            "DROP STREAM s",
            "POND-401",
            "4 definitions read it: query q, stream d, relation w, ",
        ),
        ("DROP STREAM d", "POND-401", "1 definition reads it: query over_d."),
        ("DROP STREAM r", "CQL-216", '"r" is not a stream'),
        ("DROP RELATION d", "CQL-216", '"d" is not a relation'),
        ("DROP QUERY s", "CQL-216", '"s" is not a query'),
        ("DROP STREAM q", "CQL-216", '"q" is not a stream'),
        ("DROP STREAM s$rejects", "CQL-216", "is not a stream"),
        ("DROP STREAM t", "CQL-201", 'no stream or relation "t"'),
        ("DROP SUMMARY s", "CQL-201", "SHOW SUMMARIES lists them."),
        ("DROP QUERY nothing", "CQL-201", "nothing"),
        ("DESCRIBE t", "CQL-201", 'no stream or relation "t"'),
        ("EXPLAIN nothing", "CQL-201", "nothing"),
        ("ALTER STREAM d SET (active = false)", "CQL-214", "goes on"),
    ],
)
def test_what_is_refused(pond: Pond, statement: str, code: str, words: str) -> None:
    pond.execute(
        "CREATE QUERY q AS SELECT v FROM s; CREATE STREAM d AS SELECT v FROM s;"
        "CREATE RELATION w AS SELECT v FROM s; CREATE QUERY over_d AS SELECT v FROM d"
    )
    with pytest.raises(MillpondError) as failure:
        pond.execute(statement)
    assert failure.value.code == code
    assert words in str(failure.value)
    assert failure.value.text == statement
    assert failure.value.span is not None


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nothere", "CQL-201", 'no stream "nothere"'),
        ("ss", "CQL-201", 'Did you mean "s"?'),
        ("r", "CQL-216", '"r" is a relation, not a stream'),
        ("q", "CQL-216", '"q" is a query, not a stream'),
        ("s$rejects", "CQL-216", '"s$rejects" is written by Millpond itself'),
    ],
)
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER STREAM {} SET (delay = '1 s')",
        "ALTER STREAM {} SET (active = true)",
        "ALTER STREAM {} ADD COLUMN IF NOT EXISTS a INTEGER",
        "ALTER STREAM {} ADD UNIQUE (v)",
        "ALTER STREAM {} DROP CONSTRAINT c",
        "ALTER STREAM {} RESET CLOCK TO TIMESTAMP '2024-01-01 00:00:00'",
        "HEARTBEAT {} AT TIMESTAMP '2024-01-01 00:00:00'",
    ],
)
def test_what_is_no_stream_is_not_altered(
    pond: Pond, statement: str, name: str, code: str, words: str
) -> None:
    pond.execute("CREATE QUERY q AS SELECT v FROM s; CREATE STREAM d AS SELECT v FROM s")
    with pytest.raises(MillpondError) as failure:
        pond.execute(statement.format(name))
    error = failure.value
    assert error.code == code
    assert words in str(error)
    assert "derived" not in str(error)
    assert error.span is not None
    assert statement.format(name)[error.span.start : error.span.end] == name


def test_what_feeds_a_relation_is_in_use_with_it(pond: Pond) -> None:
    pond.execute(
        "CREATE RELATION f (k INTEGER, PRIMARY KEY (k)) USING push OPTIONS (op_column 'op');"
        "CREATE QUERY records AS SELECT * FROM f$changes"
    )
    with pytest.raises(
        MillpondError, match=r"(?s)POND-401.*1 definition reads it: query records\."
    ):
        run(pond, "DROP RELATION f")
    pond.execute("DROP QUERY records; DROP RELATION f")
    assert pond.streams() == [s for s in pond.streams() if s.name == "s"]


def test_of_many_users_the_first_are_named(pond: Pond) -> None:
    pond.register_many([("SELECT v FROM s", f"q{number}", {}) for number in range(22)])
    first = ", ".join(f"query q{number}" for number in range(20))
    with pytest.raises(MillpondError, match=rf"22 definitions read it: {first} and 2 more\."):
        run(pond, "DROP STREAM s")


def test_plans_are_of_texts_and_of_names(pond: Pond) -> None:
    run(pond, "CREATE QUERY q AS SELECT v FROM s WHERE v > 3")
    by_name, by_text = run(pond, "EXPLAIN q"), run(pond, "EXPLAIN SELECT v FROM s WHERE v > 3")
    assert by_name.text == by_text.text
    assert by_name.text is not None
    assert (by_name.name, by_text.name) == ("q", None)


def test_a_followed_query_over_a_stream_that_may_fall_silent_is_noted(pond: Pond) -> None:
    noted = run(pond, "CREATE QUERY a WITH (follow = true) AS SELECT x.v FROM s x, s y").message
    assert noted == (
        "query a: registered; note: s is pushed and has no IDLE AFTER: the changes of its last "
        "instant are given when a later element or a HEARTBEAT comes"
    )
    assert run(pond, "CREATE QUERY b AS SELECT v FROM s").message == "query b: registered"
    pond.execute(
        "CREATE STREAM i (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts IDLE AFTER INTERVAL 1 SECOND;"
        "CREATE STREAM u (v INTEGER)"
    )
    for stream in "iu":
        made = f"CREATE QUERY of_{stream} WITH (follow = true) AS SELECT v FROM {stream}"
        assert run(pond, made).message == f"query of_{stream}: registered"


@pytest.mark.parametrize("kind", ["STREAM", "RELATION"])
def test_while_a_source_waits_for_the_runtime_others_define_things(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    waits, may_start = threading.Event(), threading.Event()

    def wait_until_started() -> None:
        waits.set()
        assert may_start.wait(60)

    failed: list[MillpondError] = []

    def create() -> None:
        try:
            pond.execute(f"CREATE {kind} f (v INTEGER) USING csv OPTIONS (path '/nowhere/at/all')")
        except MillpondError as error:
            failed.append(error)

    monkeypatch.setattr(pond._components.runtime, "wait_until_started", wait_until_started)
    creator = threading.Thread(target=create)
    creator.start()
    assert waits.wait(60)
    definitions = "CREATE STREAM t (v INTEGER); CREATE QUERY q AS SELECT v FROM t"
    other = threading.Thread(target=pond.execute, args=(definitions,))
    other.start()
    other.join(30)
    alone = not other.is_alive()
    may_start.set()
    creator.join(60)
    other.join(60)
    assert alone
    assert [error.code for error in failed] == ["DATA-502"]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("STREAM f (v INTEGER) USING csv WITH (path = '/nowhere')", "CQL-214"),
        ("STREAM f (v NOTHING) USING csv OPTIONS (path '/nowhere')", "CQL-210"),
        ("STREAM s (v INTEGER) USING csv OPTIONS (path '/nowhere')", "CQL-208"),
        ("RELATION s (v INTEGER) USING csv OPTIONS (path '/nowhere')", "CQL-208"),
        ("RELATION f (v NOTHING) USING csv OPTIONS (path '/nowhere')", "CQL-210"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said_before_the_runtime_has_started(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, statement: str, code: str
) -> None:
    def wait_until_started() -> None:
        raise AssertionError("it waited")

    monkeypatch.setattr(pond._components.runtime, "wait_until_started", wait_until_started)
    with pytest.raises(MillpondError) as raised:
        pond.execute(f"CREATE {statement}")
    assert raised.value.code == code
