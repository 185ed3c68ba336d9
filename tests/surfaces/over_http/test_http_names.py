"""Every call that has a name in its path reaches what has that name, whatever the name is."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest

from millpond.api.client import connect
from millpond.service.pond import Pond

NAMES = [
    *("a b", "a.b", "...", ".a", "a..", "%", "%2F", "%2e%2e", "100%", "a%20b", "a+b", "a&b=c"),
    *("a?b", "a#b", "a;b", "a:b", "a,b", "a@b", "~", "*", "'", 'quo"te', "`", "<b>", "{query}"),
    *(
        "é",
        "e\u0301",
        "日本",
        "🦆",
        "SELECT",
        "changes",
        "result",
        "plan",
        "tuples",
        "a$b",
        "x" * 200,
    ),
]
ROW = {"ts": "2026-03-01 12:00:00", "n": 1}

#: For each path with a name in it: its calls, of which each gives a path that begins with it.
CALLS: dict[str, list[Callable[[httpx.Client, str], httpx.Response]]] = {
    "/v1/queries/{query}": [
        lambda http, path: http.get(path),
        lambda http, path: http.patch(path, json={"weight": 2}),
    ],
    "/v1/queries/{query}/result": [lambda http, path: http.get(path)],
    "/v1/queries/{query}/plan": [lambda http, path: http.get(path)],
    "/v1/queries/{query}/changes": [lambda http, path: http.get(path)],
    "/v1/streams/{stream}": [lambda http, path: http.patch(path, json={"overload": "shed random"})],
    "/v1/streams/{stream}/tuples": [
        lambda http, path: http.post(
            path, content=b'{"n": 1}\n', headers={"Content-Type": "application/x-ndjson"}
        )
    ],
    "/v1/streams/{stream}/parts/{part}": [
        lambda http, path: http.put(
            path.replace("{part}", "a"),
            content=b'{"n": 1}\n',
            headers={"Content-Type": "application/x-ndjson"},
        )
    ],
    "/v1/streams/{stream}/batches": [
        lambda http, path: http.post(path, json={"writer": "w", "batch": 0, "parts": []})
    ],
    "/v1/streams/{stream}/changes": [lambda http, path: http.get(path)],
    "/v1/streams/{stream}/reset-clock": [
        lambda http, path: http.post(path, params={"to": "2026-03-01 13:00:00"})
    ],
    "/v1/entities/{entity}": [
        lambda http, path: http.get(path),
        lambda http, path: http.patch(path, json={}),
    ],
}
#: What has the name while a path is called, and goes again.
MAKES = {
    "query": ("CREATE QUERY {} AS SELECT carrier FROM flights", "DROP QUERY {}"),
    "stream": ("CREATE STREAM {} (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts", "DROP STREAM {}"),
    "entity": ("CREATE RELATION {} (n BIGINT)", "DROP RELATION {}"),
}
#: Where the stream of a name has to be a derived one.
DERIVED = "CREATE STREAM {} AS SELECT ts, carrier FROM flights"


def test_every_path_with_a_name_is_called(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    numbered = {"/v1/backups/{backup}"}  # by a number that the server gave
    assert {path for path in paths if "{" in path} == set(CALLS) | numbered


@pytest.mark.parametrize("path", CALLS)
def test_a_name_is_reached(path: str, pond: Pond, http: httpx.Client) -> None:
    kind = path.split("{")[1].split("}")[0]
    make, drop = MAKES[kind]
    make = DERIVED if path == "/v1/streams/{stream}/changes" else make
    for name in NAMES:
        quoted = '"' + name.replace('"', '""') + '"'
        pond.execute(make.format(quoted))
        part = f"relation:{name}" if kind == "entity" else name
        for call in CALLS[path]:
            answer = call(http, path.replace(f"{{{kind}}}", quote(part, safe="")))
            assert answer.status_code == 200, f"{name}: {answer.text}"
        pond.execute(drop.format(quoted))


def test_python_reaches_every_name(pond: Pond, http: httpx.Client) -> None:
    remote = connect("http://127.0.0.1", http=http)
    for name in NAMES:
        quoted = '"' + name.replace('"', '""') + '"'
        remote.execute(f"CREATE STREAM {quoted} (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts")
        assert remote.ingest(name, [ROW]).accepted == 1
        remote.execute(f"DROP STREAM {quoted}")
        query = remote.register("SELECT carrier FROM flights", name)
        assert len(query.invoke().rows()) == 3
        assert remote.query(name).name == name
        query.fetch()
        query.alter(weight=2)
        query.unregister()
        assert name not in [each["name"] for each in http.get("/v1/queries").json()["queries"]]
