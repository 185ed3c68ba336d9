"""The whole HTTP surface against a model: any calls in any order, each answered as it must be."""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import Any, cast

import httpx
import pytest
from calls import every_call
from flights import NOON
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from local_http import local_client

from millpond.api.app import create_app
from millpond.api.shapes import (
    answer_shapes,
    plan_shapes,
    query_shapes,
    shape,
    status_shapes,
    stream_shapes,
)
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

STREAMS = ("alpha", "beta")
DERIVED = ("gamma", "delta")
QUERIES = ("one", "two", "three")
KEYS = ("k1", "k2", None)
HOUR = "2026-03-01 11:{:02}:00"

names = st.sampled_from(STREAMS)
derived = st.sampled_from(DERIVED)
queries = st.sampled_from(QUERIES)
limits = st.integers(0, 9)
rows = st.lists(st.integers(0, 9), max_size=4).map(tuple)


class Surface(RuleBasedStateMachine):
    """Streams with one column of numbers, queries that count or list them, changes, settings."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.pond = open_local(f"{self.folder}/store", clock=ManualClock(NOON))
        app = create_app(self.pond)
        self.calls = {(call.method, call.path) for call in every_call(app)}
        self.client = local_client(app)
        self.http: httpx.Client = self.client.__enter__()
        self.minute = 0
        self.streams: dict[str, list[int]] = {}
        self.derived: dict[str, str] = {}
        self.queries: dict[str, dict[str, Any]] = {}
        self.keys: dict[tuple[str, str], tuple[tuple[int, ...], str, int]] = {}

    def teardown(self) -> None:
        self.client.__exit__(None, None, None)
        self.pond.close()
        shutil.rmtree(self.folder)

    def call(
        self, method: str, path: str, expected: int | tuple[int, ...], *names: object, **arguments
    ) -> httpx.Response:
        """Makes a documented call; its status is one of those expected, and never an error of
        the server's."""
        assert (method, path) in self.calls, (method, path)
        MADE.add((method, path))
        url = path
        for part in [piece for piece in path.split("/") if piece.startswith("{")]:
            url = url.replace(part, str(names[0]))
        answer = self.http.request(method, url, **arguments)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        assert answer.status_code in wanted, (method, url, arguments, answer.text)
        if answer.status_code >= 400:
            answer_shapes.Problem(error=answer.json()["error"])
        return answer

    def run(self, text: str, expected: int | tuple[int, ...] = 200) -> list[dict[str, Any]]:
        answer = self.call("POST", "/v1/statements", expected, json={"text": text})
        return answer_shapes.StatementsProblem.model_validate(
            answer.json() if answer.status_code >= 400 else {"error": NO_ERROR, **answer.json()}
        ).model_dump()["results"]

    def readers(self, stream: str) -> list[str]:
        """What stands in the way of dropping a stream."""
        return [name for name, read in self.derived.items() if read == stream] + [
            name for name, query in self.queries.items() if query["stream"] == stream
        ]

    # -- streams ---------------------------------------------------------------------------------

    @rule(name=names)
    def create_stream(self, name: str) -> None:
        text = f"CREATE STREAM {name} (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        self.run(text, 409 if name in self.streams else 200)
        self.streams.setdefault(name, [])

    @rule(name=names)
    def drop_stream(self, name: str) -> None:
        if name not in self.streams:
            self.run(f"DROP STREAM {name}", 400)
        elif self.readers(name):
            self.run(f"DROP STREAM {name}", 409)
        else:
            self.run(f"DROP STREAM {name}")
            del self.streams[name]
            self.keys = {k: found for k, found in self.keys.items() if k[0] != name}

    @rule(
        name=names, numbers=rows, key=st.sampled_from(KEYS), form=st.sampled_from(["csv", "ndjson"])
    )
    def push(self, name: str, numbers: tuple[int, ...], key: str | None, form: str) -> None:
        before = self.keys.get((name, key or ""))
        minute = self.minute if before is None else before[2]
        at = HOUR.format(minute % 60)
        if form == "csv":
            body = "ts,v\n" + "".join(f"{at},{n}\n" for n in numbers)
            media = "text/csv"
        else:
            body = "".join(json.dumps({"ts": at, "v": n}) + "\n" for n in numbers)
            media = "application/x-ndjson"
        headers = {"Content-Type": media} | ({"Idempotency-Key": key} if key else {})
        path = "/v1/streams/{stream}/tuples"
        if name not in self.streams:
            self.call("POST", path, 404, name, content=body, headers=headers)
            return
        if before is not None and before[0] != numbers:
            self.call("POST", path, 409, name, content=body, headers=headers)
            return
        answer = self.call("POST", path, (200, 409), name, content=body, headers=headers)
        if answer.status_code == 409:  # the same numbers, written otherwise
            assert before is not None
            assert before[1] != form
            return
        receipt = answer_shapes.Receipt.model_validate(answer.json())
        assert receipt.duplicate is (before is not None)
        assert (receipt.accepted, receipt.rejected) == (len(numbers), 0)
        if before is None:
            self.streams[name] += numbers
            if key:
                self.keys[name, key] = (numbers, form, minute)
            self.minute += 1

    @rule(name=names, numbers=rows, removed=st.booleans())
    def push_in_parts(self, name: str, numbers: tuple[int, ...], removed: bool) -> None:
        part, known = "/v1/streams/{stream}/parts/{part}", name in self.streams
        at = HOUR.format(self.minute % 60)
        body = "".join(json.dumps({"ts": at, "v": n}) + "\n" for n in numbers)
        headers = {"Content-Type": "application/x-ndjson"}
        status = 200 if known else 404
        staged = self.call("PUT", part, status, name, content=body, headers=headers)
        if known:
            assert answer_shapes.StagedRows.model_validate(staged.json()).rows == len(numbers)
        if removed:
            self.call("DELETE", part, 204 if known else 404, name)
            status = 409 if known else 404
        batch = {"writer": f"writer {self.minute}", "parts": [name]}
        answer = self.call("POST", "/v1/streams/{stream}/batches", status, name, json=batch)
        if status == 200:
            assert answer_shapes.Receipt.model_validate(answer.json()).accepted == len(numbers)
            self.streams[name] += numbers
            self.minute += 1
        if not removed:  # there is no such part any more, which is no error
            self.call("DELETE", part, 204 if known else 404, name)

    @rule(name=names)
    def push_what_is_no_csv(self, name: str) -> None:
        headers = {"Content-Type": "text/csv"}
        self.call(
            "POST",
            "/v1/streams/{stream}/tuples",
            400 if name in self.streams else 404,
            name,
            content=b"2026-03-01 11:00:00,7\n",
            headers=headers,
        )

    @rule(name=derived, read=names)
    def create_derived(self, name: str, read: str) -> None:
        text = f"CREATE STREAM {name} AS ISTREAM(SELECT v FROM {read} WHERE v > 4)"
        if read not in self.streams or name in self.derived:
            self.run(text, (400, 409))
        else:
            self.run(text)
            self.derived[name] = read

    @rule(name=derived)
    def drop_derived(self, name: str) -> None:
        self.run(f"DROP STREAM {name}", 200 if name in self.derived else 400)
        self.derived.pop(name, None)

    @rule(name=derived | names, active=st.booleans())
    def alter_stream(self, name: str, active: bool) -> None:
        known = name in self.derived
        expected = (400 if not active else 200) if known else (400, 404)
        path = "/v1/streams/{stream}"
        self.call("PATCH", path, expected, name, json={"active": active})

    @rule(name=derived, limit=limits)
    def read_derived(self, name: str, limit: int) -> None:
        expected = 200 if name in self.derived else 404
        path = "/v1/streams/{stream}/changes"
        answer = self.call("GET", path, expected, name, params={"limit": limit})
        if expected == 200:
            page = answer_shapes.ChangesPage.model_validate(answer.json())
            assert len(page.rows) <= limit
            assert all(row[-1] > 4 for row in page.rows)

    # -- queries ---------------------------------------------------------------------------------

    @rule(name=queries, stream=names, least=limits, eager=st.booleans())
    def register(self, name: str, stream: str, least: int, eager: bool) -> None:
        cql = f"SELECT v FROM {stream} WHERE v >= {least}"
        body = {"cql": cql, "name": name, "options": {"materialize": "eager" if eager else "lazy"}}
        if name in self.queries or stream not in self.streams:
            self.call("POST", "/v1/queries", (400, 409), json=body)
            return
        answer = self.call("POST", "/v1/queries", 201, json=body)
        made = query_shapes.Query.model_validate(answer.json())
        assert answer.headers["location"] == f"/v1/queries/{made.id}"
        self.queries[name] = {"id": made.id, "stream": stream, "least": least, "active": True}

    @rule(stream=names, wrong=st.booleans())
    def register_many(self, stream: str, wrong: bool) -> None:
        known = stream in self.streams
        body = [{"cql": f"SELECT v FROM {stream}"}, {"cql": f"SELECT nothing FROM {stream}"}]
        answer = self.call(
            "POST", "/v1/queries", 400 if wrong or not known else 201, json=body[: 1 + wrong]
        )
        if known and wrong:
            assert answer.json()["error"]["detail"].startswith("Query 1 of 2")
        elif known:
            [made] = answer.json()
            query_shapes.Query.model_validate(made)
            self.call("DELETE", "/v1/queries/{query}", 204, made["id"])

    @rule(name=queries, active=st.booleans())
    def alter(self, name: str, active: bool) -> None:
        expected = 200 if name in self.queries else 404
        path = "/v1/queries/{query}"
        self.call("PATCH", path, expected, name, json={"active": active})
        self.call("GET", path, expected, name)
        if name in self.queries:
            self.queries[name]["active"] = active

    @rule(name=queries, by_id=st.booleans())
    def unregister(self, name: str, by_id: bool) -> None:
        known = self.queries.pop(name, None)
        called = known["id"] if known and by_id else name
        self.call("DELETE", "/v1/queries/{query}", 204 if known else 404, called)

    @rule(chosen=st.lists(queries, unique=True), active=st.booleans())
    def alter_many(self, chosen: list[str], active: bool) -> None:
        known = all(name in self.queries for name in chosen)
        expected = 400 if not chosen else 200 if known else 404
        answer = self.call(
            "PATCH", "/v1/queries", expected, params=_choose(chosen), json={"active": active}
        )
        if expected == 200:
            assert answer.json() == {"queries": len(chosen)}
            for name in chosen:
                self.queries[name]["active"] = active

    @rule(chosen=st.lists(queries, unique=True))
    def unregister_many(self, chosen: list[str]) -> None:
        known = all(name in self.queries for name in chosen)
        expected = 400 if not chosen else 200 if known else 404
        answer = self.call("DELETE", "/v1/queries", expected, params=_choose(chosen))
        if expected == 200:
            assert answer.json() == {"queries": len(chosen)}
            for name in chosen:
                del self.queries[name]

    @rule(chosen=st.lists(queries, unique=True), limit=st.integers(1, 9))
    def read_feed(self, chosen: list[str], limit: int) -> None:
        known = all(name in self.queries for name in chosen)
        expected = 400 if not chosen else 200 if known else 404
        answer = self.call("GET", "/v1/changes", expected, params=_choose(chosen, limit=limit))
        if expected == 200:
            answer_shapes.FeedPage.model_validate(answer.json())

    @rule(name=queries, form=st.sampled_from(["*/*", "application/x-ndjson", "image/png"]))
    def invoke(self, name: str, form: str) -> None:
        known = self.queries.get(name)
        if known:
            self.call("POST", "/v1/catch-up", 200)
        active = bool(known and known["active"])
        expected = 406 if form == "image/png" else 404 if not known else 200 if active else 409
        answer = self.call(
            "GET", "/v1/queries/{query}/result", expected, name, headers={"Accept": form}
        )
        if expected != 200:
            return
        assert known is not None
        wanted = sorted(v for v in self.streams[known["stream"]] if v >= known["least"])
        if form == "*/*":
            found = [row[0] for row in answer_shapes.Answer.model_validate(answer.json()).rows]
        else:
            found = [json.loads(line)["v"] for line in answer.text.splitlines()]
            assert answer.headers["millpond-exact"] == "true"
        assert sorted(found) == wanted

    @rule(name=queries, after=st.integers(0, 3), limit=limits)
    def changes(self, name: str, after: int, limit: int) -> None:
        known = self.queries.get(name)
        expected: int | tuple[int, ...] = 404 if not known else 200 if known["active"] else 409
        if known and known["active"] and after:
            expected = (200, 409)  # a cursor that was never given is refused
        path = "/v1/queries/{query}/changes"
        params = {"limit": limit} | ({"after": after} if after else {})
        answer = self.call("GET", path, expected, name, params=params)
        if answer.status_code == 200:
            page = answer_shapes.ChangesPage.model_validate(answer.json())
            assert len(page.rows) <= limit
            assert page.cursor <= page.newest

    @rule(name=queries | names)
    def plans(self, name: str) -> None:
        expected = 200 if name in self.queries else 400 if name in self.streams else 404
        answer = self.call("GET", "/v1/queries/{query}/plan", expected, name)
        if expected == 200:
            plan_shapes.QueryPlan.model_validate(answer.json())
        found = self.call("GET", "/v1/plan", (200, 400, 404), params={"query": name})
        if found.status_code == 200:
            plan_shapes.Plan.model_validate(found.json())
        plan_shapes.PlanGraph.model_validate(self.call("GET", "/v1/plan/graph", 200).json())
        query_shapes.QueryCosts.model_validate(self.call("GET", "/v1/costs", 200).json())
        expected = 200 if name in self.streams else 404
        traced = self.call("GET", "/v1/plan/trace", expected, params={"stream": name})
        if expected == 200:
            plan_shapes.Trace.model_validate(traced.json())
        document = self.call("GET", "/v1/plan/document", 200).json()
        plan_shapes.PlanDocument.model_validate(document)
        compared = self.call("POST", "/v1/plan/compare", 200, json=document)
        plan_shapes.ComparedPlan.model_validate(compared.json())
        adopted = self.call("POST", "/v1/plan/adopt", 200, json=document).json()
        plan_shapes.AdoptedDifference.model_validate(adopted)
        listed = plan_shapes.AdoptedPlans.model_validate(
            self.call("GET", "/v1/plan/adopted", 200).json()
        )
        assert listed.plans[0].number == adopted["number"]
        plan_shapes.AdoptedPlan.model_validate(self.call("POST", "/v1/plan/undo", 200).json())

    @precondition(lambda self: self.streams)
    @rule(name=names, numbers=rows)
    def statements(self, name: str, numbers: tuple[int, ...]) -> None:
        if name not in self.streams:
            self.run(f"SELECT v FROM {name}", 400)
            return
        at = HOUR.format(self.minute % 60)
        for number in numbers:
            self.run(f"INSERT INTO {name} VALUES ('{at}', {number})")
            self.streams[name].append(number)
        self.minute += 1
        text = f"SELECT count(*) AS n FROM {name}"
        parsed = self.call("POST", "/v1/parse", 200, json={"text": text})
        assert query_shapes.Parsed.model_validate(parsed.json()).wrong is None
        (count,) = self.run(text)
        assert count["rows"] == [[len(self.streams[name])]]

    # -- looking ---------------------------------------------------------------------------------

    @rule(entity=st.sampled_from(["eddies:all", "joins:all", "nothing:all"]))
    def settings_of_entities(self, entity: str) -> None:
        known = entity != "nothing:all"
        path = "/v1/entities/{entity}"
        answer = self.call("GET", path, 200 if known else 404, entity)
        if known:
            found = status_shapes.Entity.model_validate(answer.json())
            self.call("PATCH", path, 200, entity, json=found.settings)
        self.call("PATCH", path, 400 if known else 404, entity, json={"nothing": 1})

    @rule(name=queries | names)
    def makes_a_ticket(self, name: str) -> None:
        known = name in self.queries
        answer = self.call(
            "POST", "/v1/tickets", 201 if known else (400, 404), json={"queries": [name]}
        )
        if known:
            query_shapes.Ticket.model_validate(answer.json())

    @rule(name=names)
    def resets_a_clock_to_what_is_to_come(self, name: str) -> None:
        known = name in self.streams
        path = "/v1/streams/{stream}/reset-clock"
        answer = self.call(
            "POST", path, 200 if known else (400, 404), name, params={"to": "2099-01-01 00:00:00"}
        )
        if known:
            assert stream_shapes.ClockReset.model_validate(answer.json()).rejected == 0

    @rule(seconds=st.sampled_from([30, 0, -1]))
    def catch_up(self, seconds: int) -> None:
        expected = 200 if seconds > 0 else 422
        self.call("POST", "/v1/catch-up", expected, params={"timeout": seconds})

    @rule()
    def look(self) -> None:
        for path, look in LOOKS.items():
            look.model_validate(self.call("GET", path, 200).json())
        assert b"millpond" in self.call("GET", "/metrics", 200).content

    @initialize()
    def nothing_is_there(self) -> None:
        assert self.call("GET", "/v1/queries", 200).json()["total"] == 0

    @invariant()
    def everything_is_there(self) -> None:
        streams = stream_shapes.Streams.model_validate(self.call("GET", "/v1/streams", 200).json())
        assert {s.name for s in streams.streams} == {*self.streams, *self.derived}
        page = query_shapes.QueryPage.model_validate(self.call("GET", "/v1/queries", 200).json())
        listed = {q.name: (q.id, q.active) for q in page.queries}
        assert listed == {n: (q["id"], q["active"]) for n, q in self.queries.items()}
        for name, query in self.queries.items():
            answer = self.call("GET", "/v1/queries/{query}", 200, name)
            assert query_shapes.Query.model_validate(answer.json()).id == query["id"]


def _choose(names: list[str], **others: int) -> dict[str, str | int]:
    """Parameters that select queries by their names; without names, no condition is given."""
    return ({"queries": ",".join(names)} if names else {}) | others


#: The calls that were made.
MADE: set[tuple[str, str]] = set()

NO_ERROR = {"code": "", "message": "", "detail": None, "hint": None, "place": None}

LOOKS: dict[str, type[shape.Shape]] = {
    "/healthz": status_shapes.Alive,
    "/readyz": status_shapes.Ready,
    "/v1/status": status_shapes.Status,
    "/v1/functions": status_shapes.Functions,
    "/v1/history": status_shapes.History,
    "/v1/entities": status_shapes.Entities,
    "/v1/relations": stream_shapes.Relations,
    "/v1/language": query_shapes.Language,
    "/v1/caller": query_shapes.CallerFacts,
}


@pytest.mark.parametrize("examples", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_any_calls_in_any_order(examples: int) -> None:
    # Not made smaller when it fails: that takes minutes, and the steps can be read as they are.
    MADE.clear()
    calls = every_call(create_app(cast(Pond, None)))
    # Backups need a directory that the operator allows; test_backups_over_http.py makes them.
    documented = {(c.method, c.path) for c in calls if not c.path.startswith("/v1/backups")}
    for attempts in (examples, 3 * examples):  # a few examples may happen to leave out a call
        run_state_machine_as_test(
            Surface,
            settings=settings(
                max_examples=attempts, stateful_step_count=40, phases=[Phase.generate]
            ),
        )
        if documented == MADE:
            break
    assert documented == MADE
