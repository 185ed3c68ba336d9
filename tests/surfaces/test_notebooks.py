"""What notebooks and data libraries see: HTML, Arrow's capsule, and times of every kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from local_http import local_client

from millpond.api.app import create_app
from millpond.api.client import RemoteHandle, RemotePond, RemoteStream
from millpond.errors import MillpondError
from millpond.model.time import to_instant
from millpond.service.handles import Handle, StreamHandle
from millpond.service.pond import Pond
from millpond.service.results import Answer, Changes
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
#: The same instant, one second after 1970 began, in all the ways that are taken.
TIMES: list[Any] = [
    SECOND,
    np.int64(SECOND),
    "1970-01-01 00:00:01",
    "1970-01-01T01:00:01+01:00",
    datetime(1970, 1, 1, 0, 0, 1),
    datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 2, 0, 1, tzinfo=timezone(timedelta(hours=2))),
    np.datetime64("1970-01-01T00:00:01", "s"),
    np.datetime64("1970-01-01T00:00:01.000000999", "ns"),
    np.datetime64(1_000, "ms"),
    pd.Timestamp("1970-01-01 00:00:01"),
    pd.Timestamp("1970-01-01 00:00:01.000000999"),
    pd.Timestamp("1970-01-01 03:00:01", tz="Etc/GMT-3"),
    pd.Series(pd.to_datetime(["1970-01-01 00:00:01"])).iloc[0],
    pd.to_datetime(["1970-01-01 00:00:01"]).to_numpy()[0],
    pl.Series([datetime(1970, 1, 1, 0, 0, 1)])[0],
]
REFUSED: list[Any] = [
    pd.NaT,
    np.datetime64("NaT", "us"),
    np.datetime64(2**62, "D"),
    1.5,
    "soon",
    [],
]


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", clock=ManualClock(1_000 * SECOND)) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        pond.ingest("s", [{"ts": datetime(1970, 1, 1, 0, 0, at), "v": at - 1} for at in (1, 2)])
        pond.catch_up()
        pond.register("SELECT v FROM s", "q")
        yield pond


@pytest.fixture
def remote(pond: Pond) -> Iterator[RemotePond]:
    with local_client(create_app(pond)) as http:
        yield RemotePond(http)


@pytest.mark.parametrize("at", TIMES, ids=lambda at: f"{type(at).__name__} {at}")
def test_a_time_is_taken_in_every_form(at: Any) -> None:
    assert to_instant(at) == SECOND


@pytest.mark.parametrize("at", REFUSED, ids=lambda at: f"{type(at).__name__} {at}")
def test_what_is_no_time_is_refused(at: Any) -> None:
    with pytest.raises(MillpondError, match="CQL-103"):
        to_instant(at)


def test_a_date_is_its_first_instant() -> None:
    assert to_instant(date(1970, 1, 2)) == to_instant(np.datetime64("1970-01-02", "D"))


#: The calls that take times: one of each, by the name of its class and its own.
CALLS: dict[str, Callable[[Pond, RemotePond, Any], object]] = {
    "Handle.invoke": lambda pond, _, at: pond.query("q").invoke(at=at).as_of,
    "RemoteHandle.invoke": lambda _, remote, at: remote.query("q").invoke(at=at).as_of,
    "Handle.series": lambda pond, _, at: pond.query("q").series(at, at, SECOND).instants[0],
    "RemoteHandle.series": lambda _, mp, at: mp.query("q").series(at, at, SECOND).instants[0],
    "Pond.reset_clock": lambda pond, _, at: pond.reset_clock("s", at).rejected,
    "RemotePond.reset_clock": lambda _, remote, at: remote.reset_clock("s", at)["rejected"],
}


def test_every_call_that_takes_a_time_is_listed() -> None:
    found = {
        f"{owner.__name__}.{name}"
        for owner in (Pond, Handle, StreamHandle, RemotePond, RemoteHandle, RemoteStream)
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name in ("at", "to", "start", "end", "since", "until")
        or "Time" in str(parameter.annotation).replace("float", "").split(" | ")
    }
    assert found == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_takes_the_times_of_numpy_and_pandas(
    pond: Pond, remote: RemotePond, name: str
) -> None:
    for number, at in enumerate((TIMES[7], TIMES[8], TIMES[10], TIMES[12])):
        given = CALLS[name](pond, remote, at)
        if name.endswith(("invoke", "series")):
            assert given == SECOND
        else:
            assert given == (1 if number == 0 else 0)


def test_answers_and_changes_go_to_every_library(pond: Pond, remote: RemotePond) -> None:
    pond.query("q").fetch()
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    pond.register("SELECT v FROM s", "from_beginning", changes="from beginning")
    answers: list[Answer | Changes] = [
        pond.query("q").invoke(),
        remote.query("q").invoke(),
        pond.ask("SELECT v FROM s"),
        pond.query("from_beginning").fetch(),
        remote.query("from_beginning").fetch(),
    ]
    for answer in answers:
        assert pa.table(answer).equals(answer.table)
        assert pl.DataFrame(answer)["v"].to_list() == [0, 1]
        assert pa.RecordBatchReader.from_stream(answer).read_all()["v"].to_pylist() == [0, 1]
        assert pa.table(answer).to_pandas()["v"].tolist() == [0, 1]
        assert duckdb.sql("SELECT sum(v) FROM answer").fetchall() == [(1,)]


def test_changes_are_shown_with_their_instants(pond: Pond) -> None:
    pond.register("SELECT v FROM s", "c", changes="from beginning")
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    shown = pond.query("c").fetch()._repr_html_()
    assert "<td>1970-01-01 00:00:01</td><td>+</td><td>0</td>" in shown


def test_the_instant_of_an_answer_is_a_datetime_too(pond: Pond) -> None:
    assert pond.query("q").invoke(at=SECOND).as_of_time == datetime(1970, 1, 1, 0, 0, 1)
    assert Answer(pa.table({}), 2**63 - 1, final=True).as_of_time is None


def test_what_is_held_says_what_it_is(pond: Pond) -> None:
    assert repr(pond) == "<Pond: 1 stream, 0 relations, 1 query>"
    query = pond.query("q")
    assert repr(query) == "<Handle q: active, SELECT v FROM s>"
    query.fetch()
    assert repr(query) == "<Handle q: active, followed, SELECT v FROM s>"
    query.alter(active=False)
    assert repr(query) == "<Handle q: inactive, followed, SELECT v FROM s>"
    query.unregister()
    assert repr(query) == "<Handle q: unregistered>"
    pond.execute("CREATE STREAM d AS SELECT v FROM s WHERE v > 1")
    derived = pond.derived("d")
    assert repr(derived) == "<StreamHandle d: SELECT v FROM s WHERE v > 1>"
    pond.execute("DROP STREAM d")
    assert repr(derived) == "<StreamHandle d: dropped>"
    pond.close()
    assert repr(pond) == "<Pond: closed>"
