"""Ponds of one process share a session: the last one ends it, and takes the scratch files away."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.spark.jvm import shared_session
from millpond.runtime.spark.jvm.shared_session import (
    forget_session,
    is_left,
    join_session,
    leave_session,
    remove_scratch,
)


class Session:
    def __init__(self, context: object) -> None:
        self.sparkContext = context
        self.ended = 0

    def stop(self) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_session, "_used", [])
    monkeypatch.setattr(shared_session, "_left", [])


def begin() -> Any:
    return Session(SimpleNamespace())


def make(tmp_path: Path, name: str) -> Path:
    (tmp_path / name / "files").mkdir(parents=True)
    return tmp_path / name


def test_the_last_one_ends_the_session_and_removes_what_all_left(tmp_path: Path) -> None:
    session, first, second = begin(), make(tmp_path, "1"), make(tmp_path, "2")
    join_session(session)
    join_session(session)
    leave_session(session)
    remove_scratch(first)
    assert (session.ended, first.exists(), is_left(first)) == (0, True, True)
    leave_session(session)
    remove_scratch(second)
    assert session.ended == 1
    assert not any(path.exists() or is_left(path) for path in (first, second))


def test_a_session_that_nobody_joined_ends_at_once(tmp_path: Path) -> None:
    session, only = begin(), make(tmp_path, "1")
    leave_session(session)
    remove_scratch(only)
    assert session.ended == 1
    assert not only.exists()


def test_nobody_uses_a_session_whose_jvm_has_ended(tmp_path: Path) -> None:
    session, only = begin(), make(tmp_path, "1")
    join_session(session)
    join_session(session)
    forget_session(session)
    remove_scratch(only)
    assert not only.exists()


def test_a_session_that_is_started_anew_has_no_users_of_the_one_before() -> None:
    before, session = begin(), begin()
    join_session(before)
    join_session(before)
    join_session(session)
    leave_session(session)
    assert session.ended == 1
