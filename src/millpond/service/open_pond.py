"""Composition: a pond from a directory and a Spark master."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from millpond.catalog.option import Scope
from millpond.catalog.option_values import parse_memory
from millpond.engine.scalars.residual_query import Limits
from millpond.model.compiled import progress as progress_of_compiling
from millpond.model.durations import parse_duration
from millpond.model.time import END
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.pond import Pond
from millpond.service.queries.options import check_settings
from millpond.state.shared.shared_store import SharedStore


def open_pond(
    store: Path | str | None = None,
    *,
    master: str | None = None,
    spark: Any = None,
    spark_conf: Mapping[str, str] | None = None,
    bounded: bool = False,
    progress: Callable[[dict[str, Any]], None] | None = None,
    function_seconds: float | None = None,
    function_key: str | Path | None = None,
    ahead: str | timedelta = "1 DAY",
    max_seconds: float | None = None,
    max_rows: int | None = None,
    max_memory: str | None = None,
    revives: bool = False,
    behind: bool = False,
    launch: Any = None,
    shared: SharedStore | str | None = None,
    **settings: Any,
) -> Pond:
    """Open a pond on Spark: `millpond.open`, whose parameters say what each is for.

    With `max_seconds`, `max_rows` and `max_memory` no statement and no evaluation of an answer
    takes longer, no answer has more rows, and no evaluation keeps more, whatever a query's options
    of these names say; all long evaluations together keep no more than `max_memory` either. With
    `revives` Spark is started again when its JVM has ended, as a server needs it; without, the
    program opens the store again. With `behind` (and with `revives`) the pond is open before Spark
    runs, and what needs Spark waits for it. `launch` is the JVM that was launched ahead for the
    store (`runtime.spark.session.launch_ahead`). `shared` is a shared store, or its place, which
    this process then leads; `store` is where its files are cached.

    Raises:
        MillpondError: CQL-214 for a setting there is not or a value it cannot have, SERVE-702
            without Java, STORE-601 to STORE-604.
    """
    from millpond.runtime.spark.runtime import SparkRuntime

    progress_of_compiling.finish()
    checked = check_settings(settings)
    limit = check_settings({"ahead": ahead}, Scope.OPEN)["ahead"]
    of_joins = [field.name for field in fields(JoinSettings)]
    if launch is not None:
        directory, is_temporary = launch.store, launch.is_temporary
    elif store is None:
        directory, is_temporary = Path(tempfile.mkdtemp(prefix="millpond-")), True
    else:
        directory, is_temporary = Path(store), False

    def remove() -> None:
        shutil.rmtree(directory, ignore_errors=True)

    return Pond(
        directory,
        SparkRuntime(master, spark, spark_conf, revives=revives, behind=behind, launch=launch),
        bounded=bounded,
        shared=shared,
        ahead=END if bounded or limit == "unbounded" else parse_duration(limit),
        progress=progress,
        on_close=remove if is_temporary else None,
        function_seconds=function_seconds,
        function_key=function_key,
        ceilings=Limits(
            seconds=math.inf if max_seconds is None else max_seconds,
            rows=sys.maxsize if max_rows is None else max_rows,
            memory=Limits.memory if max_memory is None else _check_memory(max_memory),
        ),
        joins=JoinSettings(**{name: checked[name] for name in of_joins if name in checked}),
        changes=ChangeSettings().with_options(checked),
    )


def _check_memory(text: str) -> int:
    """The bytes of a `max_memory`; raises CQL-214 for what is no amount of memory."""
    return parse_memory(check_settings({"max_memory": text}, Scope.QUERY)["max_memory"])
