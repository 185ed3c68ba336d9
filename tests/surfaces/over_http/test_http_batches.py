"""Batches over HTTP: parts first, then the batch, each once."""

from __future__ import annotations

import pytest

CSV = b"ts,carrier\n2026-03-01T12:00:00,DL\n,B6\n"


def test_parts_and_their_batch(http):
    for part in ("a", "b", "c"):
        made = http.put(
            f"/v1/streams/flights/parts/{part}", content=CSV, headers={"Content-Type": "text/csv"}
        )
        assert (made.status_code, made.json()) == (200, {"rows": 2})
    assert http.delete("/v1/streams/flights/parts/c").status_code == 204
    assert http.get("/v1/streams").json()["streams"][0]["rows"] == 3
    batch = {"writer": "job", "batch": 7, "parts": ["a", "b"]}
    for duplicate in (False, True):
        receipt = http.post("/v1/streams/flights/batches", json=batch).json()
        assert (receipt["accepted"], receipt["rejected"]) == (2, 2)
        assert [reject["row"] for reject in receipt["rejects"]] == [1, 3]
        assert receipt["duplicate"] is duplicate
    gone = http.post("/v1/streams/flights/batches", json={**batch, "batch": 8, "parts": ["c"]})
    assert (gone.status_code, gone.json()["error"]["code"]) == (409, "DATA-504")
    gap = http.post("/v1/streams/flights/batches", json={**batch, "batch": 9, "parts": []})
    assert (gap.status_code, gap.json()["error"]["code"]) == (409, "DATA-504")


@pytest.mark.parametrize(
    ("call", "body", "status", "code"),
    [
        ("parts/a%20b", CSV, 400, "DATA-501"),
        ("batches", {"writer": "", "parts": []}, 400, "DATA-501"),
        ("batches", {"writer": "w", "batch": -1, "parts": []}, 422, "SERVE-703"),
        ("batches", {"writer": "w", "parts": ["../a"]}, 400, "DATA-501"),
    ],
    ids=["part", "writer", "number", "parts"],
)
def test_what_is_no_batch(http, call, body, status, code):
    url = f"/v1/streams/flights/{call}"
    if isinstance(body, bytes):
        answer = http.put(url, content=body, headers={"Content-Type": "text/csv"})
    else:
        answer = http.post(url, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
