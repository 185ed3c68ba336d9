"""Ponds of one process share a session: the last one ends it, and takes the scratch files away."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark.jvm import shared_session
from millpond.runtime.spark.jvm.shared_session import (
    find_running,
    forget_session,
    is_left,
    is_own,
    join_session,
    leave_session,
    remove_later,
    remove_scratch,
    start_session_of,
)


class Session:
    def __init__(self, **conf: str) -> None:
        self.sparkContext = SimpleNamespace(getConf=lambda: conf)
        self.ended = 0

    def stop(self) -> None:
        self.ended += 1
        if self.ended > 1:
            raise ConnectionError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_session, "_used", [])
    monkeypatch.setattr(shared_session, "_left", [])


def begin() -> Any:
    session: Any = Session()
    return start_session_of(lambda: session)


def make(tmp_path: Path, name: str) -> Path:
    (tmp_path / name / "files").mkdir(parents=True)
    return tmp_path / name


def test_the_last_one_ends_the_session_and_removes_what_all_left(tmp_path: Path) -> None:
    first, second = make(tmp_path, "1"), make(tmp_path, "2")
    session = begin()
    join_session(session)
    leave_session(session)
    remove_scratch(first)
    assert (session.ended, first.exists(), is_left(first), is_own(session)) == (0, True, True, True)
    leave_session(session)
    remove_scratch(second)
    assert session.ended == 1
    assert not any(path.exists() or is_left(path) for path in (first, second))


def test_a_session_of_somebody_else_goes_on(tmp_path: Path) -> None:
    session: Any = Session()
    only, of_own = make(tmp_path, "1"), make(tmp_path, "2")
    remove_later(of_own)
    join_session(session)
    leave_session(session)
    remove_scratch(only)
    forget_session(session)
    assert session.ended == 0
    assert not is_own(session)
    assert not only.exists()
    assert is_left(of_own)
    assert of_own.exists()


def test_nobody_uses_a_session_whose_jvm_has_ended(tmp_path: Path) -> None:
    first, second = make(tmp_path, "1"), make(tmp_path, "2")
    session = begin()
    join_session(session)
    remove_later(first)
    forget_session(session)
    remove_scratch(second)
    assert not first.exists()
    assert not second.exists()


def test_a_session_that_cannot_be_ended_is_left_all_the_same(tmp_path: Path) -> None:
    session, only = begin(), make(tmp_path, "1")
    session.ended = 1
    remove_later(only)
    with pytest.raises(ConnectionError):
        leave_session(session)
    assert not only.exists()
    leave_session(session)


def test_a_session_that_is_started_anew_has_no_users_of_the_one_before() -> None:
    before = begin()
    join_session(before)
    session = begin()
    leave_session(session)
    assert session.ended == 1


def test_what_runs_is_found_with_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(**{"spark.master": "local[2]", "spark.a": "secret"})
    monkeypatch.setattr(
        shared_session,
        "SparkContext",
        SimpleNamespace(_active_spark_context=session.sparkContext, _gateway=None),
    )
    builder = SimpleNamespace(getOrCreate=lambda: session)
    monkeypatch.setattr(shared_session, "SparkSession", SimpleNamespace(builder=builder))
    for master in None, "local[2]":
        assert find_running(master, {}) is session
        assert find_running(master, {"spark.a": "secret"}) is session
    for master, conf in ("local[1]", {}), (None, {"spark.a": "b"}), (None, {"spark.b": ""}):
        with pytest.raises(MillpondError, match="Spark runs in this process already") as refused:
            find_running(master, conf)
        assert refused.value.code == "CQL-214"
        assert "secret" not in refused.value.render()
    for end, found in (None, session), (9, None):
        process = SimpleNamespace(poll=lambda end=end: end)
        gateway = SimpleNamespace(proc=process)
        monkeypatch.setattr(shared_session.SparkContext, "_gateway", gateway)
        assert find_running(None, {}) is found
    monkeypatch.setattr(shared_session.SparkContext, "_gateway", None)
    monkeypatch.setattr(shared_session.SparkContext, "_active_spark_context", None)
    assert find_running("local[1]", {"spark.b": ""}) is None
