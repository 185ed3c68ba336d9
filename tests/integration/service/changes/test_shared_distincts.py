"""Followed DISTINCTs over windows of other lengths, as one meets them: in a pond that goes on."""

from __future__ import annotations

from random import Random

from tests.unit.service.conftest import SECOND, OpenPond

from millpond.model.time import to_datetime
from millpond.service.pond import Pond


def register(pond: Pond, length: int) -> None:
    text = f"SELECT DISTINCT k FROM s [RANGE {length} SECONDS] WHERE v > 0"
    pond.execute(f"CREATE QUERY q{length} WITH (changes = 'from beginning') AS {text}")


def expect(elements: list[tuple[int, str]], length: int, upto: int) -> list[tuple[int, str, str]]:
    """The changes up to a second: a value is there as long after an element as the window is."""
    found, there = [], set[str]()
    for now in range(upto + 1):
        held = {k for at, k in elements if now - length < at <= now}
        found += [(now, "-", k) for k in there - held] + [(now, "+", k) for k in held - there]
        there = held
    return sorted(found)


def test_queries_that_come_and_go_between_restarts_have_the_changes_they_mean(
    open_pond: OpenPond,
) -> None:
    random = Random(3)
    elements: list[tuple[int, str]] = []
    pond = open_pond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    followed: set[int] = set()
    for now in range(0, 60, 3):
        # The longest comes later, is caught up, and goes before the others.
        coming = {6: {2, 5, 11}, 24: {17}}.get(now, set())
        for length in sorted(coming):
            register(pond, length)
        followed |= coming
        if now == 39:
            pond.execute("DROP QUERY q17")
            followed.remove(17)
        if now in (18, 30, 48):
            pond = open_pond()
        some = sorted((now + random.randrange(3), random.choice("abcdef")) for _ in range(3))
        elements += some
        rows = [{"ts": to_datetime(at * SECOND), "k": k, "v": 1} for at, k in some]
        pond.ingest("s", [*rows, {"ts": to_datetime((now + 2) * SECOND), "k": "no", "v": -1}])
        pond.catch_up()
        for length in followed:
            changes = pond.query(f"q{length}").fetch().rows()
            found = sorted((at // SECOND, sign, k) for _, at, sign, k in changes)
            assert found == expect(elements, length, now + 1), (length, now)
    assert pond.explain("q5", "shared").count("kept once for 3 DISTINCTs") == 1
    assert "kept once" not in pond.explain("q5", "rewritten")
