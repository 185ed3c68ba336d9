"""Bodies that are small and stand for very much are refused before anything is made of them."""

from __future__ import annotations

import time

import pytest
from local_http import local_client

from millpond.api.app import create_app
from millpond.api.contract import MOST_VALUES
from millpond.engine.admission.json_size import has_more

MEMBERS = b",".join(b'"k%d": 1' % n for n in range(900_000))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/queries", b"[" + b"1," * 2_000_000 + b"1]"),
        ("/v1/queries", b"[" + b"{}," * 900_000 + b"{}]"),
        ("/v1/queries", b'[{"cql": "SELECT 1", ' + MEMBERS + b"}]"),
        ("/v1/queries", b'{"cql": "SELECT 1", "options": {' + MEMBERS + b"}}"),
        ("/v1/statements", b"{" + MEMBERS + b"}"),
        ("/v1/tickets", b'{"queries": [' + b"{}," * 900_000 + b"{}]}"),
    ],
)
def test_json_of_very_many_values_is_refused_at_once(pond, path, body):
    with local_client(create_app(pond)) as http:
        began = time.monotonic()
        answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
        # It took minutes, and gigabytes: an error for each value.
        assert time.monotonic() - began < 20
        assert answer.status_code in (400, 413, 422)
        assert len(answer.content) < 100_000


def test_a_long_text_of_many_commas_is_no_json_of_many_values(pond):
    text = "SELECT '" + ',\\"' * 400_000 + "'; SELECT '" + "," * 700_000 + "' AS a"
    with local_client(create_app(pond)) as http:
        body = b'{"text": "' + text.encode() + b'"}'
        answer = http.post(
            "/v1/statements", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 200, answer.text[:300]


@pytest.mark.parametrize(
    ("body", "is_many"),
    [
        (b"[" + b"1," * MOST_VALUES + b"1]", False),
        (b"[" + b"1," * (MOST_VALUES + 1) + b"1]", True),
        (b'["' + b"," * 3_000_000 + b'"]', False),
        (b'["' + b'\\",' * 3_000_000 + b'"]', False),
        (b'["' + b"\\\\" * 999 + b'",' + b'"\\\\",' * MOST_VALUES + b"1]", True),
        (b'["\\\\\\"' + b"," * 3_000_000 + b'"]', False),
        (b'"' + b'\\"' * 3_000_000 + b",\\", False),
    ],
)
def test_values_are_counted_outside_of_strings(body, is_many):
    assert has_more(body, b",", MOST_VALUES) is is_many
