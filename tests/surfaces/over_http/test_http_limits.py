"""A request's work ends: at its deadline, at the operator's ceilings, when its client goes away."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from flights import FLIGHTS_CSV, SCHEMA
from local_http import local_client
from tests.waiting import measure_least

from millpond.api import listening
from millpond.api.app import create_app
from millpond.confined.turns import Turns
from millpond.engine.scalars.residual_query import Limits
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime
from millpond.work import Work, begin_work, finish_work

#: Days of work, of rows that are never there.
ENDLESS = (
    "SELECT count(*) AS n FROM flights AS a, flights AS b, flights AS c, flights AS d, flights AS e"
    " WHERE sin(a.number) + sin(b.number) + sin(c.number) + sin(d.number) > 9 + sin(e.number)"
)
#: Seconds within which something that takes a second at most has happened.
SOON = 30


@pytest.fixture
def flights(pond: Pond) -> Pond:
    """The pond, with 2,000 more rows."""
    rows = [{"ts": "2026-03-01 11:50:00", "carrier": "AA", "number": n} for n in range(2_000)]
    pond.ingest("flights", rows)
    pond.catch_up()
    return pond


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Event]:
    """Set when an evaluation begins, and when it ends for good."""
    events = {"begun": threading.Event(), "ended": threading.Event()}
    run = Turns.run

    def watched(self, *arguments):
        events["begun"].set()
        try:
            return run(self, *arguments)
        finally:
            events["ended"].set()

    monkeypatch.setattr(Turns, "run", watched)
    return events


@contextmanager
def served(app: FastAPI) -> Iterator[tuple[str, int]]:
    """An application on a socket."""
    with listening.bind("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, lifespan="off", log_config=None, log_level="critical")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            running.should_exit = True
            thread.join(SOON)
            assert not thread.is_alive()


def ask(http: httpx.Client, text: str, **params) -> httpx.Response:
    return http.post("/v1/statements", json={"text": text}, params=params)


def test_a_client_gives_its_request_seconds(flights: Pond) -> None:
    flights.execute("CREATE QUERY n AS SELECT count(*) AS n FROM flights")
    flights.execute(f"CREATE QUERY endless AS {ENDLESS}")
    with local_client(create_app(flights)) as http:
        began = time.monotonic()
        for answer in (
            ask(http, f"INVOKE n; {ENDLESS}", max_seconds=0.3),
            http.get("/v1/queries/endless/result", params={"max_seconds": 0.3}),
        ):
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (422, "POND-405"), error
            assert error["message"] == "the request took longer than 0.3 seconds"
        assert time.monotonic() - began < SOON
        assert http.get("/v1/queries/n/result").json()["rows"] == [[2003]]
        assert ask(http, "INVOKE n", max_seconds=SOON).status_code == 200
        for nothing in (0, -1, "nan", "x"):
            assert ask(http, "INVOKE n", max_seconds=nothing).status_code == 422


def test_reading_and_planning_a_statement_end_too(flights: Pond) -> None:
    keys = ", ".join(f"number + {k}" for k in range(4_500))
    with local_client(create_app(flights)) as http:
        answers = []

        def ask_long(attempt: int) -> None:
            text = f"SELECT count(*) AS n FROM flights GROUP BY {keys} -- {attempt}"
            answers.append(ask(http, text, max_seconds=0.1))

        assert measure_least(ask_long, 2.1) < 2.1
    assert {answer.status_code for answer in answers} == {422}
    assert {answer.json()["error"]["code"] for answer in answers} == {"POND-405"}


def test_the_deadline_is_of_the_request_and_not_of_a_statement(flights: Pond) -> None:
    with local_client(create_app(flights)) as http:
        inserts = "INSERT INTO planes VALUES ('N1', 'A320');"
        answer = ask(http, f"{inserts} {ENDLESS}; DELETE FROM planes", max_seconds=0.3)
        assert [r["statement"] for r in answer.json()["results"]] == ["insert"]
        left = ask(http, "SELECT count(*) AS n FROM planes").json()
        assert left["results"][0]["rows"] == [[1]]


def test_a_request_cannot_have_more_than_the_operator_gives(flights: Pond) -> None:
    with local_client(create_app(flights, max_seconds=0.3)) as http:
        answer = ask(http, ENDLESS, max_seconds=600)
        assert answer.json()["error"]["message"] == "the request took longer than 0.3 seconds"


def test_no_query_has_more_than_the_operator_gives(tmp_path: Path) -> None:
    ceilings = Limits(seconds=0.3, rows=2)
    with Pond(tmp_path / "s", LocalRuntime(), ceilings=ceilings) as pond:
        pond.execute(SCHEMA)
        pond.ingest_text("flights", FLIGHTS_CSV, "csv")
        pond.execute("CREATE QUERY few WITH (max_rows = 1) AS SELECT carrier FROM flights")
        pond.execute("CREATE QUERY many WITH (max_rows = 9) AS SELECT carrier FROM flights")
        pond.execute(
            "CREATE QUERY kept WITH (max_rows = 9, materialize = 'eager')"
            " AS SELECT carrier, count(*) AS n FROM flights GROUP BY carrier, number"
        )
        pond.execute(f"CREATE QUERY long WITH (max_seconds = 600) AS {ENDLESS}")
        pond.catch_up()
        pond.ingest("flights", [{"ts": "2026-03-01 11:50:00", "number": n} for n in range(2_000)])
        pond.catch_up()
        for name, said in (
            ("few", "the answer has more than 1 rows"),
            ("many", "the answer has more than 2 rows"),
            ("kept", "the answer has more than 2 rows"),
            ("long", "the query took longer than 0.3 seconds"),
        ):
            with pytest.raises(MillpondError, match="POND-405") as caught:
                pond.query(name).invoke()
            assert caught.value.primary == said


def test_work_ends_when_its_client_goes_away(flights: Pond, evaluated) -> None:
    body = json.dumps({"text": ENDLESS}).encode()
    head = (
        "POST /v1/statements HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with served(create_app(flights)) as address:
        with socket.create_connection(address) as client:
            client.sendall(head + body)
            assert evaluated["begun"].wait(SOON)
            assert not evaluated["ended"].wait(0.2)
        assert evaluated["ended"].wait(SOON)
        url = f"http://{address[0]}:{address[1]}"
        assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}


def test_waiting_ends_when_its_client_goes_away(flights: Pond, monkeypatch) -> None:
    """Nothing that is asked for comes, and whoever waited for it has gone."""
    intake = flights._components.intake
    monkeypatch.setattr(intake, "_is_done_upto", lambda upto: False)
    work, outcome = Work(), []

    def wait() -> None:
        token = begin_work(work)
        try:
            flights.catch_up(SOON * 10)
        except MillpondError as error:
            outcome.append(error.primary)
        finally:
            finish_work(token)

    thread = threading.Thread(target=wait)
    thread.start()
    work.end()
    thread.join(SOON)
    assert outcome == ["whoever sent the request has gone"]


def test_what_is_followed_outlives_the_deadline(pond: Pond) -> None:
    pond.execute("CREATE QUERY q AS SELECT carrier FROM flights WHERE delay > 100; FETCH q")
    app = create_app(pond, max_seconds=0.2)
    with (
        served(app) as address,
        httpx.stream(
            "GET",
            f"http://{address[0]}:{address[1]}/v1/queries/q/changes?follow=true",
            timeout=SOON,
        ) as response,
    ):
        threading.Event().wait(0.4)
        pond.ingest("flights", [{"ts": "2026-03-01 13:00:00", "carrier": "ZZ", "delay": 101}])
        pond.ingest("flights", [{"ts": "2026-03-01 14:00:00", "carrier": "AA", "delay": 1}])
        lines = (json.loads(line) for line in response.iter_lines() if line)
        assert [next(lines)["row"]["carrier"] for _ in range(2)] == ["AA", "ZZ"]
