"""The tests mirror the source: a module's own test is where the module is, with the same name."""

from __future__ import annotations

import ast
from pathlib import Path

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
    "state/test_shared_maps.py": "bucket_map and id_map keep one contract",
}
#: Modules of the service that decide something and have no test of their own, and why.
TESTED_ELSEWHERE = {
    "components.py": "it puts the parts together: every test that opens a pond does",
    "handles.py": "the handles are how all tests reach queries",
    "open_pond.py": "it opens a pond on Spark: tests/spark",
    "pond.py": "the facade, through which tests/surfaces and tests/integration go",
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


def module_of(test: str) -> Path:
    """The module that a test's place and name stand for."""
    path = SOURCE / test
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


def test_logic_is_seen() -> None:
    service = SOURCE / "service"
    assert holds_logic(service / "changes" / "retry.py")
    assert not holds_logic(service / "events.py")
