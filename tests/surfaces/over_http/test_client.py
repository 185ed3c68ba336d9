"""The client against the application: the pond's surface, its types and its errors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from local_http import local_client

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.client import RemotePond, connect, pond_calls, steps
from millpond.errors import MillpondError

LATE = "SELECT ts, carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 60 ORDER BY ts"


@pytest.fixture
def remote(http) -> RemotePond:
    return connect("http://127.0.0.1", http=http)


def test_register_invoke_unregister(remote, pond):
    handle = remote.register(LATE, "late", weight=2.0)
    [registered] = pond.queries()
    assert (handle.id, handle.name) == (registered.id, "late")
    assert registered.options == {"weight": 2.0}
    pond.wait_until_matched()
    answer, here = handle.invoke(), pond.query("late").invoke()
    assert answer.table.schema == here.table.schema
    assert answer.table.equals(here.table)
    assert (answer.as_of, answer.final, answer.epoch) == (here.as_of, here.final, here.epoch)
    assert answer.query == "late"
    handle.unregister()
    assert pond.queries() == []


def test_lengths_of_time_as_options(remote, pond):
    handle = remote.register(
        LATE, "late", eager_expiration=timedelta(minutes=1), lazy_expiration="auto"
    )
    assert pond.queries()[0].options == {
        "eager_expiration": "1 MINUTE",
        "lazy_expiration": "auto",
    }
    handle.alter(lazy_expiration=timedelta(seconds=90))
    assert handle.describe()["options"]["lazy_expiration"] == "90 SECONDS"
    remote.register_many([(LATE, "other", {"eager_expiration": timedelta(0)})])
    assert remote.query("other").describe()["options"] == {"eager_expiration": "0 SECONDS"}
    with pytest.raises(MillpondError, match="A number needs a unit of time"):
        handle.alter(eager_expiration=5)


@pytest.mark.parametrize(
    "at", [1_772_363_600_000_000, "2026-03-01T11:13:20", datetime(2026, 3, 1, 11, 13, 20)]
)
def test_invoke_at(remote, at):
    answer = remote.register(LATE).invoke(at)
    assert (answer.as_of, answer.final) == (1_772_363_600_000_000, True)


def test_register_many(remote):
    handles = remote.register_many([(LATE, "a", {}), (LATE, None, {"weight": 1.5})])
    assert [h.name for h in handles] == ["a", f"q{handles[1].id}"]
    assert [q.options for q in remote.queries()] == [{}, {"weight": 1.5}]


def test_register_many_texts(remote, pond):
    handles = [*remote.register_many([LATE, LATE]), *pond.register_many([LATE])]
    assert [h.name for h in handles] == [f"q{h.id}" for h in handles]


def test_handles(remote, pond):
    remote.register(LATE, "late")
    handle = remote.query("late")
    handle.alter(active=False)
    assert remote.query(handle.id).describe()["active"] is False
    assert handle.plan() == pond.query("late").plan()
    assert remote.explain(LATE, "rewritten") == pond.explain(LATE, "rewritten")


def test_execute(remote):
    results = remote.execute(f"CREATE QUERY late AS {LATE}; INVOKE late; SHOW QUERIES")
    assert [r.statement for r in results] == ["create query", "invoke", "show"]
    assert results[0].message == "query late: registered"
    assert results[1].answer is not None
    assert results[1].answer.rows()[0] == (datetime(2026, 3, 1, 11), "AA", 61.5)
    assert results[2].table.column("name").to_pylist() == ["late"]


def test_ask(remote, pond):
    assert remote.ask(LATE).table.equals(pond.ask(LATE).table)
    with pytest.raises(MillpondError) as caught:
        remote.ask("SHOW QUERIES")
    assert caught.value.code == "CQL-216"


def test_ingest(remote, pond):
    rows = [{"ts": datetime(2026, 3, 1, 12), "carrier": "DL", "delay": 1.5}, {"carrier": "B6"}]
    receipt = remote.ingest("flights", rows)
    assert (receipt.accepted, receipt.rejected) == (1, 1)
    assert receipt.rejects[0]["row"] == 1
    table = pa.table({"ts": [datetime(2026, 3, 1, 13)], "carrier": ["DL"]})
    assert remote.ingest("flights", table, "key").duplicate is False
    assert remote.ingest("flights", table, "key").duplicate is True
    assert pond.ask("SELECT max(ts) m FROM flights").rows() == [(datetime(2026, 3, 1, 13),)]


ODD_ROWS = [
    {"TS": datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=1))), "carrier": b"bytes"},
    {"ts": np.datetime64("2026-03-01T11:50"), "delay": np.float32(1.5), "number": 2**70},
    {"ts": "2026-03-01 11:51", "carrier": {"a": [1]}, "delay": math.nan, "number": "7"},
    {"ts": "2026-03-01 11:52", "carrier": "\ud800"},
]


@pytest.mark.parametrize(
    "rows",
    [
        ODD_ROWS,
        (row for row in ODD_ROWS),
        pd.DataFrame({"ts": ["2026-03-01 11:55"], "carrier": ["AA"]}),
        pl.DataFrame({"ts": [datetime(2026, 3, 1, 11, 55)], "number": [1]}),
        pa.table({"ts": ["2026-03-01 11:55"]}).to_batches()[0],
        "text",
        7,
        {"ts": "2026-03-01 11:55"},
    ],
    ids=["rows", "generator", "pandas", "polars", "batch", "text", "number", "row"],
)
def test_rows_mean_the_same_here_and_there(remote, pond, rows):
    pond.execute("CREATE STREAM here (ts TIMESTAMP, carrier STRING, delay DOUBLE, number BIGINT)")
    pond.execute("CREATE STREAM there (ts TIMESTAMP, carrier STRING, delay DOUBLE, number BIGINT)")
    if isinstance(rows, Iterator):
        rows = list(rows)
    outcomes = []
    for ingest, stream in ((pond.ingest, "here"), (remote.ingest, "there")):
        try:
            outcomes.append(ingest(stream, iter(rows) if rows is ODD_ROWS else rows))
        except MillpondError as error:
            outcomes.append((error.code, error.primary))
    assert outcomes[0] == outcomes[1]
    pond.catch_up()
    told = [pond.ask(f"SELECT * FROM {stream} ORDER BY ts").rows() for stream in ("here", "there")]
    assert repr(told[0]) == repr(told[1])


def test_the_client_and_the_pond_take_batches_alike(remote, pond):
    rows = [{"ts": "2026-03-01T12:00:00", "carrier": "DL"}]
    for number, either in enumerate((remote, pond)):
        assert either.stage("flights", "part", rows) == 1
        assert either.ingest_batch("flights", "w", number, ["part"]).accepted == 1
        assert either.ingest_batch("flights", "w", number, ["part"]).duplicate is True
        either.stage("flights", "part", rows)
        either.unstage("flights", ["part", "nobody"])
        with pytest.raises(MillpondError, match='DATA-504: the part "part"'):
            either.ingest_batch("flights", "w", number + 1, ["part"])


def test_text_and_its_format(remote, pond):
    for either in (pond, remote):
        assert either.ingest_text("flights", "ts\n2026-03-01 11:55\n", "csv").accepted == 1
        with pytest.raises(MillpondError, match="DATA-501"):
            either.ingest_text("flights", b"<x/>", "xml")


@pytest.mark.parametrize("at", ["yesterday", 1.5, object()])
def test_what_is_no_instant(remote, pond, at):
    pond.register(LATE, "late")
    for either in (pond, remote):
        with pytest.raises(MillpondError, match="CQL-103"):
            either.query("late").invoke(at=at)


@pytest.mark.parametrize("at", [date(2026, 3, 1), -(10**17), 2**62])
def test_any_instant(remote, pond, at):
    pond.register(LATE, "late")
    here, there = (either.query("late").invoke(at=at) for either in (pond, remote))
    assert (here.as_of, here.rows()) == (there.as_of, there.rows())


def test_what_there_is(remote, pond):
    assert remote.streams() == pond.streams()
    assert remote.relations() == pond.relations()
    remote.register(LATE, "late")
    assert remote.queries() == pond.queries()
    assert 0 < remote.status()["epoch"] <= pond.status()["epoch"]
    remote.catch_up(timeout=1)
    assert remote.ready is True
    pond.close()
    assert remote.ready is False


def test_all_pages_of_queries(remote, pond, monkeypatch):
    remote.register_many([(LATE, None, {})] * 5)
    monkeypatch.setattr(pond_calls, "PAGE_OF_QUERIES", 2)
    assert [q.id for q in remote.queries()] == [q.id for q in pond.queries()]


def test_errors_are_what_they_were(remote, pond):
    bad = "SELECT *\nFROM fligths"
    for call in ("register", "ask", "execute"):
        with pytest.raises(MillpondError) as caught:
            getattr(remote, call)(bad)
        with pytest.raises(MillpondError) as here:
            getattr(pond, call)(bad)
        assert caught.value.span is not None
        assert caught.value.render() == here.value.render()
    with pytest.raises(MillpondError, match=r"CQL-201.*nope"):
        remote.query("nope")
    with pytest.raises(MillpondError, match="CQL-201"):
        remote.ingest("a%b ?", [])


def test_the_token(pond):
    with (
        local_client(create_app(pond, access=Access("s3cret"))) as http,
        pytest.raises(MillpondError, match="SERVE-706: the token is missing"),
    ):
        connect("http://127.0.0.1", http=http)
    with local_client(create_app(pond, access=Access("s3cret"))) as http:
        assert connect("http://127.0.0.1", "s3cret", http=http).queries() == []


def test_no_server():
    with pytest.raises(MillpondError, match="SERVE-705"):
        connect("http://127.0.0.1:1")
    with pytest.raises(MillpondError, match="SERVE-705"):
        connect("not a url")
    html = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>"))
    with pytest.raises(MillpondError, match="SERVE-705"):
        connect("http://other", http=httpx.Client(transport=html, base_url="http://other"))


def test_a_push_is_sent_again_with_its_key_when_the_connection_breaks(pond, http):
    keys = []

    def flaky(request: httpx.Request) -> httpx.Response:
        if re.search("tuples", request.url.path):
            keys.append(request.headers["idempotency-key"])
            if len(keys) < steps.ATTEMPTS:
                # The first push arrives, its receipt is lost.
                http.send(request)
                raise httpx.ReadError("reset")
        return http.send(request)

    broken = httpx.Client(transport=httpx.MockTransport(flaky), base_url="http://127.0.0.1")
    rows = [{"ts": "2026-03-01T12:00:00", "carrier": "DL"}]
    receipt = connect("http://127.0.0.1", http=broken).ingest("flights", rows)
    assert (receipt.accepted, receipt.duplicate) == (1, True)
    assert len(set(keys)) == 1
    assert pond.status()["streams"][0]["rows"] == 4


def test_catching_up_is_waited_for(remote, pond, monkeypatch):
    waited: list[float | None] = []

    def catch_up(timeout: float | None = None) -> None:
        waited.append(timeout)
        if len(waited) < 3:
            raise MillpondError("POND-405", "catching up took too long")

    monkeypatch.setattr(pond, "catch_up", catch_up)
    remote.catch_up()
    assert len(waited) == 3, "asked again until it is done"
    assert all(seconds is not None and seconds <= 60 for seconds in waited)
    waited.clear()
    with pytest.raises(MillpondError, match="POND-405"):
        remote.catch_up(timeout=0.0001)


def test_a_closed_connection_says_so(remote):
    remote.close()
    with pytest.raises(MillpondError, match="POND-410"):
        remote.ask("SELECT 1")


def test_queries_are_selected_as_they_are_listed(remote, pond):
    for either in (remote, pond):
        for n in range(3):
            either.register(LATE, f"q{n}", owner="ann", tags="even" if n % 2 == 0 else "odd")
        assert either.alter_queries({"owner": "ann", "tag": "even"}, comment="both") == 2
        assert [q.name for q in either.queries(containing="delay", tag="odd")] == ["q1"]
        assert [q.name for q in either.queries(names=["q2", "q0"])] == ["q0", "q2"]
        for wrong in ({"colour": 1}, {"owner": 7}, {"names": "q0"}, {"state": "odd"}):
            for call in (either.queries, either.drop_queries):
                with pytest.raises(MillpondError, match="CQL-103"):
                    call(**wrong)
            with pytest.raises(MillpondError, match="CQL-103"):
                either.alter_queries(wrong, weight=2)
        with pytest.raises(MillpondError, match="no queries are selected"):
            either.drop_queries()
        with pytest.raises(MillpondError, match="no queries are selected"):
            either.alter_queries({}, weight=2)
        assert either.drop_queries({"owner": "ann"}, tag="odd") == 1
        assert either.drop_queries(owner="ann", names=("q0", "q2")) == 2
        assert list(either.queries()) == []


def test_a_name_with_commas_selects_its_own_query(remote, pond):
    names = ["a,b", "a", "b", '"', '"a"', 'a "b", c', ",", "a, b"]
    for either in (remote, pond):
        for name in names:
            either.register(LATE, name, follow=True)
        for name in names:
            assert [query.name for query in either.queries(names=[name])] == [name]
            told = [event.query for event in either.subscribe([name], follow=False)]
            assert set(told) - {None} <= {name}
        assert len(list(either.queries(names=names))) == len(names)
        assert either.alter_queries({"names": ["a,b"]}, comment="this one") == 1
        assert either.query("a").describe()["options"].get("comment") is None
        assert either.drop_queries(names=["a,b", "a, b"]) == 2
        assert {query.name for query in either.queries()} == {*names} - {"a,b", "a, b"}
        either.drop_queries(names=[name for name in names if name not in ("a,b", "a, b")])


def test_a_name_that_nothing_can_have_is_missing(remote, pond):
    for name in ("", ".", "..", "a/b", "../../healthz", "a\\b"):
        for either in (remote, pond):
            with pytest.raises(MillpondError) as refused:
                either.query(name)
            assert refused.value.code == "CQL-201", (name, str(refused.value))


def test_a_value_that_is_no_parameter_is_refused_before_it_is_sent(remote, pond):
    for value in (b"x", timedelta(hours=1), time(1), float("nan"), float("-inf"), Decimal("NaN")):
        for either in (remote, pond):
            with pytest.raises(MillpondError, match="CQL-103: the value of") as refused:
                either.register(
                    "SELECT delay FROM flights WHERE carrier = $of", params={"of": value}
                )
            assert type(value).__name__ in str(refused.value)
    query = remote.register("SELECT delay FROM flights WHERE carrier = $of", params={"of": "AA"})
    with pytest.raises(MillpondError, match="CQL-103"):
        query.alter(params={"of": b"x"})


def test_moments_are_parameters_in_any_zone_and_library(remote, pond):
    text, east = "SELECT delay FROM flights WHERE ts < $at", timezone(timedelta(hours=2))
    expected = "TIMESTAMP '2026-03-01 10:00:00'", "'2026-03-01 10:00:00'"
    for moment in (
        datetime(2026, 3, 1, 12, tzinfo=east),
        datetime(2026, 3, 1, 10),
        pd.Timestamp("2026-03-01 12:00", tz=east),
        np.datetime64("2026-03-01T10:00:00", "ns"),
    ):
        for either in (remote, pond):
            query = either.register(text, "timed", params={"at": moment})
            assert query.describe()["parameters"]["at"] in expected
            query.alter(params={"at": date(2026, 1, 1)})
            query.alter(params={"at": moment})
            assert query.describe()["parameters"]["at"] in expected
            query.unregister()


def test_parameters_are_seen(remote, pond):
    text = "SELECT delay FROM flights WHERE carrier = $of AND delay > $least"
    pond.register(text, "p", params={"of": "it's", "least": 3})
    pond.query("p").alter(params={"least": 4})
    pond.register(LATE, "plain")
    seen = {"template": text, "parameters": {"of": "'it''s'", "least": "4"}}
    for either in (remote, pond):
        found = either.query("p").describe()
        assert {key: found[key] for key in seen} == seen
        listed = {query.name: query.template for query in either.queries()}
        assert listed["p"].constants == seen["parameters"]
        assert listed["plain"] is None
        assert either.query("plain").describe()["parameters"] == {}
        [facts] = either.execute("DESCRIBE p")
        rows = dict(facts.facts) if facts.facts else {}
        assert (rows["template"], rows["parameters"]) == (text, "of = 'it''s', least = 4")
