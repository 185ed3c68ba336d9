"""`millpond run`: reads a script, runs its statements and prints their answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer

from millpond.cli.interpreter import collecting_nothing
from millpond.cli.output_format import Format
from millpond.cli.progress_bars import ReadingProgress
from millpond.cli.result_writers import writer
from millpond.cql import parse_script
from millpond.errors import MillpondError


def run_script(
    file: str,
    store: Path | None,
    format: Format,
    master: str | None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    spark_conf: Mapping[str, str] | None = None,
) -> None:
    """Runs a script, printing each answer as it is given; `settings` are the engine's.

    The grammar of the whole script is checked before Spark is started. Spark starts behind: the JVM
    comes up while the rest of Millpond is loaded, and statements that need no Spark do not wait.

    Raises:
        typer.Exit: with status 1, after the error has been printed with its line and column.
    """
    from millpond.cli.complaints import complain

    source = "stdin" if file == "-" else file
    try:
        text = read_script(file)
        statements = parse_script(text)

        with collecting_nothing():
            from millpond.runtime.spark.session import launch_ahead

            reads = store is not None or any(getattr(s, "source", None) for s in statements)
            launch = launch_ahead(store, master, spark_conf, reads)

            from millpond.service.open_pond import open_pond

        progress = ReadingProgress()
        pond = open_pond(
            store,
            master=master,
            spark_conf=spark_conf,
            bounded=True,
            behind=True,
            launch=launch,
            progress=progress,
            **settings,
        )
        try:
            out = writer(format)
            for result in pond.run(text):
                progress.pause()
                out.write(result)
            pond.catch_up()
        finally:
            progress.close()
            pond.close()
    except MillpondError as error:
        sys.stdout.flush()
        complain(error, source)
        raise typer.Exit(1) from None


def read_script(file: str) -> str:
    """The text of a script.

    Raises:
        MillpondError: DATA-502, the file cannot be read.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        detail = f"{reason}."
        raise MillpondError("DATA-502", f'cannot read script "{file}"', detail=detail) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MillpondError(
            "DATA-502",
            f'cannot read script "{file}"',
            detail=f"It is not UTF-8: byte {error.start} is {data[error.start]:#04x}.",
        ) from error
