"""`curl -d` works without naming a content type."""

from __future__ import annotations

import httpx

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_body_that_calls_itself_a_form_is_what_the_call_takes(http: httpx.Client) -> None:
    text = '{"text": "CREATE STREAM plain (v INTEGER)"}'
    made = http.post("/v1/statements", content=text, headers=FORM)
    assert made.status_code == 200, made.text
    rows = '{"v": 1}\n{"v": 2}'
    pushed = http.post("/v1/streams/plain/tuples", content=rows, headers=FORM)
    assert pushed.json()["accepted"] == 2
    text = '{"text": "SELECT sum(v) AS n FROM plain"}'
    asked = http.post("/v1/statements", content=text, headers=FORM)
    assert asked.json()["results"][0]["rows"] == [[3]]
