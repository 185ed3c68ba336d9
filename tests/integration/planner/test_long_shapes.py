"""Statements near every limit of their size are answered or refused within seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.integration.planner.long_shapes import SHAPES

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

#: Of the processor's time; the slowest takes a third of it.
SECONDS = 15.0


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


@pytest.mark.parametrize(
    "shape",
    [s if s in ("CUBE", "ROLLUP") else pytest.param(s, marks=pytest.mark.slow) for s in SHAPES],
)
def test_a_long_statement_ends(pond: Pond, shape: str) -> None:
    began = time.process_time()
    code = find_error(pond, SHAPES[shape])
    assert time.process_time() - began < SECONDS
    assert code is None or code.startswith(("CQL-", "POND-"))
