"""Binding by template is binding: on a corpus, with constants changed at random."""

from __future__ import annotations

import random
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from millpond.catalog.objects import StreamDef
from millpond.cql.print.dialect import parse_query
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.planner.bind import templates
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.bind.templates import Binder

CORPUS = [
    "SELECT * FROM flights WHERE delay > 60 AND origin = 'JFK'",
    "SELECT * FROM flights [RANGE 1 HOUR] WHERE delay BETWEEN -5 AND 60.5 "
    "AND carrier IN ('AA', 'UA')",
    "SELECT * FROM flights [ROWS 10 WHERE dest = 'SFO' AND distance >= 100]",
    "SELECT * FROM flights [ROWS 3] WHERE delay > 1e2 OR NOT (delay < 3)",
    "SELECT carrier, delay > 60 AS late FROM flights WHERE delay > 60",
    "SELECT carrier, delay > 60 FROM flights WHERE (distance + 7) > -3",
    "SELECT delay > 60, count(*) FROM flights WHERE delay > 60 GROUP BY delay > 60 "
    "HAVING count(*) > 3 AND NOT delay > 60",
    "SELECT carrier, avg(delay) FROM flights WHERE origin = 'it''s' GROUP BY 1 "
    "HAVING avg(delay) > 4 ORDER BY 2 LIMIT 10",
    "SELECT * FROM flights WHERE ts > '2013-01-02' AND ts < '2013-02-03 04:05:06'",
    "SELECT * FROM flights WHERE ts > TIMESTAMP '2013-01-02 00:00:00' AND carrier LIKE 'A%'",
    "SELECT * FROM flights WHERE distance = '100'",
    "SELECT carrier FROM flights WHERE delay BETWEEN 5 AND 5 + 50 AND distance > -(3 - 1) * 2 / 4",
    "SELECT origin FROM flights GROUP BY origin HAVING avg(delay) > 4 + 3 * 2",
    "SELECT f.carrier FROM flights f, weather w "
    "WHERE f.origin = w.origin AND w.wind > 30 AND f.delay > 5",
    "SELECT carrier FROM flights f "
    "WHERE EXISTS (SELECT 1 FROM weather WHERE wind > 20) AND delay > 5",
    "SELECT carrier FROM flights WHERE delay > (SELECT avg(temp) + 3 FROM weather WHERE wind > 20)",
    "WITH c AS (SELECT * FROM flights WHERE distance > 100) SELECT carrier FROM c WHERE delay > 5 "
    "UNION ALL SELECT dest FROM c WHERE delay < 7 ORDER BY 1 LIMIT 4",
    "SELECT carrier FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum AND p.seats > 50 "
    "WHERE f.delay > 5 BEGIN NOW - 3 HOURS END NOW",
    "SELECT (SELECT max(wind) FROM weather WHERE temp > 10) FROM flights SAMPLE(10) "
    "WHERE delay > 5",
    "SELECT CASE WHEN delay > 5 THEN 'a' ELSE 'b' END FROM flights WHERE round(delay, 1) > 5",
    "SELECT t.c FROM (SELECT carrier AS c, delay FROM flights WHERE distance > 3) t "
    "WHERE delay > 5",
    "SELECT carrier FROM flights WHERE delay IN (SELECT max(wind) FROM weather "
    "GROUP BY temp > 5 HAVING temp > 5 AND max(wind) > 3)",
    "ISTREAM(SELECT * FROM flights [RANGE 2 HOURS SLIDE 1 HOUR] WHERE delay > 123456789012)",
]  # fmt: skip

_CONSTANT = re.compile(r"'(?:[^']|'')*'|(?<![\w.])\d+(?:\.\d+)?(?:e\d+)?")


def _varied(text: str, rng: random.Random) -> str:
    """The text with some constants replaced by others, mostly of their kind."""

    def other(match: re.Match[str]) -> str:
        old = match[0]
        if rng.random() < 0.4:
            return old
        if old.startswith("'"):
            if re.match(r"'\d{4}-", old):
                return f"'2013-0{rng.randrange(1, 9)}-1{rng.randrange(9)}{old[11:-1]}'"
            return rng.choice(["'SFO'", "'x''y'", "''", "'100'", "'%z_'", "'7'"])
        return rng.choice(
            [str(rng.randrange(1, 99)), "4000000000", "2.5", "12345678901234567890123"]
        )

    return _CONSTANT.sub(other, text)


def _outcome(make: object, text: str) -> object:
    try:
        bound: BoundQuery = make(text)  # type: ignore[operator]
    except MillpondError as error:
        return error.to_json()
    return (
        bound.text,
        bound.canonical,
        bound.residual_sql,
        bound.projection,
        bound.output,
        bound.to_stream,
        bound.ordered,
        bound.relations,
        [
            (f.table, f.stream, f.window, f.sample, f.columns, f.before, f.pushed, f.predicate)
            for f in bound.streams
        ],
    )


@pytest.mark.parametrize("text", CORPUS)
def test_a_template_binds_as_bind_does(names: Any, text: str) -> None:
    rng = random.Random(text)
    binder = Binder(names)
    for _ in range(12):
        varied = _varied(text, rng)
        fresh = _outcome(lambda t: bind(parse_query(t), t, names), varied)
        assert _outcome(binder.bind, varied) == fresh, varied
        assert _outcome(binder.bind, varied) == fresh, varied


def test_constants_alone_make_no_new_binding(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    real = templates.bind_with_definitions

    def counting(*args: object) -> object:
        nonlocal count
        count += 1
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(templates, "bind_with_definitions", counting)
    binder = Binder(names)
    for i in range(20):
        binder.bind(
            f"SELECT * FROM flights WHERE delay > {i} AND origin = 'A{i}' "
            f"AND ts > '2013-01-{10 + i % 10} 00:00:00' AND distance IN ({i}, {i + 1}) "
            f"AND ts < TIMESTAMP '2013-02-{10 + i % 10}' AND delay < {i} + 30 * {i}"
        )
    assert count == 1
    binder.bind("SELECT delay > 1 FROM flights WHERE delay > 2")
    binder.bind("SELECT delay > 3 FROM flights WHERE delay > 2")
    assert count == 3


def test_a_long_list_is_bound_once_and_kept_as_it_is(
    names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        f"SELECT carrier FROM flights WHERE distance IN ({', '.join(map(str, range(n, 2_000)))})"
        for n in range(10)
    ]
    binder = Binder(names)
    for text in texts:
        fresh = _outcome(lambda t: bind(parse_query(t), t, names), text)
        assert _outcome(binder.bind, text) == fresh
    monkeypatch.setattr(templates, "bind_with_definitions", lambda *_: pytest.fail("bound anew"))
    for text in texts[2:]:
        assert binder.bind(text).text == text
    assert not any(shape.templates for shape in binder._shapes.values())


def test_a_name_that_means_something_else_is_bound_again(names: Any) -> None:
    binder = Binder(names)
    text = "SELECT * FROM weather WHERE wind > 3"
    assert len(binder.bind(text).output.fields) == 4
    weather = names.find("weather")
    assert isinstance(weather, StreamDef)
    names.put(replace(weather, schema=Schema((Field("wind", "DOUBLE"),))))
    assert len(binder.bind(text).output.fields) == 1
    names.put(replace(weather, schema=Schema((Field("temp", "DOUBLE"),))))
    with pytest.raises(MillpondError) as caught:
        binder.bind(text)
    assert caught.value.code == "CQL-202"


def test_between_two_changes_of_the_names_a_template_is_compared_once(names: Any) -> None:
    moment, looked = [1], []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            looked.append(name)
            return getattr(names, name)

    binder = Binder(Watched(), lambda: moment[0])
    for number in range(3):
        binder.bind(f"SELECT * FROM flights WHERE delay > {number}")
    looked.clear()
    binder.bind("SELECT * FROM flights WHERE delay > 7")
    assert looked == []
    moment[0] = 2
    binder.bind("SELECT * FROM flights WHERE delay > 8")
    assert "find" in looked


def test_errors_point_into_their_own_text(names: Any) -> None:
    binder = Binder(names)
    binder.bind("SELECT * FROM flights WHERE distance = '100' AND delay > 3")
    with pytest.raises(MillpondError) as caught:
        binder.bind("SELECT * FROM flights WHERE distance = 'a lot' AND delay > 3")
    error = caught.value
    assert error.span is not None
    assert error.text is not None
    assert error.text[error.span.start : error.span.end] == "'a lot'"


def test_sharing_a_template_shares_no_tree(names: Any) -> None:
    binder = Binder(names)
    first = binder.bind("SELECT * FROM flights WHERE delay > 1").streams[0].pushed
    second = binder.bind("SELECT * FROM flights WHERE delay > 2").streams[0].pushed
    assert first is not None
    assert second is not None
    assert first is not second
    assert (first.sql(), second.sql()) == ("delay > 1", "delay > 2")


def test_long_chains_bind(names: Any) -> None:
    binder = Binder(names)
    for word in (" AND ", " OR "):
        text = "SELECT carrier FROM flights WHERE " + word.join(
            f"delay <> {i}" for i in range(1500)
        )
        fresh = binder.bind(text)
        assert fresh.projection == (("carrier", "carrier"),)
        other = binder.bind(text.replace("<> 7 ", "<> 8 "))
        assert other.residual_sql == fresh.residual_sql.replace("<> 7 ", "<> 8 ")
        assert other.streams[0].pushed is not None


def test_thousands_of_queries_of_a_shape_bind_quickly(names: Any) -> None:
    """0.1 ms each on the development machine; the bound is for a slow one."""
    binder = Binder(names)
    texts = [
        f"SELECT * FROM flights [RANGE 1 HOUR] WHERE delay > {i} AND delay < {i + 10}.5 "
        f"AND origin = 'A{i}' AND distance BETWEEN {i} AND {i + 7}"
        for i in range(1000)
    ]
    start = time.thread_time()
    for text in texts:
        binder.bind(text)
    assert time.thread_time() - start < 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT carrier FROM flights WHERE delay > 60 -- but not '7",
        "SELECT carrier FROM flights WHERE delay > 60 /* 'x' 5 */",
        "SELECT carrier AS \"5 'x'\" FROM flights WHERE delay > 60",
        "SELECT carrier FROM flights WHERE origin = 'a--b' AND delay > 60",
        "SELECT carrier FROM flights WHERE origin = 'JFK'AND delay>60",
        "SELECT carrier FROM flights WHERE origin = '\\' AND delay > .5",
    ],
)
def test_constants_among_comments_and_quoted_names(text: str, names: Any) -> None:
    binder = Binder(names)
    rng = random.Random(len(text))
    for _ in range(20):
        varied = _varied(text, rng)
        assert _outcome(binder.bind, varied) == _outcome(
            lambda t: bind(parse_query(t), t, names), varied
        )


def test_a_text_of_a_known_outline_is_not_tokenized(
    names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    binder = Binder(names)
    binder.bind("SELECT carrier FROM flights WHERE delay > 60 AND origin = 'JFK'")
    monkeypatch.setattr(templates, "tokenize", None)
    text = "SELECT carrier FROM flights WHERE delay > 7 AND origin = 'it''s'"
    bound = binder.bind(text)
    assert bound.canonical == bind(parse_query(text), text, names).canonical


@pytest.mark.parametrize("constant", ["x" * 1_048_577, "\ud800", "it''s" * 300_000])
def test_a_constant_that_is_refused_is_refused_of_a_known_shape(names: Any, constant: str) -> None:
    binder = Binder(names)
    binder.bind("SELECT carrier FROM flights WHERE origin = 'JFK'")
    with pytest.raises(MillpondError, match=r"CQL-10[24]") as caught:
        binder.bind(f"SELECT carrier FROM flights WHERE origin = '{constant}'")
    with pytest.raises(MillpondError) as alone:
        Binder(names).bind(f"SELECT carrier FROM flights WHERE origin = '{constant}'")
    assert caught.value.primary == alone.value.primary
