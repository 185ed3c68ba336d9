"""IDLE AFTER counts only the time in which rows could come; what was told stays true."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.engine.admission.heartbeat import Attendance, StreamProgress, current_heartbeat
from millpond.model.schema import Schema
from millpond.service.ingest.idle_time import IdleTime
from millpond.state.read_times import ReadTimes
from millpond.testing.local_runtime import open_local

PUSHED = StreamDef(1, "s", Schema(()), "at", delay=10, idle_after=100)
READ = replace(PUSHED, source=SourceDef("kafka", {}))


def open_times(store, clock: int) -> tuple[ReadTimes, IdleTime]:
    times = ReadTimes(store, "c0ffee")
    return times, IdleTime(times, clock, {1})


def test_a_source_that_is_not_read_is_not_idle(tmp_path):
    _, idle = open_times(tmp_path, 1_000)
    progress = StreamProgress(500, 490, 1_000)
    idle.note_read(1, 1_050)
    assert current_heartbeat(progress, READ, 5_000, idle.known.of(READ)) == 490
    idle.note_read(1, 1_100)
    assert current_heartbeat(progress, READ, 5_000, idle.known.of(READ)) == 590
    idle.note_read(1, 1_080)  # nothing that was told is taken back
    assert current_heartbeat(progress, READ, 5_000, idle.known.of(READ)) == 590
    assert current_heartbeat(progress, PUSHED, 5_000, idle.known.of(PUSHED)) == 4_490


def test_after_a_restart_the_source_is_read_first(tmp_path):
    progress = StreamProgress(500, 490, 1_000)
    times, idle = open_times(tmp_path, 1_000)
    idle.note_read(1, 1_200)
    idle.show(1_230)
    told = current_heartbeat(progress, READ, 1_230, idle.known.of(READ))
    assert told == 690
    times.close()
    _, idle = open_times(tmp_path, 9_000)
    assert current_heartbeat(progress, READ, 9_500, idle.known.of(READ)) == told
    idle.note_read(1, 9_400)
    assert current_heartbeat(progress, READ, 9_500, idle.known.of(READ)) == 8_890


def test_while_the_pond_is_down_nobody_is_idle(tmp_path):
    progress = StreamProgress(500, 490, 1_000)
    times, idle = open_times(tmp_path, 1_000)
    idle.show(1_060)
    times.close()
    times, idle = open_times(tmp_path, 9_000)  # 60 of 100 have passed
    assert current_heartbeat(progress, PUSHED, 9_039, idle.known.of(PUSHED)) == 490
    assert current_heartbeat(progress, PUSHED, 9_040, idle.known.of(PUSHED)) == 590
    idle.show(9_020)
    times.close()
    _, idle = open_times(tmp_path, 20_000)  # 80 have
    assert current_heartbeat(progress, PUSHED, 20_019, idle.known.of(PUSHED)) == 490
    assert current_heartbeat(progress, PUSHED, 20_020, idle.known.of(PUSHED)) == 590
    # Who came since is judged by its own arrival.
    later = StreamProgress(700, 690, 20_050)
    assert current_heartbeat(later, PUSHED, 20_149, idle.known.of(PUSHED)) == 690
    assert current_heartbeat(later, PUSHED, 20_150, idle.known.of(PUSHED)) == 790


def test_without_the_file_all_may_have_been_told(tmp_path):
    progress = StreamProgress(500, 490, 1_000)
    times, _ = open_times(tmp_path, 1_000)
    times.close()
    times.withdraw()
    _, idle = open_times(tmp_path, 9_000)
    assert current_heartbeat(progress, PUSHED, 9_000, idle.known.of(PUSHED)) == 8_490
    assert current_heartbeat(progress, READ, 9_500, idle.known.of(READ)) == 8_490


def test_streams_that_are_gone_are_forgotten(tmp_path):
    times, idle = open_times(tmp_path, 1_000)
    idle.note_read(1, 1_000)
    times.close()
    times = ReadTimes(tmp_path, "c0ffee")
    IdleTime(times, 2_000, set())
    times.close()
    before = ReadTimes(tmp_path, "c0ffee").before
    assert before is not None
    assert not before.read


events = st.lists(
    st.tuples(st.sampled_from(["wait", "read", "arrive", "restart", "lose"]), st.integers(1, 250)),
    max_size=30,
)


@given(events=events)
def test_no_heartbeat_goes_back(events, tmp_path_factory):
    """INV-IDLE-1, over restarts with and without the file, for both kinds of streams."""
    store = tmp_path_factory.mktemp("idle")
    clock = 1_000
    times, idle = open_times(store, clock)
    streams = (PUSHED, READ)
    progress = [StreamProgress(500, 490, clock) for _ in streams]
    told = [0, 0]
    try:
        for kind, length in events:
            clock += length
            if kind == "read":
                idle.note_read(1, clock - length // 2)
            elif kind == "arrive":
                for place, stream in enumerate(streams):
                    attended = idle.known.of(stream)
                    floor = current_heartbeat(progress[place], stream, clock, attended)
                    progress[place] = StreamProgress(None, floor, clock)
            elif kind in ("restart", "lose"):
                times.close()
                if kind == "lose":
                    times.withdraw()
                times, idle = open_times(store, clock)
            idle.show(clock)
            for place, stream in enumerate(streams):
                attended = idle.known.of(stream)
                now = current_heartbeat(progress[place], stream, clock, attended)
                assert now >= told[place]
                told[place] = now
    finally:
        times.close()
        shutil.rmtree(store)


def test_an_arrival_in_an_absence_counts_from_its_end():
    attended = Attendance(away=((1_000, 2_000), (2_600, 2_700)))
    moved = [attended.moves(at) for at in (900, 1_000, 1_500, 2_000, 2_500, 2_650, 2_700)]
    assert moved == [2_000, 2_100, 2_100, 2_100, 2_600, 2_700, 2_700]


@pytest.mark.parametrize("ahead", [0, 3_600])
def test_rows_that_waited_while_the_pond_was_down_are_not_late(tmp_path, ahead):
    second = 1_000_000
    clock = [1_600_000_000 * second]
    store = tmp_path / "store"
    with open_local(store, lambda: clock[0]) as pond:
        pond.execute(
            "CREATE STREAM s (at TIMESTAMP, v INTEGER) TIMESTAMP BY at"
            " IDLE AFTER INTERVAL 10 SECONDS"
        )
        at = "TIMESTAMP '2020-09-13 12:26:40'"
        pond.execute(f"INSERT INTO s VALUES ({at}, 1)")
        clock[0] += 5 * second
    clock[0] += ahead * second
    with open_local(store, lambda: clock[0]) as pond:
        clock[0] += 4 * second
        pond.execute(f"INSERT INTO s VALUES ({at} + INTERVAL 1 SECOND, 2)")
        answer = pond.register("SELECT count(*) AS n FROM s").invoke()
        assert pa.table(answer).column("n").to_pylist() == [2]
