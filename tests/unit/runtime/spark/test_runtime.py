"""The first look at a source ends, however many files there are."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.catalog.objects import FileHistory, RelationDef, SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.spark import runtime as runtimes
from millpond.runtime.spark.runtime import SparkRuntime


@pytest.fixture
def runtime() -> SparkRuntime:
    made = SparkRuntime()
    machine: Any = SimpleNamespace(using=nullcontext, session=None)
    made._machine = machine
    made._is_warm.set()
    return made


@pytest.fixture
def relation(tmp_path: Path) -> RelationDef:
    schema = Schema((Field("n", "BIGINT"),))
    return RelationDef(1, "r", schema, source=SourceDef("csv", {"path": str(tmp_path)}))


def test_a_look_that_takes_too_long(
    runtime: SparkRuntime, relation: RelationDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(runtimes, "_PROBE_SECONDS", 0.05)
    monkeypatch.setattr(runtimes.sources, "look_first", lambda *_: over.wait(60))
    try:
        with pytest.raises(MillpondError, match="DATA-502") as raised:
            runtime.check_source(relation)
    finally:
        over.set()
    assert raised.value.primary == 'the source of "r" could not be looked through in time'
    assert "too many files, or this machine has too much else to do" in str(raised.value.detail)
    assert "Nothing was created" in str(raised.value.hint)


def test_a_history_may_be_looked_at_for_longer(
    runtime: SparkRuntime, relation: RelationDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its files are listed, and a million of them are not listed in a minute everywhere."""
    assert relation.source is not None
    history = FileHistory(relation.source)
    stream = StreamDef(2, "s", relation.schema, history=history)
    monkeypatch.setattr(runtimes, "_PROBE_SECONDS", 0.05)
    looked: list[str] = []

    def look(_: object, definition: StreamDef) -> None:
        time.sleep(0.2)
        looked.append(definition.name)

    monkeypatch.setattr(runtimes.sources, "look_first", look)
    runtime.check_source(stream)
    assert looked == ["s"]


def test_a_look_that_fails(
    runtime: SparkRuntime, relation: RelationDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("it is not CSV")

    monkeypatch.setattr(runtimes.sources, "look_first", fail)
    with pytest.raises(MillpondError, match="it is not CSV"):
        runtime.check_source(relation)


def test_a_look_begins_when_the_jvm_has_warmed_up(
    runtime: SparkRuntime, relation: RelationDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a JVM takes to begin at all is no time of the look's."""
    warm = runtime._is_warm
    warm.clear()
    monkeypatch.setattr(runtimes, "_PROBE_SECONDS", 10.0)
    found: list[bool] = []
    monkeypatch.setattr(runtimes.sources, "look_first", lambda *_: found.append(warm.is_set()))
    waker = threading.Timer(0.2, warm.set)
    waker.start()
    runtime.check_source(relation)
    waker.join()
    assert found == [True]


def test_a_job_runs_again_for_each_file_that_was_put_back(
    runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine failed over files that the driver has whole; one that nobody has is said."""
    damaged, asked = ["segments/1.arrow", "matches/2.arrow"], []

    def collect() -> list[str]:
        if damaged:
            raise MillpondError("STORE-602", f'the file "/pond/{damaged[0]}" of the store is')
        return ["done"]

    def put_back(error: MillpondError) -> bool:
        asked.append(error.primary)
        return damaged.pop(0) != "runs/nobodys.arrow"

    runtime._pipeline = SimpleNamespace(put_back=put_back)  # type: ignore[assignment]
    monkeypatch.setattr(runtime, "_master", "spark://head:7077")
    assert runtime._collect(collect) == ["done"]
    assert len(asked) == 2
    damaged[:] = ["segments/1.arrow", "runs/nobodys.arrow", "matches/2.arrow"]
    with pytest.raises(MillpondError, match="nobodys"):
        runtime._collect(collect)
    monkeypatch.setattr(runtime, "_master", "local[*]")
    with pytest.raises(MillpondError, match="matches/2"):
        runtime._collect(collect)
    assert len(asked) == 4, "on one machine there is no other copy"
