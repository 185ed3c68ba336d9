"""The directory of standing queries: what it finds is what a look at each query finds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError, Span
from millpond.service.queries.query_directory import ORDERS, QueryDirectory, find_query
from millpond.service.queries.query_selection import STATES, QuerySelection
from millpond.state.bucket_map import BucketMap
from millpond.state.id_map import IdMap
from millpond.state.version import Version


def make_version(queries: list[QueryDef]) -> Version:
    held = IdMap[QueryDef]().with_changes({query.id: query for query in queries})
    ids = BucketMap[str, int]().with_changes({query.name.lower(): query.id for query in queries})
    return Version(queries=held, ids=ids)


options = st.fixed_dictionaries(
    {},
    optional={
        "owner": st.sampled_from(["ann", "bob"]),
        "tags": st.sampled_from(["a", "a, b", "ab"]),
        "active": st.booleans(),
    },
)
queries = st.lists(
    st.builds(
        QueryDef,
        id=st.integers(0, 500),
        name=st.just(""),
        text=st.sampled_from(["SELECT a FROM s", "SELECT B FROM s", "select x from T"]),
        options=options,
        registered_at=st.integers(0, 3),
        suspended=st.sampled_from([None, None, "broken"]),
    ),
    max_size=20,
    unique_by=lambda query: query.id,
).map(lambda found: [replace(query, name=f"Name{query.id}") for query in found])
selections = st.builds(
    QuerySelection,
    containing=st.sampled_from(["", "b from", "name1", "%", "T"]),
    owner=st.sampled_from([None, "ann", "", "cy"]),
    tag=st.sampled_from([None, "a", "B", "c"]),
    state=st.sampled_from([None, *STATES]),
)


@given(queries, selections, st.sampled_from(ORDERS), st.booleans(), st.integers(1, 5))
def test_pages_hold_every_selected_query_in_order(
    found: list[QueryDef], selection: QuerySelection, order: str, descending: bool, limit: int
) -> None:
    version, directory = make_version(found), QueryDirectory()
    seen: list[QueryDef] = []
    after: int | None = None
    while True:
        page = directory.list_page(version, selection, order, descending, after, limit)
        assert len(page.queries) <= limit
        seen += page.queries
        after = page.next
        if after is None:
            break

    def key(query: QueryDef) -> tuple[object, int]:
        value = query.options.get("owner", "") if order == "owner" else getattr(query, order)
        return value, query.id

    wanted = sorted(filter(selection.has, found), key=key, reverse=descending)
    assert [query.id for query in seen] == [query.id for query in wanted]
    assert page.total == len(wanted)


@given(queries, queries)
def test_a_later_version_is_found_whole(before: list[QueryDef], after: list[QueryDef]) -> None:
    directory, everything = QueryDirectory(), QuerySelection()
    first = make_version(before)
    directory.find(first, everything)
    held = first.queries.with_changes(
        {q.id: q for q in after}, drop=[q.id for q in before if q.id % 2]
    )
    second = Version(queries=held)
    assert directory.find(second, everything) == list(held.values())


def test_names_are_names_or_ids_and_each_is_that_of_a_query() -> None:
    version = make_version([QueryDef(7, "Late", "SELECT 1"), QueryDef(9, "b", "SELECT 1")])
    directory = QueryDirectory()
    found = directory.find(version, QuerySelection(names=("late", "9")))
    assert [query.id for query in found] == [7, 9]
    with pytest.raises(MillpondError, match='CQL-201: no query "none"'):
        directory.find(version, QuerySelection(names=("late", "none")))


def test_a_page_behind_a_query_that_is_gone() -> None:
    version, directory = (
        make_version([QueryDef(7, "a", "x"), QueryDef(9, "b", "x")]),
        QueryDirectory(),
    )
    assert [q.id for q in directory.list_page(version, QuerySelection(), after=8).queries] == [9]
    with pytest.raises(MillpondError, match="SERVE-703: the query 8, behind which"):
        directory.list_page(version, QuerySelection(), "name", after=8)


def test_a_page_of_a_hundred_thousand_costs_no_look_at_each() -> None:
    many = [
        QueryDef(i, f"query{i}", f"SELECT v FROM s WHERE v > {i}", {"tags": f"t{i % 50}"})
        for i in range(100_000)
    ]
    version, directory = make_version(many), QueryDirectory()
    directory.find(version, QuerySelection(tag="t7"))
    spent = []
    for _ in range(5):
        started = time.process_time()
        page = directory.list_page(version, QuerySelection("9", tag="t7"), "name", True, limit=100)
        spent.append(time.process_time() - started)
    assert page.total == sum("9" in f"{i}" for i in range(7, 100_000, 50))
    assert min(spent) < 0.1


def test_a_query_is_found_by_its_name_or_it_is_said_what_has_the_name() -> None:
    version = version_of(QueryDef(1, "total", "SELECT 1"), stream(2, "s"))
    assert find_query(version, "TOTAL").id == 1
    with pytest.raises(MillpondError, match='CQL-216: "s" is a stream'):
        find_query(version, "s")
    with pytest.raises(MillpondError, match="CQL-201") as raised:
        find_query(version, "totl", "INVOKE totl", Span(7, 11))
    assert "total" in (raised.value.hint or "")
    assert raised.value.span == Span(7, 11)


def test_a_missing_query_is_not_looked_for_among_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millpond.service.queries.query_directory.MOST_COMPARED", 2)
    few = make_version([QueryDef(n, f"q{n}", "SELECT a FROM s") for n in range(2)])
    with pytest.raises(MillpondError) as found:
        find_query(few, "q_1")
    assert found.value.hint == 'Did you mean "q1"?'
    many = make_version([QueryDef(n, f"q{n}", "SELECT a FROM s") for n in range(3)])
    with pytest.raises(MillpondError) as found:
        find_query(many, "q_1")
    assert found.value.hint == "SHOW QUERIES lists them."
