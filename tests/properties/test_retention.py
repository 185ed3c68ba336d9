"""Law 7 for what was forgotten: an answer is complete, or says since when, and is right so far.

RETAIN promises a least, not a most, so what a pond has forgotten is its own affair; that the answer
over the rest is the definition's answer over the rest is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.oracle.denotation import denote
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells
from tests.tools.golden import MakePond

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
LAST = 120
WINDOWS = (
    "",
    "[RANGE 5 SECONDS]",
    "[RANGE 60 SECONDS]",
    "[RANGE 20 SECONDS SLIDE 7 SECONDS]",
    "[ROWS 4]",
    "[ROWS 1000 WHERE v < 3]",
    "[PARTITION BY k ROWS 2]",
    "[NOW]",
)
INSTANTS = (None, 3 * SECOND, 40 * SECOND, 71 * SECOND, 99 * SECOND + 1, 119 * SECOND)


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"ts": to_datetime(t * SECOND), "k": "abc"[t % 3] if t % 7 else None, "v": t * t % 11}
        for t in range(first, last)
    ]


def fed(make_pond: MakePond, retain: str, queries: Callable[[Any], None]) -> tuple[Any, OraclePond]:
    """A pond and the oracle after two minutes of elements, one a second, ten an epoch."""
    clock = ManualClock()
    pond, oracle = make_pond(clock), OraclePond(clock)
    declaration = (
        f"CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts RETAIN {retain}"
    )
    for each in (pond, oracle):
        each.execute(declaration)
        queries(each)
        for first in range(0, LAST, 10):
            each.ingest("s", rows(first, first + 10))
            each.catch_up()
    return pond, oracle


@pytest.mark.parametrize("retain", ["INTERVAL 30 SECONDS", "25 ROWS", "INTERVAL 1 HOUR"])
def test_an_answer_is_right_over_what_it_says_is_kept(make_pond: MakePond, retain: str) -> None:
    pond, oracle = fed(make_pond, retain, lambda pond: None)
    incomplete = 0
    for number, window in enumerate(WINDOWS):
        for each in (pond, oracle):
            each.execute(f"CREATE QUERY q{number} AS SELECT k, v FROM s {window} WHERE v <> 4")
        incomplete += hold_to_the_definition(pond, oracle, f"q{number}")
    assert (incomplete == 0) == (retain == "INTERVAL 1 HOUR")
    pond.close()


def test_what_no_window_needs_may_go_but_not_what_retain_promises(make_pond: MakePond) -> None:
    pond, oracle = fed(make_pond, "INTERVAL 30 SECONDS", lambda pond: None)
    for each in (pond, oracle):
        each.execute("CREATE QUERY late AS SELECT v FROM s [RANGE 10 SECONDS]")
    hold_to_the_definition(pond, oracle, "late")
    answer = pond.query("late").invoke(at=100 * SECOND)
    assert answer.exact, "100 s is 19 s ago, and its window reaches back 29 s of the 30 promised"
    pond.close()


def test_a_registered_window_is_always_kept_whole(make_pond: MakePond) -> None:
    pond, oracle = fed(
        make_pond,
        "INTERVAL 5 SECONDS",
        lambda pond: pond.execute("CREATE QUERY wide AS SELECT v FROM s [RANGE 100 SECONDS]"),
    )
    answer = pond.query("wide").invoke()
    assert answer.exact
    assert len(answer.rows()) == 100
    hold_to_the_definition(pond, oracle, "wide")
    pond.close()


def hold_to_the_definition(pond: Any, oracle: OraclePond, name: str) -> int:
    """Checks a query's answers at all instants; gives how many were not complete."""
    incomplete = 0
    tree = oracle.query(name).tree
    for at in INSTANTS:
        try:
            answer = pond.query(name).invoke(at=at)
        except MillpondError as error:
            if at is None or error.code != "POND-403":  # the instant itself is not kept
                raise
            incomplete += 1
            continue
        since = None if answer.exact else answer.loss[0].upto + 1
        meant = denote(oracle.world, tree, at, kept_since=since)
        wanted = [tuple(row.values()) for row in meant.table.to_pylist()]
        shown = [Counter(cells.show_rows(bag)) for bag in (answer.rows(), wanted)]
        assert shown[0] == shown[1], f"{name} at {at}, complete since {since}"
        low = meant.reach["s"]
        assert since is None or low is None or low < since, "complete, but says it is not"
        incomplete += not answer.exact
    return incomplete
