"""How a query uses a shared join: how long elements live in its windows, and when it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import StreamDef
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window, interval
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.pond import Pond
from millpond.service.queries.join_use import join_of, span_of, use_of

SECOND = 1_000_000


@pytest.fixture
def pond(pond: Pond) -> Pond:
    for name in "ab":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    return pond


def bound(pond: Pond, text: str) -> tuple[BoundQuery, list[StreamDef]]:
    parts = components_of(pond)
    found = parts.registrar.bind(text)
    streams: list[Any] = [parts.log.version.find(leaf.stream) for leaf in found.streams]
    return found, streams


def is_in(window: Window, ts: int, at: int) -> bool:
    low, high = interval(window, at)
    return ts <= high and (low is None or low <= ts)


@given(
    st.one_of(
        st.builds(Range, st.integers(1, 30)),
        st.builds(Range, st.integers(1, 30), st.integers(1, 30)),
        st.just(Now()),
        st.builds(
            lambda begin, length: Period(Bound(offset=begin), Bound(offset=begin + length)),
            st.integers(-30, 0),
            st.integers(0, 30),
        ),
    ),
    st.integers(0, 60),
)
def test_an_element_is_in_no_window_after_its_span(window: Window, ts: int) -> None:
    span = span_of(window)
    assert span is not None
    assert span > 0
    assert not any(is_in(window, ts, at) for at in range(ts + span, ts + span + 70))


def test_some_spans_are_exact_and_some_have_no_end() -> None:
    assert (span_of(Range(10)), span_of(Now())) == (10, 1)
    assert span_of(Period(Bound(offset=-4), Bound(offset=0))) == 5
    for window in (Unbounded(), Rows(3), Period(Bound(instant=5), Bound(offset=0))):
        assert span_of(window) is None


def test_a_use_has_the_spans_of_its_windows(pond: Pond) -> None:
    found, streams = bound(pond, "SELECT a.v FROM a [RANGE 9 SECONDS], b WHERE a.k = b.k")
    use = use_of(7, 3, found, streams)
    assert use is not None
    assert (use.query_id, use.core_id, use.leaves) == (7, 3, (0, 1))
    assert use.spans == (9 * SECOND, None)


def test_equal_joins_have_one_key_whatever_their_windows(pond: Pond) -> None:
    def key(text: str) -> str | None:
        plan = join_of(*bound(pond, text))
        return None if plan is None else plan.key

    one = key("SELECT a.v FROM a [RANGE 9 SECONDS], b WHERE a.k = b.k")
    assert one is not None
    assert one == key("SELECT count(*) AS n FROM a, b [NOW] WHERE a.k = b.k AND a.v > 3")
    assert one != key("SELECT a.v FROM a, b WHERE a.k = b.v")
    assert key("SELECT a.v FROM a") is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.v FROM a [ROWS 5], b WHERE a.k = b.k",
        "SELECT a.v FROM a, a$rejects b WHERE a.ts = b.rejected_at",
    ],
)
def test_some_tuples_cannot_be_stored(pond: Pond, text: str) -> None:
    found, streams = bound(pond, text)
    assert join_of(found, streams) is not None
    assert use_of(7, 3, found, streams) is None
