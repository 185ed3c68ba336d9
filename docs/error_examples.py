"""Examples of the errors that no statement of a golden provokes: each is provoked here.

An example is what was done, and what that failed with. Where an error needs a state that cannot be
had while a page is written (Spark ended), what makes the error is called as it is called then.
"""

from __future__ import annotations

import inspect
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa

import millpond
from millpond.api import limits, listening, problems
from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.rights.make_caller import make_caller
from millpond.api.rights.token_file import add_token
from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.runtime.spark import machine
from millpond.runtime.spark.data_source import _ReadRequest
from millpond.runtime.spark.jvm import java
from millpond.runtime.spark.sources import find_absence
from millpond.service.ingest.door import Door
from millpond.service.observe import status
from millpond.service.pond import Pond
from millpond.state.disk_floor import DiskRoom
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.shared.leader import Leader, waiting_error
from millpond.state.store import Store
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "surfaces"))

from local_http import local_client

_STREAM = "CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts;"
_ROWS = [{"ts": "2026-03-01 10:00:00", "k": "a", "v": 1}]

#: Per code: what provokes it, in a pond that has a stream, a store in a folder of its own.
_PROVOKE: dict[str, Callable[[Pond, Path], str]] = {}


def _provokes(code: str) -> Callable[[Callable[[Pond, Path], str]], Callable[[Pond, Path], str]]:
    """Note what provokes a code: a function that fails with it, named by what is done."""

    def note(function: Callable[[Pond, Path], str]) -> Callable[[Pond, Path], str]:
        _PROVOKE[code] = function
        return function

    return note


def provoke_errors() -> Iterator[tuple[str, str]]:
    """Per code: what was done, and what it failed with."""
    for code, function in _PROVOKE.items():
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "store"
            pond = open_local(store, ManualClock(), bounded=True)
            try:
                pond.execute(_STREAM)
                shown = _provoke(code, function, pond, store)
            finally:
                with suppress(MillpondError):
                    pond.close()
            yield code, shown.replace(folder, "/var/lib")


def _provoke(code: str, function: Callable[[Pond, Path], str], pond: Pond, store: Path) -> str:
    try:
        shown = function(pond, store)
    except MillpondError as error:
        if error.code != code:
            raise
        shown = error.render()
    assert shown.startswith(code), shown
    what = inspect.cleandoc(function.__doc__ or "")
    return f"{what}\n\n{shown}" if what else shown


# -- in Python -------------------------------------------------------------------------------------


@_provokes("CQL-104")
def _too_long(pond: Pond, _: Path) -> str:
    """mp.ask("SELECT " + "1 + " * 20_000 + "1")"""
    return _shorten(lambda: pond.ask("SELECT " + "1 + " * 20_000 + "1"))


@_provokes("CQL-220")
def _wrong_arguments(pond: Pond, _: Path) -> str:
    pond.function("half", lambda x: x / 2, arguments=["DOUBLE"], returns="DOUBLE")
    pond.execute("SELECT half(k) AS h FROM s")
    return ""


@_provokes("CQL-221")
def _no_seconds(pond: Pond, _: Path) -> str:
    """mp.function("half", half, arguments=["DOUBLE"], returns="DOUBLE", max_seconds=0)"""
    pond.function("half", lambda x: x / 2, arguments=["DOUBLE"], returns="DOUBLE", max_seconds=0)
    return ""


@_provokes("POND-411")
def _function_fails(pond: Pond, _: Path) -> str:
    """mp.function("pick", lambda x: x[9], arguments=["INTEGER"], returns="INTEGER")
    SELECT pick(v) AS p FROM s;"""
    pond.function("pick", lambda x: x[9], arguments=["INTEGER"], returns="INTEGER")
    pond.ingest("s", _ROWS)
    pond.catch_up()
    pond.ask("SELECT pick(v) AS p FROM s")
    return ""


@_provokes("POND-403")
def _not_kept(pond: Pond, _: Path) -> str:
    """INVOKE q AT TIMESTAMP '2026-01-01 00:00:00';"""
    pond.execute("CREATE STREAM r (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN 1 ROWS")
    for minute in range(5):
        pond.ingest("r", [{"ts": f"2026-03-01 10:0{minute}:00", "v": 1}])
        pond.catch_up()
        while pond._components.maintenance.step():
            pass
    pond.register("SELECT v FROM r [NOW]", "q").invoke("2026-01-01 00:00:00")
    return ""


@_provokes("POND-406")
def _stopped(pond: Pond, _: Path) -> str:
    """CREATE STREAM numbers AS ISTREAM(SELECT CAST(k AS INTEGER) AS n FROM s);
    FETCH numbers;"""
    pond.execute("CREATE STREAM numbers AS ISTREAM(SELECT CAST(k AS INTEGER) AS n FROM s)")
    pond.ingest("s", [*_ROWS, {**_ROWS[0], "ts": "2026-03-01 10:00:01"}])
    pond.catch_up()
    pond.execute("FETCH numbers")
    return ""


@_provokes("DATA-502")
def _no_file(pond: Pond, _: Path) -> str:
    """CREATE STREAM t (v INTEGER) USING csv OPTIONS (path 'data/none.csv');"""
    source = SourceDef("csv", {"path": "data/none.csv"})
    absence = find_absence(StreamDef(1, "t", Schema(()), source=source))
    assert absence is not None
    raise absence


@_provokes("POND-410")
def _closed(pond: Pond, _: Path) -> str:
    """mp.close(); mp.ask("SELECT v FROM s")"""
    pond.close()
    pond.ask("SELECT v FROM s")
    return ""


@_provokes("POND-415")
def _spark_ended(pond: Pond, _: Path) -> str:
    """POST /v1/streams, while Spark is away"""
    end = SimpleNamespace(_ended_because="", _revives=True, _start=object())
    process = SimpleNamespace(pid=4711, poll=lambda: -9)
    raise machine.Machine._explain_end(end, process)  # type: ignore[arg-type]


@_provokes("POND-416")
def _inexact(pond: Pond, _: Path) -> str:
    """spark.read.format("millpond").option("query", "q").load()"""
    given = SimpleNamespace(exact=False, loss=("s shed 12 elements",))
    _ReadRequest._promise(SimpleNamespace(inexact="refuse"), given, pa.table({}))  # type: ignore[arg-type]
    return ""


@_provokes("POND-417")
def _too_much(pond: Pond, _: Path) -> str:
    """mp.ingest("s", rows)"""
    door = Door(lambda: 1_000_000, SimpleNamespace(record=lambda *_: None))  # type: ignore[arg-type]
    stream = pond._components.log.version.find("s")
    assert isinstance(stream, StreamDef)
    door.enter(stream, 900_000, 9_000)
    door.enter(stream, 200_000, 2_000)
    return ""


@_provokes("POND-418")
def _dead_sink(pond: Pond, _: Path) -> str:
    """GET /v1/status"""
    dead = {"name": "alerts", "dead": "The receiver answered 410"}
    sinks = SimpleNamespace(describe=lambda: [dead])
    (told,) = status._list_dead_sinks(SimpleNamespace(sinks=sinks))  # type: ignore[arg-type]
    return _say(told)


@_provokes("POND-419")
def _spark_starts(pond: Pond, _: Path) -> str:
    """CREATE STREAM t (v INTEGER) USING csv OPTIONS (path '/data'), in the first seconds"""
    raise machine.starting_error()


@_provokes("DATA-501")
def _no_format(pond: Pond, _: Path) -> str:
    """mp.ingest_text("s", data, "xml")"""
    pond.ingest_text("s", b"<v/>", "xml")
    return ""


@_provokes("DATA-503")
def _key_again(pond: Pond, _: Path) -> str:
    """mp.ingest("s", rows, idempotency_key="k1"); mp.ingest("s", others, idempotency_key="k1")"""
    pond.ingest("s", _ROWS, idempotency_key="k1")
    pond.ingest("s", [{**_ROWS[0], "v": 2}], idempotency_key="k1")
    return ""


@_provokes("DATA-504")
def _missing_part(pond: Pond, _: Path) -> str:
    """mp.ingest_batch("s", "writer", 0, ["part-0"])"""
    pond.ingest_batch("s", "writer", 0, ["part-0"])
    return ""


@_provokes("STORE-601")
def _open_twice(pond: Pond, store: Path) -> str:
    """millpond.open("/var/lib/store"), in two processes"""
    try:
        open_local(store, ManualClock())
    except MillpondError as error:
        error.detail = re.sub(r"\d{2,}", "4711", error.detail or "") or None
        raise
    return ""


@_provokes("STORE-602")
def _damaged(pond: Pond, store: Path) -> str:
    """SELECT v FROM s, after a file of the store was removed"""
    pond.ingest("s", _ROWS)
    pond.catch_up()
    for file in (store / "segments").rglob("*.arrow"):
        file.rename(file.with_name("removed"))
    try:
        pond.ask("SELECT v FROM s")
    except MillpondError as error:
        error.primary = re.sub(r"[^/]*\.arrow", "9a0b….arrow", error.primary)
        raise
    return ""


@_provokes("STORE-603")
def _no_room(pond: Pond, store: Path) -> str:
    """mp.ingest("s", rows), on a full disk"""
    raise DiskRoom(free=900_000_000, floor=1_000_000_000).explain()


@_provokes("STORE-604")
def _no_store(pond: Pond, store: Path) -> str:
    """millpond.open("/var/lib/photos")"""
    photos = store.parent / "photos"
    photos.mkdir()
    (photos / "one.png").touch()
    open_local(photos, ManualClock())
    return ""


@_provokes("STORE-605")
def _clock_behind(pond: Pond, _: Path) -> str:
    """GET /v1/status"""
    told = status._clock_error(
        "the clock is 3,600 s behind the last arrival",
        "It says 2026-03-01 09:00:00; rows arrived at 2026-03-01 10:00:00.",
        "Set the clock right.",
    )
    return _say(told)


@_provokes("STORE-606")
def _taken_over(pond: Pond, store: Path) -> str:
    """mp.ingest("s", rows), at a server that another one has taken over from"""
    shared = str(store.parent / "shared")
    first = Store.open(store.parent / "one", shared=shared)
    with first, Store.open(store.parent / "two", shared=shared):
        try:
            first.log.commit(EpochChange(kind="create"))
        except MillpondError as error:
            error.primary = re.sub(r'"file:.*"', '"s3://acme/pond"', error.primary)
            raise
    return ""


@_provokes("STORE-607")
def _waits(pond: Pond, _: Path) -> str:
    """GET /v1/queries, at a server that waits"""
    raise waiting_error(Leader("", 1, "http://10.0.0.1:6455", 1))


# -- a server --------------------------------------------------------------------------------------


@_provokes("SERVE-701")
def _port_in_use(pond: Pond, _: Path) -> str:
    """millpond serve --port 6455"""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        try:
            listening.bind("127.0.0.1", port)
        except MillpondError as error:
            error.primary = error.primary.replace(str(port), "6455")
            raise
    return ""


@_provokes("SERVE-702")
def _no_java(pond: Pond, _: Path) -> str:
    """millpond serve"""
    raise java._no_java_error("There is no java on PATH; Spark needs Java 17 or newer.")


@_provokes("SERVE-703")
def _malformed(pond: Pond, _: Path) -> str:
    """POST /v1/statements {"txt": "SHOW STREAMS"}"""
    return _call(pond, "POST", "/v1/statements", json={"txt": "SHOW STREAMS"})


@_provokes("SERVE-704")
def _no_resource(pond: Pond, _: Path) -> str:
    """GET /v1/nothing"""
    return _call(pond, "GET", "/v1/nothing")


@_provokes("SERVE-705")
def _nobody_there(pond: Pond, _: Path) -> str:
    """millpond.connect("http://127.0.0.1:1").status()"""
    millpond.connect("http://127.0.0.1:1").status()
    return ""


@_provokes("SERVE-706")
def _no_token(pond: Pond, _: Path) -> str:
    """GET /v1/streams"""
    return _call(pond, "GET", "/v1/streams", access=Access.of("a-secret-token"))


@_provokes("SERVE-707")
def _large_body(pond: Pond, _: Path) -> str:
    """POST /v1/streams/s/tuples, with a body that is too large"""
    body = b"x" * 2_000_000
    return _call(pond, "POST", "/v1/streams/s/tuples", content=body, max_body=1_000_000)


@_provokes("SERVE-708")
def _media_type(pond: Pond, _: Path) -> str:
    """POST /v1/streams/s/tuples, with Content-Type: text/xml"""
    headers = {"Content-Type": "text/xml"}
    return _call(pond, "POST", "/v1/streams/s/tuples", content=b"<v/>", headers=headers)


@_provokes("SERVE-709")
def _no_form(pond: Pond, _: Path) -> str:
    """GET /v1/queries/q/result, with Accept: text/xml"""
    pond.register("SELECT v FROM s", "q")
    return _call(pond, "GET", "/v1/queries/q/result", headers={"Accept": "text/xml"})


@_provokes("SERVE-710")
def _other_name(pond: Pond, _: Path) -> str:
    """GET /v1/streams, with Host: pond.example.org"""
    return _call(pond, "GET", "/v1/streams", headers={"Host": "pond.example.org"})


@_provokes("SERVE-711")
def _other_origin(pond: Pond, _: Path) -> str:
    """POST /v1/statements, with Origin: https://example.org"""
    body, headers = {"text": "SHOW STREAMS"}, {"Origin": "https://example.org"}
    return _call(pond, "POST", "/v1/statements", json=body, headers=headers)


@_provokes("SERVE-712")
def _no_host(pond: Pond, _: Path) -> str:
    """millpond serve --allow-host https://pond.example.org"""
    Access.of(None, ["https://pond.example.org"])
    return ""


@_provokes("SERVE-713")
def _role(pond: Pond, store: Path) -> str:
    """POST /v1/statements {"text": "CREATE STREAM t (v INTEGER)"}, with a reader's token"""
    return _call_as(pond, store, "reader", "CREATE STREAM t (v INTEGER)")


@_provokes("SERVE-714")
def _quota(pond: Pond, store: Path) -> str:
    """POST /v1/statements {"text": "CREATE QUERY two AS SELECT v FROM s"}"""
    _call_as(pond, store, "writer", "CREATE QUERY one AS SELECT v FROM s", queries=1)
    return _call_as(pond, store, "writer", "CREATE QUERY two AS SELECT v FROM s", queries=1)


@_provokes("SERVE-715")
def _no_room_for_bodies(pond: Pond, _: Path) -> str:
    """POST /v1/streams/s/tuples, while others send more than `body_memory`"""
    raise limits._full_error(256_000_000)


@_provokes("POND-414")
def _not_for_clients(pond: Pond, _: Path) -> str:
    """POST /v1/statements {"text": "CREATE STREAM t (v INT) USING csv OPTIONS (path '/etc')"}"""
    text = "CREATE STREAM t (v INT) USING csv OPTIONS (path '/etc')"
    return _call(pond, "POST", "/v1/statements", json={"text": text})


@_provokes("INTERNAL-901")
def _defect(pond: Pond, _: Path) -> str:
    raise problems.internal_error()


# -- how -------------------------------------------------------------------------------------------


def _call_as(pond: Pond, store: Path, role: str, text: str, **quotas: Any) -> str:
    tokens = store.parent / "tokens.json"
    token, _ = add_token(tokens, lambda id: make_caller(id, "ann", role, ["s"], **quotas))
    headers = {"Authorization": f"Bearer {token}"}
    given: dict[str, Any] = {"headers": headers, "access": Access.of(tokens=tokens)}
    return _call(pond, "POST", "/v1/statements", json={"text": text}, **given)


def _call(
    pond: Pond,
    method: str,
    path: str,
    *,
    access: Access | None = None,
    max_body: int | None = None,
    **request: Any,
) -> str:
    """Call a server of the pond; return its error as the command line prints it."""
    given = {"access": access, **({"max_body": max_body} if max_body else {})}
    with local_client(create_app(pond, **given)) as client:
        answer: httpx.Response = client.request(method, path, **request)
    lines = [json for json in answer.text.splitlines() if '"error"' in json]
    body = httpx.Response(200, text=lines[-1]).json() if lines else {}
    return _say(body["error"]) if body else ""


def _say(told: dict[str, Any]) -> str:
    lines = [f"{told['code']}: {told['message']}"]
    lines += [f"Detail: {told['detail']}"] if told.get("detail") else []
    lines += [f"Hint: {told['hint']}"] if told.get("hint") else []
    return "\n".join(lines)


def _shorten(ask: Callable[[], object]) -> str:
    """What a statement fails with, without the statement, which is too long to be shown."""
    try:
        ask()
    except MillpondError as error:
        return _say({"code": error.code, "message": error.primary, **vars(error)})
    return ""
