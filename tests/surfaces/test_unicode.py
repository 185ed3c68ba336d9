"""Half of a surrogate pair in any text is a clear error, in Python, over HTTP and in the shell."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from millpond.api.client import connect
from millpond.cli.shell import Shell
from millpond.errors import MillpondError
from millpond.service.json_values import dumps
from millpond.service.pond import Pond

HALF = "\ud83d"
ROW = {"ts": "2026-03-01 11:50:00", "carrier": "AA"}

CALLS: dict[str, Callable[[Any], Any]] = {
    "a string": lambda p: p.execute(f"SELECT '{HALF}' AS a FROM flights"),
    "a name in a statement": lambda p: p.execute(f'CREATE STREAM "a{HALF}" (v INTEGER)'),
    "a comment": lambda p: p.execute(f"SELECT carrier FROM flights -- {HALF}"),
    "ask": lambda p: p.ask(f"SELECT carrier FROM flights WHERE carrier = '{HALF}'"),
    "a query": lambda p: p.register(f"SELECT carrier FROM flights WHERE carrier = '{HALF}'"),
    "a query among many": lambda p: p.register_many([(f"SELECT '{HALF}' FROM flights", None, {})]),
    "its name": lambda p: p.register("SELECT carrier FROM flights", f"n{HALF}"),
    "its option's value": lambda p: p.register("SELECT carrier FROM flights", materialize=HALF),
    "its option's name": lambda p: p.register("SELECT carrier FROM flights", **{HALF: 1}),
    "explain": lambda p: p.explain(f"SELECT '{HALF}' AS a FROM flights"),
    "explain a name": lambda p: p.explain(HALF),
    "a level": lambda p: p.explain("q", HALF),
    "find": lambda p: p.query(HALF),
    "find a derived stream": lambda p: p.derived(HALF),
    "alter": lambda p: p.query("q").alter(materialize=HALF),
    "a cursor": lambda p: p.query("q").fetch(HALF),
    "an instant": lambda p: p.query("q").invoke(HALF),
    "push to": lambda p: p.ingest(HALF, [ROW]),
    "a key": lambda p: p.ingest("flights", [ROW], HALF),
    "a column": lambda p: p.ingest("flights", [ROW | {HALF: 1}]),
    "rows as text": lambda p: p.ingest_text("flights", f"ts,carrier\n2026-03-01,{HALF}", "csv"),
}


@pytest.mark.parametrize("name", CALLS)
def test_in_python_and_over_http(name: str, pond: Pond, http: httpx.Client) -> None:
    pond.execute("CREATE QUERY q AS SELECT carrier FROM flights")
    before = pond.status()["epoch"]
    for surface in (pond, connect("http://127.0.0.1", http=http)):
        with pytest.raises(MillpondError) as caught:
            CALLS[name](surface)
        assert caught.value.code.split("-")[0] in ("CQL", "POND", "DATA", "SERVE"), caught.value
        assert dumps(caught.value.to_json())
    assert pond.status()["epoch"] == before


def test_a_value_is_rejected_with_its_row(pond: Pond) -> None:
    receipt = pond.ingest("flights", [ROW, ROW | {"carrier": HALF}])
    assert (receipt.accepted, receipt.rejected) == (1, 1)
    lines = b'{"ts": "2026-03-01 11:50:00", "carrier": "\\ud83d"}\n'
    assert pond.ingest_text("flights", lines, "ndjson").rejected == 1


def test_the_place_is_shown(pond: Pond) -> None:
    with pytest.raises(MillpondError, match="CQL-102: the text is not Unicode") as caught:
        pond.execute(f"SHOW STREAMS;\nSELECT '{HALF}' AS a FROM flights")
    assert (caught.value.line, caught.value.column) == (2, 9)


def test_the_shell_goes_on(pond: Pond) -> None:
    out, err = io.StringIO(), io.StringIO()
    shell = Shell(pond, out, err)
    shell.feed(f"SELECT '{HALF}' AS a FROM flights;")
    shell.feed("SELECT count(*) AS n FROM flights;")
    assert shell.failed
    assert err.getvalue().startswith("CQL-102")
    assert "1 row" in out.getvalue()
