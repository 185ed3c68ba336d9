"""Statements near every limit of their size are answered, refused or ended within seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.planner.long_shapes import SHAPES
from tests.waiting import measure_least

from millpond.engine.scalars.residual_query import Limits
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime, open_local
from millpond.work import limit_work

#: Of the processor's time; the slowest takes a third of it.
SECONDS = 15.0
#: What a statement may take beyond its deadline, of the processor's time; the whole of each quick
#: one takes more.
MORE = 0.9


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with open_local(tmp_path_factory.mktemp("shapes") / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT, t STRING)")
        yield pond


def find_error(pond: Pond, cql: str) -> str | None:
    """The code of the error a query is refused with; None if it is answered."""
    try:
        pond.ask(cql)
    except MillpondError as error:
        return error.code
    return None


def each(*quick: str) -> list[object]:
    """Every shape; those that are not quick are for `make slow`."""
    return [s if s in quick else pytest.param(s, marks=pytest.mark.slow) for s in SHAPES]


@pytest.mark.parametrize("shape", each("CUBE", "ROLLUP"))
def test_a_long_statement_ends(pond: Pond, shape: str) -> None:
    began = time.process_time()
    code = find_error(pond, SHAPES[shape])
    assert time.process_time() - began < SECONDS
    assert code is None or code.startswith(("CQL-", "POND-"))


@pytest.mark.parametrize("shape", each("sums", "GROUP BY", "a wrong conjunct over a join"))
@pytest.mark.parametrize("seconds", [0.1, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_long_statement_ends_at_its_deadline(pond: Pond, shape: str, seconds: float) -> None:
    codes = []

    def ask(attempt: int) -> None:
        with limit_work(seconds):
            codes.append(find_error(pond, f"{SHAPES[shape]} -- {attempt}"))

    assert measure_least(ask, seconds + MORE) < seconds + MORE
    assert all(code is None or code.startswith(("CQL-", "POND-")) for code in codes)


def test_no_statement_of_a_program_takes_longer_than_the_pond_allows(tmp_path: Path) -> None:
    runtime = LocalRuntime()
    query = f"SELECT n FROM s WHERE {' AND '.join(f'(n = {k} OR n < 0)' for k in range(700))}"
    with Pond(tmp_path / "store", runtime, ceilings=Limits(seconds=0.05)) as pond:
        with limit_work(60.0):  # a request's limit counts instead
            pond.execute("CREATE STREAM s (n BIGINT, t STRING)")
        for call in (
            lambda: pond.execute(query),
            lambda: pond.execute(f"CREATE QUERY long AS {query}"),
            lambda: pond.execute(f"EXPLAIN {query}"),
            lambda: pond.ask(query),
            lambda: pond.register(query),
            lambda: pond.explain(query),
        ):
            with pytest.raises(MillpondError, match="POND-405"):
                call()
        assert pond.queries() == []


def test_the_end_of_a_request_suspends_no_query(tmp_path: Path) -> None:
    query = f"SELECT n FROM s WHERE {' AND '.join(f'(n = {k} OR n < 0)' for k in range(700))}"
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT, t STRING)")
        pond.register(query, name="long")
    with open_local(tmp_path / "store") as pond:  # binds it again at its first use
        with pytest.raises(MillpondError, match="POND-405"), limit_work(0.01):
            pond.query("long").invoke()
        assert pond.query("long").definition.suspended is None
        assert pond.query("long").invoke().rows() == []
