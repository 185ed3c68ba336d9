"""Every way in says whether an answer, or a page of changes, is exact, and if not, what is lost."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest
from local_http import local_client

from millpond.api.app import create_app
from millpond.api.change_forms import CHANGES_KEY
from millpond.api.client import RemotePond, connect
from millpond.api.encode import ANSWER_KEY
from millpond.cli.output_format import Format
from millpond.cli.result_writers import writer
from millpond.cli.shell import Shell
from millpond.errors import MillpondError
from millpond.model.loss import Cause, Loss
from millpond.service.json_values import loss_json
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE QUERY q WITH (changes = 'from beginning') AS SELECT v FROM s;
CREATE STREAM d AS ISTREAM(SELECT v FROM s WHERE v > 1);
CREATE QUERY over_d WITH (changes = 'from beginning') AS SELECT v FROM d;
"""
LOST = Loss("s", Cause.DAMAGED, None, 10_000_000)


class Ways(NamedTuple):
    pond: Pond
    http: httpx.Client
    remote: RemotePond

    def get(self, path: str, accept: str, **params: Any) -> httpx.Response:
        return self.http.get(path, headers={"Accept": accept}, params=params)


def second(at: int) -> dict[str, Any]:
    return {"ts": f"1970-01-01 00:00:{at:02}", "v": at}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of what was pushed up to 5 s."""
    store = tmp_path_factory.mktemp("promise") / "store"
    with open_local(store) as pond:
        pond.execute(SCHEMA)
        pond.ingest("s", [second(at) for at in (1, 2, 3, 5)])
        pond.catch_up()
        pond.query("q").fetch()
    return store


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """A pond that has lost nothing."""
    copy = tmp_path_factory.mktemp("whole") / "store"
    shutil.copytree(store, copy)
    with open_local(copy) as pond, local_client(create_app(pond)) as http:
        yield Ways(pond, http, connect("", http=http))


@pytest.fixture(scope="module")
def damaged(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """The same pond, with a push at 10 s whose file is gone."""
    copy = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(store, copy)
    with open_local(copy) as pond:
        pond._components.runtime.wake_inbox = lambda: None  # type: ignore[method-assign]
        pond.ingest("s", [second(10)])
    (file,) = (copy / "inbox").glob("*.arrow")
    file.unlink()
    with open_local(copy) as pond, local_client(create_app(pond)) as http:
        yield Ways(pond, http, connect("", http=http))


def test_bounds_come_by_every_way_that_has_cells(tmp_path: Path) -> None:
    with open_local(tmp_path / "store") as pond, local_client(create_app(pond)) as http:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        pond.ingest(
            "s", [second(at % 60) | {"v": at} for at in sorted(range(600), key=lambda n: n % 60)]
        )
        pond.catch_up()
        pond.alter_system(query_memory="1 KB")
        pond.register("SELECT count(*) AS n, max(3) AS m FROM s", "never", tolerate="sample 9 %")
        assert pond.query("never").invoke().exact
        handle = pond.register(
            "SELECT count(*) AS n, avg(v) AS a FROM s", "q", tolerate="sample 9 %"
        )
        ways = Ways(pond, http, connect("", http=http))
        bounds = handle.invoke().bounds
        assert bounds is not None
        wanted = json.loads(json.dumps(bounds.to_json()))
        assert wanted["columns"].keys() == {"n", "a"}
        path = "/v1/queries/q/result"
        assert ways.get(path, "application/json").json()["bounds"] == wanted
        headers = ways.get(path, "application/x-ndjson").headers
        assert json.loads(headers["millpond-bounds"]) == wanted
        text = "SELECT v, count(*) AS n, count(v) AS c FROM s GROUP BY v"
        pond.register(text, "many", tolerate="sample 90 %")
        many = ways.get("/v1/queries/many/result", "application/x-ndjson").headers
        assert (many["millpond-exact"], "millpond-bounds" in many) == ("false", False)
        data = ways.get(path, "application/vnd.apache.arrow.stream").content
        metadata = pa.ipc.open_stream(data).schema.metadata
        assert json.loads(metadata[ANSWER_KEY])["bounds"] == wanted
        assert ways.remote.query("q").invoke().bounds == bounds
        assert json.loads(printed(ways, "INVOKE q", Format.JSON))["bounds"] == wanted
        assert "n ± " in printed(ways, "INVOKE q", Format.TABLE)


def of_answer(answer: Any) -> list[Any]:
    return [(answer.exact, answer.loss, answer.bounds)]


def of_json(body: Any) -> list[Any]:
    return [(body["exact"], body["loss"], body["bounds"])]


def of_headers(headers: httpx.Headers) -> list[Any]:
    exact = {"true": True, "false": False}[headers["millpond-exact"]]
    return [(exact, json.loads(headers.get("millpond-loss", "[]")), None)]


def of_lines(lines: list[str]) -> list[Any]:
    bodies = [json.loads(line) for line in lines]
    assert bodies, "no change came"
    return [(body["exact"], body.get("loss", []), None) for body in bodies]


def of_metadata(data: bytes, key: bytes) -> list[Any]:
    return of_json(json.loads(pa.ipc.open_stream(data).schema.metadata[key]))


def printed(ways: Ways, statement: str, form: Format) -> str:
    out = io.StringIO()
    for result in ways.pond.execute(statement):
        writer(form, out).write(result)
    return out.getvalue()


def shown(text: str) -> list[Any]:
    """A text for people: what it says behind `not exact`."""
    _, mark, said = text.partition("not exact: ")
    return [(not mark, [said.strip()] if mark else [], None)]


def said_in_shell(ways: Ways, statement: str) -> list[Any]:
    out = io.StringIO()
    Shell(ways.pond, out, out).feed(statement)
    return shown(out.getvalue())


def statements(ways: Ways, text: str) -> list[Any]:
    body = ways.http.post("/v1/statements", json={"text": text}).json()
    return [one for result in body["results"] for one in of_json(result)]


JSON, NDJSON = "application/json", "application/x-ndjson"
EVENTS, ARROW = "text/event-stream", "application/vnd.apache.arrow.stream"
RESULT, PAGE = "/v1/queries/q/result", "/v1/queries/q/changes"

WAYS: dict[str, Callable[[Ways], list[Any]]] = {
    "python, invoke": lambda w: of_answer(w.pond.query("q").invoke()),
    "python, ask": lambda w: of_answer(w.pond.ask("SELECT v FROM s")),
    "python, a derived stream": lambda w: of_answer(w.pond.query("over_d").invoke()),
    "python, execute": lambda w: of_answer(w.pond.execute("INVOKE q")[0].answer),
    "python, fetch": lambda w: of_answer(w.pond.query("q").fetch()),
    "python, fetch over a derived stream": lambda w: of_answer(w.pond.query("over_d").fetch()),
    "python, fetch of a derived stream": lambda w: of_answer(w.pond.derived("d").fetch()),
    "python, subscribe": lambda w: [
        (c.exact, c.loss, None) for c in w.pond.query("q").subscribe(follow=False)
    ],
    "client, invoke": lambda w: of_answer(w.remote.query("q").invoke()),
    "client, ask": lambda w: of_answer(w.remote.ask("SELECT v FROM s")),
    "client, execute": lambda w: of_answer(w.remote.execute("INVOKE q")[0].answer),
    "client, execute FETCH": lambda w: of_answer(w.remote.execute("FETCH q")[0].changes),
    "client, fetch": lambda w: of_answer(w.remote.query("q").fetch()),
    "client, fetch by pages": lambda w: of_answer(w.remote.derived("d").fetch(None, 1)),
    "client, subscribe": lambda w: [
        (c.exact, c.loss, None) for c in w.remote.query("q").subscribe(follow=False)
    ],
    "http, answer as JSON": lambda w: of_json(w.get(RESULT, JSON).json()),
    "http, answer as NDJSON": lambda w: of_headers(w.get(RESULT, NDJSON).headers),
    "http, answer as Arrow": lambda w: of_metadata(w.get(RESULT, ARROW).content, ANSWER_KEY),
    "http, headers of any answer": lambda w: of_headers(w.get(RESULT, JSON).headers),
    "http, statements": lambda w: statements(w, "INVOKE q; SELECT v FROM s; FETCH q; FETCH d"),
    "http, page as JSON": lambda w: of_json(w.get(PAGE, JSON).json()),
    "http, page as NDJSON": lambda w: of_lines(w.get(PAGE, NDJSON).text.splitlines()),
    "http, page's headers": lambda w: of_headers(w.get(PAGE, NDJSON).headers),
    "http, page as Arrow": lambda w: of_metadata(w.get(PAGE, ARROW).content, CHANGES_KEY),
    "http, page of a stream": lambda w: of_json(w.get("/v1/streams/d/changes", JSON).json()),
    "http, events": lambda w: of_lines(
        [
            line.removeprefix("data: ")
            for line in w.get(PAGE, EVENTS, limit=1).text.splitlines()
            if line.startswith("data: ")
        ]
    ),
    "http, lines that go on": lambda w: of_lines(
        w.get(PAGE, NDJSON, limit=1, follow=True).text.splitlines()
    ),
    "command line, table": lambda w: shown(printed(w, "INVOKE q", Format.TABLE)),
    "command line, JSON": lambda w: of_json(json.loads(printed(w, "INVOKE q", Format.JSON))),
    "command line, FETCH": lambda w: shown(printed(w, "FETCH q", Format.TABLE)),
    "command line, FETCH as JSON": lambda w: of_json(
        json.loads(printed(w, "FETCH q", Format.JSON))
    ),
    "shell, answer": lambda w: said_in_shell(w, "INVOKE q;"),
    "shell, FETCH": lambda w: said_in_shell(w, "FETCH q;"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_has_lost_nothing_is_exact(whole: Ways, way: str) -> None:
    found = WAYS[way](whole)
    assert found
    for exact, loss, bounds in found:
        assert (exact, list(loss), bounds) == (True, [], None)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_lost_is_said(damaged: Ways, way: str) -> None:
    found = WAYS[way](damaged)
    assert found
    for exact, loss, bounds in found:
        assert (exact, bounds) == (False, None)
        assert list(loss) in ([LOST], [loss_json(LOST)], [str(LOST)])


def test_csv_has_no_room_so_stderr_says_it(
    damaged: Ways, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(damaged, "SELECT v FROM s WHERE v = 1", Format.CSV) == "v\n1\n"
    assert capsys.readouterr().err == f"not exact: {LOST}\n"


def test_what_the_loss_does_not_concern_stays_exact(damaged: Ways) -> None:
    damaged.pond.ingest("s", [second(30)])
    assert damaged.pond.ask("SELECT v FROM s [RANGE 20 SECONDS]").exact
    assert not damaged.pond.ask("SELECT v FROM s [RANGE 21 SECONDS]").exact


def test_every_call_that_answers_with_rows_of_a_query_promises(whole: Ways) -> None:
    """The document's shapes: whatever has `as_of` has `exact`, `loss` and `bounds`."""
    shapes = whole.http.get("/openapi.json").json()["components"]["schemas"]
    timed = {
        name: shape["properties"]
        for name, shape in shapes.items()
        if "as_of" in shape.get("properties", {})
    }
    assert {"Answer", "ChangesPage", "AnswerResult", "ChangesResult"} <= timed.keys()
    for name, properties in timed.items():
        promises = {"exact", "loss", "bounds"} <= properties.keys()
        assert promises != (name == "TableResult"), name


def test_a_frame_is_exact_or_says_of_every_row_that_it_is_not(
    damaged: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark's data source reads; that Spark shows it is tested beside it."""
    import millpond
    from millpond.runtime.spark.data_source import _ReadRequest

    monkeypatch.setattr(millpond, "connect", lambda url, token: damaged.remote)
    for options in ({"query": "q"}, {"cql": "SELECT v FROM s"}, {"changes": "q"}):
        refused, told = _ReadRequest.of(options), _ReadRequest.of({**options, "inexact": "say"})
        monkeypatch.setattr(damaged.remote, "close", lambda: None)

        def read(asked: _ReadRequest) -> pa.Table:
            return asked.answer() if asked.changes is None else asked.page(None, 10).table

        with pytest.raises(MillpondError, match="POND-416"):
            read(refused)
        rows = read(told)
        assert rows.num_rows
        assert set(rows["__exact"].to_pylist()) == {False}
        assert rows["__loss"][0].as_py() == str(LOST)
    with pytest.raises(MillpondError, match="SERVE-703"):
        _ReadRequest.of({"query": "q", "inexact": "maybe"})


def test_bounds_are_said_of_exact_answers_too(
    whole: Ways, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `approx_…` functions: no element is missing, and a value may be off."""
    import millpond
    from millpond.runtime.spark.data_source import _ReadRequest

    text = "SELECT approx_quantile(v, 0.5) AS half FROM s"
    given = whole.pond.ask(text)
    assert given.exact
    assert given.bounds is not None
    ((low, high),) = given.bounds.columns["half"]
    said = "half ± 0.0"
    table = printed(whole, text, Format.TABLE)
    assert said in table.splitlines()[-1]
    assert "not exact" not in table
    printed(whole, text, Format.CSV)
    assert capsys.readouterr().err.startswith(said)
    monkeypatch.setattr(millpond, "connect", lambda url, token: whole.remote)
    monkeypatch.setattr(whole.remote, "close", lambda: None)
    for options in ({"cql": text}, {"cql": "SELECT v FROM s"}, {"changes": "q"}):
        asked = _ReadRequest.of({**options, "inexact": "say"})
        rows = asked.answer() if asked.changes is None else asked.page(None, 10).table
        assert set(rows["__exact"].to_pylist()) == {True}
        bounds = [each and json.loads(each) for each in rows["__bounds"].to_pylist()]
        if options["cql" if "cql" in options else "changes"] == text:
            assert bounds == [{"confidence": 0.95, "columns": {"half": [low, high]}}]
        else:
            assert set(bounds) == {None}
