"""Rows pushed over HTTP, and the streams and relations there are."""

from __future__ import annotations

import gzip

import httpx
import pyarrow as pa
import pytest
from local_http import local_client

from millpond.api.app import create_app

TUPLES = "/v1/streams/flights/tuples"
NDJSON = b'{"ts": "2026-03-01T12:00:00", "carrier": "DL", "number": 4}\n{"carrier": "B6"}\n'
CSV = b"ts,carrier\n2026-03-01T12:00:00,DL\n,B6\n"


def arrow() -> bytes:
    table = pa.table({"ts": ["2026-03-01T12:00:00", None], "carrier": ["DL", "B6"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


FORMS = {
    "application/x-ndjson": NDJSON,
    "text/csv; charset=utf-8": CSV,
    "application/vnd.apache.arrow.stream": arrow(),
}


@pytest.mark.parametrize("media", FORMS)
def test_push(http, media):
    response = http.post(TUPLES, content=FORMS[media], headers={"Content-Type": media})
    assert response.status_code == 200
    receipt = response.json()
    [reject] = receipt.pop("rejects")
    assert receipt == {"accepted": 1, "rejected": 1, "shed": 0, "duplicate": False}
    assert reject == {"row": 1, "reason": "no timestamp"}
    assert http.get("/v1/streams").json()["streams"][0]["rows"] == 4


def test_push_of_csv_without_a_header(http):
    for body in (b"2026-03-01T12:00:00,AA", CSV.split(b"\n", 1)[1]):
        response = http.post(TUPLES, content=body, headers={"Content-Type": "text/csv"})
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["code"], error["message"]) == ("DATA-501", "the CSV has no header")
        assert error["hint"].endswith("ts,carrier,origin,delay,number")


def test_push_twice_with_one_key(http):
    headers = {"Content-Type": "text/csv", "Idempotency-Key": "k1"}
    assert http.post(TUPLES, content=CSV, headers=headers).json()["duplicate"] is False
    assert http.post(TUPLES, content=CSV, headers=headers).json()["duplicate"] is True
    assert http.get("/v1/streams").json()["streams"][0]["rows"] == 4
    other = http.post(TUPLES, content=CSV + b"2026-03-01T13:00:00,AA\n", headers=headers)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "DATA-503"


def test_push_gzipped(http):
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    response = http.post(TUPLES, content=gzip.compress(NDJSON), headers=headers)
    assert response.json()["accepted"] == 1


def test_push_gzipped_in_parts(http):
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    parts = gzip.compress(NDJSON) + gzip.compress(NDJSON * 2)
    assert http.post(TUPLES, content=parts, headers=headers).json()["accepted"] == 3
    torn = http.post(TUPLES, content=parts[:-4], headers=headers)
    assert (torn.status_code, torn.json()["error"]["code"]) == (400, "SERVE-703")


def test_push_what_unpacks_to_too_much(pond):
    headers = {"Content-Type": "text/csv", "Content-Encoding": "gzip"}
    with local_client(create_app(pond, max_body=1000)) as http:
        response = http.post(TUPLES, content=gzip.compress(b"x" * 100_000), headers=headers)
        assert response.status_code == 413
        response = http.post(TUPLES, content=b"x" * 1001, headers={"Content-Type": "text/csv"})
        assert response.status_code == 413


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, 415, "SERVE-708"),
        ({}, 415, "SERVE-708"),
        ({"Content-Type": "text/csv", "Content-Encoding": "br"}, 415, "SERVE-708"),
        ({"Content-Type": "text/csv", "Content-Encoding": "gzip"}, 400, "SERVE-703"),
        ({"Content-Type": "application/vnd.apache.arrow.stream"}, 400, "DATA-501"),
    ],
)
def test_push_what_cannot_be_read(http, headers, status, code):
    response = http.post(TUPLES, content=b"{not rows", headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code


def test_push_a_line_that_is_no_row(http):
    headers = {"Content-Type": "application/x-ndjson"}
    response = http.post(TUPLES, content=b"{not a row\n" + NDJSON, headers=headers)
    receipt = response.json()
    assert (receipt["accepted"], receipt["rejected"]) == (1, 2)
    assert receipt["rejects"][0]["row"] == 0


def test_push_cut_short(http):
    headers = {"Content-Type": "text/csv", "Content-Encoding": "gzip"}
    response = http.post(TUPLES, content=gzip.compress(CSV)[:-6], headers=headers)
    assert response.json()["error"]["code"] == "SERVE-703"


def test_push_into_what_is_not_there(http):
    headers = {"Content-Type": "text/csv"}
    response = http.post("/v1/streams/nope/tuples", content=CSV, headers=headers)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "CQL-201"


def test_streams(http):
    [stream] = http.get("/v1/streams").json()["streams"]
    assert stream["name"] == "flights"
    assert stream["columns"][0] == {"name": "ts", "type": "TIMESTAMP"}
    assert (stream["timestamp_by"], stream["delay_us"]) == ("ts", 0)
    assert (stream["rows"], stream["state"]) == (3, "running")
    assert stream["heartbeat"] == "2026-03-01T11:45:00.000000"


def test_relations(http):
    [relation] = http.get("/v1/relations").json()["relations"]
    assert (relation["name"], relation["primary_key"]) == ("planes", ["tailnum"])


def test_when_it_is_too_much_a_push_is_refused_and_may_come_again(http, pond):
    assert http.patch("/v1/entities/queue:inbox", json={"queue_memory": "1 KB"}).json()[
        "settings"
    ] == {"queue_memory": "1 KB", "freshness": "never"}
    wake_inbox = pond._components.runtime.wake_inbox
    pond._components.runtime.wake_inbox = lambda: None
    headers = {"Content-Type": "application/x-ndjson"}
    body = b'{"ts": "2026-03-01T12:00:00", "carrier": "DL", "number": 4}\n' * 30
    assert http.post(TUPLES, content=body, headers=headers).json()["accepted"] == 30
    refused = http.post(TUPLES, content=body, headers=headers)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "POND-417"
    text = "INSERT INTO flights (ts, number) VALUES ('2026-03-01 12:00:00', 1)"
    assert http.post("/v1/statements", json={"text": text}).status_code == 429
    assert http.patch("/v1/streams/flights", json={"overload": "shed random"}).status_code == 200
    assert http.get("/v1/streams").json()["streams"][0]["overload"] == "shed random"
    assert http.post(TUPLES, content=body, headers=headers).json()["shed"] == 30
    metrics = http.get("/metrics").text
    assert 'millpond_refused_total{stream="flights"} 31.0' in metrics
    assert 'millpond_shedding{stream="flights"} 1.0' in metrics
    wake_inbox()
    assert 'millpond_shed_total{stream="flights"} 30.0' in http.get("/metrics").text


def test_what_a_stream_cannot_be_told(http):
    for options in ({"overload": "x"}, {"overload": "block", "weight": 1}, {"active": True}):
        error = http.patch("/v1/streams/flights", json=options)
        assert error.status_code == 400
    assert http.patch("/v1/streams/none", json={"overload": "block"}).status_code == 404


def test_clauses_of_a_stream_are_altered(http):
    given = {"delay": "1 minute", "idle_after": "30 s", "retain": "9 rows", "ahead": "unbounded"}
    assert http.patch("/v1/streams/flights", json=given).status_code == 200
    described = http.get("/v1/streams").json()["streams"][0]
    assert (described["delay_us"], described["idle_after_us"]) == (60_000_000, 30_000_000)
    assert (described["retain_rows"], described["retain_us"]) == (9, None)


def test_a_clock_is_set_back(http):
    headers = {"Content-Type": "application/x-ndjson"}
    stream = "CREATE STREAM far (ts TIMESTAMP, n INTEGER) TIMESTAMP BY ts AHEAD UNBOUNDED;"
    query = "CREATE QUERY all_far WITH (follow = true) AS SELECT n FROM far;"
    assert http.post("/v1/statements", json={"text": stream + query}).status_code == 200
    for year in ("2026", "9026"):
        body = f'{{"ts": "{year}-03-01T12:00:00", "n": 1}}\n'.encode()
        http.post("/v1/streams/far/tuples", content=body, headers=headers)
    assert http.post("/v1/catch-up").status_code == 200
    before = http.get("/v1/queries/all_far/changes").json()["cursor"]
    done = http.post("/v1/streams/far/reset-clock", params={"to": "2026-03-02"})
    assert done.json() == {"rejected": 1, "taken_back": ["all_far"]}
    assert http.get("/v1/queries/all_far").json()["changes"]["newest"] == 0
    refused = http.get("/v1/queries/all_far/changes", params={"after": before})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "POND-412")
    for stream, to, status in (
        ("none", "2026-03-02", 404),
        ("far", "soon", 400),
        ("far$rejects", "2026-03-02", 400),  # there is such a stream, and Millpond itself writes it
    ):
        wrong = http.post(f"/v1/streams/{stream}/reset-clock", params={"to": to})
        assert wrong.status_code == status
    assert http.post("/v1/streams/far/reset-clock").status_code in (400, 422)


def test_rows_come_as_json(http: httpx.Client) -> None:
    made = "CREATE STREAM trips (n INTEGER, s STRING)"
    assert http.post("/v1/statements", json={"text": made}).status_code == 200

    def push(text: str) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        return http.post("/v1/streams/trips/tuples", content=text, headers=headers)

    receipt = push('[{"n": 1, "s": "a"}, 7, {"n": "x"}, {"s": "\\ud800"}, {"N": 2}]').json()
    assert (receipt["accepted"], [reject["row"] for reject in receipt["rejects"]]) == (2, [1, 2, 3])
    assert push('{"n": 3}').json()["accepted"] == 1
    refused = push('[{"n": 4}, {"n": 5]')
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "DATA-501")
    http.post("/v1/catch-up")
    asked = http.post("/v1/statements", json={"text": "SELECT n FROM trips ORDER BY n"}).json()
    assert asked["results"][0]["rows"] == [[1], [2], [3]]
