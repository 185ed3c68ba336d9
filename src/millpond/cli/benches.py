"""`millpond bench`: finds a benchmark of the source tree and runs it."""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import millpond
from millpond.errors import MillpondError


def benches() -> dict[str, Path]:
    """The benchmarks by name: of the directory one is in, or of the tree Millpond runs from."""
    package = millpond.__file__
    trees = [Path.cwd(), *([Path(package).resolve().parents[2]] if package else [])]
    for tree in trees:
        home = tree / "benchmarks"
        places = ("", "papers/", "pressure/")
        paths = [path for place in places for path in home.glob(f"{place}[!_]*.py")]
        found = {path.stem: path for path in sorted(paths)}
        if found:
            return found
    return {}


def submit_arguments(conf: Mapping[str, str]) -> str:
    """Settings as PySpark takes them from the environment, for every JVM that it starts.

    >>> submit_arguments({"spark.a": "b c"})
    "--conf 'spark.a=b c' pyspark-shell"

    Raises:
        MillpondError: CQL-214, one is not Spark's, or is fixed.
    """
    from millpond.runtime.spark.jvm.given_settings import check_conf

    given = [f"--conf {shlex.quote(f'{k}={v}')}" for k, v in check_conf(conf).items()]
    return " ".join([*given, "pyspark-shell"])


def run_bench(
    name: str, arguments: Sequence[str], spark_conf: Mapping[str, str] | None = None
) -> None:
    """Runs a benchmark as a script with its own arguments, and settings for each Spark it starts.

    Raises:
        MillpondError: SERVE-704, there is none of that name; CQL-214, a setting cannot be given.
    """
    found = benches()
    path = found.get(name.replace("-", "_"))
    if path is None:
        hint = (
            f"There are: {', '.join(found)}."
            if found
            else ("Benchmarks are part of the source tree; run this from its directory.")
        )
        raise MillpondError("SERVE-704", f'no benchmark is called "{name}"', hint=hint)
    if spark_conf:
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(spark_conf)
    sys.argv = [str(path), *arguments]
    home = next(folder for folder in path.parents if folder.name == "benchmarks")
    sys.path[:0] = [str(home), str(home.parent)]  # some use tools of the tests
    runpy.run_path(str(path), run_name="__main__")
