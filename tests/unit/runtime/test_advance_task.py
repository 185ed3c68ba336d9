"""A storage that gives no answer is no query's fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime import advance_task, segment_inputs
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("when", ["opened", "read"])
def test_elements_that_cannot_be_read_now_suspend_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int | None, when: str
) -> None:
    silent = [MillpondError("STORE-603", "the storage gives no answer")]
    known = segment_inputs.open_segment, segment_inputs._Segments.read

    def open_segment(*args: Any) -> Any:
        if silent and when == "opened":
            raise silent.pop()
        return known[0](*args)

    def read(self: Any, after: int, upto: int) -> Any:
        if silent and when == "read":
            raise silent.pop()
        return known[1](self, after, upto)

    monkeypatch.setattr(segment_inputs, "open_segment", open_segment)
    monkeypatch.setattr(segment_inputs._Segments, "read", read)
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond._components.advancer.sharded.always = shards
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k INTEGER) TIMESTAMP BY ts")
        pond.execute(
            "CREATE QUERY q WITH (changes = 'from beginning', follow = true) AS "
            "SELECT k, count(*) AS n FROM s [RANGE 2 SECONDS] GROUP BY k"
        )
        pond.ingest("s", [{"ts": f"1970-01-01 00:00:{n:02d}", "k": n % 3} for n in range(9)])
        with pytest.raises(MillpondError, match="STORE-603"):
            pond.catch_up()
        pond.catch_up()
        assert not silent
        assert pond._components.advancer.retries.list_errors() == {}
        assert len(pond.query("q").page(0).rows()) > 8
        assert pond._components.advancer.sharded.count() == (shards == 2)


def test_an_answer_that_cannot_be_read_now_for_another_plan_suspends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [MillpondError("STORE-603", "the storage gives no answer")]
    switch = advance_task.switch_plans

    def switch_once_it_answers(*args: Any) -> Any:
        if silent:
            raise silent.pop()
        return switch(*args)

    monkeypatch.setattr(advance_task, "switch_plans", switch_once_it_answers)
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k INTEGER) TIMESTAMP BY ts")
        pond.execute(
            "CREATE QUERY q WITH (changes = 'from beginning', follow = true) AS "
            "SELECT k FROM s [RANGE 2 SECONDS]"
        )
        jobs = pond._components.advancer._jobs
        sink_of = jobs._sink

        def leave_a_plan(*args: Any) -> Any:
            sink = sink_of(*args)
            return replace(sink, leaves=sink.plan)

        monkeypatch.setattr(jobs, "_sink", leave_a_plan)
        pond.ingest("s", [{"ts": f"1970-01-01 00:00:{n:02d}", "k": n % 3} for n in range(9)])
        with pytest.raises(MillpondError, match="STORE-603"):
            pond.catch_up()
        pond.catch_up()
        assert not silent
        assert pond._components.advancer.retries.list_errors() == {}
