"""`millpond plan` exports, compares, adopts and takes back what the server's pond has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.cli.plan_documents import app
from millpond.errors import MillpondError
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING) TIMESTAMP BY ts")
        pond.execute("CREATE QUERY q AS SELECT DISTINCT k FROM s [RANGE 1 HOUR]")
        pond.query("q").fetch()

        @contextmanager
        def connect(url: str, token: str | None) -> Iterator[Any]:
            assert (url, token) == ("http://pond:1", "s3cret")
            yield pond

        monkeypatch.setattr("millpond.api.client.connect", connect)

        def run(*words: str, given: str | None = None) -> Any:
            reach = ["--url", "http://pond:1", "--token", "s3cret"]
            done = CliRunner().invoke(app, [*words, *reach], input=given)
            if done.exception is not None:
                raise done.exception
            return json.loads(done.stdout)

        yield run


def test_a_plan_is_exported_adopted_and_taken_back(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    document = call("export", "q")
    assert list(document["queries"]) == ["q"]
    assert call("export")["operators"] == document["operators"]
    distinct = next(o for o in document["operators"].values() if o["name"] == "distinct")
    distinct["synopsis"] = next(s for s in distinct["synopses"] if s != distinct["synopsis"])
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    compared = call("compare", str(file))
    assert [one["field"] for one in compared["operators"]] == ["synopsis"]
    assert call("adopted") == []
    base = compared.pop("base")
    adopted = call("adopt", "-", "--base", base, given=json.dumps(document))
    assert adopted == {"number": 1, **compared}
    assert [one["number"] for one in call("adopted")] == [1]
    with pytest.raises(MillpondError, match="CQL-214"):
        call("undo", "2")
    assert call("undo", "1")["number"] == 1


@pytest.mark.parametrize("text", [None, "{", "[]"], ids=["missing", "cut", "list"])
def test_a_file_without_a_plan_is_refused(
    call: Callable[..., Any], tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(MillpondError, match="CQL-214"):
        call("adopt", str(file))
