"""A summary is at the line its version has reached, whoever computed it and when."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows
from tests.waiting import wait_until

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.runtime.summary_tasks import summarize
from millpond.service.answers.summary_states import plan_of, position_of
from millpond.service.pond import Pond

STREAM = "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 4 SECONDS;"
SUMMARY = "CREATE SUMMARY y ON s (v) WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 3)"


def cells_of(pond: Pond) -> np.ndarray:
    with pond._components.log.pin() as version:
        states = pond._components.invoker.summaries
        return states.at(version, version.summaries["y"]).cells


def test_it_ends_at_the_last_line_that_is_final(pond: Pond) -> None:
    pond.execute(STREAM + SUMMARY)
    pond.ingest("s", rows(10, 20, 30))
    pond.catch_up()
    with pond._components.log.pin() as version:
        stream = version.find("s")
        position = position_of(version, stream, plan_of(version.summaries["y"], stream))
    assert position == 26 * SECOND  # the heartbeat is at 30 - 4
    assert cells_of(pond)[:, 0].sum() == 2
    pond.execute(f"HEARTBEAT s AT TIMESTAMP '{to_datetime(500 * SECOND)}'")
    assert cells_of(pond)[:, 0].sum() == 3


def test_late_or_early_stored_or_not_and_after_a_restart_it_is_the_same(
    open_pond: OpenPond,
) -> None:
    pond = open_pond()
    pond.execute(STREAM + SUMMARY)
    for start in range(0, 300, 30):
        pond.ingest("s", rows(*range(start, start + 30)))
        pond.catch_up()
        if start == 120:
            pond.wait_until_matched()
    early = cells_of(pond)
    pond.execute("DROP SUMMARY y")
    pond.execute(SUMMARY)
    assert (cells_of(pond) == early).all()
    # What is matched is stored a round later.
    stored = wait_until(lambda: pond._components.log.version.summaries["y"].file)
    again = open_pond()
    assert (cells_of(again) == early).all()
    torn = again._components.log._directory / stored.path
    torn.unlink()
    torn.write_bytes(b"torn")
    third = open_pond()
    assert (cells_of(third) == early).all()
    assert third._components.problems() == []  # a cache: the segments have it all


def test_tasks_summarize_segments_as_this_process_does(pond: Pond) -> None:
    pond.execute(STREAM + SUMMARY)
    pond.ingest("s", rows(*range(100)))
    pond.catch_up()
    found = []

    def compute(plan, segments, since, position):
        from millpond.runtime.summary_tasks import SummaryJob

        store = str(pond._components.log._directory)
        jobs = [
            SummaryJob(store, plan, ((s.path, s.checksum, s.seq_runs),), since, position)
            for s in segments
        ]
        found.extend(jobs)
        return np.concatenate([summarize(job) for job in jobs])

    with pond._components.log.pin() as version:
        states = type(pond._components.invoker.summaries)(
            pond._components.log._directory, pond._components.invoker.files
        )
        cells = states.at(version, version.summaries["y"], compute=compute).cells
    assert found
    assert (cells == cells_of(pond)).all()


def test_a_summary_of_a_stream_that_is_gone_says_so(pond: Pond) -> None:
    pond.execute(STREAM + SUMMARY)
    definition = pond._components.log.version.summaries["y"]
    pond.execute("DROP SUMMARY y; DROP STREAM s")
    with pytest.raises(MillpondError, match="CQL-201"):
        pond._components.invoker.summaries.at(pond._components.log.version, definition)
