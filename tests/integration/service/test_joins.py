"""Shared joins: what is stored saves work and changes no answer; SteMs come and go with queries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, OpenPond

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.runtime import join_segments
from millpond.service import open_pond as composition
from millpond.service.answers import stored_join
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.observe.explain_joins import JoinFacts
from millpond.service.pond import Pond
from millpond.state.arrow_file import forget
from millpond.state.join_state import JoinCore
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

QUERIES = [
    "SELECT a.v, b.v FROM a [RANGE 9 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k",
    "SELECT a.v, b.v FROM a [RANGE 5 SECONDS], b [RANGE 12 SECONDS] WHERE a.k = b.k AND a.v > 4",
    "SELECT a.v FROM a, b WHERE a.k = b.k AND a.v = 3 AND b.v < 5",
    "SELECT x.v, y.v FROM a [RANGE 8 SECONDS] x, a [RANGE 8 SECONDS SLIDE 3 SECONDS] y"
    " WHERE x.k = y.k AND x.v < y.v",
    "SELECT a.v, b.v FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS]"
    " WHERE b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts",
    "SELECT a.v, b.v, c.v FROM a [RANGE 9 SECONDS], b [RANGE 7 SECONDS], c [RANGE 5 SECONDS]"
    " WHERE a.k = b.k AND b.v = c.v",
    "SELECT a.s, count(*) AS n, sum(b.d) AS t FROM a, b, c [NOW]"
    " WHERE a.s = b.s AND c.s = b.s AND c.k >= a.k GROUP BY a.s",
    "SELECT a.v, b.v FROM a JOIN b ON a.v < b.v BEGIN NOW - INTERVAL 6 SECONDS END NOW",
    "SELECT a.v, b.v FROM a SAMPLE(50), b [RANGE 9 SECONDS] WHERE a.d = b.d",
    "SELECT a.v, b.v FROM a [ROWS 5], b [RANGE 9 SECONDS] WHERE a.k = b.k",
]


@pytest.fixture
def answered() -> Iterator[list[bool]]:
    """For each invocation of a join with a core, whether what is stored was used."""
    used: list[bool] = []
    original = stored_join.StoredJoin.rows

    def found_rows(self: Any, *arguments: Any) -> Any:
        found = original(self, *arguments)
        used.append(found is not None)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_join.StoredJoin, "rows", found_rows)
        yield used


def create(pond: Pond) -> None:
    for name in "abc":
        pond.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER, s STRING, d DOUBLE)"
            " TIMESTAMP BY ts DELAY INTERVAL 3 SECONDS"
        )


def rows(chance: random.Random, second: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "ts": to_datetime((second - chance.randrange(3)) * SECOND),
            "k": chance.choice([None, 0, 1, 2]),
            "v": chance.randrange(10),
            "s": chance.choice([None, "", "x", "long enough"]),
            "d": chance.choice([0.0, -0.0, 0.1, 0.7, None]),
        }
        for _ in range(count)
    ]


def core(pond: Pond) -> JoinCore:
    (only,) = pond._components.log.version.joins.cores.values()
    return only


def run_files(pond: Pond) -> set[str]:
    return {ref.key for refs in pond._components.log.version.joins.runs_of.values() for ref in refs}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_stored_answers_are_those_of_the_windows(
    open_pond: OpenPond, answered: list[bool], seed: int
) -> None:
    chance = random.Random(seed)
    pond = open_pond()
    pond._components.maintenance.joins.settings = JoinSettings(
        shards=chance.choice([1, 2, 3]), routing=chance.choice(["ticket", "random", "worst"])
    )
    create(pond)
    waiting = list(QUERIES)
    chance.shuffle(waiting)
    names: list[str] = []
    for second in range(20):
        for stream in chance.sample("abc", chance.randrange(4)):
            pond.ingest(stream, rows(chance, second + 10, chance.randrange(4)))
        if waiting and second % 2:
            text = waiting.pop()
            names.append(f"q{second}")
            pond.register(text, f"q{second}", seed=1)
            pond.register(text, f"n{second}", seed=1, materialize="none")
        pond.catch_up() if chance.random() < 0.5 else pond.wait_until_matched()
        if names and chance.random() < 0.1:
            pond = open_pond()
        if names and chance.random() < 0.1:
            gone = names.pop(chance.randrange(len(names)))
            pond.execute(f"DROP QUERY {gone}; DROP QUERY n{gone[1:]}")
        for name in names:
            at = None if chance.random() < 0.7 else (second + chance.randrange(12)) * SECOND
            stored, plain = (pond.query(n).invoke(at=at) for n in (name, f"n{name[1:]}"))
            assert stored.table.equals(plain.table), (pond.query(name).definition.text, at)
    pond.wait_until_matched()
    assert any(answered)
    for name in names:
        pond.execute(f"DROP QUERY {name}; DROP QUERY n{name[1:]}")
    pond.wait_until_matched()
    assert not pond._components.log.version.joins.cores
    assert not pond._components.log.version.joins.runs_of
    assert not list((pond._components._store.directory / "pairs").iterdir())
    assert not list((pond._components._store.directory / "runs").iterdir())


@pytest.fixture
def joined(pond: Pond) -> Pond:
    create(pond)
    pond.register(QUERIES[0], "q")
    chance = random.Random(7)
    for second in range(10, 16):
        for stream in "ab":
            pond.ingest(stream, rows(chance, second, 5))
    pond.wait_until_matched()
    return pond


def test_queries_that_join_alike_share_a_core_whatever_their_windows(joined: Pond) -> None:
    joined.register(QUERIES[1], "other")
    joined.wait_until_matched()
    assert core(joined).next_use == core(joined).upto == 2
    assert run_files(joined) == {'"k" (integer) | "ts" (timestamp)'}
    joined.execute("DROP QUERY q")
    joined.wait_until_matched()
    assert list(joined._components.log.version.joins.users(core(joined).id)) == [1]
    joined.execute("ALTER QUERY other SET (active = false)")
    joined.wait_until_matched()
    assert not joined._components.log.version.joins.cores
    assert not run_files(joined)


def test_another_key_is_another_stem_of_the_same_streams(joined: Pond) -> None:
    joined.register("SELECT a.v FROM a [NOW], b [NOW] WHERE a.s = b.s", "by_text")
    joined.wait_until_matched()
    assert run_files(joined) == {
        '"k" (integer) | "ts" (timestamp)',
        '"s" (text) | "ts" (timestamp)',
    }


def test_pairs_are_stored_once(joined: Pond) -> None:
    version = joined._components.log.version
    found = [
        list(zip(*reader.after(-(2**62)), strict=True))
        for ref in version.joins.pairs(core(joined).id)
        if (reader := joined._components.invoker.files.pairs(ref)) is not None
    ]
    pairs = [pair for own in found for pair in own]
    assert len(pairs) == len(set(pairs)) > 0


def test_lost_files_are_done_without(joined: Pond, answered: list[bool]) -> None:
    before = joined.query("q").invoke().table
    directory = joined._components._store.directory
    for ref in joined._components.log.version.joins.pairs(core(joined).id):
        Path(directory / ref.path).unlink()
        joined._components.invoker.files.forget([ref.path])
        forget(directory / ref.path)
    assert joined.query("q").invoke().table.equals(before)
    assert answered == [True, False]


def test_small_files_are_folded_and_old_ones_forgotten(pond: Pond, answered: list[bool]) -> None:
    create(pond)
    pond.register(QUERIES[0], "q")
    chance = random.Random(3)
    for second in range(10, 40):
        for stream in "ab":
            pond.ingest(stream, rows(chance, second, 3))
        pond.wait_until_matched()
    files = pond._components.log.version.joins.pairs(core(pond).id)
    assert any(file.level for file in files)
    assert len(files) < 30
    assert core(pond).since_of(0) > 10 * SECOND
    pond.query("q").invoke()
    pond.query("q").invoke(at=12 * SECOND)
    assert answered == [True, False]


def test_the_pairs_of_a_join_that_explodes_are_not_stored(
    pond: Pond, caplog: pytest.LogCaptureFixture
) -> None:
    create(pond)
    pond._components.maintenance.joins.settings = JoinSettings(shards=1, max_pairs=50)
    pond.register("SELECT a.v FROM a, b WHERE a.k = b.k", "all_of_it")
    pond.register("SELECT a.v FROM a, b WHERE a.k = b.k AND a.v = 3 AND b.v = 3", "some")
    alike = [{"ts": to_datetime(20 * SECOND), "k": 1, "v": v % 4} for v in range(12)]
    pond.ingest("a", alike)
    pond.ingest("b", alike)
    pond.wait_until_matched()
    assert "the pairs of query all_of_it are not stored: its join finds 144" in caplog.text
    assert pond.query("all_of_it").invoke().table.num_rows == 144
    assert pond.query("some").invoke().table.num_rows == 9
    assert core(pond).upto == 2
    assert sum(file.pairs for file in pond._components.log.version.joins.pairs(core(pond).id)) == 9
    pond._components.maintenance.joins.settings = JoinSettings(shards=1)
    pond.query("all_of_it").alter(active=False)
    pond.query("all_of_it").alter(active=True)
    pond.wait_until_matched()
    pairs = pond._components.log.version.joins.pairs(core(pond).id)
    assert sum(file.pairs for file in pairs) == 9 + 144
    assert pond.query("all_of_it").invoke().table.num_rows == 144


def test_one_task_a_shard_finds_the_same(tmp_path: Path, clock: ManualClock) -> None:
    answers, sizes = [], []
    for shards in (1, 3):
        pond = open_local(tmp_path / f"shards{shards}", clock=clock)
        pond._components.maintenance.joins.settings = JoinSettings(shards=shards)
        create(pond)
        pond.register(QUERIES[0], "q")
        chance = random.Random(5)
        for second in range(10, 16):
            for stream in "ab":
                pond.ingest(stream, rows(chance, second, 9))
        pond.wait_until_matched()
        answers.append(pond.query("q").invoke().table)
        runs = [ref for refs in pond._components.log.version.joins.runs_of.values() for ref in refs]
        sizes.append({ref.shards for ref in runs})
        pond.close()
    assert answers[0].equals(answers[1])
    assert sizes == [{1}, {3}]


def test_what_shared_joins_are_is_shown(joined: Pond) -> None:
    joined.register(QUERIES[1], "other")
    joined.wait_until_matched()
    shown = joined.explain("other", "shared")
    assert "shared by: q, other" in shown
    assert 'SteM on a: "k" (integer) | "ts" (timestamp)' in shown
    assert "up to date: True" in shown
    together = "\n".join(JoinFacts(joined._components.joins).of_all(joined._components.log.version))
    assert together.startswith("join of a, b: 2 queries, ")
    assert '"k" of a = "k" of b' in together
    assert 'SteM on b by "k" (integer) | "ts" (timestamp): 1 join' in together
    figures = {sample.name: sample.value for m in joined.metrics.collect() for sample in m.samples}
    assert figures["millpond_joins"] == 1
    assert figures["millpond_stem_runs"] > 0
    assert figures["millpond_join_pairs"] > 0


def test_a_factor_that_cannot_be_evaluated_everywhere_is_left_to_invocation(pond: Pond) -> None:
    create(pond)
    guarded = "SELECT a.v, b.v FROM a, b WHERE CAST(a.s AS INTEGER) = b.v AND a.s NOT IN ('x', '')"
    pond.register(guarded, "q")
    at = to_datetime(20 * SECOND)
    pond.ingest("a", [{"ts": at, "v": 1, "s": "7"}, {"ts": at, "v": 2, "s": "x"}])
    pond.ingest("b", [{"ts": at, "v": 7}])
    pond.wait_until_matched()
    assert "left to invocation" in pond.explain("q", "shared")
    assert pond.query("q").invoke().rows() == [(1, 7)]


def test_of_too_many_joins_those_are_kept_that_most_queries_share(pond: Pond) -> None:
    pond._components.set_join_settings(JoinSettings(max_cores=1))
    create(pond)
    lone, shared = "a.s = b.s", "a.k = b.k"
    for number, factor in enumerate((lone, shared, shared)):
        text = f"SELECT a.v, b.v FROM a, b WHERE {factor} AND a.v > {number}"
        pond.register(text, f"q{number}")
        pond.register(text, f"n{number}", materialize="none")
    chance = random.Random(2)
    for stream in "ab":
        pond.ingest(stream, rows(chance, 12, 9))
    pond.wait_until_matched()
    covered = {c.next_use: c.covered for c in pond._components.log.version.joins.cores.values()}
    assert covered[2] == (9, 9)
    assert covered[1] != (9, 9)
    for number in range(3):
        stored, plain = (pond.query(f"{n}{number}").invoke().table for n in "qn")
        assert stored.equals(plain)


def test_policies_and_shards_are_changed_while_running(joined: Pond) -> None:
    before = joined.query("q").invoke().table
    joined._components.set_join_settings(JoinSettings(shards=1, routing="fixed"))
    chance = random.Random(1)
    joined.ingest("a", rows(chance, 15, 2))
    joined.wait_until_matched()
    assert joined._components.stems.routing == "fixed"
    assert {
        r.shards for refs in joined._components.log.version.joins.runs_of.values() for r in refs
    } >= {1}
    assert before.num_rows > 0


def test_there_is_no_other_policy() -> None:
    with pytest.raises(MillpondError) as caught:
        composition.open_pond(routing="best")
    assert caught.value.code == "CQL-214"


def test_query_sets_are_kept_within_bounds(joined: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_segments, "_KEPT_BYTES", 1)
    joined.register(QUERIES[2], "narrow")
    joined.wait_until_matched()
    assert len(join_segments._kept_sets) <= 1
    plain = joined.register(QUERIES[2], "plain", materialize="none")
    assert joined.query("narrow").invoke().table.equals(plain.invoke().table)


def test_every_key_of_a_plan_is_known(joined: Pond) -> None:
    plan = joined._components.maintenance.joins.plan(core(joined))
    assert [(leaf, key.text) for leaf, key in plan.stems()] == [
        (0, '"k" (integer) | "ts" (timestamp)'),
        (1, '"k" (integer) | "ts" (timestamp)'),
    ]
