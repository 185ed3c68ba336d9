"""A store that an earlier commit wrote, opened on Spark.

Spark continues from the checkpoint of the file source: it reads a new file once, and no old file
again. Workers load the functions from the store's folder. Rows of a DataFrame that the earlier
program gave are not read twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.trust_functions import trust_functions
from millpond.model.time import parse_instant
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import stored

pytestmark = pytest.mark.spark

NAME = "store_1"


def test_a_store_of_an_earlier_commit_goes_on(
    open_store: Callable[..., Pond],
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    stored.unpack(NAME, tmp_path)
    expected = stored.read_expected(NAME)
    clock = ManualClock(parse_instant(expected["clock"]))
    trust_functions(tmp_path / "store", [], True, None)
    pond = open_store("store", clock=clock)
    pond.wait_until_matched(stored.PATIENCE)
    opened = stored.seen(pond, expected["instants"])
    stored.compare(opened, expected["opened"])
    assert pond.status()["problems"] == []

    given_before = [(datetime.fromisoformat(at), *rest) for at, *rest in expected["frame"]["rows"]]
    pond.stream("fills", spark.createDataFrame(given_before, expected["frame"]["schema"]))
    called = {function["name"]: function["rows"] for function in pond.functions()}
    cursors = {name: page.get("cursor") for name, page in opened["changes"].items()}
    for step in expected["later"]["steps"]:
        stored.take(pond, clock, step)
        pond.wait_until_matched(stored.PATIENCE)
    stored.compare(
        stored.seen(pond, expected["later"]["instants"], cursors), expected["later"]["seen"]
    )
    for function in pond.functions():
        assert function["rows"] > called[function["name"]] or function["name"] == "unwilling"
