"""Processes that Spark starts load the installed PySpark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from millpond.runtime.spark.jvm.worker_python import write_python

ARCHIVE = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")


def test_the_archive_is_not_on_the_path_and_all_else_is(tmp_path: Path) -> None:
    folder = tmp_path / "it's a [folder]"
    folder.mkdir()
    program = write_python(folder)
    code = "import json, sys; print(json.dumps([sys.argv[1:], sys.path, sys.prefix]))"
    path = os.pathsep.join([ARCHIVE, "/of/py4j", "/of the user"])
    said = subprocess.check_output([program, "-c", code, "a b"], env={"PYTHONPATH": path})
    arguments, places, prefix = json.loads(said)
    assert arguments == ["a b"]
    assert places[1:3] == ["/of/py4j", "/of the user"]
    assert ARCHIVE not in places
    assert prefix == sys.prefix


def test_where_nothing_may_be_run_it_is_python_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert write_python(tmp_path) == sys.executable
