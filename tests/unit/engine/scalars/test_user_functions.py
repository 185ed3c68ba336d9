"""User functions as a worker meets them: found in a folder, guarded, measured."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import duckdb
import pyarrow as pa
import pytest

from millpond.catalog.objects import FunctionDef
from millpond.engine.scalars.evaluator import ScalarEvaluator, truth
from millpond.engine.scalars.user_functions import (
    Functions,
    Usage,
    fault_of,
    functions,
    is_fault,
    name_content,
    save,
)
from millpond.model.function_names import name_inside


def definition(name: str, code: bytes, seconds: float = 5.0) -> FunctionDef:
    unnamed = FunctionDef(1, name, "", ("BIGINT",), "BIGINT", None, seconds, code)
    return replace(unnamed, inside=name_content(unnamed))


def pickled(function: Any) -> bytes:
    return bytes(cloudpickle.dumps(function))


TABLE = pa.table({"v": pa.array(range(5000), pa.int64())})


def test_a_worker_finds_a_function_in_its_folder(tmp_path: Path) -> None:
    known = definition("found", pickled(lambda x: x))
    save(known, tmp_path / "functions")
    functions.look_in(tmp_path / "functions", lambda file: False)
    functions.take_usage()
    (result,) = ScalarEvaluator().evaluate(TABLE, [f'{known.inside}("v") > 4990'])
    assert not isinstance(result, duckdb.Error)
    assert truth(result).sum() == 9
    usage = functions.take_usage()[known.inside]
    assert (usage.calls, usage.rows) == (3, 5000), "DuckDB's vectors of 2,048 rows"
    assert known.inside not in functions.usage()


def test_code_that_cannot_be_loaded_is_a_fault() -> None:
    broken = definition("broken", b"no pickle")
    functions.add(broken)
    (result,) = ScalarEvaluator().evaluate(TABLE, [f'{broken.inside}("v") > 1'])
    assert isinstance(result, duckdb.Error)
    fault = fault_of(result)
    assert fault is not None
    assert is_fault(fault)
    assert fault.startswith('function "broken" cannot be loaded here: ')


def test_a_name_nobody_knows_fails_alone() -> None:
    unknown = name_inside("unknown", [b"?"])
    evaluator = ScalarEvaluator()
    bad, good = evaluator.evaluate(TABLE, [f'{unknown}("v") > 1', '"v" > 1'])
    assert isinstance(bad, duckdb.Error)
    assert fault_of(bad) is None
    assert not isinstance(good, duckdb.Error)


def test_what_hangs_is_left_behind_and_rests() -> None:
    held = threading.Event()
    hanging = definition("hanging", b"replaced below", 0.05)
    known = Functions()
    known.add(hanging)
    guarded = known.find(hanging.inside)
    assert guarded is not None
    guarded._function = lambda x: held.wait(60) and x
    with pytest.raises(Exception, match=r"took longer than 0.05 seconds"):
        guarded(TABLE["v"])
    guarded._function = lambda x: x
    with pytest.raises(Exception, match=r"took longer"):
        guarded(TABLE["v"])  # at once: it rests
    guarded._rests_until = 0.0
    assert len(guarded(TABLE["v"])) == 5000
    held.set()
    assert known.usage()[hanging.inside].calls == 2


def test_usage_of_workers_is_added() -> None:
    known = Functions()
    known.report({"f": Usage(1, 10, 0.5)})
    known.report({"f": Usage(2, 5, 0.25)})
    assert known.usage() == {"f": Usage(3, 15, 0.75)}
    assert Usage(3, 15, 0.75).minus(Usage(1, 10, 0.5)) == Usage(2, 5, 0.25)
