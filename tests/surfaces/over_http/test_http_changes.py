"""Changes over HTTP: pages in every form, streams that go on, and the client's way through both."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime

import httpx
import pyarrow as pa
import pytest

from millpond.api import listening, server, subscribers
from millpond.api.client import connect, handle_calls
from millpond.errors import MillpondError

Q = "SELECT carrier, delay FROM flights [RANGE 20 MINUTES] WHERE delay > 60"
CHANGES = [
    [1, "2026-03-01T11:00:00.000000", "+", "AA", 61.5],
    [2, "2026-03-01T11:20:00.000000", "-", "AA", 61.5],
]


@pytest.fixture
def q(http: httpx.Client) -> dict:
    body = {"cql": Q, "name": "q", "options": {"changes": "from beginning"}}
    return http.post("/v1/queries", json=body).json()


def numbered(cursor: str) -> int:
    """The number at the end of a cursor."""
    store, log, number = cursor.split(".")
    assert (len(store), log.isdigit()) == (6, True)
    return int(number)


def events(text: str) -> list[dict[str, str]]:
    """The events of a stream of them; comments are passed over."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            found.append(dict(line.split(": ", 1) for line in lines))
    return found


def test_a_page(http, q):
    body = http.get("/v1/queries/q/changes").json()
    assert {**body, "cursor": numbered(body["cursor"])} == {
        "query": "q",
        "as_of": "2026-03-01T11:44:59.999999",
        "final": True,
        "exact": True,
        "loss": [],
        "bounds": None,
        "cursor": 2,
        "newest": 2,
        "redefined": None,
        "columns": ["cursor", "timestamp", "change", "carrier", "delay"],
        "types": ["BIGINT", "VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE"],
        "rows": CHANGES,
    }
    by_id = http.get(f"/v1/queries/{q['id']}/changes", params={"after": 1}).json()
    assert by_id["rows"] == CHANGES[1:]
    first = http.get("/v1/queries/q/changes", params={"limit": 1}).json()
    assert (first["rows"], numbered(first["cursor"]), first["newest"]) == (CHANGES[:1], 1, 2)
    assert first["as_of"] == "2026-03-01T10:59:59.999999"
    none = http.get("/v1/queries/q/changes", params={"limit": 0}).json()
    assert (none["rows"], numbered(none["cursor"]), none["as_of"]) == ([], 0, first["as_of"])
    rest = http.get("/v1/queries/q/changes", params={"after": 1, "limit": 0}).json()
    assert (numbered(rest["cursor"]), rest["as_of"]) == (1, "2026-03-01T11:19:59.999999")


def test_a_page_without_changes_has_types(http):
    cql = "SELECT carrier, sum(number) AS total FROM flights WHERE delay > 999 GROUP BY carrier"
    http.post("/v1/queries", json={"cql": cql, "name": "none"})
    body = http.get("/v1/queries/none/changes").json()
    assert (body["rows"], body["types"][3:]) == ([], ["VARCHAR", "BIGINT"])


def test_a_page_in_other_forms(http, q):
    lines = http.get("/v1/queries/q/changes", headers={"Accept": "application/x-ndjson"})
    found = [json.loads(line) for line in lines.text.splitlines()]
    assert [{**line, "cursor": numbered(line["cursor"])} for line in found] == [
        {"cursor": c, "timestamp": t, "change": s, "row": {"carrier": k, "delay": d}, "exact": True}
        for c, t, s, k, d in CHANGES
    ]
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    with pa.ipc.open_stream(http.get("/v1/queries/q/changes", headers=accept).content) as reader:
        table = reader.read_all()
    assert table["timestamp"].to_pylist() == [1_772_362_800_000_000, 1_772_364_000_000_000]
    assert table["delay"].to_pylist() == [61.5, 61.5]


def test_events(http, q):
    accept = {"Accept": "text/event-stream"}
    params = {"limit": 2}
    response = http.get("/v1/queries/q/changes", params=params, headers=accept)
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response.text)
    assert [(numbered(e["id"]), e["event"]) for e in found] == [(1, "change"), (2, "change")]
    assert json.loads(found[0]["data"])["row"] == {"carrier": "AA", "delay": 61.5}
    # A browser that lost its connection asks the same, and says what it had last.
    again = http.get(
        "/v1/queries/q/changes",
        params={"after": 0, "limit": 1},
        headers={**accept, "Last-Event-ID": "1"},
    )
    assert [numbered(e["id"]) for e in events(again.text)] == [2]


def test_what_is_wrong_is_an_error_before_the_stream_begins(http, q):
    for params, accept, status, code in (
        ({"after": "x"}, "*/*", 409, "POND-412"),
        ({"after": 9}, "text/event-stream", 409, "POND-412"),
        ({"follow": "true"}, "application/vnd.apache.arrow.stream", 406, "SERVE-709"),
        ({"limit": -1}, "*/*", 422, "SERVE-703"),
    ):
        response = http.get("/v1/queries/q/changes", params=params, headers={"Accept": accept})
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert http.get("/v1/queries/none/changes").status_code == 404
    http.patch("/v1/queries/q", json={"active": False})
    inactive = http.get("/v1/queries/q/changes", params={"follow": "true"})
    assert (inactive.status_code, inactive.json()["error"]["code"]) == (409, "POND-402")


def test_an_idle_line_is_told_so_and_ends_when_the_query_does(http, pond, q, monkeypatch):
    monkeypatch.setattr(subscribers, "IDLE_SECONDS", 0.01)
    read = http.get("/v1/queries/q/changes").json()
    told = threading.Event()
    handle_type = type(pond.query("q"))
    has_more = handle_type.has_more
    asked = []

    def counted(self, cursor: int) -> bool:
        asked.append(cursor)
        if len(asked) == 5:
            pond.query("q").unregister()
            told.set()
        return has_more(self, cursor)

    monkeypatch.setattr(handle_type, "has_more", counted)
    params = {"after": read["cursor"], "follow": "true"}
    response = http.get(
        "/v1/queries/q/changes", params=params, headers={"Accept": "*/*;q=0.1, text/event-stream"}
    )
    assert told.is_set()
    assert response.text.count(": nothing new\n\n") >= 1
    (last,) = events(response.text)
    assert last["event"] == "error"
    assert json.loads(last["data"])["error"]["code"] == "CQL-201"


def test_a_page_that_waits(http, pond, q):
    before = http.get("/v1/queries/q/changes").json()
    empty = http.get("/v1/queries/q/changes", params={"after": before["cursor"], "wait": 0.01})
    assert (empty.json()["rows"], numbered(empty.json()["cursor"])) == ([], 2)
    asked = threading.Event()
    found = []

    def wait() -> None:
        asked.set()
        params = {"after": before["cursor"], "wait": 60}
        found.append(http.get("/v1/queries/q/changes", params=params).json())

    waiting = threading.Thread(target=wait)
    waiting.start()
    asked.wait()
    pond.execute("INSERT INTO flights VALUES ('2026-03-01 11:46:00', 'UA', 'JFK', 99, 4)")
    waiting.join(30)
    assert [row[0] for row in found[0]["rows"]] == [3]


def test_the_client_reads_and_follows(http, pond, q):
    handle = connect("http://127.0.0.1", http=http).query("q")
    here = pond.query("q").fetch()
    there = handle.fetch()
    assert there.table.equals(here.table)
    assert (there.cursor, there.newest, there.as_of) == (here.cursor, here.newest, here.as_of)
    assert [c.row for c in handle.subscribe(follow=False)] == [("AA", 61.5)] * 2
    (second,) = handle.subscribe(after=1, follow=False)
    assert (second.number, second.sign, second.timestamp) == (2, "-", "2026-03-01 11:20:00")
    assert len(handle.fetch(limit=1)) == 1
    results = connect("http://127.0.0.1", http=http).execute("FETCH q AFTER 1")
    assert results[0].changes is not None
    assert results[0].changes.rows() == here.rows()[1:]
    with pytest.raises(MillpondError, match="POND-412"):
        handle.fetch(after=77)


def test_a_derived_stream_is_followed(http, pond):
    pond.execute("CREATE STREAM late AS SELECT carrier, delay FROM flights WHERE delay > 60")
    page = http.get("/v1/streams/late/changes").json()
    assert page["rows"] == CHANGES[:1]
    accept = {"Accept": "text/event-stream"}
    told = events(http.get("/v1/streams/late/changes", params={"limit": 1}, headers=accept).text)
    (event,) = told
    assert numbered(event["id"]) == 1
    assert json.loads(event["data"])["row"]["carrier"] == "AA"
    remote = connect("http://127.0.0.1", http=http)
    late = remote.derived("late")
    assert late.fetch().rows() == pond.derived("late").fetch().rows()
    assert [c.row for c in late.subscribe(follow=False)] == [("AA", 61.5)]
    assert late.plan("rewritten") == pond.derived("late").plan("rewritten")
    late.alter(active=True)
    for path, code in (("flights", "CQL-216"), ("none", "CQL-201")):
        response = http.get(f"/v1/streams/{path}/changes")
        assert response.json()["error"]["code"] == code
        with pytest.raises(MillpondError, match=code):
            remote.derived(path)
    response = http.patch("/v1/streams/late", json={"active": False})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "CQL-214")


def test_the_client_outlives_the_server(pond, monkeypatch):
    """A subscription goes on where it was when another server serves the same pond."""
    monkeypatch.setattr(handle_calls, "_PAUSE_SECONDS", 0.01)
    pond.register(Q, "q", changes="from beginning")
    port = 0
    got: list[int] = []
    changes: Iterator | None = None
    remote = None
    for minute in (46, 47, 48):
        stop = threading.Event()
        started = threading.Event()
        bound = listening.bind("127.0.0.1", port)
        port = bound.getsockname()[1]
        app = server.create_app(pond)
        config = server.uvicorn.Config(app, log_config=None, lifespan="off")
        limits = server.ClientLimits.of()
        running = server.Server(config, "", lambda url, e=started: e.set(), pond, limits)
        running.on_shutdown = app.state.followers.close
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
        thread.start()
        assert started.wait(20)
        if changes is None:
            remote = connect(f"http://127.0.0.1:{port}")
            changes = remote.query("q").subscribe()
            got += [next(changes).number, next(changes).number]
        pond.execute(f"INSERT INTO flights VALUES ('2026-03-01 11:{minute}:00', 'UA', 'X', 99, 4)")
        got.append(next(changes).number)
        running.should_exit = True
        thread.join(20)
        stop.set()
        bound.close()
    assert got == [1, 2, 3, 4, 5]
    assert remote is not None
    remote.close()


def test_instants_of_changes(pond):
    pond.register("SELECT count(*) AS n FROM flights", "n", changes="from beginning")
    first, second, *_ = pond.query("n").subscribe(follow=False)
    assert (first.timestamp, first.row) == ("beginning of time", (0,))
    assert second.at == int(datetime(2026, 3, 1, 11).timestamp() * 1e6)
