"""The intake: acknowledged rows are judged once, are in one epoch, and hold nothing else up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows, values

from millpond.errors import MillpondError
from millpond.model.loss import Cause, Loss
from millpond.model.time import BEGINNING, format_instant, to_datetime
from millpond.runtime.batch_tasks import build
from millpond.runtime.chunks import Chunk
from millpond.runtime.protocol import INBOX
from millpond.service.pond import Pond
from millpond.state.inbox.push_file import read_push, visible_path
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    return pond


def hold_back(pond: Pond) -> None:
    """Pushes stay in the inbox."""
    pond._components.runtime.wake_inbox = lambda: None  # type: ignore[method-assign]


def commit(pond: Pond, numbers: Sequence[int]) -> None:
    """One epoch of these pushes alone, as when a listing of the inbox missed others."""
    folder = pond._components._store.directory / "inbox"
    waiting = pond._components.sequencer.waiting_pushes()
    assert set(numbers) <= waiting.keys()
    plan = pond._components.sequencer.plan(INBOX, None)
    chunks = []
    for number in numbers:
        pushed = read_push(visible_path(folder, number))
        chunks.append(Chunk(pushed.stream_id, (number,), pushed.table, pushed.arrived_at))
    pond._components.sequencer.commit(INBOX, 0, plan, list(build(chunks, plan)), list(numbers))


def heartbeat(pond: Pond) -> int:
    """H in seconds, as a reader may rely on it."""
    moment = pond._components.floors.capture()
    reached = pond._components.sequencer.heartbeat(
        pond._components.log.version, pond.streams()[0], moment
    )
    return reached if reached == BEGINNING else reached // SECOND


# -- judging ------------------------------------------------------------------------------------


def test_a_receipt_says_what_became_of_every_row(s: Pond) -> None:
    s.ingest("s", rows(10))
    receipt = s.ingest("s", [*rows(9, 10), {"v": 1}, {"ts": to_datetime(11 * SECOND), "v": "x"}])
    assert (receipt.accepted, receipt.rejected) == (1, 3)
    assert [reject["row"] for reject in receipt.rejects] == [0, 2, 3]
    assert [reject["reason"].split(":")[0] for reject in receipt.rejects] == [
        "late",
        "no timestamp",
        'column "v"',
    ]
    assert len(s.ask("SELECT * FROM s$rejects")) == 3
    assert len(s.ask("SELECT * FROM s")) == 2


def test_rows_are_judged_by_the_pushes_before_them_not_by_epochs(s: Pond) -> None:
    hold_back(s)
    s.ingest("s", rows(10))
    assert s.ingest("s", rows(9)).rejected == 1
    assert s.ingest("s", rows(10)).accepted == 1
    assert len(s.ask("SELECT * FROM s")) == 0
    commit(s, [1, 2, 3])
    assert len(s.ask("SELECT * FROM s")) == 2


def test_a_push_whose_file_was_damaged_holds_nothing_up(s: Pond) -> None:
    """As at an opening: what is lost alone is lost, and said; what would have been late waits."""
    hold_back(s)
    for second in (10, 20, 30):
        s.ingest("s", rows(second))
    damaged = visible_path(s._components._store.directory / "inbox", 2)
    damaged.write_bytes(damaged.read_bytes()[:100])
    s._components.sequencer.check_pushes()
    assert s._components.sequencer.waiting_pushes().keys() == {1, 3}
    [problem] = s.status()["problems"]
    assert "000000000002.arrow" in str(problem)
    commit(s, [1, 3])
    assert s.catch_up(timeout=5) is None
    assert len(s.ask("SELECT * FROM s")) == 2
    assert heartbeat(s) <= 20
    s._components.sequencer.check_pushes()
    assert len(s.status()["problems"]) == 1


def test_many_rejects_are_counted_and_some_are_shown(s: Pond) -> None:
    receipt = s.ingest("s", [{"v": n} for n in range(250)])
    assert (receipt.rejected, len(receipt.rejects)) == (250, 100)
    assert len(s.ask("SELECT * FROM s$rejects")) == 250


def test_arrival_times_do_not_go_back(pond: Pond, clock: ManualClock) -> None:
    pond.execute("CREATE STREAM s (v INTEGER)")
    shown = [1_000, 2_000, 1_500, 2_500]
    pond._components.floors._clock = lambda: (
        shown.pop(0) * SECOND if len(shown) > 1 else shown[0] * SECOND
    )
    for v in range(3):
        pond.ingest("s", [{"v": v}])
    stamps = [
        stamp
        for segment in pond._components.log.version.segments(pond.streams()[0].id)
        for stamp in (segment.min_ts,)
    ]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize(
    "rows", [[], [{}], pa.table({}), pa.table({"v": pa.array([], pa.int64())})], ids=str
)
def test_nothing_is_nothing_and_a_row_without_columns_is_a_reject(s: Pond, rows: Any) -> None:
    receipt = s.ingest("s", rows)
    assert (receipt.accepted, receipt.rejected) == (0, len(rows))


def test_only_streams_of_clients_take_rows(s: Pond, tmp_path: Any) -> None:
    file = tmp_path / "f.csv"
    file.write_text("1970-01-01,1\n")
    s.execute(
        "CREATE RELATION r (v INTEGER);"
        "CREATE STREAM f (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        f" USING csv OPTIONS (path '{file}')"
    )
    for name, code in (
        ("r", "CQL-201"),
        ("s$rejects", "CQL-201"),
        ("x", "CQL-201"),
        ("f", "POND-407"),
    ):
        with pytest.raises(MillpondError, match=code):
            s.ingest(name, rows(1))
    with pytest.raises(MillpondError, match="CQL-216"):
        s.execute("INSERT INTO s$rejects VALUES (TIMESTAMP '1970-01-01', 'a', 'b')")
    assert len(s.ask("SELECT * FROM s$rejects")) == 0


# -- idempotency --------------------------------------------------------------------------------


def test_a_push_sent_again_changes_nothing(s: Pond, open_pond: OpenPond) -> None:
    first = s.ingest("s", rows(10, 5), "key")
    assert first.duplicate is False
    for opened in (lambda: s, open_pond):
        pond = opened()
        again = pond.ingest("s", rows(10, 5), "key")
        assert again.duplicate
        assert (again.accepted, again.rejects) == (first.accepted, first.rejects)
        assert len(pond.ask("SELECT * FROM s")) == 2


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"ts": ["1970-01-01"], "v": [2]}),
        pa.table({"ts": ["1970-01-01"], "w": [1]}),
        pa.table({"ts": ["1970-01-01"], "v": ["1"]}),
        pa.table({"ts": pa.array(["1970-01-02"]).dictionary_encode(), "v": [1]}),
    ],
    ids=["value", "name", "type", "dictionary"],
)
def test_other_rows_under_the_same_key_are_refused(s: Pond, other: pa.Table) -> None:
    stamps = pa.array(["1970-01-01"])
    if pa.types.is_dictionary(other.schema.field("ts").type):
        stamps = stamps.dictionary_encode()
    s.ingest("s", pa.table({"ts": stamps, "v": [1]}), "key")
    with pytest.raises(MillpondError, match="DATA-503"):
        s.ingest("s", other, "key")


def test_chunks_do_not_make_other_rows(s: Pond) -> None:
    whole = pa.table({"ts": ["1970-01-01", "1970-01-02"], "v": [1, 2]})
    s.ingest("s", whole, "key")
    assert s.ingest("s", pa.concat_tables([whole.slice(0, 1), whole.slice(1)]), "key").duplicate


# -- in flight ----------------------------------------------------------------------------------


def test_what_is_in_flight_is_not_final(s: Pond) -> None:
    s.ingest("s", rows(10))
    hold_back(s)
    s.ingest("s", rows(10, 30))
    assert heartbeat(s) == 10
    assert not s.ask("SELECT v FROM s").final
    commit(s, [2])
    assert heartbeat(s) == 30


def test_a_push_that_was_overtaken_takes_nothing_back(s: Pond) -> None:
    query = s.register("SELECT v FROM s")
    hold_back(s)
    s.ingest("s", rows(10))
    s.ingest("s", rows(30))
    s.ingest("s", rows(30))
    commit(s, [2])
    assert query.invoke().as_of == 30 * SECOND
    assert not query.invoke(15 * SECOND).final, "10 is still to come"
    commit(s, [1])
    answer = query.invoke()
    assert answer.as_of == 30 * SECOND
    assert len(answer) == 2
    assert query.invoke(15 * SECOND).final
    assert s._components.log.version.clock(s.streams()[0].id).high == 30 * SECOND
    assert s.ingest("s", rows(29)).rejected == 1


def test_after_a_restart_it_is_still_in_flight(s: Pond, open_pond: OpenPond) -> None:
    hold_back(s)
    s.ingest("s", rows(10))
    s.ingest("s", rows(30))
    commit(s, [2])
    s.close()
    directory = s._components._store.directory
    hidden = (directory / "inbox" / "000000000001.arrow").rename(directory / "kept-aside")
    again = open_pond()
    assert not again.ask("SELECT v FROM s").final
    assert heartbeat(again) == BEGINNING, "what the missing push was judged by is not known"
    assert again.ingest("s", rows(29)).rejected == 1
    again.close()
    hidden.rename(directory / "inbox" / "000000000001.arrow")
    assert len(open_pond().ask("SELECT v FROM s")) == 2


def test_pushes_wait_through_a_restart(s: Pond, open_pond: OpenPond) -> None:
    hold_back(s)
    s.ingest("s", rows(10))
    s.ingest("s", rows(9))
    again = open_pond()
    assert len(again.ask("SELECT * FROM s")) == 1
    assert len(again.ask("SELECT * FROM s$rejects")) == 1
    assert heartbeat(again) == 10
    assert again._components.intake.list_waiting() == []


def test_rows_of_a_stream_dropped_meanwhile_hold_nothing_up(s: Pond) -> None:
    s.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    hold_back(s)
    s.ingest("s", rows(1))
    s.ingest("t", rows(2))
    s.execute("DROP STREAM s")
    commit(s, [1, 2])
    assert s._components.intake.list_waiting() == []
    assert values(s.ask("SELECT v FROM t")) == [0]


def test_a_push_whose_thread_was_interrupted_is_taken_over(
    s: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acknowledged, though nobody was told; all later ones would wait for it."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(s._components.intake, "_note_accepted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s.ingest("s", rows(10))
    pushing = threading.Thread(target=lambda: s.ingest("s", rows(20)), daemon=True)
    pushing.start()
    pushing.join(20)
    assert not pushing.is_alive()
    assert len(s.ask("SELECT v FROM s")) == 2
    assert heartbeat(s) == 20


@pytest.mark.parametrize("torn", [False, True])
def test_a_lost_push_holds_up_no_other(s: Pond, open_pond: OpenPond, torn: bool) -> None:
    s.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    hold_back(s)
    s.ingest("s", rows(10))
    s.ingest("s", rows(20))
    s.ingest("t", rows(30))
    file = s._components._store.directory / "inbox" / "000000000001.arrow"
    s.close()
    data = file.read_bytes()
    if torn:
        file.write_bytes(data[:100])
    else:
        file.unlink()
    again = open_pond()
    assert len(again.status()["problems"]) == 1
    again.catch_up(timeout=20)
    assert again.ingest("s", rows(40)).accepted == 1
    assert len(again.ask("SELECT v FROM s")) == 2
    answer = again.ask("SELECT v FROM s")
    assert not answer.final
    assert answer.loss == (Loss("s", Cause.DAMAGED, None, 10 * SECOND),)
    assert again.ask("SELECT v FROM s [RANGE 5 SECONDS]").exact
    assert again.ask("SELECT v FROM t").as_of == 30 * SECOND
    assert again.ask("SELECT v FROM t").exact
    again.wait_until_matched()
    again.close()
    file.write_bytes(data)  # restored from a copy
    restored = open_pond()
    assert restored.status()["problems"] == []
    assert len(restored.ask("SELECT v FROM s")) == 3
    assert restored.ask("SELECT v FROM s").exact
    assert heartbeat(restored) == 40


def test_a_push_that_cannot_be_written_is_not_accepted(
    s: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise MillpondError("STORE-603", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(s._components._store.inbox, "accept_parts", full)
        for push in (
            lambda: s.ingest("s", rows(10)),
            lambda: s.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:20'"),
        ):
            with pytest.raises(MillpondError, match="STORE-603"):
                push()
    assert s._components.floors.capture().floors == {}
    assert s.ingest("s", rows(5)).accepted == 1


# -- HEARTBEAT ----------------------------------------------------------------------------------


def test_a_promise_is_in_order_with_rows(s: Pond, open_pond: OpenPond) -> None:
    hold_back(s)
    s.ingest("s", rows(10))
    s.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:20'")
    assert s.ingest("s", rows(19)).rejected == 1
    assert heartbeat(s) == BEGINNING
    with pytest.raises(MillpondError, match=r"POND-409(.|\n)*00:00:20 already"):
        s.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:15'")
    again = open_pond()
    assert heartbeat(again) == 20
    assert again.ingest("s", rows(19)).rejected == 1


def test_a_promise_pending_at_a_restart_does_not_run_ahead(
    pond: Pond, open_pond: OpenPond, clock: ManualClock
) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts IDLE AFTER INTERVAL 30 SECONDS"
    )
    hold_back(pond)
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:20'")
    again = open_pond()
    assert heartbeat(again) == 20
    clock.advance(29 * SECOND)
    assert heartbeat(again) == 20
    clock.advance(1 * SECOND)
    assert heartbeat(again) == 50


def test_system_time_takes_no_promise(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (v INTEGER)")
    with pytest.raises(MillpondError, match="POND-409"):
        pond.execute(f"HEARTBEAT s AT TIMESTAMP '{format_instant(0)}'")


# -- statements wait for statements -------------------------------------------------------------


def test_a_change_of_a_relation_is_after_the_rows_stated_before_it(s: Pond) -> None:
    """Whether their epoch is committed yet must not show in the relation's instants."""
    s.execute("CREATE RELATION r (k INTEGER)")
    wake = s._components.runtime.wake_inbox
    hold_back(s)
    s.execute("INSERT INTO s VALUES (TIMESTAMP '1970-01-01 00:00:30', 1)")
    timer = threading.Timer(0.05, wake)
    timer.start()
    s.execute("INSERT INTO r VALUES (1)")
    timer.join()
    query = s.register("SELECT k FROM r")
    assert query.invoke(30 * SECOND).rows() == [(1,)]
    assert query.invoke(29 * SECOND).rows() == []


def test_a_relation_comes_with_its_rows_or_not_at_all(
    s: Pond, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.csv"
    file.write_text("1,a\n1,b\n")
    create = f"CREATE RELATION r (k INTEGER, v STRING{{}}) USING csv OPTIONS (path '{file}')"
    before = s._components.log.version.epoch
    with pytest.raises(MillpondError, match="POND-408"):
        s.execute(create.format(", PRIMARY KEY (k)"))
    assert s._components.log.version.epoch == before
    s.execute(create.format(""))
    assert s._components.log.version.epoch == before + 1
    assert sorted(s.ask("SELECT k, v FROM r").rows()) == [(1, "a"), (1, "b")]
    s.execute("DELETE FROM r WHERE v = 'a'")
    assert s.ask("SELECT k, v FROM r").rows() == [(1, "b")]


# -- when there is too much ------------------------------------------------------------------------


@pytest.fixture
def flooded(pond: Pond) -> Pond:
    """Streams that shed in each way and one that does not; pushes wait, and few may."""
    pond.execute(
        "ALTER SYSTEM SET (queue_memory = '20 KB');"
        "CREATE STREAM random (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        " WITH (overload = 'shed random');"
        "CREATE STREAM chunks (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        " WITH (overload = 'shed chunks');"
        "CREATE STREAM lightest (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        " WITH (overload = 'shed lightest');"
        "CREATE STREAM block (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE QUERY heavy WITH (weight = 5) AS"
        " SELECT ts, v FROM lightest [RANGE 1 DAY] WHERE v = 0;"
        "CREATE QUERY light AS SELECT ts, v FROM lightest [RANGE 1 DAY] WHERE v < 5"
    )
    pond._components.runtime.wake_inbox, pond._wake = (  # type: ignore[attr-defined, method-assign]
        lambda: None,
        pond._components.runtime.wake_inbox,
    )
    return pond


def flood(
    pond: Pond, stream: str, pushes: int = 40, each: int = 50, wrong: int = 1
) -> dict[str, int]:
    """Push until it is too much; what was sent and what the receipts say of it."""
    counts = dict.fromkeys(("sent", "accepted", "rejected", "refused", "shed"), 0)
    for second in range(pushes):
        some = rows(*[second] * each)
        for row in some[:wrong]:
            row["v"] = "none"
        counts["sent"] += each
        try:
            receipt = pond.ingest(stream, some)
        except MillpondError as error:
            if error.code != "POND-417":
                raise
            counts["refused"] += each
            continue
        for name in ("accepted", "rejected", "shed"):
            counts[name] += getattr(receipt, name)
    return counts


def release(pond: Pond) -> None:
    """The pipeline catches up."""
    pond._components.runtime.wake_inbox = pond._wake  # type: ignore[attr-defined, method-assign]
    pond._wake()  # type: ignore[attr-defined]
    pond.catch_up()


@pytest.mark.parametrize("stream", ["random", "chunks", "lightest", "block"])
def test_in_a_flood_everything_sent_is_accounted_for(
    flooded: Pond, open_pond: OpenPond, stream: str
) -> None:
    counts = flood(flooded, stream)
    assert counts["sent"] == sum(counts.values()) - counts["sent"]
    assert (counts["refused"] > 0) == (stream == "block")
    assert (counts["shed"] > 0) == (stream != "block")
    assert flooded._components.door.waiting_bytes <= 20_000
    release(flooded)
    assert flooded._components.door.waiting_bytes == 0
    check_accounts(flooded, stream, counts)
    check_accounts(open_pond(), stream, counts)


@pytest.mark.parametrize("stream", ["random", "chunks", "lightest"])
def test_what_is_left_of_pushes_that_are_shed_whole_has_its_bound_too(
    flooded: Pond, open_pond: OpenPond, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.service.ingest.door.LEFT_BYTES", 0)
    counts = flood(flooded, stream, wrong=48)
    assert counts["sent"] == sum(counts.values()) - counts["sent"]
    assert counts["refused"] > 0
    assert flooded._components.door.waiting_bytes <= 20_000
    release(flooded)
    assert flooded._components.door.waiting_bytes == 0
    check_accounts(flooded, stream, counts)
    check_accounts(open_pond(), stream, counts)


def check_accounts(pond: Pond, stream: str, counts: dict[str, int]) -> None:
    """What is stored is what the receipts said, and why it was so is recorded."""
    for name, what in (
        (stream, "count(*)"),
        (f"{stream}$rejects", "count(*)"),
        (f"{stream}$shed", "coalesce(sum(elements), 0)"),
    ):
        kind = {"rejects": "rejected", "shed": "shed"}.get(name.partition("$")[2], "accepted")
        assert pond.ask(f"SELECT {what} FROM {name}").rows() == [(counts[kind],)]
    steps = pond.ask("SELECT action, name FROM system$actions").rows()
    data = "hold back" if stream == "block" else "shed"
    both = {(data, stream)} | ({("hold back", stream)} if counts["refused"] else set())
    assert {step for step in steps if step[1]} == both
    assert {action for action, name in steps if not name} == {"defer", "reduce"}
    # Work gave way before data.
    assert steps.index(("defer", "")) < steps.index((data, stream))


def test_shed_elements_are_missed_where_they_were_and_nowhere_else(flooded: Pond) -> None:
    flood(flooded, "random")
    release(flooded)
    counted = "SELECT epoch(second)::INTEGER, sum(elements) FROM random$shed GROUP BY 1"
    gone = dict(flooded.ask(counted).rows())
    query = flooded.register("SELECT v FROM random [NOW]", name="q")
    for second in range(40):
        answer = query.invoke(second * SECOND)
        assert answer.exact == (second not in gone)
        assert len(answer) + gone.get(second, 0) == 49
        if second in gone:
            (loss,) = answer.loss
            assert (loss.cause, loss.elements, loss.missing) == ("shed", gone[second], gone[second])
            assert (loss.since, loss.upto) == (second * SECOND, second * SECOND + SECOND - 1)


def test_the_heaviest_lose_nothing_until_everything_is_shed(flooded: Pond) -> None:
    flood(flooded, "lightest", 8, 150)
    release(flooded)
    heavy, light = flooded.query("heavy").invoke(), flooded.query("light").invoke()
    assert flooded.ask("SELECT sum(elements) FROM lightest$shed").rows()[0][0] > 0
    assert (heavy.exact, light.exact) == (True, False)


def test_what_is_shed_moves_time_on(flooded: Pond) -> None:
    flood(flooded, "random")
    flooded.ingest("random", rows(5_000, 5_000))
    release(flooded)
    assert flooded.ask("SELECT v FROM random").as_of == 5_000 * SECOND
    assert flooded.ingest("random", rows(10)).rejects[0]["reason"].startswith("late")


def test_a_push_sent_again_gets_the_receipt_of_what_was_shed(flooded: Pond) -> None:
    flood(flooded, "random", 30)
    first = flooded.ingest("random", rows(*[100] * 50), idempotency_key="k")
    again = flooded.ingest("random", rows(*[100] * 50), idempotency_key="k")
    assert first.shed == again.shed > 0
    assert (first.duplicate, again.duplicate) == (False, True)


def test_what_waits_counts_after_a_restart(flooded: Pond, open_pond: OpenPond) -> None:
    flood(flooded, "block")
    waiting = flooded._components.door.waiting_bytes
    assert waiting > 0
    flooded.close()
    again = open_pond()
    again.catch_up()
    assert again._components.door.waiting_bytes == 0
    assert again._components.door.limit == 20_000


def test_loss_by_shedding_goes_on_to_derived_streams_and_changes(flooded: Pond) -> None:
    flooded.execute(
        "CREATE STREAM d AS ISTREAM(SELECT v FROM random WHERE v >= 0);"
        "CREATE QUERY over AS SELECT v FROM d [NOW];"
        "CREATE QUERY q WITH (changes = 'from beginning') AS SELECT v FROM random WHERE v >= 0"
    )
    flood(flooded, "random")
    release(flooded)
    shed = dict(flooded.ask("SELECT epoch(second)::INTEGER, elements FROM random$shed").rows())
    first = min(shed)
    assert flooded.query("over").invoke((first - 1) * SECOND).exact
    (loss,) = flooded.query("over").invoke(first * SECOND).loss
    # No bound: a row of a derived stream's query need not be one element's.
    assert (loss.stream, loss.cause, loss.elements) == ("random", "shed", shed[first])
    assert loss.missing is None
    page = flooded.query("q").fetch(None, 49 * (first - 1))
    assert page.exact
    (loss,) = flooded.query("q").fetch().loss
    assert (loss.since, loss.elements) == (first * SECOND, sum(shed.values()) - shed.get(39, 0))
    assert not flooded.derived("d").fetch().exact
