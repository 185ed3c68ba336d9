"""Scripts and programs on one Spark session, in a process of their own; gives what each prints.

Starting a JVM takes longer than any of them, and `millpond.open` would end it after each.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Printed:
    """What a program printed, and the trace of the error it ended in."""

    text: str
    trace: str | None


def printed_on_spark(programs: dict[str, str], directory: Path) -> dict[str, Printed]:
    """Runs programs by name, in `directory`: CQL if the name ends in `.cql`, Python otherwise."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(programs),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: Printed(*found) for name, found in json.loads(done.stdout).items()}


def main() -> None:
    """The process: programs as JSON on stdin, what they print as JSON on stdout."""
    import millpond
    from millpond.runtime.spark.runtime import SparkRuntime
    from millpond.runtime.spark.session import start_session
    from millpond.service.pond import Pond

    # A program finds what lies beside it.
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session(Path(scratch), "local[2]", Path(scratch) / "spark.log")
        stores = (Path(scratch) / f"store-{n}" for n in range(1000))

        def open_on_session(store: Any = None, *, bounded: bool = False, **_: Any) -> Pond:
            directory = Path(store) if store is not None else next(stores)
            return Pond(directory, SparkRuntime(spark=spark), bounded=bounded)

        millpond.open = open_on_session
        found = {}
        for name, text in json.load(sys.stdin).items():
            out = io.StringIO()
            trace = None
            try:
                with contextlib.redirect_stdout(out):
                    if name.endswith(".cql"):
                        run_script(text)
                    else:
                        sys.argv = [name]
                        exec(compile(text, name, "exec"), {"__name__": "__main__"})
            except Exception:
                trace = traceback.format_exc()
            found[name] = (out.getvalue(), trace)
        spark.stop()
    json.dump(found, sys.stdout)


def run_script(text: str) -> None:
    """As `millpond run`."""
    import millpond
    from millpond.cli.result_writers import TableWriter

    writer = TableWriter(sys.stdout)
    with millpond.open(bounded=True) as pond:
        for result in pond.run(text):
            writer.write(result)


if __name__ == "__main__":
    main()
