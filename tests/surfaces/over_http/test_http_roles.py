"""What each role may do: every call and every kind of statement, on own and on others' things."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from calls import every_call
from fastapi import FastAPI
from people import GRANTED, WORLD, client_of, make_token

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.rights import refusals
from millpond.api.rights.rights import STATEMENT_ROLES
from millpond.cql import parse_script
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: The clock's time in these tests, 2026-03-01 12:00:00.
NOON = 1_772_366_400_000_000

ROLES = ("reader", "writer", "admin")


@pytest.fixture(scope="module")
def pond(flights_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    store = tmp_path_factory.mktemp("roles") / "pond"
    shutil.copytree(flights_store, store)
    with open_local(store, clock=ManualClock(NOON)) as pond:
        pond.execute(WORLD)
        yield pond


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def app(pond: Pond, tokens: Path) -> FastAPI:
    make_token(tokens, "root", "admin", [])
    policy = AccessPolicy.of(hosts=["127.0.0.1:1"], backups=[tokens.parent])
    app = create_app(pond, access=Access(tokens=tokens), policy=policy)
    app.state.followers.close()  # what is followed ends at once
    return app


@pytest.fixture(scope="module")
def callers(app: FastAPI, tokens: Path) -> Iterator[dict[str, httpx.Client]]:
    """A client for each role; reader and writer are alice's."""
    with ExitStack() as stack:
        yield {
            role: stack.enter_context(client_of(app, make_token(tokens, "alice", role, GRANTED)))
            for role in ROLES
        }


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """The lines of the audit log, as they are written."""
    lines: list[dict[str, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(record.getMessage()))

    log, keep = logging.getLogger("millpond.audit"), Keep()
    monkeypatch.setattr(log, "handlers", [keep])
    monkeypatch.setattr(log, "propagate", False)
    # Every refusal is written as it comes: here more of a kind come in a minute than are.
    monkeypatch.setattr(refusals, "MOST_WRITTEN", 1_000_000)
    before = log.level
    log.setLevel(logging.INFO)
    yield lines
    log.setLevel(before)


@pytest.fixture(autouse=True)
def as_before(pond: Pond) -> Iterator[None]:
    """Drop and make again what a test has changed of the world."""
    yield
    restore(pond)


def restore(pond: Pond) -> None:
    """Drop the queries there are, and make again what there is not."""
    for query in pond.queries():
        pond.query(query.id).unregister()
    for statement in parse_script(WORLD):
        with suppress(MillpondError):
            pond.execute(statement.text)


ROW = b'{"ts": "2026-03-01T11:50:00", "who": "x", "number": 9}\n'
NDJSON = {"Content-Type": "application/x-ndjson"}

#: Each call: how it is made about an object, the objects that are the caller's, those that are
#: not, and the least role. Only an admin gets beyond 403 or 404 with the latter.
QUERY = (["of_alice"], ["of_bob", "of_nobody", "beyond", "flights", "nothing"])
STREAM = (["flights"], ["payroll", "flights$rejects", "flights$shed", "system$actions", "of_bob"])
NONE = ([""], [])
CALLS: dict[str, tuple[dict[str, object], tuple[list[str], list[str]], str]] = {
    "GET /healthz": ({}, NONE, "reader"),
    "GET /readyz": ({}, NONE, "reader"),
    "GET /metrics": ({}, NONE, "admin"),
    "GET /v1/status": ({}, NONE, "reader"),
    "GET /v1/functions": ({}, NONE, "admin"),
    "GET /v1/history": ({}, NONE, "admin"),
    "GET /v1/entities": ({}, NONE, "admin"),
    "GET /v1/entities/{entity}": ({}, (["eddies:all"], []), "admin"),
    "PATCH /v1/entities/{entity}": (
        {"json": {"routing": "fixed"}},
        (["eddies:all"], []),
        "admin",
    ),
    "POST /v1/statements": ({"json": {"text": "SHOW STREAMS"}}, NONE, "reader"),
    "POST /v1/parse": ({"json": {"text": "SHOW STREAMS"}}, NONE, "reader"),
    "GET /v1/language": ({}, NONE, "reader"),
    "GET /v1/caller": ({}, NONE, "reader"),
    "POST /v1/queries": ({"json": {"cql": "SELECT ts FROM @"}}, STREAM, "writer"),
    "GET /v1/queries": ({"params": {"queries": "@"}}, QUERY, "reader"),
    "PATCH /v1/queries": (
        {"params": {"queries": "@"}, "json": {"comment": "x"}},
        QUERY,
        "writer",
    ),
    "DELETE /v1/queries": ({"params": {"queries": "@"}}, QUERY, "writer"),
    "GET /v1/queries/{query}": ({}, QUERY, "reader"),
    "PATCH /v1/queries/{query}": ({"json": {"comment": "x"}}, QUERY, "writer"),
    "DELETE /v1/queries/{query}": ({}, QUERY, "writer"),
    "GET /v1/queries/{query}/result": ({}, QUERY, "reader"),
    "GET /v1/queries/{query}/plan": ({}, QUERY, "reader"),
    "GET /v1/queries/{query}/changes": ({}, QUERY, "reader"),
    "GET /v1/plan": ({"params": {"query": "SELECT ts FROM @"}}, STREAM, "reader"),
    "GET /v1/costs": ({"params": {"queries": "@"}}, QUERY, "reader"),
    "GET /v1/plan/graph": ({}, NONE, "admin"),
    "GET /v1/plan/document": ({}, NONE, "admin"),
    "GET /v1/plan/trace": ({"params": {"stream": "flights"}}, NONE, "admin"),
    "POST /v1/plan/compare": ({"json": {"form": 1}}, NONE, "admin"),
    "POST /v1/plan/adopt": ({"json": {"form": 1}}, NONE, "admin"),
    "GET /v1/plan/adopted": ({}, NONE, "admin"),
    "POST /v1/plan/undo": ({}, NONE, "admin"),
    "GET /v1/changes": ({"params": {"queries": "@"}}, QUERY, "reader"),
    "POST /v1/tickets": ({"json": {"queries": ["@"]}}, QUERY, "reader"),
    "GET /v1/streams": ({}, NONE, "reader"),
    "GET /v1/relations": ({}, NONE, "reader"),
    "POST /v1/catch-up": ({}, NONE, "reader"),
    "POST /v1/streams/{stream}/tuples": ({"content": ROW, "headers": NDJSON}, STREAM, "writer"),
    "PUT /v1/streams/{stream}/parts/{part}": (
        {"content": ROW, "headers": NDJSON},
        STREAM,
        "writer",
    ),
    "DELETE /v1/streams/{stream}/parts/{part}": ({}, STREAM, "writer"),
    "POST /v1/streams/{stream}/batches": (
        {"json": {"writer": "w", "parts": []}},
        STREAM,
        "writer",
    ),
    "PATCH /v1/streams/{stream}": ({"json": {"active": True}}, (["late"], []), "admin"),
    "POST /v1/streams/{stream}/reset-clock": (
        {"params": {"to": "2026-03-01 11:59:59"}},
        (["flights"], []),
        "admin",
    ),
    "POST /v1/backups": ({"json": {"to": "backups"}}, NONE, "admin"),
    "GET /v1/backups": ({}, NONE, "admin"),
    "GET /v1/backups/{backup}": ({}, (["1"], []), "admin"),
    "DELETE /v1/backups/{backup}": ({}, (["1"], []), "admin"),
    "GET /v1/streams/{stream}/changes": ({}, (["late"], ["raises", *STREAM[1]]), "reader"),
}
#: Calls that choose queries, for which a query over a stream that is not granted is still a query.
LISTED = {
    "GET /v1/queries",
    "GET /v1/costs",
    "PATCH /v1/queries",
    "DELETE /v1/queries",
    "POST /v1/tickets",
}


def send(client: httpx.Client, call: str, name: str) -> httpx.Response:
    method, path = call.split()
    arguments = json.loads(
        json.dumps({k: v for k, v in CALLS[call][0].items() if k != "content"}).replace("@", name)
    )
    if "content" in CALLS[call][0]:
        arguments["content"] = CALLS[call][0]["content"]
    return client.request(
        method, re.sub(r"\{\w+\}", name, path.replace("{part}", "a")), **arguments
    )


def test_every_call_is_in_the_table(app: FastAPI) -> None:
    assert {f"{call.method} {call.path}" for call in every_call(app)} == set(CALLS)


def test_every_call_by_each_role_on_foreign_things(
    callers: dict[str, httpx.Client], audited: list[dict[str, object]]
) -> None:
    for call, (_, (_, foreign), least) in CALLS.items():
        for role in ("reader", "writer"):
            may = ROLES.index(role) >= ROLES.index(least)
            missing = _error(send(callers[role], call, "nothing"))
            for name in foreign:
                if call in LISTED and name == "beyond":
                    continue
                answer = send(callers[role], call, name)
                error = _error(answer)
                line = audited[-1]
                assert (line["status"], line["code"]) == (answer.status_code, error[0]), line
                assert (line["role"], line["path"]) == (role, answer.request.url.path), line
                audited.clear()
                if not may and "{query}" not in call:
                    assert (answer.status_code, error[0]) == (403, "SERVE-713"), (call, role, name)
                    continue
                assert error[0] == "CQL-201", (call, role, name, error)
                in_text = "SELECT" in str(CALLS[call][0])
                assert answer.status_code == (400 if in_text else 404), (call, role, name)
                if name != "beyond":
                    assert error == [t and t.replace("nothing", name) for t in missing], call


def test_a_selection_of_own_and_foreign_queries_is_refused_and_changes_nothing(
    callers: dict[str, httpx.Client], pond: Pond
) -> None:
    before = pond.queries()
    for call, (arguments, objects, least) in CALLS.items():
        is_selection = objects is QUERY and "{query}" not in call
        for role in ("reader", "writer") if is_selection else ():
            may = ROLES.index(role) >= ROLES.index(least)
            mixed = "of_alice,of_bob" if "params" in arguments else 'of_alice", "of_bob'
            answer = send(callers[role], call, mixed)
            expected = (404, "CQL-201") if may else (403, "SERVE-713")
            assert (answer.status_code, _error(answer)[0]) == expected, (call, role)
    assert pond.queries() == before


def test_a_plan_does_not_say_which_names_there_are(callers: dict[str, httpx.Client]) -> None:
    def ask(name: str) -> tuple[int, list[str | None]]:
        answer = callers["writer"].get("/v1/plan", params={"query": name})
        return answer.status_code, [t and t.replace(name, "nothing") for t in _error(answer)]

    missing = ask("nothing")
    assert (missing[0], missing[1][0]) == (404, "CQL-201")
    for name in ("of_bob", "of_nobody", "payroll", "raises", "by_amount"):
        assert ask(name) == missing, name
    for name in ("of_alice", "late"):
        assert callers["writer"].get("/v1/plan", params={"query": name}).is_success, name
    assert callers["admin"].get("/v1/plan", params={"query": "nothing"}).status_code == 404


def test_every_call_by_each_role_on_own_things(
    callers: dict[str, httpx.Client], pond: Pond
) -> None:
    for call, (_, (own, _), least) in CALLS.items():
        for role in ROLES:
            for name in own:
                answer = send(callers[role], call, name)
                may = ROLES.index(role) >= ROLES.index(least)
                assert answer.is_success is may, (call, role, name, answer.text)
                if not may:
                    assert (answer.status_code, _error(answer)[0]) == (403, "SERVE-713")
                if call.startswith("DELETE"):
                    restore(pond)


def _error(answer: httpx.Response) -> list[str | None]:
    error = answer.json().get("error", {})
    return [error.get(key) for key in ("code", "message", "detail", "hint")]


def test_an_admin_sees_what_is_everybodys(callers: dict[str, httpx.Client]) -> None:
    for call, (_, (_, foreign), _) in CALLS.items():
        if call.startswith("GET") and foreign is QUERY[1]:
            for name in ("of_bob", "of_nobody", "beyond"):
                assert send(callers["admin"], call, name).is_success, (call, name)


#: Each kind of statement: one that is the caller's to make, if it may be, and ones about what is
#: not the caller's. `SHOW` is below.
STATEMENTS: dict[str, tuple[str, list[str]]] = {
    "CreateStream": ("CREATE STREAM made (a INTEGER)", []),
    "CreateRelation": ("CREATE RELATION made (a INTEGER)", []),
    "CreateDerived": ("CREATE RELATION made AS SELECT * FROM flights [NOW]", []),
    "CreateSummary": (
        "CREATE SUMMARY made ON flights (delay) WITH GRANULARITY '1 HOUR' AND COLLAPSE (2, 3)",
        [],
    ),
    "CreateSink": (
        "CREATE SINK made USING http (url 'http://127.0.0.1:1/', key_env 'MILLPOND_SINK_KEY')"
        " FROM QUERIES TAGGED none",
        [],
    ),
    "ResetClock": ("ALTER STREAM flights RESET CLOCK TO TIMESTAMP '2026-03-01 11:59:59'", []),
    "AddColumn": ("ALTER STREAM flights ADD COLUMN gate VARCHAR", []),
    "AlterConstraint": ("ALTER STREAM flights ADD CONSTRAINT one UNIQUE (carrier)", []),
    "AlterSystem": ("ALTER SYSTEM SET (queue_memory = '64 MB')", []),
    "CreateQuery": (
        "CREATE QUERY made AS SELECT * FROM flights",
        [
            "CREATE QUERY made AS SELECT * FROM payroll",
            "CREATE OR REPLACE QUERY of_alice AS SELECT who FROM payroll",
            "CREATE QUERY made AS SELECT ts FROM flights"
            " WHERE carrier IN (SELECT who FROM salaries)",
            "CREATE QUERY made AS WITH x AS (SELECT * FROM payroll) SELECT * FROM x",
            "CREATE QUERY made AS WITH payroll AS (SELECT * FROM payroll) SELECT * FROM payroll",
            "CREATE QUERY made AS SELECT (WITH payroll AS (SELECT 1 AS who) SELECT max(who)"
            " FROM payroll) AS x FROM payroll",
            "CREATE QUERY made AS SELECT * FROM (ISTREAM(SELECT who FROM payroll)) [NOW]",
            "CREATE QUERY made AS SELECT * FROM flights [ROWS 3] UNION SELECT * FROM payroll",
            "CREATE QUERY made AS SELECT SUMMARY(by_amount).ESTIMATE.COUNT(number) FROM flights",
            "CREATE QUERY made AS SELECT * FROM flights$rejects",
            "CREATE QUERY made AS SELECT * FROM TUMBLE(payroll, ts, INTERVAL 1 HOUR)",
        ],
    ),
    "Alter": ("ALTER QUERY of_alice SET (comment = 'x')", ["ALTER QUERY of_bob SET (weight = 2)"]),
    "Drop": (
        "DROP QUERY of_alice",
        ["DROP QUERY of_bob", "DROP QUERY of_nobody"],
    ),
    "Insert": (
        "INSERT INTO planes VALUES ('N1', 'A320')",
        [
            "INSERT INTO salaries VALUES ('x', 1)",
            "INSERT INTO planes SELECT who, who FROM salaries",
            "INSERT INTO payroll VALUES ('2026-03-01 11:50:00', 'x', 1)",
        ],
    ),
    "Update": (
        "UPDATE planes SET model = 'x'",
        [
            "UPDATE salaries SET amount = 1",
            "UPDATE planes SET model = (SELECT max(who) FROM salaries)",
            "UPDATE planes SET model = 'x' WHERE tailnum IN (SELECT who FROM salaries)",
        ],
    ),
    "Delete": (
        "DELETE FROM planes",
        [
            "DELETE FROM salaries",
            "DELETE FROM planes WHERE EXISTS (SELECT 1 FROM salaries)",
        ],
    ),
    "Heartbeat": (
        "HEARTBEAT flights AT TIMESTAMP '2026-03-01 11:59:00'",
        ["HEARTBEAT payroll AT TIMESTAMP '2026-03-01 11:59:00'"],
    ),
    "Ask": (
        "SELECT carrier FROM flights",
        [
            "SELECT who FROM payroll",
            "SELECT * FROM salaries",
            "SELECT * FROM system$actions",
            "SELECT * FROM flights$shed",
            "SELECT SUMMARY(by_amount).ESTIMATE.TOTAL()",
            "SELECT ts FROM flights ORDER BY number LIMIT 1"
            " WITH PREFERENCE DESC SUMMARY(by_amount).ESTIMATE.COUNT(number) BUDGET '5 probes'",
        ],
    ),
    "Invoke": (
        "INVOKE of_alice",
        ["INVOKE of_bob", "INVOKE of_nobody", "INVOKE beyond", "INVOKE of_bob BUDGET '5 probes'"],
    ),
    "Fetch": (
        "FETCH of_alice",
        ["FETCH of_bob", "FETCH of_bob AFTER 'oldest'", "FETCH raises", "FETCH beyond"],
    ),
    "Explain": (
        "EXPLAIN of_alice",
        [
            "EXPLAIN of_bob",
            "EXPLAIN APPROXIMATION of_bob",
            "EXPLAIN APPROXIMATION SELECT who FROM payroll",
            "EXPLAIN raises",
            "EXPLAIN SELECT * FROM payroll",
            "EXPLAIN paid",
            "EXPLAIN SELECT * FROM paid",
            "EXPLAIN beyond",
        ],
    ),
    "Describe": ("DESCRIBE of_alice", ["DESCRIBE of_bob", "DESCRIBE payroll", "DESCRIBE paidd"]),
    "Show": ("SHOW STREAMS", []),
    "ShowCreate": (
        "SHOW CREATE QUERY of_alice",
        ["SHOW CREATE QUERY of_bob", "SHOW CREATE QUERY of_nobody", "SHOW CREATE QUERY flights"],
    ),
}


def list_statement_classes() -> set[type[Statement]]:
    def below(kind: type[Statement]) -> Iterator[type[Statement]]:
        for found in kind.__subclasses__():
            yield found
            yield from below(found)

    return set(below(Statement))


def test_every_kind_of_statement_is_in_the_tables() -> None:
    every = list_statement_classes()
    assert every == set(STATEMENT_ROLES)
    assert {kind.__name__ for kind in every} == set(STATEMENTS)


def test_every_kind_of_statement_by_each_role(
    callers: dict[str, httpx.Client], pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLPOND_SINK_KEY", "0123456789abcdef")
    for kind, (own, foreign) in STATEMENTS.items():
        [parsed] = parse_script(own)
        assert type(parsed).__name__ == kind
        least = STATEMENT_ROLES[type(parsed)].word
        for role in ROLES:
            may = ROLES.index(role) >= ROLES.index(least)
            for text in foreign if role != "admin" else ():
                refused = callers[role].post("/v1/statements", json={"text": text})
                error = _error(refused)
                assert error[0] == ("CQL-201" if may else "SERVE-713"), (role, text, error)
                assert refused.json()["results"] == []
                assert "Did you mean" not in str(error)
            answer = callers[role].post("/v1/statements", json={"text": own})
            assert answer.is_success is may, (role, own, answer.text)
            if may:
                _undo(pond)
            else:
                assert (answer.status_code, _error(answer)[0]) == (403, "SERVE-713")


def _undo(pond: Pond) -> None:
    """Take back what a statement has made, or dropped."""
    for drop in ("STREAM made", "RELATION made", "SUMMARY made", "SINK made"):
        with suppress(MillpondError):
            pond.execute(f"DROP {drop}")
    pond.execute("DELETE FROM planes")
    restore(pond)


def test_describe_shows_no_text_over_what_is_not_granted(callers: dict[str, httpx.Client]) -> None:
    """Of a granted derived stream or relation; where it reads what is granted, it is shown."""
    for role, client in callers.items():
        for name, shown in (("late", True), ("seen", True), ("paid", role == "admin")):
            answer = client.post("/v1/statements", json={"text": f"DESCRIBE {name}"})
            assert answer.is_success
            assert ("query" in answer.json()["results"][0]["facts"]) is shown, (role, name)
            assert ("payroll" in answer.text) is (name == "paid" and shown), (role, name)


def test_statements_that_only_an_admin_makes_though_others_of_their_kind_are_for_all(
    callers: dict[str, httpx.Client],
) -> None:
    for text in (
        "ALTER STREAM late SET (active = true)",
        "DROP SUMMARY by_number",
        "SHOW CREATE STREAM flights",
        "DROP STREAM late",
        "DROP RELATION seen",
        "EXPLAIN SHARED of_alice",
        "EXPLAIN RUNTIME of_alice",
        "SHOW ENTITIES",
        "SHOW SINKS",
        "SHOW FUNCTIONS",
        "DROP QUERY of_alice CASCADE",
    ):
        for role in ROLES:
            answer = callers[role].post("/v1/statements", json={"text": text})
            assert answer.is_success is (role == "admin"), (role, text, answer.text)
            if role != "admin":
                assert answer.json()["error"]["code"] == "SERVE-713", (role, text)


def test_lists_hold_what_is_the_callers(callers: dict[str, httpx.Client]) -> None:
    def shown(role: str, what: str) -> set[str]:
        answer = callers[role].post("/v1/statements", json={"text": f"SHOW {what}"}).json()
        [result] = answer["results"]
        return {row[0] for row in result["rows"]}

    for role in ("reader", "writer"):
        caller = callers[role]
        assert shown(role, "STREAMS") == {"flights", "late"}
        assert shown(role, "RELATIONS") == {"planes", "seen", "paid"}
        assert shown(role, "QUERIES") == {"of_alice", "beyond"}
        assert shown(role, "SUMMARIES") == {"by_number"}
        assert {s["name"] for s in caller.get("/v1/streams").json()["streams"]} == {
            "flights",
            "late",
        }
        assert {r["name"] for r in caller.get("/v1/relations").json()["relations"]} == {
            "planes",
            "seen",
            "paid",
        }
        for chosen in ({}, {"tag": "x"}, {"containing": "SELECT"}, {"state": "active"}):
            listed = caller.get("/v1/queries", params=chosen).json()
            assert {q["name"] for q in listed["queries"]} <= {"of_alice", "beyond"}, chosen
            assert listed["total"] == len(listed["queries"]) > 0
        assert caller.get("/v1/queries?owner=bob").json()["total"] == 0
        status = caller.get("/v1/status").json()
        assert (status["queries"], status["relations"]) == (2, 3)
        assert {s["name"] for s in status["streams"]} == {"flights", "late"}
        assert "payroll" not in caller.get("/v1/status").text
    assert len(shown("admin", "QUERIES")) == 4


def test_a_feed_has_the_callers_queries_now_and_later(
    callers: dict[str, httpx.Client], pond: Pond
) -> None:
    feed = callers["reader"].get("/v1/changes?tag=x&snapshot=true").json()
    named = {e.get("query") for e in feed["events"]}
    assert "of_alice" in named
    assert not named & {"of_bob", "of_nobody", "beyond"}
    pond.register("SELECT number FROM flights", "more_of_bob", owner="bob", tags="x")
    pond.register("SELECT number FROM flights", "more_of_alice", owner="alice", tags="x")
    later = callers["reader"].get("/v1/changes", params={"tag": "x", "after": feed["cursor"]})
    named = {e.get("query") for e in later.json()["events"]}
    assert "more_of_alice" in named
    assert "more_of_bob" not in named
    everything = callers["reader"].get("/v1/changes?containing=SELECT").json()
    assert not {e.get("query") for e in everything["events"]} & {"of_bob", "beyond", "more_of_bob"}


def test_a_page_tells_which_of_the_callers_queries_ended_and_of_no_others(
    callers: dict[str, httpx.Client], pond: Pond
) -> None:
    text = "SELECT number FROM flights"
    for name, owner in (("mine", "alice"), ("given", "alice"), ("theirs", "bob")):
        pond.register(text, name, owner=owner, tags="x")
    pond.execute("CREATE STREAM passing (ts TIMESTAMP, v INT) TIMESTAMP BY ts")
    pond.register("SELECT v FROM passing", "with_it", owner="alice", tags="x")

    def read(role: str, after: str | None) -> tuple[dict[str, object], str]:
        where = {"tag": "x"} | ({} if after is None else {"after": after})
        page = callers[role].get("/v1/changes", params=where).json()
        told = {e["query"]: e["dropped"] for e in page["events"] if e["event"] == "ended"}
        return told, page["cursor"]

    _, reader = read("reader", None)
    _, admin = read("admin", None)
    pond.query("mine").unregister()
    pond.query("theirs").unregister()
    pond.query("given").alter(owner="bob")
    pond.execute("DROP STREAM passing CASCADE")
    told, reader = read("reader", reader)
    assert told == {"mine": True, "given": False}  # "passing" is not granted
    assert read("reader", reader)[0] == {}
    everything, _ = read("admin", admin)
    assert everything == {"mine": True, "theirs": True, "with_it": True}


def test_a_feed_that_goes_on_tells_hidden_queries_from_missing_ones_to_nobody(
    callers: dict[str, httpx.Client],
) -> None:
    reader = callers["reader"]
    cursor = reader.get("/v1/changes?queries=of_alice&snapshot=true").json()["cursor"]

    def go_on(name: str) -> tuple[int, str]:
        where = {"queries": f"of_alice,{name}", "after": cursor}
        answer = reader.get("/v1/changes", params=where)
        return answer.status_code, answer.text.replace(f'"query":"{name}"', "")

    status, missing = go_on("nobodys")
    assert status == 200
    assert '"ended"' in missing
    for hidden in ("of_bob", "of_nobody", "beyond", "flights"):
        assert go_on(hidden) == (200, missing)


def test_what_is_made_is_the_owners(callers: dict[str, httpx.Client], pond: Pond) -> None:
    writer = callers["writer"]
    made = writer.post("/v1/queries", json={"cql": "SELECT ts FROM flights", "name": "one"})
    assert made.json()["options"]["owner"] == "alice"
    writer.post("/v1/statements", json={"text": "CREATE QUERY two AS SELECT ts FROM flights"})
    text = "CREATE QUERY three AS SELECT ts FROM flights"
    writer.post("/v1/queries", json=[{"cql": text}])
    assert {q.name for q in pond.queries(owner="alice")} >= {"one", "two", "three"}
    for refused in (
        writer.post("/v1/queries", json={"cql": "SELECT 1", "options": {"owner": "bob"}}),
        writer.post("/v1/queries", json={"cql": "CREATE QUERY q WITH (owner = 'bob') AS SELECT 1"}),
        writer.patch("/v1/queries/one", json={"owner": "bob"}),
        writer.patch("/v1/queries?tag=x", json={"owner": "bob"}),
        writer.post("/v1/statements", json={"text": "ALTER QUERY one SET (OWNER = 'bob')"}),
        writer.post(
            "/v1/statements", json={"text": "CREATE QUERY q WITH (Owner = '') AS SELECT 1"}
        ),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "SERVE-713")
    assert callers["admin"].patch("/v1/queries/one", json={"owner": "bob"}).is_success
    assert writer.get("/v1/queries/one").status_code == 404


def test_a_statement_is_asked_when_its_turn_comes(callers: dict[str, httpx.Client]) -> None:
    text = "INVOKE of_alice; INVOKE of_bob; INVOKE of_alice"
    answer = callers["writer"].post("/v1/statements", json={"text": text})
    assert answer.json()["error"]["message"] == 'no query "of_bob"'
    assert len(answer.json()["results"]) == 1
    text = "CREATE QUERY made AS SELECT ts FROM flights; INVOKE made; DROP QUERY made"
    assert callers["writer"].post("/v1/statements", json={"text": text}).is_success


def test_where_a_stream_comes_from_is_the_admins(
    callers: dict[str, httpx.Client], pond: Pond, tmp_path: Path
) -> None:
    (tmp_path / "secret_place.csv").write_text("a\n1\n")
    options = f"USING csv OPTIONS (path '{tmp_path}/secret_place.csv', header true)"
    pond.execute(f"CREATE RELATION seen2 (a INTEGER) {options}")
    with pytest.raises(MillpondError):
        pond.execute("CREATE RELATION seen2 (a INTEGER)")
    for path in ("/v1/relations", "/v1/streams", "/v1/status"):
        assert "secret_place" not in callers["reader"].get(path).text
    assert "secret_place" in callers["admin"].get("/v1/relations").text


def test_what_another_owner_has_made_is_not_replaced(
    callers: dict[str, httpx.Client], pond: Pond
) -> None:
    before = pond.query("of_bob").describe()["cql"]
    for opening in ("CREATE OR REPLACE QUERY", "CREATE QUERY IF NOT EXISTS"):
        text = f"{opening} of_bob AS SELECT carrier FROM flights"
        answer = callers["writer"].post("/v1/statements", json={"text": text})
        assert (answer.status_code, _error(answer)[0]) == (409, "CQL-208")
    for text in ("DROP QUERY of_alice CASCADE", "DROP STREAM flights CASCADE"):
        answer = callers["writer"].post("/v1/statements", json={"text": text})
        assert (answer.status_code, _error(answer)[0]) == (403, "SERVE-713")
    assert pond.query("of_bob").describe()["cql"] == before


#: Statements about one name, which may be anybody's.
ABOUT_A_NAME = (
    "DROP QUERY @",
    "DROP QUERY IF EXISTS @",
    "DROP QUERY IF EXISTS @ CASCADE",
    "DROP STREAM IF EXISTS @",
    "DROP RELATION IF EXISTS @",
    "DROP SUMMARY IF EXISTS @",
    "DROP SINK IF EXISTS @",
    "ALTER QUERY @ SET (weight = 2)",
    "ALTER QUERY @ SET (owner = 'bob')",
    "ALTER STREAM @ SET (active = true)",
    "ALTER SINK @ SET (active = true)",
    "ALTER STREAM @ ADD COLUMN IF NOT EXISTS gate VARCHAR",
    "ALTER STREAM @ RESET CLOCK TO TIMESTAMP '2026-03-01 11:59:59'",
    "SHOW CREATE QUERY @",
    "SHOW CREATE STREAM @",
    "SHOW CREATE SINK @",
    "DESCRIBE @",
    "EXPLAIN @",
    "EXPLAIN SHARED @",
    "INVOKE @",
    "INVOKE @ AT TIMESTAMP '2026-03-01 11:00:00'",
    "FETCH @",
    "FETCH @ AFTER 'nonsense'",
    "SELECT * FROM @",
    "SELECT SUMMARY(@).ESTIMATE.TOTAL() FROM flights",
    "INSERT INTO @ VALUES (1)",
    "INSERT INTO planes SELECT * FROM @",
    "UPDATE @ SET a = 1",
    "DELETE FROM @",
    "HEARTBEAT @ AT TIMESTAMP '2026-03-01 11:59:00'",
    "CREATE STREAM IF NOT EXISTS @ (a INTEGER)",
    "CREATE RELATION IF NOT EXISTS @ AS SELECT carrier FROM flights [NOW]",
    "CREATE QUERY made AS SELECT * FROM @",
)


def test_no_statement_says_which_names_there_are(
    callers: dict[str, httpx.Client], pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLPOND_SINK_KEY", "0123456789abcdef")
    pond.execute(
        "CREATE SINK of_root USING http (url 'http://127.0.0.1:1/', key_env 'MILLPOND_SINK_KEY')"
        " FROM QUERIES TAGGED none"
    )
    foreign = ("of_bob", "of_nobody", "payroll", "salaries", "raises", "by_amount", "of_root")
    before = pond.queries()

    def told(role: str, statement: str, name: str) -> tuple[int, str]:
        text = statement.replace("@", name)
        answer = callers[role].post("/v1/statements", json={"text": text})
        return answer.status_code, re.sub(rf"\b{name}\b", "@", answer.text)

    for role in ("reader", "writer"):
        for statement in ABOUT_A_NAME:
            for name in foreign:
                missing = told(role, statement, "n" * len(name))
                assert told(role, statement, name) == missing, (role, statement, name)
    assert pond.queries() == before
    pond.execute("DROP SINK of_root")


def test_a_taken_name_does_not_say_whose_or_of_what_it_is(
    callers: dict[str, httpx.Client],
) -> None:
    def told(opening: str, name: str) -> list[str | None]:
        text = f"{opening} {name} AS SELECT carrier FROM flights"
        answer = callers["writer"].post("/v1/statements", json={"text": text})
        assert answer.status_code == 409
        return [t and t.replace(name, "of_bob") for t in _error(answer)]

    for opening in ("CREATE QUERY", "CREATE OR REPLACE QUERY", "CREATE QUERY IF NOT EXISTS"):
        refused = told(opening, "of_bob")
        assert refused[0] == "CQL-208"
        for name in ("of_nobody", "payroll", "salaries", "raises"):
            assert told(opening, name) == refused, (opening, name)


def test_a_query_that_is_hidden_is_dropped_as_one_that_is_missing(
    callers: dict[str, httpx.Client], pond: Pond, audited: list[dict[str, object]]
) -> None:
    def drop(name: str) -> httpx.Response:
        text = f"DROP QUERY IF EXISTS {name}"
        return callers["writer"].post("/v1/statements", json={"text": text})

    for name in ("of_bob", "of_nobody", "payroll", "flights", "nothing"):
        [result] = drop(name).json()["results"]
        assert result["message"] == f"query {name}: is not there"
        assert audited[-1]["statements"] == [f"DROP QUERY IF EXISTS {name}"]
    assert {query.name for query in pond.queries()} >= {"of_bob", "of_nobody", "of_alice"}
    assert drop("of_alice").is_success
    assert "of_alice" not in {query.name for query in pond.queries()}


def test_a_registration_replaces_nothing_of_another_owner(
    callers: dict[str, httpx.Client], pond: Pond
) -> None:
    before = pond.query("of_bob").describe()["cql"]
    refusals = {
        "CREATE QUERY": (409, "CQL-208"),
        "CREATE OR REPLACE QUERY": (400, "CQL-216"),
        "CREATE QUERY IF NOT EXISTS": (400, "CQL-216"),
    }
    for opening, refusal in refusals.items():
        body = {"cql": f"{opening} of_bob AS SELECT carrier FROM flights"}
        for sent in (body, [body]):
            answer = callers["writer"].post("/v1/queries", json=sent)
            assert (answer.status_code, _error(answer)[0]) == refusal, (opening, sent)
    assert pond.query("of_bob").describe()["cql"] == before


def test_each_of_many_texts_is_asked_of_the_rights(pond: Pond, callers: dict[str, httpx.Client]):
    granted = [f"SELECT carrier FROM flights WHERE delay > {n}" for n in range(120)]
    others = "SELECT carrier FROM flights WHERE delay > (SELECT max(amount) FROM payroll) + {}"
    before = len(pond.queries())
    for n in range(2):
        texts = [*granted, others.format(n), *granted]
        refused = callers["writer"].post("/v1/queries", json=[{"cql": text} for text in texts])
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["code"] == "CQL-201"
        assert error["detail"].startswith("Query 120 of 241 (counting from 0).")
        assert error["place"]["snippet"].splitlines()[0].strip() == others.format(n)
        assert error["place"]["snippet"].splitlines()[1].index("^") == 2 + others.index("payroll")
    assert len(pond.queries()) == before
    made = callers["writer"].post("/v1/queries", json=[{"cql": text} for text in granted])
    assert [query["options"] for query in made.json()] == [{"owner": "alice"}] * 120
