"""What each statement's text says."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millpond.cql import parse_script, parse_statement, print_query
from millpond.cql.print.dialect import RelationToStream
from millpond.cql.tree.statements import (
    Alter,
    Ask,
    CreateDerived,
    CreateQuery,
    CreateRelation,
    CreateSink,
    CreateStream,
    Delete,
    Describe,
    Drop,
    Explain,
    Fetch,
    Heartbeat,
    Insert,
    Invoke,
    Show,
    Statement,
    Update,
)
from millpond.errors import Span

SECOND = 1_000_000
DAY = 86_400 * SECOND
YEAR_2020 = 1_577_836_800 * SECOND


def at(statement: Statement, span: Span | None) -> str:
    assert span is not None
    return statement.text[span.start : span.end]


def test_create_stream() -> None:
    text = """CREATE STREAM flights (ts TIMESTAMP, carrier STRING, delay DOUBLE)
      TIMESTAMP BY ts DELAY INTERVAL 5 SECONDS IDLE AFTER INTERVAL 30 SECONDS
      RETAIN INTERVAL 2 DAYS USING CSV OPTIONS (path '/x', Header true, maxFiles = 3)"""
    stream = parse_statement(text)
    assert isinstance(stream, CreateStream)
    assert stream.name == "flights"
    assert [(c.name, c.type) for c in stream.columns] == [
        ("ts", "TIMESTAMP"),
        ("carrier", "STRING"),
        ("delay", "DOUBLE"),
    ]
    assert stream.timestamp_by == "ts"
    assert (stream.delay, stream.idle_after) == (5 * SECOND, 30 * SECOND)
    assert (stream.retain, stream.retain_rows) == (2 * DAY, None)
    assert stream.source is not None
    assert stream.source.format == "csv"
    assert stream.source.options == {"path": "/x", "header": "true", "maxfiles": "3"}
    assert at(stream, stream.name_span) == "flights"
    assert at(stream, stream.columns[1].span) == "carrier STRING"
    assert at(stream, stream.timestamp_span) == "ts"
    assert at(stream, stream.source.span).startswith("USING CSV OPTIONS")
    assert stream.text == text


def test_stream_defaults() -> None:
    stream = parse_statement("CREATE STREAM s (a INT)")
    assert isinstance(stream, CreateStream)
    assert stream.timestamp_by is None
    assert stream.delay == 0
    assert (stream.idle_after, stream.retain, stream.retain_rows) == (None, None, None)
    assert stream.source is None


def test_retain_rows() -> None:
    stream = parse_statement("CREATE STREAM s (a INT) RETAIN 1000000 ROWS")
    assert isinstance(stream, CreateStream)
    assert (stream.retain, stream.retain_rows) == (None, 1_000_000)


@pytest.mark.parametrize(
    "name", ["delay", "ts", "rows", "range", "now", "begin", "end", "sample", "timestamp", "period"]
)
def test_words_of_the_language_are_names_too(name: str) -> None:
    stream = parse_statement(f"CREATE STREAM s ({name} INT) TIMESTAMP BY {name}")
    assert isinstance(stream, CreateStream)
    assert stream.columns[0].name == stream.timestamp_by == name
    ask = parse_statement(
        f"SELECT {name}, s.{name} AS {name} FROM s WHERE {name} > 1 ORDER BY {name}"
    )
    assert isinstance(ask, Ask)
    assert {column.name for column in ask.query.find_all(exp.Column)} == {name}


@pytest.mark.parametrize(
    "text",
    [
        "CREATE RELATION r (k INT PRIMARY KEY, v STRING)",
        "CREATE RELATION r (k INT, v STRING, PRIMARY KEY (k))",
        "CREATE RELATION r (PRIMARY KEY (k), k INT, v STRING)",
    ],
)
def test_primary_key(text: str) -> None:
    relation = parse_statement(text)
    assert isinstance(relation, CreateRelation)
    assert relation.primary_key == ("k",)
    assert [column.name for column in relation.columns] == ["k", "v"]
    assert not relation.non_retroactive


def test_non_retroactive_relation_from_changes() -> None:
    relation = parse_statement(
        "CREATE NON RETROACTIVE RELATION r (at TIMESTAMP, k INT, j INT, PRIMARY KEY (k, j)) "
        "TIMESTAMP BY at USING parquet"
    )
    assert isinstance(relation, CreateRelation)
    assert relation.non_retroactive
    assert relation.primary_key == ("k", "j")
    assert relation.timestamp_by == "at"
    assert relation.source is not None
    assert (relation.source.format, relation.source.options) == ("parquet", {})


def test_derived() -> None:
    text = "CREATE STREAM late AS ISTREAM(SELECT * FROM s [NOW])"
    stream = parse_statement(text)
    assert isinstance(stream, CreateDerived)
    assert (stream.kind, stream.name) == ("stream", "late")
    assert isinstance(stream.query, RelationToStream)
    assert stream.query.args["kind"] == "ISTREAM"
    assert at(stream, stream.query_span) == "ISTREAM(SELECT * FROM s [NOW])"
    relation = parse_statement("CREATE RELATION r AS SELECT a FROM s")
    assert isinstance(relation, CreateDerived)
    assert relation.kind == "relation"


def test_create_query() -> None:
    query = parse_statement(
        "CREATE QUERY q WITH (Materialize = 'lazy', weight = 2.5, active = false, seed = -3) "
        "AS SELECT a FROM s"
    )
    assert isinstance(query, CreateQuery)
    assert query.name == "q"
    assert query.options == {"materialize": "lazy", "weight": 2.5, "active": False, "seed": -3}
    assert print_query(query.query) == "SELECT a FROM s"
    assert at(query, query.query_span) == "SELECT a FROM s"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INVOKE q", ("q", None)),
        ("invoke q at timestamp '2020-01-01'", ("q", YEAR_2020)),
        ("INVOKE q AT TIMESTAMP '2020-01-01 00:00:01.5'", ("q", YEAR_2020 + 3 * SECOND // 2)),
    ],
)
def test_invoke(text: str, expected: tuple[str, int | None]) -> None:
    invoke = parse_statement(text)
    assert isinstance(invoke, Invoke)
    assert (invoke.name, invoke.at) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FETCH q", ("q", None, None)),
        ("FETCH q AFTER 'c-1' LIMIT 5", ("q", "c-1", 5)),
        ("FETCH q LIMIT 5 AFTER 17", ("q", "17", 5)),
    ],
)
def test_fetch(text: str, expected: tuple[str, str | None, int | None]) -> None:
    fetch = parse_statement(text)
    assert isinstance(fetch, Fetch)
    assert (fetch.name, fetch.after, fetch.limit) == expected


def test_alter() -> None:
    alter = parse_statement("ALTER QUERY q SET (active = true, weight = 1)")
    assert isinstance(alter, Alter)
    assert (alter.name, alter.options) == ("q", {"active": True, "weight": 1})


@pytest.mark.parametrize(
    ("behind", "selected"),
    [
        ("QUERY late", ("late", None, None)),
        ("QUERIES TAGGED fares", (None, "fares", None)),
        ("QUERIES TAGGED 'night fares'", (None, "night fares", None)),
        ("QUERIES OF OWNER 'ann'", (None, None, "ann")),
    ],
)
def test_create_sink(behind: str, selected: tuple[str | None, ...]) -> None:
    sink = parse_statement(f"CREATE SINK s USING HTTP (url 'https://h', batch 7) FROM {behind}")
    assert isinstance(sink, CreateSink)
    assert (sink.name, sink.format, sink.options) == ("s", "http", {"url": "https://h", "batch": 7})
    assert (sink.query, sink.tag, sink.owner) == selected


@pytest.mark.parametrize("kind", ["query", "stream", "relation", "summary", "sink"])
def test_drop(kind: str) -> None:
    drop = parse_statement(f"DROP {kind.upper()} x$y")
    assert isinstance(drop, Drop)
    assert (drop.kind, drop.name) == (kind, "x$y")


def test_insert() -> None:
    insert = parse_statement(
        "INSERT INTO r (a, b) VALUES (1, 'x'), (-2, NULL) AT TIMESTAMP '2020-01-01'"
    )
    assert isinstance(insert, Insert)
    assert (insert.name, insert.columns, insert.at) == ("r", ("a", "b"), YEAR_2020)
    assert [[print_query(value) for value in row] for row in insert.rows] == [
        ["1", "'x'"],
        ["-2", "NULL"],
    ]


def test_update() -> None:
    update = parse_statement("UPDATE r SET a = a + 1, b = NULL WHERE c AT TIMESTAMP '2020-01-01'")
    assert isinstance(update, Update)
    assert (update.name, update.at) == ("r", YEAR_2020)
    assert [(name, print_query(value)) for name, value in update.assignments] == [
        ("a", "a + 1"),
        ("b", "NULL"),
    ]
    assert update.where is not None
    assert print_query(update.where) == "c"


def test_delete() -> None:
    delete = parse_statement("DELETE FROM r WHERE a = 1")
    assert isinstance(delete, Delete)
    assert delete.where is not None
    assert (delete.name, print_query(delete.where), delete.at) == ("r", "a = 1", None)


def test_heartbeat() -> None:
    heartbeat = parse_statement("HEARTBEAT s AT TIMESTAMP '2020-01-01'")
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.name, heartbeat.at) == ("s", YEAR_2020)


@pytest.mark.parametrize(
    ("text", "level", "name"),
    [
        ("EXPLAIN q", "logical", "q"),
        ("EXPLAIN shared", "logical", "shared"),
        ("EXPLAIN SHARED shared", "shared", "shared"),
        ("EXPLAIN runtime SELECT a FROM s", "runtime", None),
        ("EXPLAIN (SELECT a FROM s)", "logical", None),
        ("EXPLAIN ISTREAM(SELECT a FROM s)", "logical", None),
    ],
)
def test_explain(text: str, level: str, name: str | None) -> None:
    explain = parse_statement(text)
    assert isinstance(explain, Explain)
    assert (explain.level, explain.name) == (level, name)
    assert (explain.query is None) == (name is not None)


@pytest.mark.parametrize(
    "what", ["streams", "relations", "queries", "summaries", "sinks", "entities"]
)
def test_show(what: str) -> None:
    show = parse_statement(f"show {what}")
    assert isinstance(show, Show)
    assert show.what == what


def test_describe() -> None:
    describe = parse_statement("DESCRIBE flights$rejects")
    assert isinstance(describe, Describe)
    assert describe.name == "flights$rejects"


def test_script() -> None:
    script = """-- first; not here
    SELECT 'a;b' FROM s ; ;
    /* second; /* nested; */ */ INVOKE q -- trailing
    ;SELECT "x;y" FROM t"""
    statements = parse_script(script)
    assert [type(s) for s in statements] == [Ask, Invoke, Ask]
    assert [s.text for s in statements] == [
        "SELECT 'a;b' FROM s",
        "INVOKE q",
        'SELECT "x;y" FROM t',
    ]
    for statement in statements:
        assert script[statement.offset :].startswith(statement.text)
    assert at(statements[1], statements[1].name_span) == "q"


@pytest.mark.parametrize("text", ["", "  \n", ";;", "-- nothing", "/* nothing */ ;"])
def test_empty_script(text: str) -> None:
    assert parse_script(text) == []


def test_one_statement_may_end_with_a_semicolon() -> None:
    statement = parse_statement("  INVOKE q ; ")
    assert (statement.text, statement.offset) == ("INVOKE q", 2)
