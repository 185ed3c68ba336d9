"""The tests mirror the source: a module's own test is where the module is, with the same name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
UNIT = ROOT / "tests" / "unit"
TESTS = sorted(str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py"))

#: Tests that have the name of no module, and why.
NAMED_OTHERWISE = {
    "state/test_check_and_repair.py": "checking and repairing, of which each step is a module",
    "state/test_journal.py": "the journal as a whole, of which each part is a module",
    "state/test_migrations.py": "what every migration has to keep",
    "operators/test_conformance.py": "it tests every operator that the folder holds",
    "state/test_epoch_log_model.py": "it tests the epoch log a second time, against a model",
    "state/shared/test_shared_log_model.py": "it tests the shared log a second time, by a model",
    "state/test_shared_maps.py": "bucket_map and id_map keep one contract",
}
#: Modules of the service that decide something and have no test of their own, and why.
TESTED_ELSEWHERE = {
    "components.py": "it puts the parts together: every test that opens a pond does",
    "handles.py": "the handles are how all tests reach queries",
    "open_pond.py": "it opens a pond on Spark: tests/spark",
}
#: What decides something, or goes through several things.
LOGIC = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.Match,
    ast.Try,
    ast.BoolOp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
#: Modules with so many decisions need a test that names them.
MANY = 12
#: At most so many of them are tested through others alone.
MOST_UNNAMED = 40
#: Folders and modules that no test names, and the test that goes through them as a whole. A new
#: module of many decisions gets a test of its own, unless one of these already reaches it.
TESTED_THROUGH = {
    "api/document.py": "surfaces/over_http/test_openapi.py",
    "api/connections.py": "surfaces/over_http/test_http_transport.py",
    "api/rights/guarded_pond.py": "surfaces/over_http/test_http_roles.py",
    "api/routers": "surfaces/over_http/test_openapi.py",  # every call, with what fits and does not
    "cli/backup_and_restore.py": "surfaces/command_line/test_cli.py",
    "cli/check_and_repair.py": "surfaces/command_line/test_cli.py",
    "engine/matching": "unit/engine/matching/test_match.py",
    "engine/predicates": "unit/engine/predicates/test_factors.py",
    "engine/promising": "unit/service/changes/test_looks.py",
    "operators": "unit/operators/test_conformance.py",  # every operator against the oracle
    "planner/lumped": "unit/planner/lumped/test_lumped_query.py",
    "planner/dataflow": "unit/operators/test_conformance.py",
    "planner/optimize": "unit/planner/optimize/test_strategies.py",
    "runtime/spark": "spark/test_file_sources.py",
    "state/database": "unit/state/test_epoch_log_model.py",  # opened again after any changes
    "synopses/counted_tree.py": "unit/synopses/test_ordered_multiset.py",
}

#: Modules that nothing imports, because they are programs of their own, and who starts them.
PROGRAMS = {
    "engine/scalars/confined_process.py": "confined/processes.py starts it",
}


def module_of(test: str) -> Path:
    """The module that a test's place and name stand for, in Millpond or beside the tests."""
    beside = test.split("/")[0] in ("oracle", "tools")
    path = (UNIT.parent if beside else SOURCE) / test
    return path.with_name(path.name.removeprefix("test_"))


def holds_logic(module: Path) -> bool:
    """Whether a function of a module decides something, or goes through several things."""
    functions = (
        node
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(isinstance(part, LOGIC) for one in functions for part in ast.walk(one))


def test_a_unit_test_is_where_its_module_is() -> None:
    lost = [test for test in TESTS if not module_of(test).exists()]
    assert sorted(lost) == sorted(NAMED_OTHERWISE)


def test_every_component_of_the_service_has_a_test_of_its_own() -> None:
    service = SOURCE / "service"
    tested = {module_of(test) for test in TESTS}
    untested = [
        str(module.relative_to(service))
        for module in service.rglob("*.py")
        if module not in tested and holds_logic(module)
    ]
    assert sorted(untested) == sorted(TESTED_ELSEWHERE)


@cache
def imports_of(file: Path) -> set[Path]:
    """The modules of Millpond that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    places = (SOURCE.parent.joinpath(*name.split(".")) for name in names)
    found = (p.with_suffix(".py") if not p.is_dir() else p / "__init__.py" for p in places)
    return {place for place in found if SOURCE in place.parents and place.exists()}


def count_decisions(module: Path) -> int:
    """How often a module's functions decide something, or go through several things."""
    tree = ast.parse(module.read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return sum(
        isinstance(part, LOGIC)
        for one in ast.walk(tree)
        if isinstance(one, kinds)
        for part in ast.walk(one)
    )


def place_through(module: Path) -> str | None:
    """The entry of `TESTED_THROUGH` for a module: its own, or that of a folder it is in."""
    below = [module, *module.relative_to(SOURCE).parents]
    names = [str(module.relative_to(SOURCE)), *map(str, below[1:])]
    return next((name for name in names if name in TESTED_THROUGH), None)


@cache
def find_unnamed() -> list[Path]:
    """Modules of many decisions that no test names, in their mirror or elsewhere."""
    named = {module_of(test) for test in TESTS}
    for test in UNIT.parent.rglob("*.py"):
        named |= imports_of(test)
    modules = sorted(SOURCE.rglob("*.py"))
    return [m for m in modules if m not in named and count_decisions(m) >= MANY]


def test_many_decisions_have_a_test_that_names_them_or_goes_through_them() -> None:
    unnamed = find_unnamed()
    lost = [str(m.relative_to(SOURCE)) for m in unnamed if place_through(m) is None]
    assert lost == list(PROGRAMS)
    assert {place_through(m) for m in unnamed} - {None} == TESTED_THROUGH.keys()
    assert len(unnamed) <= MOST_UNNAMED


@pytest.mark.parametrize("place", TESTED_THROUGH)
def test_a_test_reaches_what_it_goes_through(place: str) -> None:
    test = UNIT.parent / TESTED_THROUGH[place]
    reached: set[Path] = set()
    shared = (folder / "conftest.py" for folder in test.parents if UNIT.parent in folder.parents)
    waiting = {test, *(file for file in shared if file.exists())}
    while waiting:
        file = waiting.pop()
        fresh = imports_of(file) - reached
        reached |= fresh
        waiting |= fresh
    through = [m for m in find_unnamed() if place_through(m) == place]
    assert [str(m.relative_to(SOURCE)) for m in through if m not in reached] == []


def test_logic_is_seen() -> None:
    service = SOURCE / "service"
    assert holds_logic(service / "changes" / "retry.py")
    assert not holds_logic(service / "queries" / "current_names.py")
