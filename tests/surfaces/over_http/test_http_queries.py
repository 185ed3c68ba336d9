"""Standing queries over HTTP."""

from __future__ import annotations

import io
import json
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from millpond.api import encode
from millpond.api.client import connect
from millpond.errors import MillpondError

LATE = "SELECT carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 60 ORDER BY delay"


@pytest.fixture
def late(http):
    return http.post("/v1/queries", json={"cql": LATE, "name": "late"}).json()


def error_of(response, status, code):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body["error"]) == {"code", "message", "detail", "hint", "place"}
    assert body["error"]["code"] == code
    return body["error"]


def test_register(http):
    response = http.post(
        "/v1/queries", json={"cql": LATE, "name": "late", "options": {"weight": 2.0}}
    )
    assert response.status_code == 201
    body = response.json()
    assert (body["name"], body["cql"]) == ("late", LATE)
    assert body["options"] == {"weight": 2.0}
    assert body["registered_at"] == "2026-03-01T12:00:00.000000"
    assert body["notes"] == []
    assert response.headers["location"] == f"/v1/queries/{body['id']}"


def test_a_followed_query_over_a_pushed_stream_has_a_note(http):
    body = {"cql": LATE, "name": "late", "options": {"follow": True}}
    (note,) = http.post("/v1/queries", json=body).json()["notes"]
    assert note.startswith("flights is pushed and has no IDLE AFTER")
    assert http.get("/v1/queries/late").json()["notes"] == [note]
    http.patch("/v1/streams/flights", json={"idle_after": "30 seconds"}).raise_for_status()
    assert http.get("/v1/queries/late").json()["notes"] == []


def test_a_query_gets_a_note_when_it_is_followed(http, late):
    assert late["notes"] == []
    http.get("/v1/queries/late/changes").raise_for_status()
    assert len(http.get("/v1/queries/late").json()["notes"]) == 1


def test_register_many(http):
    body = [{"cql": LATE, "name": "a"}, {"cql": LATE}]
    response = http.post("/v1/queries", json=body)
    assert response.status_code == 201
    assert [q["name"] for q in response.json()] == ["a", f"q{response.json()[1]['id']}"]


def test_many_are_answered_with_what_each_is(http):
    texts = [
        LATE,
        "SELECT number AS n, * FROM flights [ROWS 5] WHERE delay > 1",
        "SELECT carrier FROM flights [RANGE 1 HOUR] WHERE origin = 'A' AND delay < 1.5",
        "ISTREAM(SELECT carrier FROM flights [RANGE 1 HOUR] WHERE delay > 1)",
    ]
    options = [{}, {}, {}, {"weight": 2.5, "tags": "x, y"}, {"active": False}]
    body = [
        {"cql": text.replace("1", str(n)), "name": f"é {n} {place}" if n % 5 == 4 else None}
        | {"options": options[n % 5]}
        for n in range(1, 300)
        for place, text in enumerate(texts)
    ]
    body.append({"cql": "SELECT * FROM flights WHERE delay > $most", "params": {"most": 1}})
    answer = http.post("/v1/queries", json=body)
    assert answer.status_code == 201
    ids = [query["id"] for query in answer.json()]
    assert len(ids) == len(body) > 1_000
    ids = [id for place, id in enumerate(ids) if place < 20 or place % 97 == 0] + ids[-1:]
    each = {id: http.get(f"/v1/queries/{id}").content for id in ids}
    answered = {query["id"]: query for query in answer.json()}
    assert {id: json.loads(text) for id, text in each.items()} == {id: answered[id] for id in ids}
    assert all(text in answer.content for text in each.values())
    assert answer.content.count(b'"cql":') == len(body)


def test_register_many_is_all_or_nothing_and_names_the_bad_one(http):
    bad = "SELECT * FROM fligths"
    response = http.post("/v1/queries", json=[{"cql": LATE}, {"cql": bad}])
    error = error_of(response, 400, "CQL-201")
    assert error["detail"].startswith("Query 1 of 2 (counting from 0).")
    assert error["place"]["snippet"] == "  SELECT * FROM fligths\n                ^^^^^^^"
    assert http.get("/v1/queries").json()["total"] == 0


def test_register_with_a_name_that_is_taken(http, late):
    error_of(http.post("/v1/queries", json={"cql": LATE, "name": "late"}), 409, "CQL-208")


@pytest.mark.parametrize("option", ["name", "cql", "not an identifier"])
def test_register_with_an_option_that_cannot_be_one(http, option):
    body = {"cql": LATE, "options": {option: 1}}
    error_of(http.post("/v1/queries", json=body), 400, "CQL-214")
    error = error_of(http.post("/v1/queries", json=[body]), 400, "CQL-214")
    assert error["detail"].startswith("Query 0 of 1 (counting from 0). There are: materialize,")
    error_of(http.patch("/v1/queries/none", json={option: 1}), 404, "CQL-201")


def test_pages(http):
    http.post("/v1/queries", json=[{"cql": LATE, "name": f"query{i}"} for i in range(5)])
    seen, after = [], -1
    while after is not None:
        page = http.get("/v1/queries", params={"limit": 2, "after": after}).json()
        assert page["total"] == 5
        seen += [q["name"] for q in page["queries"]]
        after = page["next"]
    assert seen == [f"query{i}" for i in range(5)]


def test_pages_of_what_contains_a_word(http):
    http.post("/v1/queries", json=[{"cql": LATE, "name": n} for n in ("Storms", "delays")])
    page = http.get("/v1/queries", params={"containing": "STORM"}).json()
    assert [q["name"] for q in page["queries"]] == ["Storms"]
    assert page["total"] == 1


def test_a_page_has_a_limit(http):
    error = error_of(http.get("/v1/queries", params={"limit": 0}), 422, "SERVE-703")
    assert error["detail"].startswith("query.limit:")


@pytest.mark.parametrize("by", ["id", "name"])
def test_describe(http, late, by):
    assert http.get(f"/v1/queries/{late[by]}").json() == late
    assert late["columns"][0] == {"name": "carrier", "type": "VARCHAR"}


@pytest.mark.parametrize("path", ["", "/result", "/plan", "/changes"])
def test_of_a_query_that_is_not_there(http, path):
    for query in ("nope", "99", "²", "9" * 5000):
        error_of(http.get(f"/v1/queries/{query}{path}"), 404, "CQL-201")


def test_alter(http, late):
    body = http.patch("/v1/queries/late", json={"active": False}).json()
    assert body["active"] is False
    error_of(http.get("/v1/queries/late/result"), 409, "POND-402")
    error_of(http.patch("/v1/queries/late", json={"colour": 1}), 400, "CQL-214")
    error_of(http.patch("/v1/queries/late", json=[1]), 422, "SERVE-703")
    assert http.patch("/v1/queries/late", json={"active": True}).json()["active"] is True


def test_unregister(http, late):
    response = http.delete("/v1/queries/late")
    assert (response.status_code, response.content) == (204, b"")
    error_of(http.delete("/v1/queries/late"), 404, "CQL-201")


def test_invoke(http, late, pond):
    pond.wait_until_matched()
    response = http.get("/v1/queries/late/result")
    assert response.json() == {
        "query": "late",
        "as_of": "2026-03-01T11:45:00.000000",
        "final": False,
        "exact": True,
        "loss": [],
        "bounds": None,
        "part": None,
        "estimated": [],
        "epoch": pond.status()["epoch"],
        "columns": ["carrier", "delay"],
        "types": ["VARCHAR", "DOUBLE"],
        "rows": [["AA", 61.5], ["AA", 120.0]],
    }


def test_invoke_with_a_budget(http, pond):
    pond.execute(
        "CREATE SUMMARY delays ON flights (delay) WITH GRANULARITY 1 HOUR AND COLLAPSE (4, 4)"
    )
    cql = (
        "SELECT carrier, delay FROM flights"
        " WITH PREFERENCE ASC SUMMARY(delays).ESTIMATE.COUNT(delay)"
    )
    http.post("/v1/queries", json={"cql": cql, "name": "rare"})
    whole = http.get("/v1/queries/rare/result").json()
    assert whole["exact"] is True
    first = http.get("/v1/queries/rare/result", params={"budget": "1 probes"}).json()
    assert (first["exact"], len(first["rows"])) == (False, 1)
    assert first["part"]["probes"] == 1
    assert 0 < first["part"]["share"] < 1
    asked = {"budget": "100 probes", "after": first["part"]["cursor"]}
    rest = http.get("/v1/queries/rare/result", params=asked)
    assert rest.json()["part"]["whole"] is True
    assert sorted(first["rows"] + rest.json()["rows"], key=str) == sorted(whole["rows"], key=str)
    lines = http.get(
        "/v1/queries/rare/result",
        params={"budget": "1 probes"},
        headers={"accept": "application/x-ndjson"},
    )
    assert lines.headers["millpond-exact"] == "false"
    assert json.loads(lines.headers["millpond-part"]) == first["part"]
    for bad, code in (({"budget": "soon"}, "CQL-103"), ({"after": "x"}, "CQL-103")):
        error_of(http.get("/v1/queries/rare/result", params=bad), 400, code)
    asked["after"] = "x"
    error_of(http.get("/v1/queries/rare/result", params=asked), 409, "POND-412")


@pytest.mark.parametrize(
    "at",
    [
        "2026-03-01T11:40:00",
        "2026-03-01 11:40",
        "2026-03-01T11:40:00Z",
        "2026-03-01T12:40:00+01:00",
        "2026-03-01T12:40:00 01:00",
        "2026-03-01 12:40:00+01:00",
    ],
)
def test_invoke_at(http, late, at):
    body = http.get("/v1/queries/late/result", params={"at": at}).json()
    assert (body["as_of"], body["final"]) == ("2026-03-01T11:40:00.000000", True)
    assert body["rows"] == [["AA", 61.5]]


def test_invoke_at_what_is_no_instant(http, late):
    result = "/v1/queries/late/result"
    for at in ("", "0001-01-01T00:00:00+23:00", "2026-13-01"):
        error_of(http.get(result, params={"at": at}), 400, "SERVE-703")
    error = error_of(http.get(result, params={"at": "yesterday"}), 400, "SERVE-703")
    assert "2026-03-01T12:00:00" in error["hint"]


def test_invoke_as_ndjson(http, late):
    response = http.get("/v1/queries/late/result", headers={"Accept": "application/x-ndjson"})
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["millpond-as-of"] == "2026-03-01T11:45:00.000000"
    assert response.headers["millpond-final"] == "false"
    assert [json.loads(line) for line in response.text.splitlines()] == [
        {"carrier": "AA", "delay": 61.5},
        {"carrier": "AA", "delay": 120.0},
    ]


def test_invoke_as_arrow(http, late):
    accept = "application/vnd.apache.arrow.stream"
    response = http.get("/v1/queries/late/result", headers={"Accept": accept})
    assert response.headers["content-type"] == accept
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.to_pydict() == {"carrier": ["AA", "AA"], "delay": [61.5, 120.0]}
    facts = json.loads(table.schema.metadata[b"millpond.answer"])
    assert facts["as_of"] == "2026-03-01T11:45:00.000000"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html, application/x-ndjson;q=0.9", "application/x-ndjson"),
        ("application/json;q=0.1, application/x-ndjson;q=0.2", "application/x-ndjson"),
        ("application/json;q=0, */*", "application/x-ndjson"),
    ],
)
def test_accept(http, late, accept, form):
    response = http.get("/v1/queries/late/result", headers={"Accept": accept})
    assert response.headers["content-type"] == form


def test_accept_of_nothing_there_is(http, late):
    response = http.get("/v1/queries/late/result", headers={"Accept": "text/html"})
    error_of(response, 406, "SERVE-709")


def test_plans(http, late):
    body = http.get("/v1/queries/late/plan").json()
    assert (body["id"], body["level"]) == (late["id"], "logical")
    assert "window [RANGE 1 HOUR]" in body["plan"]
    for query in ("late", LATE):
        asked = http.get("/v1/plan", params={"query": query}).json()
        assert asked == {"level": "logical", "plan": body["plan"]}
    shown = http.get("/v1/plan", params={"query": LATE, "level": "rewritten"}).json()
    assert shown["level"] == "rewritten"
    shared = http.get("/v1/plan").json()
    assert shared["level"] == "shared"
    assert "stream flights\n  3 elements" in shared["plan"]
    error_of(http.get("/v1/plan", params={"query": "late", "level": "deep"}), 422, "SERVE-703")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ([{"cql": LATE}, {"name": "x"}], "body.1.cql: Field required."),
        ([5], "body.0: Input should be a valid dictionary"),
        ({"name": "x"}, "body.cql: Field required."),
        ({"cql": LATE, "weight": 2}, "body.weight: Extra inputs are not permitted."),
    ],
)
def test_what_is_missing_is_named_where_it_is_missing(http, body, detail):
    error = error_of(http.post("/v1/queries", json=body), 422, "SERVE-703")
    assert error["detail"].startswith(detail)


def test_settings_of_entities(http, late):
    error_of(http.get("/v1/entities/3"), 404, "CQL-201")
    error_of(http.patch("/v1/entities/3", json={}), 404, "CQL-201")
    one = "/v1/entities/eddies:all"
    assert http.patch(one, json={}).json()["settings"] == {"routing": "ticket"}
    assert http.patch(one, json={"routing": "worst"}).json()["settings"] == {"routing": "worst"}
    assert http.get(one).json()["settings"] == {"routing": "worst"}
    error_of(http.patch(one, json={"routing": "best"}), 400, "CQL-214")
    error_of(http.patch("/v1/entities/joins:all", json={"shards": 0}), 400, "CQL-214")
    changes = "/v1/entities/changes:all"
    set_ = http.patch(changes, json={"lazy_expiration": "90 minutes", "strategy": "negative"})
    assert set_.json()["settings"] == http.get(changes).json()["settings"]
    assert set_.json()["settings"] == {
        "strategy": "negative",
        "eager_expiration": "0 SECONDS",
        "lazy_expiration": "90 MINUTES",
    }
    error = error_of(http.patch(changes, json={"eager_expiration": 7}), 400, "CQL-214")
    assert "A number needs a unit of time." in error["detail"]
    error = error_of(http.patch("/v1/entities/queue:inbox", json={"size": 1}), 400, "CQL-214")
    assert error["message"] == 'no setting "size" of entity "queue:inbox"'
    assert "routing of eddies" in error["hint"]


def test_queries_are_listed_changed_and_dropped_by_owner_and_tag(http):
    http.post(
        "/v1/queries",
        json=[
            {"cql": LATE, "name": "one", "options": {"owner": "ann", "tags": ["Fares", "eu"]}},
            {"cql": LATE, "name": "two", "options": {"owner": "ann", "tags": "fares"}},
            {"cql": LATE, "name": "three", "options": {"owner": "bob", "tags": "fares, us"}},
        ],
    )

    def names(**asked: str) -> list[str]:
        found = http.get("/v1/queries", params=asked).json()
        assert found["total"] == len(found["queries"])
        return [query["name"] for query in found["queries"]]

    assert names(owner="ann") == ["one", "two"]
    assert names(tag="US") == ["three"]
    assert names(tag="fares", sort="-name") == ["two", "three", "one"]
    patched = http.patch("/v1/queries", params={"owner": "ann"}, json={"active": False})
    assert patched.json() == {"queries": 2}
    assert names(state="inactive") == ["one", "two"]
    assert http.delete("/v1/queries", params={"tag": "fares", "state": "inactive"}).json() == {
        "queries": 2
    }
    assert names() == ["three"]
    error_of(http.delete("/v1/queries"), 400, "SERVE-703")
    error_of(http.delete("/v1/queries", params={"queries": "three,none"}), 404, "CQL-201")
    assert names() == ["three"]


def test_parameters(http):
    cql = "SELECT carrier FROM flights WHERE delay > $least AND carrier <> $not"
    body = {"cql": cql, "name": "p", "params": {"least": 60, "not": "x' OR TRUE --"}}
    response = http.post("/v1/queries", json=body)
    assert response.status_code == 201
    filled = "SELECT carrier FROM flights WHERE delay > 60 AND carrier <> 'x'' OR TRUE --'"
    assert response.json()["cql"] == filled
    many = [{"cql": cql, "params": {"least": n, "not": "B6"}} for n in range(3)]
    assert len(http.post("/v1/queries", json=many).json()) == 3
    error_of(http.post("/v1/queries", json={"cql": cql}), 400, "CQL-102")
    several = {"cql": cql, "params": {"least": [60], "not": "x"}}
    assert (
        "IN ($a, $b)" in error_of(http.post("/v1/queries", json=several), 422, "SERVE-703")["hint"]
    )
    missing = {"cql": cql, "params": {"least": 60}}
    assert "$not" in error_of(http.post("/v1/queries", json=missing), 400, "CQL-102")["message"]


def test_an_answer_as_a_parquet_file(http):
    http.post("/v1/queries", json={"cql": "SELECT ts, delay FROM flights", "name": "q"})
    text = "SELECT ts, delay FROM flights"
    headers = {"Accept": encode.PARQUET}
    asked = http.post("/v1/statements", json={"text": text}, headers=headers)
    for answer in (http.get("/v1/queries/q/result", headers=headers), asked):
        assert answer.headers["content-type"] == encode.PARQUET
        table = parquet.read_table(io.BytesIO(answer.content))
        assert (table.column_names, len(table)) == (["ts", "delay"], 3)
        assert json.loads(table.schema.metadata[encode.ANSWER_KEY])["exact"] is True
    odd = {"text": "SELECT INTERVAL '1 month' AS i FROM flights LIMIT 1"}
    refused = http.post("/v1/statements", json=odd, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (406, "SERVE-709")


def test_a_text_with_a_table_of_parameters(http, pond):
    cql = "SELECT * FROM flights WHERE delay > $least AND carrier <> $not"
    csv = "name,least,not\nx1,60,B6\nx2,5.5,it's\n"
    body = {"cql": cql, "table": {"csv": csv}, "options": {"tags": ["fares"]}}
    made = http.post("/v1/queries", json=body)
    assert made.status_code == 201
    assert [(q["name"], q["options"]) for q in made.json()] == [
        ("x1", {"tags": "fares"}),
        ("x2", {"tags": "fares"}),
    ]
    assert [q.text for q in pond.queries()] == [
        "SELECT * FROM flights WHERE delay > 60.0 AND carrier <> 'B6'",
        "SELECT * FROM flights WHERE delay > 5.5 AND carrier <> 'it''s'",
    ]
    rows = [{"least": 1, "not": "AA"}, {"least": 2, "not": None}]
    local = pond.register_table(cql, rows, tags=["fares"])
    remote = connect("http://127.0.0.1", http=http).register_table(cql, rows, tags=["fares"])
    assert [h.definition.text for h in local] == [pond.query(h.id).definition.text for h in remote]
    # All of them, or none.
    bad = {**body, "table": {"csv": "name,least,not\ny1,1,a\nx2,1,a\n"}}
    error_of(http.post("/v1/queries", json=bad), 409, "CQL-208")
    for table, code in (
        ({}, "SERVE-703"),
        ({"csv": "a\n1\n", "arrow": ""}, "SERVE-703"),
        ({"csv": "least\n1\n"}, "CQL-102"),
        ({"csv": "least,not\nx\n"}, "DATA-501"),
        ({"arrow": "AAAA"}, "DATA-501"),
    ):
        error_of(http.post("/v1/queries", json={"cql": cql, "table": table}), 400, code)
    assert len(pond.queries()) == 6


def test_parameters_are_changed(http, pond):
    body = {"cql": "SELECT ts FROM flights WHERE delay > $least", "name": "tardy"}
    made = http.post("/v1/queries", json={**body, "params": {"least": 10_000}})
    assert made.status_code == 201, made.text
    assert http.get("/v1/queries/tardy/result").json()["rows"] == []
    changed = http.patch("/v1/queries/tardy", json={"params": {"least": -10_000}, "weight": 2})
    assert changed.status_code == 200, changed.text
    assert changed.json()["id"] == made.json()["id"]
    assert changed.json()["options"]["weight"] == 2
    assert http.get("/v1/queries/tardy/result").json()["rows"] != []
    for params, status in (({"no": 1}, 400), ({"least": [1]}, 400), (7, 400)):
        refused = http.patch("/v1/queries/tardy", json={"params": params})
        assert refused.status_code == status, refused.text
    several = http.patch("/v1/queries?queries=tardy", json={"params": {"least": 1}})
    assert several.json()["error"]["code"] == "CQL-214"


#: Numbers as JSON has them, each with digits that a double may have no room for, and their types.
EXACT = {
    "DECIMAL(38,20)": ["0.12345678901234567890", "-123456789012345678.12345678901234567891"],
    "DECIMAL(38,0)": ["99999999999999999999999999999999999999", "-12345678901234567890123456789"],
    "DECIMAL(18,3)": ["123456789012345.678", "-0.001", "0.000", "5"],
    "DECIMAL(4,2)": ["0.10", "-99.99"],
    "BIGINT": ["9223372036854775807", "-9223372036854775808", "9007199254740993", "0"],
    "DOUBLE": [
        "0.1",
        "1e300",
        "-4.9406564584124654e-324",
        "1.7976931348623157e308",
        "1e22",
        "-0.0",
    ],
    "FLOAT": ["0.5", "-16777216"],
}


def write_numbers():
    return [(kind, number) for kind, numbers in EXACT.items() for number in numbers]


@pytest.mark.parametrize(("kind", "number"), write_numbers())
def test_numbers_of_parameters_are_as_they_are_written(http, pond, kind, number):
    cql = f"SELECT carrier FROM flights WHERE CAST(delay AS {kind}) < $n"
    body = f'{{"cql": {json.dumps(cql)}, "name": "q", "params": {{"n": {number}}}}}'
    headers = {"Content-Type": "application/json"}
    several = body.replace('"q"', '"several"')
    for sent in (body, f"[{several}]"):
        made = http.post("/v1/queries", content=sent, headers=headers)
        assert made.status_code == 201, made.text
    changed = http.post("/v1/queries", json={"cql": cql, "name": "changed", "params": {"n": 1}})
    change = http.patch(
        "/v1/queries/changed", content=f'{{"params": {{"n": {number}}}}}', headers=headers
    )
    assert (changed.status_code, change.status_code) == (201, 200)
    value = float(number) if "e" in number else Decimal(number)
    with connect("http://127.0.0.1", http=http) as remote:
        remote.register(cql, "remote", params={"n": value})
        remote.register(cql, "patched", params={"n": 1}).alter(params={"n": value})
    pond.register(cql, "here", params={"n": value})
    written = f"{value!r}" if isinstance(value, float) else f"{value:f}"
    constant = f"({written})" if number.startswith("-") else written
    assert {q.name: q.text for q in pond.queries()} == dict.fromkeys(
        ("q", "several", "changed", "remote", "patched", "here"), cql.replace("$n", constant)
    )


def test_options_beside_exact_parameters_are_numbers(http):
    body = """{"cql": "SELECT carrier FROM flights WHERE delay < $n", "params": {"n": 1.5},
               "options": {"weight": 0.12345678901234567890}}"""
    made = http.post("/v1/queries", content=body, headers={"Content-Type": "application/json"})
    assert made.json()["options"] == {"weight": 0.12345678901234568}
    assert http.patch(f"/v1/queries/{made.json()['id']}", json={"weight": 2.5}).is_success


BELOW = "SELECT carrier FROM flights WHERE delay < $n"


#: How a parameter is given a value in Python, with a pond in this process or with a client of one.
WAYS_IN_PYTHON = {
    "register": lambda pond, number: pond.register(BELOW, params={"n": number}),
    "register many": lambda pond, number: pond.register_many(
        [(BELOW, None, {"params": {"n": number}})]
    ),
    "dictionaries": lambda pond, number: pond.register_table(
        BELOW, [{"n": 1.5}, {"n": float(number)}]
    ),
    "a table": lambda pond, number: pond.register_table(BELOW, pa.table({"n": [float(number)]})),
    "alter": lambda pond, number: pond.query("known").alter(params={"n": number}),
}


def send_json(http, method, path, body):
    return http.request(method, path, content=body, headers={"Content-Type": "application/json"})


#: How it is given one over HTTP and in CQL, as a text.
WAYS_IN_TEXT = {
    "one": ("POST", "/v1/queries", '{"cql": "%(cql)s", "params": {"n": %(n)s}}'),
    "a list": ("POST", "/v1/queries", '[{"cql": "%(cql)s", "params": {"n": %(n)s}}]'),
    "CSV": ("POST", "/v1/queries", '{"cql": "%(cql)s", "table": {"csv": "n\\n1.5\\n%(n)s\\n"}}'),
    "CSV with a type": (
        "POST",
        "/v1/queries",
        '{"cql": "%(cql)s", "table": {"csv": "n\\n%(n)s\\n", "types": {"n": "DOUBLE"}}}',
    ),
    "patch": ("PATCH", "/v1/queries/known", '{"params": {"n": %(n)s}}'),
    "CQL": ("POST", "/v1/statements", '{"text": "CREATE QUERY c WITH ($n = %(n)s) AS %(cql)s"}'),
}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("kind", [float, Decimal, np.float32, np.float64])
@pytest.mark.parametrize("way", WAYS_IN_PYTHON)
def test_a_value_that_is_no_finite_number_is_refused_here_and_by_a_client(
    http, pond, way, kind, number
):
    pond.register(BELOW, "known", params={"n": 1.5})
    with connect("http://127.0.0.1", http=http) as remote:
        for where in (pond, remote):
            with pytest.raises(
                MillpondError, match=r"CQL-103.*is none that CQL has a constant for"
            ):
                WAYS_IN_PYTHON[way](where, kind(number))
    assert [query.text for query in pond.queries()] == [BELOW.replace("$n", "1.5")]


@pytest.mark.parametrize(
    ("way", "number"),
    [
        (way, number)
        for way in WAYS_IN_TEXT
        for number in ("NaN", "nan", "-NaN", "Infinity", "-Infinity", "inf", "1e400", "-1e400")
        # JSON and CQL have no such words.
        if way.startswith("CSV") or number in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400")
        if way != "CQL" or "e400" in number
    ],
)
def test_a_text_that_is_no_finite_number_is_refused(http, pond, way, number):
    pond.register(BELOW, "known", params={"n": 1.5})
    method, path, body = WAYS_IN_TEXT[way]
    refused = send_json(http, method, path, body % {"cql": BELOW, "n": number})
    error_of(refused, 400, "CQL-103")
    assert [query.text for query in pond.queries()] == [BELOW.replace("$n", "1.5")]


def test_dates_and_times_as_parameters_are_the_same_over_http(http, pond):
    """Where a text is not taken as one: `'2026-03-01' - INTERVAL 1 HOUR` has no type."""
    cql = "SELECT carrier, $day AS day FROM flights WHERE ts > $from - INTERVAL 1 HOUR"
    given = {"from": datetime(2026, 3, 1, 11, 30, 0, 250), "day": date(2026, 3, 1)}
    with connect("http://127.0.0.1", http=http) as remote:
        remote.register(cql, "remote", params=given)
        other = {"from": datetime(2020, 1, 1), "day": date(2020, 1, 1)}
        remote.register(cql, "patched", params=other).alter(params=given)
        (listed,) = remote.register_many([(cql, "listed", {"params": given})])
        assert [column["type"] for column in listed.describe()["columns"]] == ["VARCHAR", "DATE"]
    pond.register(cql, "here", params=given)
    assert len({query.text for query in pond.queries()}) == 1
    assert len(pond.queries()) == 4


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"type": "DATE", "value": "2026-02-30"}, '"2026-02-30" is no DATE: day is out of range'),
        ({"type": "TIMESTAMP", "value": "noon"}, '"noon" is no TIMESTAMP: '),
        ({"type": "INTERVAL", "value": "1 day"}, 'the type "INTERVAL" is none that'),
        ({"type": ["DATE"], "value": "2026-03-01"}, 'the type ["DATE"] is none that'),
        ({"type": "DATE"}, '{"type": "DATE"} is no value; write {"type": "DATE" or "TIMESTAMP"'),
        ({"type": "DATE", "value": 20260301}, '{"type": "DATE", "value": 20260301} is no value'),
        ({"type": "DATE", "value": "2026-03-01", "zone": "UTC"}, '"zone": "UTC"} is no value'),
        ({}, "{} is no value"),
    ],
)
def test_what_is_no_date_and_no_time_is_refused_with_the_reason(http, value, why):
    cql = "SELECT carrier FROM flights WHERE ts > $from"
    body = {"cql": cql, "params": {"from": value}}
    http.post("/v1/queries", json={"cql": cql, "name": "q", "params": {"from": "2026-03-01"}})
    for answer in (
        http.post("/v1/queries", json=body),
        http.post("/v1/queries", json=[body]),
        http.patch("/v1/queries/q", json={"params": {"from": value}}),
    ):
        detail = error_of(answer, 422, "SERVE-703")["detail"]
        assert "params.from: " in detail
        assert why in detail
        assert "valid string" not in detail


def test_a_list_as_a_parameter_is_refused_as_a_list(http):
    body = {"cql": "SELECT carrier FROM flights WHERE delay > $d", "params": {"d": [1, 2]}}
    error = error_of(http.post("/v1/queries", json=body), 422, "SERVE-703")
    assert error["detail"] == "body.params.d: it is a list."
    assert error["hint"] == "A parameter is one value: for a list write IN ($a, $b)."
