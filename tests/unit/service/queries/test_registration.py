"""Registration: predicates share slots, options come and go, and races lose nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows, values

from millpond.errors import MillpondError
from millpond.model.time import to_instant
from millpond.service.pond import Pond
from millpond.service.queries import registration


@pytest.fixture
def s(pond: Pond) -> Pond:
    """A pond with a stream of ten elements, v = 0 … 9 at as many seconds."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(*range(10)))
    return pond


def slots(pond: Pond) -> list[int]:
    return [slot.slot for slot in pond._components.log.version.slots(pond.streams()[0].id)]


def users(pond: Pond) -> dict[int, int]:
    stream = pond.streams()[0].id
    return {slot: pond._components.stems.users(stream, slot) for slot in slots(pond)}


def test_registration_notes_a_window_over_arrivals(s: Pond) -> None:
    s.execute("CREATE STREAM a (day DATE, v INTEGER)")
    (noted,) = s.execute("CREATE QUERY q AS SELECT v FROM a [RANGE 1 MINUTE]")
    assert noted.message is not None
    assert "; note: RANGE over a counts from when elements arrive" in noted.message
    assert "TIMESTAMP BY day" in noted.message
    (plain,) = s.execute("CREATE QUERY p AS SELECT v FROM s [RANGE 1 MINUTE]")
    assert plain.message == "query p: registered"
    (derived,) = s.execute("CREATE RELATION r AS SELECT v FROM a [RANGE 1 MINUTE]")
    assert derived.message is not None
    assert "note: RANGE over a" in derived.message


# -- sharing ------------------------------------------------------------------------------------


def test_equal_predicates_share_a_slot_until_the_last_query_goes(s: Pond) -> None:
    first = s.register("SELECT v FROM s WHERE v > 3 AND v < 8")
    second = s.register("SELECT ts FROM s [RANGE 1 DAY] WHERE v < 8 AND 3 < v")
    other = s.register("SELECT v FROM s WHERE v > 4")
    assert users(s) == {0: 2, 1: 1}
    first.unregister()
    assert users(s) == {0: 1, 1: 1}
    second.unregister()
    assert slots(s) == [1]
    assert values(other.invoke()) == [5, 6, 7, 8, 9]


def test_a_number_is_never_used_again(s: Pond, open_pond: OpenPond) -> None:
    s.register("SELECT v FROM s WHERE v > 3").unregister()
    again = open_pond()
    query = again.register("SELECT v FROM s WHERE v > 3")
    assert slots(again) == [1]
    assert values(query.invoke()) == [4, 5, 6, 7, 8, 9]


def test_queries_of_one_batch_share_too(s: Pond) -> None:
    s.register_many([("SELECT v FROM s WHERE v = 1", None, {})] * 5)
    assert users(s) == {0: 5}


def test_what_is_not_matched_has_no_slot(s: Pond) -> None:
    s.register("SELECT v FROM s")
    s.register("SELECT v FROM s WHERE v > 3", materialize="none")
    s.register("SELECT v FROM s WHERE v > 3", active=False)
    s.register("SELECT reason FROM s$rejects WHERE reason LIKE 'late%'")
    assert slots(s) == []


# -- all or nothing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "name", "code"),
    [
        ("SELECT nothing FROM s", "b", "CQL-202"),
        ("SELECT v FROM s", "A", "CQL-208"),
        ("SELECT v FROM s", "s", "CQL-208"),
        ("ISTREAM(SELECT w FROM s)", "b", "CQL-202"),
        ("CREATE STREAM t (v INTEGER)", None, "CQL-216"),
        (None, "b", "CQL-103"),
        ("SELECT v FROM s", 5, "CQL-103"),
    ],
)
def test_many_queries_are_registered_all_or_none(s: Pond, query: Any, name: Any, code: str) -> None:
    good = ("SELECT v FROM s WHERE v > 3", "a", {})
    with pytest.raises(MillpondError, match=code):
        s.register_many([good, (query, name, {})])
    assert s.queries() == []
    assert slots(s) == []


def test_a_given_name_stands_in_no_generated_name_s_way(s: Pond) -> None:
    taken = s._components.log.next_id() + 2
    s.register("SELECT v FROM s", f"q{taken}")
    assert s.register("SELECT v FROM s").name != f"q{taken}"


def test_options_have_the_values_they_can_have(s: Pond) -> None:
    for option in (
        {"max_rows": float("inf")},
        {"max_rows": float("nan")},
        {"max_rows": 0},
        {"max_seconds": float("inf")},
        {"max_seconds": "5"},
        {"seed": float("nan")},
        {"weight": -1},
        {"active": 1},
        {"materialize": "often"},
        {"unheard_of": 1},
    ):
        with pytest.raises(MillpondError, match="CQL-214"):
            s.register("SELECT v FROM s", **option)


def test_whole_answers_or_none(s: Pond) -> None:
    query = s.register("SELECT v FROM s", max_rows=9)
    with pytest.raises(MillpondError, match="POND-405"):
        query.invoke()
    query.alter(max_rows=10)
    assert len(query.invoke()) == 10


# -- handles ------------------------------------------------------------------------------------


def test_no_such_query(s: Pond) -> None:
    names: list[Any] = ["²", "9" * 5000, "", "-1", "True", None, 3.5, 10**6]
    for name in names:
        with pytest.raises(MillpondError, match="CQL-201"):
            s.query(name)


def test_a_query_is_found_by_name_or_id(s: Pond) -> None:
    query = s.register("SELECT v FROM s", "Mine")
    for name in ("mine", query.id, str(query.id)):
        assert s.query(name).id == query.id


def test_an_instant_that_is_none() -> None:
    values: list[Any] = ["soon", 1.5, object(), datetime(1, 1, 1, tzinfo=timezone.max)]
    for at in values:
        with pytest.raises(MillpondError, match="CQL-103"):
            to_instant(at)


def test_instants_at_the_ends_of_time(s: Pond) -> None:
    windows = ("", "[RANGE 3 SECONDS]", "[RANGE 3 SECONDS SLIDE 2 SECONDS]", "[ROWS 2]", "[NOW]")
    for window in windows:
        query = s.register(f"SELECT v FROM s {window} WHERE v > 3")
        everything = {"": 6, "[ROWS 2]": 2}.get(window, 0)
        for at in (2**62, 2**63, 2**70):
            assert len(query.invoke(at)) == everything
            assert len(query.invoke(-at)) == 0
            assert repr(query.invoke(-at))


def test_a_day_is_its_midnight() -> None:
    assert to_instant(date(1970, 1, 2)) == to_instant("1970-01-02") == 86_400 * SECOND


def test_a_handle_of_a_dropped_query_says_so(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3")
    definition = query.definition
    query.unregister()
    for use in (
        query.invoke,
        query.unregister,
        query.describe,
        lambda: s._components.registrar.unregister(definition),
        lambda: s._components.registrar.alter(definition, {"weight": 2}),
        lambda: s._components.invoke(definition, None),
    ):
        with pytest.raises(MillpondError, match="CQL-201"):
            use()
    assert slots(s) == []
    assert s._components.stems.users(s.streams()[0].id, 0) == 0


# -- altering and suspending --------------------------------------------------------------------


def test_an_inactive_query_is_not_matched_and_comes_back_up_to_date(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3")
    query.alter(active=False)
    assert slots(s) == []
    with pytest.raises(MillpondError, match="POND-402"):
        query.invoke()
    s.ingest("s", rows(20))
    s.ingest("s", [{"ts": "1970-01-01 00:00:21", "v": 70}])
    query.alter(active=True)
    assert values(query.invoke()) == [4, 5, 6, 7, 8, 9, 70]
    s.wait_until_matched()
    assert values(query.invoke()) == [4, 5, 6, 7, 8, 9, 70]


def test_a_descheduled_query_has_no_slot_and_gets_one_again(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 6", "q", weight=2)
    s.register("SELECT v FROM s WHERE v > 6")
    registrar, log = s._components.registrar, s._components.log
    definition = query.definition
    registrar.schedule([definition], False)
    assert [leaf.slot for leaf in log.version.leaves(query.id)] == [None]
    assert users(s) == {0: 1}, "another query has it, too"
    assert log.version.queries[query.id] is definition
    assert values(query.invoke()) == [7, 8, 9]
    registrar.schedule([definition], True)
    assert users(s) == {0: 2}
    assert values(query.invoke()) == [7, 8, 9]
    query.alter(weight=3)
    registrar.schedule([definition], False)
    assert users(s) == {0: 2}, "it was altered meanwhile"


@pytest.mark.parametrize("mode", ["none", "lazy", "auto"])
def test_how_it_is_materialized_does_not_show(s: Pond, mode: str) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3")
    s.wait_until_matched()
    query.alter(materialize=mode)
    s.ingest("s", [{"ts": "1970-01-01 00:00:20", "v": 70}])
    assert values(query.invoke()) == [4, 5, 6, 7, 8, 9, 70]


def test_options_set_at_the_same_time_are_all_kept(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3")
    stale = query.definition
    s._components.registrar.alter(stale, {"weight": 2})
    s._components.registrar.alter(stale, {"max_rows": 5})
    assert query.definition.options == {"weight": 2, "max_rows": 5}


def test_a_suspended_query_stays_so_until_it_is_activated(s: Pond, open_pond: OpenPond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3", "q")
    s._components.registrar.suspend(query.definition, "Too slow.")
    assert slots(s) == []
    again = open_pond().query("q")
    again.alter(weight=2)
    with pytest.raises(MillpondError, match=r"POND-402(.|\n)*Too slow\."):
        again.invoke()
    again.alter(active=True)
    assert values(again.invoke()) == [4, 5, 6, 7, 8, 9]


def test_a_failed_commit_leaves_the_slots_as_they_were(
    s: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3", active=False)
    other = s.register("SELECT v FROM s WHERE v > 3")

    def full(change: object) -> None:
        raise MillpondError("STORE-603", "the disk is full")

    monkeypatch.setattr(s._components.log, "commit", full)
    with pytest.raises(MillpondError, match="STORE-603"):
        query.alter(active=True)
    with pytest.raises(MillpondError, match="STORE-603"):
        other.unregister()
    monkeypatch.undo()
    assert users(s) == {0: 1}
    other.unregister()
    assert slots(s) == []


# -- races --------------------------------------------------------------------------------------


def test_a_query_asked_once_has_the_slot_of_an_equal_predicate(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v > 3")
    (slot,) = s._components.registrar.prepare(query.definition).slots
    assert slot is not None
    assert s._components.registrar.prepare_once("SELECT v + 1 AS w FROM s WHERE v > 3").slots == (
        slot,
    )
    assert s._components.registrar.prepare_once("SELECT v FROM s WHERE v > 4").slots == (None,)


def test_an_answer_prepared_before_its_slot_was_dropped_is_whole(s: Pond) -> None:
    """Merged segments are matched against live slots only; a dropped one is not among them."""
    s.register("SELECT v FROM s WHERE v < 3")
    query = s.register("SELECT v FROM s WHERE v > 3")
    prepared = s._components.registrar.prepare(query.definition)
    asked = s._components.registrar.prepare_once("SELECT v FROM s WHERE v > 3")
    query.unregister()
    for second in range(10, 20):
        s.ingest("s", [{"ts": f"1970-01-01 00:00:{second}", "v": second}])
    s.wait_until_matched()
    assert len(s._components.log.version.segments(s.streams()[0].id)) < 11, "merged"
    for each in (prepared, asked):
        assert values(s._components.invoker.invoke(each)) == list(range(4, 20))


def test_what_is_asked_of_a_stream_dropped_meanwhile_is_an_error(s: Pond) -> None:
    s.execute("CREATE RELATION r (v INTEGER)")
    prepared = [
        s._components.registrar.prepare_once("SELECT v FROM s WHERE v > 3"),
        s._components.registrar.prepare_once("SELECT v FROM r"),
    ]
    s.execute("DROP STREAM s; DROP RELATION r")
    for each in prepared:
        with pytest.raises(MillpondError, match="CQL-201"):
            s._components.invoker.invoke(each)


def test_registering_and_dropping_what_is_read_exclude_each_other(s: Pond) -> None:
    """Either the stream is in use, or the query has no stream; never a query without one."""
    s.execute("CREATE RELATION r (v INTEGER)")
    outcomes = []
    for number in range(6):
        s.execute(f"CREATE STREAM t{number} (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        start = threading.Barrier(2)

        def attempt(what: Any, start: threading.Barrier = start) -> str:
            start.wait()
            try:
                what()
            except MillpondError as error:
                return error.code
            return "done"

        with ThreadPoolExecutor(2) as pool:
            query = f"SELECT t.v FROM t{number} t, r WHERE t.v = r.v AND t.v > 1"
            registered = pool.submit(attempt, lambda q=query: s.register(q))
            dropped = pool.submit(attempt, lambda n=number: s.execute(f"DROP STREAM t{n}"))
            outcomes.append((registered.result(), dropped.result()))
    assert set(outcomes) <= {("done", "POND-401"), ("CQL-201", "done")}
    for query in s.queries():
        assert s.query(query.name).invoke().rows() == []


@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [
        ("CREATE QUERY x AS SELECT v FROM s WHERE v = 1000", None),
        ("CREATE QUERY x AS SELECT v FROM s WHERE v = 3", None),
        ("DROP QUERY other", None),
        ("CREATE QUERY mine AS SELECT v FROM s", "CQL-208"),
        ("DROP QUERY other; DROP STREAM s", "CQL-201"),
        ("ALTER STREAM s ADD COLUMN w INTEGER", None),
    ],
)
def test_others_change_things_while_very_many_queries_are_collected(
    s: Pond, open_pond: OpenPond, monkeypatch: pytest.MonkeyPatch, meanwhile: str, code: str | None
) -> None:
    s.register("SELECT v FROM s WHERE v = 4", "other")
    before = s._components.log.version
    waiting = [meanwhile]

    def check(*args: object) -> None:
        if waiting:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(s.execute, waiting.pop()).result(30)

    monkeypatch.setattr(registration, "check_matches", check)
    many: list[Any] = [f"SELECT v FROM s WHERE v = {k}" for k in range(101)]
    many.append(("SELECT v FROM s WHERE v = 3", "mine", {}))
    if code is not None:
        with pytest.raises(MillpondError, match=code):
            s.register_many(many)
        known = s._components.log.version.queries
        assert len(known) == len(before.queries) + (1 if code == "CQL-208" else -1)
        return
    found = s.register_many(many)
    epochs = {query.definition.registered_epoch for query in found}
    assert len(epochs) == 1
    for is_again in (False, True):
        pond = open_pond() if is_again else s
        for number, handle in enumerate(found):
            query = pond.query(handle.name)
            assert values(query.invoke()) == ([number] if number < 10 else [3] * (number == 101))
        version = pond._components.log.version
        keys = [slot.key for slot in version.slots(pond.streams()[0].id)]
        assert len(set(keys)) == len(keys) >= 101
        used = {x.slot for id in version.queries for x in version.leaves(id)} - {None}
        assert used == set(slots(pond))
