"""The tests mirror the source: a module's own test is where the module is, with the same name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
UNIT = ROOT / "tests" / "unit"
TESTS = sorted(str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py"))

#: Tests that have the name of no module, and why.
NAMED_OTHERWISE = {
    "operators/test_conformance.py": "it tests every operator that the folder holds",
    "state/test_epoch_log_model.py": "it tests the epoch log a second time, against a model",
    "state/test_shared_maps.py": "bucket_map and id_map keep one contract",
}


def module_of(test: str) -> Path:
    """The module that a test's place and name stand for."""
    path = SOURCE / test
    return path.with_name(path.name.removeprefix("test_"))


def test_a_unit_test_is_where_its_module_is() -> None:
    lost = [test for test in TESTS if not module_of(test).exists()]
    assert sorted(lost) == sorted(NAMED_OTHERWISE)
