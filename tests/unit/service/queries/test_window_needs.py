"""What windows need of a stream: as far back as the widest of them reaches, and no more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import QueryDef
from millpond.model.time import BEGINNING
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window
from millpond.service.background import Stopped
from millpond.service.queries.window_needs import WindowNeeds
from millpond.state.version import LeafRef, Version

S = stream(1, "Stream")
HIGH = 1_000


class Binder:
    """Binds a query's text, which is a key of its windows."""

    def __init__(self, windows: dict[str, list[tuple[str, Window]]]) -> None:
        self._windows = windows
        self.bound: list[str] = []

    def bind_or_suspend(self, query: QueryDef) -> Any:
        self.bound.append(query.text)
        leaves = [SimpleNamespace(stream=name, window=w) for name, w in self._windows[query.text]]
        return SimpleNamespace(streams=leaves)


def version(*texts: str) -> Version:
    return version_of(S, *(QueryDef(n, f"q{n}", text) for n, text in enumerate(texts, 10)))


def since(*windows: Window) -> int:
    binder: Any = Binder({str(n): [("stream", window)] for n, window in enumerate(windows)})
    return WindowNeeds(binder).since(version(*map(str, range(len(windows)))), S, HIGH)


@pytest.mark.parametrize(
    ("window", "instant"),
    [
        (Range(10), HIGH - 10),
        (Range(10, slide=4), HIGH - 14),
        (Now(), HIGH),
        (Period(Bound(offset=-30), Bound(offset=-20)), HIGH - 30),
        (Period(Bound(instant=77), Bound(offset=0)), 77),
        (Unbounded(), BEGINNING),
        (Rows(3), BEGINNING),
        (Rows(3, ("k",)), BEGINNING),
    ],
    ids=str,
)
def test_a_window_needs_what_it_reaches_back_to(window: Window, instant: int) -> None:
    assert since(window) == instant


def test_nobody_needs_what_nobody_reads() -> None:
    assert since() == HIGH + 1
    binder: Any = Binder({"a": [("another", Range(10))]})
    assert WindowNeeds(binder).since(version("a"), S, HIGH) == HIGH + 1


def test_the_widest_window_counts() -> None:
    assert since(Range(10), Range(50), Now()) == HIGH - 50
    assert since(Range(10), Period(Bound(instant=77), Bound(offset=0))) == 77
    assert since(Range(10), Period(Bound(instant=2_000), Bound(offset=0))) == HIGH - 10
    binder: Any = Binder({"a": [("Stream", Range(10)), ("stream", Range(50))]})
    assert WindowNeeds(binder).since(version("a"), S, HIGH) == HIGH - 50


def test_each_query_is_bound_once() -> None:
    binder: Any = Binder({"a": [("stream", Range(10))], "b": [("stream", Range(50))]})
    needs = WindowNeeds(binder)
    one, two = version("a"), version("a", "b")
    for _ in range(3):
        assert needs.since(one, S, HIGH) == HIGH - 10
    assert needs.since(two, S, HIGH) == HIGH - 50
    assert binder.bound == ["a", "b"]
    # What a query needed goes with it.
    assert needs.since(version("a"), S, HIGH) == HIGH - 10
    assert needs.since(two, S, HIGH) == HIGH - 50
    assert binder.bound == ["a", "b"]


def test_a_query_that_was_given_another_text_needs_what_that_needs() -> None:
    binder: Any = Binder({"a": [("stream", Range(10))], "b": [("stream", Range(50))]})
    needs = WindowNeeds(binder)
    assert needs.since(version_of(S, QueryDef(10, "q", "a")), S, HIGH) == HIGH - 10
    assert needs.since(version_of(S, QueryDef(10, "q", "b")), S, HIGH) == HIGH - 50


def test_one_query_among_many_is_looked_at_alone() -> None:
    texts = {str(n): [("stream", Range(10))] for n in range(2_000)}
    binder: Any = Binder({**texts, "wide": [("stream", Range(50))]})
    needs = WindowNeeds(binder)
    many = version(*texts)
    assert needs.since(many, S, HIGH) == HIGH - 10
    binder.bound.clear()
    looked = needs._of_page._make
    pages: list[int] = []
    needs._of_page._make = lambda queries: pages.append(1) or looked(queries)  # type: ignore[func-returns-value]
    more = replace(many, queries=many.queries.with_changes({5_000: QueryDef(5_000, "w", "wide")}))
    assert needs.since(more, S, HIGH) == HIGH - 50
    assert (binder.bound, len(pages)) == (["wide"], 1)


def test_texts_that_nobody_has_any_more_are_forgotten() -> None:
    texts = {str(n): [("stream", Range(10))] for n in range(1_000)}
    binder: Any = Binder(texts)
    needs = WindowNeeds(binder)
    needs.since(version(*texts), S, HIGH)
    needs.since(version("1"), S, HIGH)
    assert len(needs._of_text) <= 1


def test_what_does_not_bind_needs_everything_until_it_binds_again() -> None:
    bound: list[Any] = [None]
    binder: Any = SimpleNamespace(bind_or_suspend=lambda query: bound[0])
    needs = WindowNeeds(binder)
    read = {10: (LeafRef(10, 0, 1, 0),)}
    first = version_of(S, QueryDef(10, "q", "a"), leaves=read)
    assert needs.since(first, S, HIGH) == BEGINNING
    bound[0] = SimpleNamespace(streams=[SimpleNamespace(stream="stream", window=Range(10))])
    again = version_of(S, QueryDef(10, "q", "a"), leaves=read)
    assert needs.since(again, S, HIGH) == HIGH - 10


def test_who_closes_does_not_wait_until_all_are_bound() -> None:
    texts = {str(n): [("stream", Range(10))] for n in range(2_000)}
    binder: Any = Binder(texts)

    def check() -> None:
        if len(binder.bound) == 3:
            raise Stopped

    needs = WindowNeeds(binder, check)
    with pytest.raises(Stopped):
        needs.since(version(*texts), S, HIGH)
    assert len(binder.bound) == 3
