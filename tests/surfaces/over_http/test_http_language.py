"""What editors ask: a text read without running it, the words of the language, who calls."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from people import GRANTED, WORLD, client_of, make_token

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.model.functions import ALLOWED
from millpond.service.pond import Pond


def parse(http: httpx.Client, text: str) -> tuple[list[dict], dict | None]:
    answer = http.post("/v1/parse", json={"text": text})
    assert answer.status_code == 200, answer.text
    return answer.json()["statements"], answer.json()["wrong"]


@pytest.mark.parametrize(
    ("text", "code", "wrong"),
    [
        ("SELECT nope FROM flights", "CQL-202", "nope"),
        ("SHOW STREAMS;\n SELECT ts FROM flightz", "CQL-201", "flightz"),
        ("SELECT ts, FROM flights", "CQL-103", "FROM"),
        ("SELEC ts FROM flights", "CQL-101", "SELEC"),
        ("SHOW STREAMS; INVOKE nothing", "CQL-201", "nothing"),
        ("EXPLAIN SELECT nope FROM flights", "CQL-202", "nope"),
        ("CREATE QUERY q AS SELECT nope FROM flights", "CQL-202", "nope"),
        ("SELECT '😀' AS face FROM flights WHERE nope", "CQL-202", "nope"),
    ],
    ids=lambda value: value[:20],
)
def test_an_error_has_its_place_in_the_text(
    http: httpx.Client, text: str, code: str, wrong: str
) -> None:
    _, error = parse(http, text)
    assert error is not None
    place = error["place"]
    assert (error["code"], text[place["start"] : place["end"]]) == (code, wrong)


def test_statements_are_read_and_not_run(http: httpx.Client, pond: Pond) -> None:
    text = " create stream s (a INT);\nSELECT a FROM s; drop stream flights"
    statements, error = parse(http, text)
    # What a statement makes, the next may name: names are looked up before it only.
    assert error is None
    assert [(s["statement"], text[s["start"] : s["end"]]) for s in statements] == [
        ("CreateStream", "create stream s (a INT)"),
        ("Ask", "SELECT a FROM s"),
        ("Drop", "drop stream flights"),
    ]
    assert [s["printed"] for s in statements] == [
        "CREATE STREAM s (a INT)",
        "SELECT a FROM s",
        "DROP STREAM flights",
    ]
    assert [s.name for s in pond.streams()] == ["flights"]
    assert parse(http, " -- nothing") == ([], None)


def test_every_function_has_its_calls(http: httpx.Client) -> None:
    language = http.get("/v1/language").json()
    functions = {f["name"]: f for f in language["functions"]}
    assert set(functions) == {name for name in functions if name in ALLOWED}
    assert functions["count"]["kind"] == "aggregate"
    assert "count(arg ANY) BIGINT" in functions["count"]["calls"]
    assert "SELECT" in language["keywords"]


def test_others_have_no_names(pond: Pond, tmp_path: Path) -> None:
    pond.execute(WORLD)
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, "alice", "reader", GRANTED)
    with client_of(create_app(pond, access=Access.of(tokens=tokens)), token) as alice:
        assert alice.get("/v1/caller").json() == {"owner": "alice", "role": "reader"}
        assert parse(alice, "SELECT carrier FROM flights; INVOKE of_alice")[1] is None
        for text in (
            "SELECT who FROM payroll",
            "CREATE QUERY q AS SELECT who FROM payroll",
            "INVOKE of_bob",
            "INVOKE beyond",
            "SELECT * FROM flights$rejects",
        ):
            _, hidden = parse(alice, text)
            _, missing = parse(alice, text.replace(text.split()[-1], "nothing_at_all"))
            assert hidden is not None
            assert missing is not None
            assert hidden["code"] == missing["code"] == "CQL-201", text
            told = f"{hidden['detail']} {hidden['hint']}"
            assert "payroll" not in told.replace(text, ""), told


def test_without_tokens_everybody_is_the_admin(http: httpx.Client) -> None:
    assert http.get("/v1/caller").json() == {"owner": "", "role": "admin"}
