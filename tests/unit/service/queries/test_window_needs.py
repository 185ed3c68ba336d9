"""What windows need of a stream: as far back as the widest of them reaches, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import QueryDef
from millpond.model.time import BEGINNING
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window
from millpond.service.queries.window_needs import WindowNeeds
from millpond.state.version import Version

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
    # A query that went is forgotten, and what it needed with it.
    assert needs.since(version("a"), S, HIGH) == HIGH - 10
    assert needs.since(two, S, HIGH) == HIGH - 50
    assert binder.bound == ["a", "b", "b"]
