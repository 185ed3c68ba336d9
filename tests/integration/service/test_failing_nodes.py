"""Whatever one query's node raises stops the queries that have the node, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.operators.project import Project
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.settings import ChangeSettings
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


class Panic(BaseException):
    """What extensions in other languages raise: no Exception."""


RAISED: list[BaseException] = [
    ValueError("odd"),
    IndexError("Index 3 out of bounds"),
    KeyError("k"),
    MemoryError(),
    RecursionError("too deep"),
    OSError(5, "Input/output error"),
    pa.ArrowInvalid("overflow"),
    AssertionError(),
    StopIteration(),
    SystemExit(3),
    GeneratorExit(),
    Panic("panicked"),
]
FROM_BEGINNING = "CREATE QUERY {} WITH (changes = 'from beginning') AS {}"
BAD = "SELECT v + 1000 AS x FROM s [RANGE 5 SECONDS]"
BAD_TOO = "SELECT max(x) AS most FROM (SELECT v + 1000 AS x FROM s [RANGE 5 SECONDS]) t"
GOOD = "SELECT v + 1 AS x FROM s [RANGE 5 SECONDS]"
GROUPED = "SELECT k, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k"


def name_of(error: BaseException) -> str:
    return type(error).__name__


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        yield pond


def push(pond: Pond, *seconds: int) -> None:
    pond.ingest("s", [{"ts": f"1970-01-01 00:00:{t:02}", "k": "a", "v": t} for t in seconds])
    pond.catch_up()


def register(pond: Pond, **queries: str) -> None:
    for name, query in queries.items():
        pond.execute(FROM_BEGINNING.format(name, query))


def values(pond: Pond, name: str) -> list[tuple[Any, ...]]:
    return [row[2:] for row in pond.query(name).fetch().rows()]


class FailingOperator:
    """Raises an error in the step in which it is given its second row or a later one."""

    def __init__(self, inner: Any, error: BaseException) -> None:
        self._inner, self._error, self._rows = inner, error, 0
        self.needed = None

    def advance(self, inputs: Any, upto: int, scalars: Any) -> Any:
        self._rows += sum(len(delta) for delta in inputs)
        if self._rows > 1:
            raise self._error
        return self._inner.advance(inputs, upto, scalars)

    def size(self) -> int:
        return 0


def fail_operators(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any], mark: str = "1000"
) -> None:
    """Have the projections that speak of a mark made by a function of the right operator."""
    right = Project.operator

    def operator(node: Any) -> Any:
        return make(right(node)) if mark in repr(node.identity) else right(node)

    monkeypatch.setattr(Project, "operator", operator)


@pytest.mark.parametrize("error", RAISED, ids=name_of)
def test_what_a_step_raises(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    fail_operators(monkeypatch, lambda inner: FailingOperator(inner, error))
    register(pond, good=GOOD, bad=BAD, bad_too=BAD_TOO, grouped=GROUPED)
    push(pond, 1, 2)
    for name in ("good", "bad", "bad_too", "grouped"):
        values(pond, name)
    push(pond, 3, 4)
    assert_only_bad_ones_stopped(pond, error)
    assert values(pond, "good") == [("+", 2), ("+", 3), ("+", 4)]


@pytest.mark.parametrize("error", RAISED[:4], ids=name_of)
def test_what_making_an_operator_raises(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def raises(inner: Any) -> Any:
        raise error

    fail_operators(monkeypatch, raises)
    register(pond, good=GOOD, bad=BAD, bad_too=BAD_TOO, grouped=GROUPED)
    push(pond, 1, 2, 3, 4)
    for name in ("good", "grouped"):
        values(pond, name)
    assert_only_bad_ones_stopped(pond, error)


@pytest.mark.parametrize("error", RAISED[:4], ids=name_of)
def test_what_a_replay_raises_for_a_reader_who_comes_later(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The dataflow of the others is kept; the late query's part of it is made from history."""
    fail_operators(monkeypatch, lambda inner: FailingOperator(inner, error))
    register(pond, good=GOOD, grouped=GROUPED)
    push(pond, 1, 2, 3)
    for name in ("good", "grouped"):
        values(pond, name)
    pond.execute(f"CREATE QUERY bad AS {BAD}")
    pond.execute(f"CREATE QUERY bad_too AS {BAD_TOO}")
    push(pond, 4)
    assert_only_bad_ones_stopped(pond, error)
    push(pond, 5)
    assert values(pond, "good") == [("+", 2), ("+", 3), ("+", 4), ("+", 5)]


def test_what_planning_raises(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    register(pond, good=GOOD, bad=BAD, bad_too=BAD_TOO, grouped=GROUPED)
    push(pond, 1, 2)
    for name in ("good", "bad", "bad_too", "grouped"):
        values(pond, name)
    right = Derivations._make

    def make(self: Any, version: Any, stream: Any) -> Any:
        if "1000" in stream.derived.text:
            raise ValueError("odd")
        return right(self, version, stream)

    monkeypatch.setattr(Derivations, "_make", make)
    pond._components.set_change_settings(ChangeSettings())
    push(pond, 3, 4)
    assert_only_bad_ones_stopped(pond, ValueError("odd"))


@pytest.mark.parametrize("error", RAISED, ids=name_of)
def test_what_a_user_function_raises(pond: Pond, error: BaseException) -> None:
    def odd(values: pa.Array) -> pa.Array:
        if len(values) and max(values.to_pylist()) > 2:
            raise error
        return values

    pond.function("odd", odd, arguments=["BIGINT"], returns="BIGINT")
    bad_too = "SELECT max(x) AS most FROM (SELECT odd(v) AS x FROM s [RANGE 5 SECONDS]) t"
    register(pond, good=GOOD, grouped=GROUPED, bad_too=bad_too)
    register(pond, bad="SELECT odd(v) AS x FROM s [RANGE 5 SECONDS]")
    push(pond, 1, 2)
    for name in ("good", "bad", "bad_too", "grouped"):
        values(pond, name)
    push(pond, 3, 4)
    assert_only_bad_ones_stopped(pond, error)


def assert_only_bad_ones_stopped(pond: Pond, error: BaseException) -> None:
    for name in ("bad", "bad_too"):
        with pytest.raises(MillpondError) as caught:
            pond.query(name).fetch()
        said = caught.value.render()
        assert type(error).__name__ in said or str(error) in said
    for name in ("good", "grouped"):
        assert len(values(pond, name)) >= 3
