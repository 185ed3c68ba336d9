"""Every example runs, and prints what its `.out` file says.

Here they run on the in-process runtime; under the mark `spark` on Spark.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from on_spark import Printed, printed_on_spark

import millpond
from millpond.api import server
from millpond.cli.result_writers import TableWriter
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.cql"))
PROGRAMS = sorted(EXAMPLES.glob("[0-9]*.py"))

#: Programs that are about Spark itself.
NEED_SPARK = {"07_dataframe"}
#: Programs that open their store twice, each time on a Spark of Millpond's own.
OPEN_TWICE = {"01_standing_query"}
#: Programs that take the URL of a server.
NEED_SERVER = {"05_http"}
#: Programs that are run by themselves on Spark.
ALONE = NEED_SPARK | NEED_SERVER | OPEN_TWICE


def check(example: Path, printed: str) -> None:
    """What was printed is what the `.out` file says; `...` in it stands for anything in a line."""
    said = example.with_suffix(".out").read_text(encoding="utf-8").rstrip("\n").split("\n")
    lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    patterns = [re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in said]
    fits = [bool(re.fullmatch(p, x)) for p, x in zip(patterns, lines, strict=False)]
    assert len(said) == len(lines), printed
    assert all(fits), printed


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_script(script: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    out = io.StringIO()
    writer = TableWriter(out)
    with open_local(tmp_path / "store", bounded=True) as pond:
        for result in pond.run(script.read_text(encoding="utf-8")):
            writer.write(result)
    check(script, out.getvalue())


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.stem not in NEED_SPARK], ids=name_of)
def test_program(program: Path, tmp_path: Path, monkeypatch) -> None:
    if program.stem in NEED_SERVER:
        printed = run_with_a_server(program, tmp_path)
    else:
        ponds = iter(range(100))

        def open_without_spark(store: Any = None, **_: Any) -> Pond:
            return open_local(Path(store or tmp_path / f"pond-{next(ponds)}"))

        monkeypatch.setattr(millpond, "open", open_without_spark)
        printed = run(program, str(tmp_path / "store"))
    check(program, printed)


def run(program: Path, *arguments: str) -> str:
    """What a program prints, run in this process."""
    out = io.StringIO()
    given, sys.argv = sys.argv, [str(program), *arguments]
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv = given
    return out.getvalue()


def run_with_a_server(program: Path, directory: Path) -> str:
    """What a program prints that is given the URL of a server."""
    printed: list[str] = []

    def visit(url: str) -> None:
        # The server's loop is this thread's: whoever calls it is another.
        def call() -> None:
            try:
                printed.append(run(program, url))
            finally:
                signal.raise_signal(signal.SIGTERM)

        threading.Thread(target=call).start()

    with open_local(directory / "store") as pond:
        server.serve(pond, port=0, on_ready=visit)
    return "".join(printed)


@pytest.fixture(scope="module")
def on_spark() -> dict[str, Printed]:
    """What every example prints that does not start a Spark of its own."""
    wanted = [p for p in (*SCRIPTS, *PROGRAMS) if p.stem not in ALONE]
    return printed_on_spark({p.name: p.read_text(encoding="utf-8") for p in wanted}, ROOT)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("example", [*SCRIPTS, *PROGRAMS], ids=name_of)
def test_example_on_spark(example: Path, request: pytest.FixtureRequest) -> None:
    if example.stem not in ALONE:
        printed = request.getfixturevalue("on_spark")[example.name]
        assert printed.trace is None, printed.trace
        check(example, printed.text)
        return
    done = subprocess.run(
        [sys.executable, str(example.relative_to(ROOT))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    check(example, done.stdout)


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for example in (*SCRIPTS, *PROGRAMS):
        assert f"({example.name})" in listed
        assert example.with_suffix(".out").exists()
