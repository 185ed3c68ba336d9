"""Shared logs: the changes of queries of one shape in one stream, as if each had its own.

The reference is a twin: a query of the same text with an option by which its changes are computed
by itself, in a change log of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.state.arrow_file import forget
from millpond.state.check_and_repair.check import check_store
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
SCHEMA = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts;"
SHAPES = (
    "SELECT v FROM s [RANGE 3 SECONDS] WHERE k = {k} AND v >= {v}",
    "SELECT v, k, v AS again FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE k = {k} AND v < {v}",
    "SELECT * FROM s WHERE k IN ({k}, 7) AND v > {v}",
    "SELECT v FROM s [NOW] WHERE v = {v}",
    "DSTREAM(SELECT k FROM s [RANGE 2 SECONDS] WHERE v <= {v} AND k <> {k})",
    "ISTREAM(SELECT k FROM s [RANGE 2 SECONDS WHERE v > 1] WHERE k = {k} OR v = {v})",
    "SELECT v FROM s [ROWS 3] WHERE k = {k} OR v > {v}",
    "SELECT v FROM s [ROWS 2 WHERE k <> {k} AND v >= {v}]",
    "SELECT v, k FROM s [PARTITION BY k ROWS 2] WHERE v <= {v} AND k <> {k}",
    "DSTREAM(SELECT v FROM s [PARTITION BY v ROWS 1 WHERE k < {k} OR v > {v}])",
)
#: An option by which a query's changes are computed by itself.
APART = {"lazy_expiration": "7 SECONDS"}


def open_pond(store: Path) -> Pond:
    return open_local(store, clock=ManualClock(10_000 * SECOND))


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        yield pond


def push(pond: Pond, *elements: tuple[int, int, int]) -> None:
    rows = [
        {"ts": f"1970-01-01 00:{t // 60:02}:{t % 60:02}", "k": k, "v": v} for t, k, v in elements
    ]
    pond.ingest("s", rows)
    pond.catch_up()


def shared_logs(pond: Pond) -> list[StreamDef]:
    return [s for s in pond._components.log.version.streams.values() if s.is_shared_log]


def is_shared(pond: Pond, name: str) -> bool:
    log = pond._components.log.version.change_log(pond.query(name).id)
    assert log is not None
    return log.shared_log is not None


def compare(pond: Pond) -> int:
    """Compare each query with its twin; return how many changes there are."""
    found = 0
    for query in pond.queries():
        if not query.name.endswith("twin") and query.active:
            own, twin = (pond.query(n).fetch() for n in (query.name, f"{query.name}twin"))
            assert own.rows() == twin.rows(), query.text
            assert own.as_of == twin.as_of
            found += len(own)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_shared_log_gives_what_a_log_of_its_own_gives(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    moment, names = 0, list[str]()
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
    for life in range(3):
        with open_pond(tmp_path / "store") as pond:
            for step in range(12):
                if chance.random() < 0.4:
                    name = f"q{life}_{step}"
                    shape = chance.choice(SHAPES)
                    text = shape.format(k=chance.randint(0, 3), v=chance.randint(0, 5))
                    begin = chance.choice(["from registration", "from beginning"])
                    options = {"follow": chance.random() < 0.7, "changes": begin}
                    wanted = [(text, name, options), (text, f"{name}twin", {**options, **APART})]
                    pond.register_many(wanted)
                    names.append(name)
                if names and chance.random() < 0.3:
                    name = chance.choice(names)
                    is_active = pond.query(name).definition.active
                    for one in (name, f"{name}twin"):
                        pond.query(one).alter(active=not is_active)
                if names and chance.random() < 0.1:
                    name = names.pop(chance.randrange(len(names)))
                    for one in (name, f"{name}twin"):
                        pond.query(one).unregister()
                if chance.random() < 0.1:
                    pond.reset_clock("s", max(0, moment - 3) * SECOND)
                    moment = max(0, moment - 3)
                if chance.random() < 0.4:
                    pond.wait_until_matched()
                elements = []
                for _ in range(chance.randint(1, 6)):
                    moment += chance.randint(0, 1)
                    elements.append((moment, chance.randint(0, 3), chance.randint(0, 5)))
                push(pond, *elements)
                compare(pond)
    with open_pond(tmp_path / "store") as pond:
        push(pond, (moment + 20, 0, 0))
        assert compare(pond) > 10
        every = pond.queries(state="active")
        assert {is_shared(pond, q.name) for q in every if q.name.endswith("twin")} <= {False}
    assert check_store(tmp_path / "store").is_whole


def test_a_thousand_queries_cost_one_segment_an_epoch(pond: Pond) -> None:
    wanted = [(SHAPES[0].format(k=n, v=1), f"q{n}", {"follow": True}) for n in range(1_000)]
    pond.register_many(wanted)
    push(pond, (1, 0, 0))
    pond.query("q0").fetch()
    (shared,) = shared_logs(pond)
    log = pond._components.log
    before = {s.id for s in log.version.segments(shared.id)}
    push(pond, *((2, n, n) for n in range(1_000)), (3, 0, 0))
    assert [len(pond.query(f"q{n}").fetch()) for n in (0, 1, 999)] == [0, 1, 1]
    (new,) = {s.id for s in log.version.segments(shared.id)} - before
    segment = log.version.segment(new)
    assert segment is not None
    assert segment.rows == 999


def test_windows_of_rows_are_shared_as_their_queries_count(pond: Pond) -> None:
    wanted = {
        "all": "SELECT v FROM s [ROWS 3] WHERE k = {k}",
        "own": "SELECT v FROM s [ROWS 3 WHERE k = {k}]",
        "all of each": "SELECT v FROM s [PARTITION BY v ROWS 3] WHERE k = {k}",
        "own of each": "SELECT v FROM s [PARTITION BY v ROWS 3 WHERE k = {k}]",
    }
    for number, text in enumerate(wanted.values()):
        queries = [(text.format(k=k), f"q{number}_{k}", {"follow": True}) for k in (1, 2)]
        pond.register_many(queries)
    push(pond, (1, 1, 5), (2, 2, 5), (3, 2, 6), (4, 2, 7), (5, 1, 5), (9, 9, 9))
    assert len(shared_logs(pond)) == len(wanted)
    assert all(is_shared(pond, query.name) for query in pond.queries())
    found = [[row[-1] for row in pond.query(f"q{n}_1").fetch().rows()] for n in range(len(wanted))]
    assert found == [[5, 5, 5], [5, 5], [5, 5], [5, 5]]


def test_queries_that_come_later_go_to_the_same_log(pond: Pond) -> None:
    for number in range(5):
        pond.register(SHAPES[0].format(k=number, v=1), f"q{number}", follow=True)
        push(pond, (2 * number + 1, number, 3))
        pond.query(f"q{number}").fetch()
    push(pond, (20, 0, 0))
    assert [len(pond.query(f"q{number}").fetch()) for number in range(5)] == [2] * 5
    push(pond, (21, 0, 0), (22, 0, 0))
    pond.query("q0").fetch()
    assert len(shared_logs(pond)) == 1


def test_what_is_altered_goes_its_own_way_and_keeps_its_cursor(pond: Pond) -> None:
    pond.register(SHAPES[2].format(k=1, v=0), "q", follow=True)
    push(pond, (1, 1, 1), (2, 1, 2))
    first = pond.query("q").fetch()
    assert [row[-1] for row in first.rows()] == [1]
    assert is_shared(pond, "q")
    pond.query("q").alter(weight=3)
    assert not is_shared(pond, "q")
    push(pond, (3, 1, 3), (4, 1, 4))
    assert [row[-1] for row in pond.query("q").fetch(first.cursor).rows()] == [2, 3]
    assert [row[0] for row in pond.query("q").fetch().rows()] == [1, 2, 3]


def test_each_query_keeps_as_many_changes_as_it_is_told_to(pond: Pond) -> None:
    text = SHAPES[2]
    pond.register(text.format(k=1, v=0), "few", follow=True, keep_changes=4)
    pond.register(text.format(k=1, v=-1), "all", follow=True)
    pond.register(text.format(k=2, v=0), "rare", follow=True, keep_changes=4)
    push(pond, (1, 2, 5))
    for at in range(2, 40):
        push(pond, (at, 1, at))
        pond.query("few").fetch("oldest")
        pond.wait_until_matched()
    kept = pond.query("few").fetch("oldest")
    oldest = kept.rows()[0][0] - 1
    assert 4 <= len(kept) < 30
    assert [row[0] for row in kept.rows()] == list(range(oldest + 1, 38))
    for cursor in (None, oldest - 1):
        with pytest.raises(MillpondError, match="POND-412"):
            pond.query("few").fetch(cursor)
    assert len(pond.query("all").fetch()) == 37
    assert len(pond.query("rare").fetch()) == 1


def test_a_shared_log_goes_with_its_last_query(pond: Pond) -> None:
    for number in range(3):
        pond.register(SHAPES[0].format(k=number, v=1), f"q{number}", follow=True)
    push(pond, (1, 1, 1), (2, 1, 2))
    pond.query("q1").fetch()
    for number in range(3):
        pond.query(f"q{number}").unregister()
    push(pond, (3, 1, 1))
    pond.wait_until_matched()
    assert shared_logs(pond) == []
    pond.execute("DROP STREAM s;")


def test_a_damaged_segment_is_found_and_named(tmp_path: Path) -> None:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        pond.register(SHAPES[2].format(k=1, v=0), "q", follow=True)
        push(pond, (1, 1, 1), (2, 1, 2))
        pond.query("q").fetch()
        (shared,) = shared_logs(pond)
        (segment,) = pond._components.log.version.segments(shared.id)
    file = tmp_path / "store" / segment.path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    forget(file)  # this process has read it when it was whole
    report = check_store(tmp_path / "store")
    assert any(segment.path in line for part in report.parts for line in part.damage)
    with open_pond(tmp_path / "store") as pond, pytest.raises(MillpondError, match="STORE-602"):
        pond.query("q").fetch()


def test_what_is_altered_and_stays_is_matched_and_followed_on(pond: Pond) -> None:
    pond.register(SHAPES[2].format(k=1, v=0), "q", follow=True)
    pond.query("q").alter(comment="a word")
    version = pond._components.log.version
    (leaf,) = version.leaves(pond.query("q").id)
    assert leaf.slot is not None
    assert version.slot(leaf.stream_id, leaf.slot) is not None
    assert is_shared(pond, "q")
    push(pond, (1, 1, 1), (2, 1, 2))
    assert [row[-1] for row in pond.query("q").fetch().rows()] == [1]
