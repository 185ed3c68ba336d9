"""Which queries share a log, and what becomes of it when they leave."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import Derived, QueryDef, StreamDef
from millpond.model.schema import Schema
from millpond.service.queries.shared_changes import (
    find_left_shared_logs,
    has_plain_options,
    is_plain,
    leave_shared_log,
)
from millpond.state.version import StreamClock, StreamState, Version

#: The options by which a query's changes are computed otherwise, or at another time.
COMPUTED_OTHERWISE = {
    "strategy",
    "partitions",
    "eager_expiration",
    "lazy_expiration",
    "seed",
    "tolerate",
    "weight",
}


def make_log(id: int, shared: int | None, apart_from: int | None = None) -> StreamDef:
    derived = Derived("…", 100 + id, shared_log=shared, apart_from=apart_from)
    return StreamDef(id, f"{id}$changes", Schema(()), derived=derived)


@pytest.mark.parametrize("name", sorted(COMPUTED_OTHERWISE))
def test_what_says_how_changes_are_computed_is_not_plain(name: str) -> None:
    assert not has_plain_options({"tags": "a", name: "…"})


def test_what_says_nothing_of_how_changes_are_computed_is_plain() -> None:
    assert has_plain_options({})
    assert has_plain_options({"active": True, "keep_changes": 10, "max_rows": 5, "tags": "a"})


def test_who_is_not_answered_shares_nothing() -> None:
    query = QueryDef(1, "q", "…", {"tags": "a"}, 0, 0)
    assert is_plain(query)
    assert not is_plain(QueryDef(1, "q", "…", {"active": False}, 0, 0))
    assert not is_plain(QueryDef(1, "q", "…", {}, 0, 0, suspended="It failed."))


def test_a_log_that_leaves_goes_on_from_where_the_shared_log_is() -> None:
    log = make_log(2, 1)
    states = {
        1: StreamState(clock=StreamClock(heartbeat=50)),
        2: StreamState(clock=StreamClock(heartbeat=20, next_seq=7)),
    }
    version = Version(streams={2: log}, states=states)
    left, clock = leave_shared_log(version, log)
    assert left.shared_log is None
    assert left.derived is not None
    assert (left.derived.shared_log, left.derived.apart_from) == (1, 7)
    assert (clock.heartbeat, clock.next_seq) == (50, 7)


def test_a_shared_log_is_left_once_nobody_has_changes_there() -> None:
    logs = {2: make_log(2, 1), 3: make_log(3, 1, apart_from=4), 4: make_log(4, None)}
    version = Version(streams=logs)
    assert find_left_shared_logs(version, [logs[2]]) == set()
    assert find_left_shared_logs(version, [logs[4]]) == set()
    assert find_left_shared_logs(version, [logs[2], logs[3]]) == {1}
