"""Keeping shared joins: rounds, joins that are given up, and what is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.conftest import components_of

from millpond.service.components import Components
from millpond.service.maintenance import join_maintenance
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.pond import Pond
from millpond.state.join_state import JoinCore, PairsRef

JOIN = "SELECT a.v, b.v FROM a [RANGE {0} SECONDS], b [RANGE {0} SECONDS] WHERE a.k = b.k"


@pytest.fixture
def parts(pond: Pond) -> Components:
    """Streams without a thread that maintains: the tests do each round."""
    for name in "ab":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    parts = components_of(pond)
    parts.maintenance.stop()
    parts.maintenance.stopping = False
    return parts


def feed(pond: Pond, second: int, count: int = 1) -> None:
    """Elements of one key to both streams."""
    for name in "ab":
        at = f"1970-01-01 00:{second // 60:02}:{second % 60:02}"
        pond.ingest(name, [{"ts": at, "k": 1, "v": v} for v in range(count)])


def core(parts: Components) -> JoinCore:
    (found,) = parts.log.version.joins.cores.values()
    return found


def pairs(parts: Components) -> tuple[PairsRef, ...]:
    return parts.log.version.joins.pairs(core(parts).id)


def rest(parts: Components) -> int:
    """Do rounds until there is nothing to do; how many there were."""
    rounds = 0
    while parts.joins.run_rounds():
        rounds += 1
        assert rounds < 50
    return rounds


def test_each_tuple_is_stored_once(pond: Pond, parts: Components) -> None:
    feed(pond, 1, 2)
    assert not parts.joins.run_rounds()  # nobody joins
    pond.register(JOIN.format(9), "q")
    assert rest(parts) == 1
    assert sum(file.pairs for file in pairs(parts)) == 4
    feed(pond, 2)
    assert rest(parts) == 1
    assert sum(file.pairs for file in pairs(parts)) == 9
    assert core(parts).covered == (3, 3)


def test_a_later_use_is_brought_up_to_where_the_others_are(pond: Pond, parts: Components) -> None:
    pond.register(JOIN.format(2), "narrow")
    feed(pond, 1)
    feed(pond, 5)
    rest(parts)
    # What had left the windows before it was looked for is not stored.
    assert sum(file.pairs for file in pairs(parts)) == 1
    pond.register(JOIN.format(9), "wide")
    feed(pond, 6)
    assert rest(parts) == 1
    assert core(parts).upto == core(parts).next_use == 2
    for name in ("narrow", "wide"):
        plain = pond.register(pond.query(name).definition.text, materialize="none")
        assert pond.query(name).invoke().rows() == plain.invoke().rows()


def test_pairs_that_were_not_looked_for_are_not_taken_for_none(
    pond: Pond, parts: Components
) -> None:
    pond.register(JOIN.format(9), "q")
    rest(parts)  # there is nothing yet
    for second in (1, 5, 50):
        feed(pond, second)
    rest(parts)
    assert core(parts).covered == (3, 3)
    assert core(parts).since_of(0) == 41_000_000
    plain = pond.register(JOIN.format(9), materialize="none")
    for second in (1, 6, 9, 13, 50):
        stored = pond.query("q").invoke(at=second * 1_000_000).rows()
        assert stored == plain.invoke(at=second * 1_000_000).rows() != []


def test_queries_that_keep_coming_keep_no_element_waiting(pond: Pond, parts: Components) -> None:
    pond.register(JOIN.format(9), "first")
    rest(parts)
    for second in range(1, 5):
        feed(pond, second)
        pond.register(JOIN.format(9 + second))
        parts.joins.run_rounds()
        assert core(parts).covered == (second, second)
        assert core(parts).upto == core(parts).next_use == second + 1


def test_of_a_join_with_too_many_pairs_none_are_stored(pond: Pond, parts: Components) -> None:
    parts.set_join_settings(JoinSettings(shards=1, max_pairs=8))
    pond.register(JOIN.format(9), "q")
    feed(pond, 1, 3)
    rest(parts)
    assert pond.query("q").definition.suspended is None
    assert not parts.log.version.joins.cores
    answer = pond.query("q").invoke(at=1_000_000).rows()
    assert len(answer) == 9
    assert not list((parts._store.directory / "pairs").iterdir())
    pond.query("q").alter(active=False)
    pond.query("q").alter(active=True)
    parts.set_join_settings(JoinSettings(shards=1, max_pairs=9))
    rest(parts)
    assert pond.query("q").invoke(at=1_000_000).rows() == answer
    assert sum(file.pairs for file in pairs(parts)) == 9


def test_a_factor_that_fails_leaves_the_join_to_invocation(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM t (ts TIMESTAMP, s STRING) TIMESTAMP BY ts")
    pond.register("SELECT a.v FROM a, t WHERE t.s <> 'x' AND a.k = CAST(t.s AS INTEGER)", "q")
    pond.ingest("t", [{"ts": "1970-01-01 00:00:01", "s": s} for s in ("1", "x")])
    feed(pond, 1)
    parts.joins.run_rounds()
    assert set(parts.joins.failed) == {core(parts).id}
    assert not parts.joins.run_rounds()
    assert pond.query("q").definition.suspended is None
    assert pairs(parts) == ()


def test_of_too_many_joins_the_most_used_are_kept(pond: Pond, parts: Components) -> None:
    parts.set_join_settings(JoinSettings(max_cores=1))
    pond.register("SELECT a.v FROM a, b WHERE a.v = b.v", "first")
    for name in ("one", "two"):
        pond.register(JOIN.format(9 if name == "one" else 8), name)
    feed(pond, 1)
    rest(parts)
    joins = parts.log.version.joins
    kept = {}
    for query in pond.queries():
        used = joins.core_of(query.id)
        assert used is not None
        kept[query.name] = bool(joins.pairs(used[0].id))
    assert kept == {"first": False, "one": True, "two": True}


def test_pairs_that_left_every_window_are_forgotten(pond: Pond, parts: Components) -> None:
    pond.register(JOIN.format(9), "q")
    feed(pond, 1)
    feed(pond, 5)
    rest(parts)
    before = pairs(parts)
    feed(pond, 12)
    rest(parts)
    # 5 is in the windows with 12; 1 is not, and its file is dropped if it holds nothing else.
    needed = 12_000_000 - 9_000_000
    assert all(file.max_oldest >= needed for file in pairs(parts))
    feed(pond, 50)
    rest(parts)
    assert not set(before) & set(pairs(parts))
    assert core(parts).since_of(0) == 41_000_000
    assert pond.query("q").invoke(at=6_000_000).rows() != []


def test_small_files_become_one(
    pond: Pond, parts: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.set_join_settings(JoinSettings(shards=1))
    pond.register(JOIN.format(50), "q")
    for second in range(1, 4):
        feed(pond, second)
        parts.joins.run_rounds()
    files = pairs(parts)
    assert len(files) >= 3
    monkeypatch.setattr(join_maintenance, "_MOST_FILES", 3)
    assert rest(parts)
    folded = pairs(parts)
    assert len(folded) < 3
    assert sum(file.pairs for file in folded) == sum(file.pairs for file in files) == 9
    assert max(file.level for file in folded) > max(file.level for file in files)
    assert min(f.min_oldest for f in folded) == min(f.min_oldest for f in files) == 1_000_000
    assert max(f.max_oldest for f in folded) == max(f.max_oldest for f in files) == 3_000_000
    assert len(pond.query("q").invoke()) == 9


def test_stems_go_with_the_last_query_that_needs_them(pond: Pond, parts: Components) -> None:
    def runs() -> set[str]:
        kept = parts.log.version.joins.runs_of.values()
        return {Path(run.path).name for own in kept for run in own}

    pond.register(JOIN.format(9), "q")
    pond.register(JOIN.format(5), "other")
    feed(pond, 1)
    rest(parts)
    assert runs()
    assert not parts.joins.tidy()
    pond.query("q").unregister()
    assert not parts.joins.tidy()
    pond.query("other").unregister()
    assert parts.joins.tidy()
    assert runs() == set()
    assert not parts.joins.tidy()
