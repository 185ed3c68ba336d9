"""Feeds over HTTP: pages in every form, and a stream that goes on."""

from __future__ import annotations

import asyncio
import json

import httpx
import pyarrow as pa
import pytest

from millpond.api import encode
from millpond.api.client import connect, feed_calls
from millpond.api.subscribers import Subscribers
from millpond.errors import MillpondError
from millpond.service.queries.query_selection import QuerySelection

CQL = "SELECT carrier, delay FROM flights [RANGE 20 MINUTES] WHERE delay > {}"


@pytest.fixture
def fed(http):
    options = {"changes": "from beginning", "tags": ["fed"], "follow": True}
    body = [{"cql": CQL.format(n), "name": f"q{n}", "options": options} for n in (0, 60)]
    found = http.post("/v1/queries", json=body).json()
    for name in ("q0", "q60"):
        http.get(f"/v1/queries/{name}/changes")
    return found


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def test_following_begins_at_the_registration(http, fed):
    assert all(query["changes"]["newest"] == 0 for query in fed)


def test_a_page_goes_on_after_every_cursor(http, fed):
    page = http.get("/v1/changes", params={"tag": "fed"}).json()
    changes = of_kind(page["events"], "change")
    assert [
        (c["query"], c["timestamp"][11:16], c["change"], c["row"]["delay"]) for c in changes
    ] == [
        ("q0", "11:00", "+", 61.5),
        ("q60", "11:00", "+", 61.5),
        ("q0", "11:20", "-", 61.5),
        ("q60", "11:20", "-", 61.5),
    ]
    assert [c["number"] for c in changes] == [1, 1, 2, 2]
    (mark,) = of_kind(page["events"], "mark")
    assert mark["cursor"] == page["cursor"]
    assert mark["progress"] == [
        {
            "streams": ["flights"],
            "queries": 2,
            "up_to": "2026-03-01T11:44:59.999999",
            "awaits": ["flights"],
        }
    ]
    (note,) = of_kind(page["events"], "note")
    assert "IDLE AFTER" in note["note"]
    for place, change in enumerate(changes):
        rest = http.get("/v1/changes", params={"tag": "fed", "after": change["cursor"]}).json()
        again = of_kind(rest["events"], "change")
        assert [c["row"] for c in again] == [c["row"] for c in changes[place + 1 :]]
    first = http.get("/v1/changes", params={"queries": "q60", "limit": 1}).json()
    assert [c["query"] for c in of_kind(first["events"], "change")] == ["q60"]
    assert of_kind(first["events"], "mark") == []


def test_a_page_in_other_forms(http, fed):
    asked = {"tag": "fed"}
    page = http.get("/v1/changes", params=asked).json()["events"]
    lines = http.get("/v1/changes", params=asked, headers={"Accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == page
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    content = http.get("/v1/changes", params=asked, headers=accept).content
    with pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
    assert table["event"].to_pylist() == [event["event"] for event in page]
    assert table["cursor"].to_pylist() == [event["cursor"] for event in page]
    assert table["number"].to_pylist() == [event.get("number") for event in page]
    assert json.loads(table["data"][1].as_py()) == {"carrier": "AA", "delay": 61.5}


def test_what_is_wrong_is_an_error_before_the_feed_begins(http, fed):
    for params, status, code in (
        ({}, 400, "SERVE-703"),
        ({"queries": "q0,none"}, 404, "CQL-201"),
        ({"tag": "fed", "after": "x"}, 409, "POND-412"),
        ({"tag": "fed", "after": "x", "snapshot": "true"}, 400, "SERVE-703"),
    ):
        response = http.get("/v1/changes", params={**params, "follow": "true"})
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_a_feed_is_followed(pond):
    pond.register(CQL.format(0), "q", owner="ann")
    selection = QuerySelection(owner="ann")

    async def follow() -> list[dict]:
        followers, found = Subscribers(), []
        feed = await asyncio.to_thread(pond.open_feed, selection, None, True)
        async for piece in followers.follow_feed(feed, pond.listen, encode.NDJSON):
            found += [json.loads(line) for line in piece.splitlines() if line]
            if not of_kind(found, "came"):
                if of_kind(found, "mark"):
                    await asyncio.to_thread(pond.register, CQL.format(5), "p", owner="ann")
            elif not of_kind(found, "change"):
                rows = [{"ts": f"2026-03-01T11:{m}:00", "delay": 7} for m in (50, 55)]
                await asyncio.to_thread(pond.ingest, "flights", rows)
                await asyncio.to_thread(pond.catch_up)
            elif {c["query"] for c in of_kind(found, "change")} == {"q", "p"}:
                followers.close()
        return found

    found = asyncio.run(asyncio.wait_for(follow(), 120))
    assert [e["query"] for e in of_kind(found, "answer")] == ["q"]
    assert [e["query"] for e in of_kind(found, "came")] == ["p"]
    assert {c["row"]["delay"] for c in of_kind(found, "change")} <= {7, 120}


def test_server_sent_events_have_the_cursor_as_their_id(http, fed):
    asked = {"tag": "fed", "follow": "false"}
    page = http.get("/v1/changes", params=asked).json()["events"]
    text = http.get("/v1/changes", params=asked, headers={"Accept": "text/event-stream"}).text
    blocks = [dict(x.split(": ", 1) for x in b.split("\n")) for b in text.split("\n\n") if b]
    assert [block.get("id") for block in blocks] == [event["cursor"] for event in page]
    assert [block["event"] for block in blocks] == [event["event"] for event in page]
    assert [json.loads(block["data"]) for block in blocks] == page
    last = {"Accept": "text/event-stream", "Last-Event-ID": page[-1]["cursor"]}
    assert "event: change" not in http.get("/v1/changes", params=asked, headers=last).text


def test_a_remote_pond_subscribes_as_one_in_this_process(http, pond, fed):
    remote = connect("http://127.0.0.1", http=http)
    mine = list(pond.subscribe(tag="fed", follow=False))
    theirs = list(remote.subscribe(tag="fed", follow=False))
    assert [(e.kind, e.query, e.cursor, e.facts) for e in theirs if e.kind != "note"] == [
        (e.kind, e.query, e.cursor, e.facts) for e in mine if e.kind != "note"
    ]
    changes = [e for e in theirs if e.kind == "change"]
    told = [[e.change for e in events if e.kind == "change"] for events in (theirs, mine)]
    numbered = [[(c.number, c.at, c.timestamp, c.sign, c.row) for c in page] for page in told]
    assert numbered[0] == numbered[1] != []
    for name in ("q0", "q60"):
        one = [e.change.number for e in changes if e.query == name]
        assert one == [c.number for c in remote.query(name).subscribe(follow=False)] == [1, 2]
    answers = [
        [
            (e.query, e.answer.as_of, e.answer.rows())
            for e in p.subscribe(tag="fed", follow=False, snapshot=True)
            if e.kind == "answer"
        ]
        for p in (pond, remote)
    ]
    assert answers[0] == answers[1] != []
    rest = list(remote.subscribe(tag="fed", after=changes[1].cursor, follow=False))
    assert [e.cursor for e in rest if e.kind == "change"] == [e.cursor for e in changes[2:]]
    with pytest.raises(MillpondError, match="CQL-201"):
        next(remote.subscribe(["none"]))


def test_a_remote_feed_goes_on_when_the_connection_broke(http, fed, monkeypatch):
    remote, real, cut = connect("http://127.0.0.1", http=http), http.send, []

    def send(request, **named):
        """Answers with one line of a page, and breaks."""
        asked = {**request.url.params, "follow": "false", "limit": 1}
        cut.append(asked.get("after"))
        url = request.url.copy_with(params=asked)
        response = real(http.build_request("GET", url, headers=request.headers))

        def break_off():
            yield from response.text.splitlines()
            raise httpx.ReadError("broken")

        if response.is_success:
            monkeypatch.setattr(response, "iter_lines", break_off)
        return response

    monkeypatch.setattr(http, "send", send)
    monkeypatch.setattr(feed_calls, "_PAUSE_SECONDS", 0)
    found = []
    for event in remote.subscribe(tag="fed"):
        if event.kind == "change":
            found.append((event.query, event.change.at, event.change.sign))
        if event.kind == "mark":
            break
    assert len(found) == len(set(found)) == 4
    assert len(cut) >= 4
