"""Every golden, run every way, against the in-process runtime and against the oracle alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.oracle.oracle_pond import OracleStore
from tests.tools.golden import MakePond, run_golden
from tests.tools.golden_file import RunStatement, read_golden
from tests.tools.golden_ways import AS_WRITTEN, VARIATIONS, Variation, variations

HERE = Path(__file__).parent
GOLDENS = sorted(HERE.rglob("*.cqt"))


def name_of(path: Path) -> str:
    return str(path.relative_to(HERE).with_suffix(""))


@pytest.mark.parametrize("path", GOLDENS, ids=name_of)
def test_golden_says_what_the_definition_says(path: Path) -> None:
    for variation in (AS_WRITTEN, Variation(cut=1, order="data first", shuffled=True)):
        run_golden(path, OracleStore(), variation)


_LOOKS = (["SHOW"], ["DESCRIBE"], ["EXPLAIN"])


def runs() -> Iterator[object]:
    """Every golden in every variation: one of them, in turn, in the core suite, the others slow.

    What SHOW, DESCRIBE and EXPLAIN say is compared where it runs as written, which is core then.
    """
    for number, path in enumerate(GOLDENS):
        steps = read_golden(path).steps
        looks = any(isinstance(step, RunStatement) and step.words[:1] in _LOOKS for step in steps)
        for place, variation in enumerate(VARIATIONS):
            core = place == number % len(VARIATIONS) or (looks and variation == AS_WRITTEN)
            marks = () if core else (pytest.mark.slow,)
            yield pytest.param(path, variation, id=f"{name_of(path)}, {variation}", marks=marks)


@pytest.mark.parametrize(("path", "variation"), list(runs()))
def test_golden(path: Path, variation: Variation, make_pond: MakePond) -> None:
    run_golden(path, make_pond, variation)


@pytest.mark.slow
@pytest.mark.parametrize("path", GOLDENS, ids=name_of)
def test_golden_in_every_way(path: Path, stores: Callable[[str], MakePond]) -> None:
    """All 72 combinations with MILLPOND_EXHAUSTIVE=1; otherwise six a golden, other ones each."""
    ways = list(enumerate(variations(every=True)))
    if not os.environ.get("MILLPOND_EXHAUSTIVE"):
        ways = ways[GOLDENS.index(path) % 12 :: 12]
    for number, variation in ways:
        run_golden(path, stores(f"store-{number}"), variation)


def test_goldens_have_distinct_behaviours() -> None:
    behaviours = [read_golden(path).behaviour for path in GOLDENS]
    assert len(set(behaviours)) == len(GOLDENS)
