"""Selections of one shape, kept together: matched at once, each with its list of places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.service.answers.answer_flow import MustBeginAgain
from millpond.service.answers.kept_selections import KeptSelections, find_kept_shape
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

SHAPE = "SELECT v AS w FROM s [RANGE 5 SECONDS]"


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER, name VARCHAR) TIMESTAMP BY ts"
        " DELAY INTERVAL 10 SECONDS"
    )
    return components_of(pond)


def make(pond: Pond, *predicates: str, text: str = SHAPE) -> KeptSelections:
    parts = components_of(pond)
    found = {}
    for number, predicate in enumerate(predicates):
        where = f" WHERE {predicate}" if predicate else ""
        query = parts.registrar.prepare(pond.register(text + where).definition)
        shape = find_kept_shape(query.bound, query.factors[0])
        assert shape is not None
        found[number] = query.factors[0]
    stream = parts.log.version.find("s")
    return KeptSelections(parts.invoker.files, shape, stream, found)  # type: ignore[arg-type]


def values(kept: KeptSelections, query: int, at: int) -> list[int]:
    table = kept.read(query, at * SECOND)
    assert table.column_names == ["w"]
    return table["w"].to_pylist()


def test_elements_are_in_the_lists_of_those_who_select_them(pond: Pond, parts: Components) -> None:
    kept = make(pond, "v > 1", "v = 0", "", "v > 90")
    pond.ingest("s", rows(1, 2, 3))
    assert kept.step(parts.log.version, 3 * SECOND)
    assert not kept.step(parts.log.version, 3 * SECOND), "nothing is new"
    assert [values(kept, query, 3) for query in range(4)] == [[2], [0], [0, 1, 2], []]
    pond.ingest("s", [*rows(2, v=5), *rows(4, v=6)])
    assert not kept.has_read(parts.log.version)
    kept.step(parts.log.version, 4 * SECOND)
    assert kept.has_read(parts.log.version)
    assert [values(kept, query, 4) for query in range(3)] == [[2, 5, 6], [0], [0, 1, 2, 5, 6]]
    assert [values(kept, 2, at) for at in (6, 7, 8, 9)] == [[1, 2, 5, 6], [2, 6], [6], []]


def test_a_stream_that_is_another_begins_again(pond: Pond, parts: Components) -> None:
    kept = make(pond, "v > 1")
    kept.step(parts.log.version, SECOND)
    pond.execute("ALTER STREAM s SET (retain = '1 HOUR')")
    with pytest.raises(MustBeginAgain):
        kept.step(parts.log.version, SECOND)


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("SELECT v FROM s WHERE v > 1", True),
        ("SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]", True),
        ("SELECT v FROM s [ROWS 5]", True),
        ("SELECT v FROM s [PARTITION BY name ROWS 5] WHERE v > 1", True),
        ("SELECT v FROM s [ROWS 5 WHERE v > 1]", False),
        ("SELECT v + 1 AS v FROM s", False),
        ("SELECT v FROM s WHERE lower(name) = 'a'", False),
        ("SELECT count(*) AS n FROM s", False),
    ],
)
def test_what_can_fail_is_kept_alone(
    pond: Pond, parts: Components, text: str, is_kept: bool
) -> None:
    query = parts.registrar.prepare(pond.register(text).definition)
    assert (find_kept_shape(query.bound, query.factors[0]) is not None) == is_kept


@settings(max_examples=3)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1), max_size=12))
def test_chunks_are_merged_without_what_has_left(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[tuple[int, int]]]
) -> None:
    with open_local(tmp_path_factory.mktemp("run") / "store") as pond:
        parts = components_of(pond)
        pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER, name VARCHAR) TIMESTAMP BY ts")
        kept = make(pond, "v = 1", "v >= 2", "")
        at, came = 0, []
        for step in steps:
            for after, v in step:
                at += after
                came.append((at, v))
            pond.ingest("s", [row for t, v in came[-len(step) :] for row in rows(t, v=v)])
            kept.step(parts.log.version, at * SECOND)
            alive = [v for t, v in came if t > at - 5]
            expected = [[v for v in alive if v == 1], [v for v in alive if v >= 2], alive]
            assert [values(kept, query, at) for query in range(3)] == expected


@pytest.mark.parametrize("window", ["ROWS 3", "PARTITION BY name ROWS 2"])
@settings(max_examples=5)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 3), st.sampled_from(["a", "b"])), min_size=1
        ),
        max_size=8,
    )
)
def test_windows_of_rows_are_counted_in_any_order_of_arrival(
    tmp_path_factory: pytest.TempPathFactory,
    window: str,
    steps: list[list[tuple[int, int, str]]],
) -> None:
    with open_local(tmp_path_factory.mktemp("run") / "store") as pond:
        parts = components_of(pond)
        pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, v INTEGER, name VARCHAR) TIMESTAMP BY ts"
            " DELAY INTERVAL 10 SECONDS"
        )
        text = f"SELECT v AS w FROM s [{window}]"
        predicates = ("v = 1", "v >= 2", "v < 9")
        asked = [pond.register(f"{text} WHERE {predicate}") for predicate in predicates]
        first = make(pond, *predicates, text=text)
        for step in steps:
            pond.ingest("s", [row for at, v, name in step for row in rows(at, v=v, name=name)])
            later = make(pond, *predicates, text=text)
            for kept in (first, later):
                kept.step(parts.log.version, 9 * SECOND)
                for query, handle in enumerate(asked):
                    found = sorted(w for (w,) in handle.invoke().rows())
                    assert sorted(values(kept, query, 9)) == found
