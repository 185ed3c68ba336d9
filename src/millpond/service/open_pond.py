"""Composition: a pond from a directory and a Spark master."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from millpond.engine.scalars.residual_query import Limits
from millpond.service.changes import settings
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.observe.control_settings import with_settings
from millpond.service.pond import Pond


def open_pond(
    store: Path | str | None = None,
    *,
    master: str | None = None,
    spark: Any = None,
    bounded: bool = False,
    progress: Callable[[dict[str, Any]], None] | None = None,
    function_seconds: float | None = None,
    routing: str = "ticket",
    shards: int | None = None,
    max_pairs: int | None = None,
    strategy: str = "aware",
    eager_expiration: str | timedelta = "0 seconds",
    lazy_expiration: str | timedelta = "auto",
    max_seconds: float | None = None,
    max_rows: int | None = None,
) -> Pond:
    """Open a pond on Spark.

    Args:
        store: Its directory; None for a temporary one that is removed when the pond is closed.
        master: A Spark master URL; None for this machine.
        spark: A session to use instead of one of Millpond's own; it is left running.
        bounded: See `Pond`.
        progress: See `Pond`.
        function_seconds: See `Pond`.
        routing: The eddies' routing policy: `ticket`, `fixed`, `random` or `worst`. It changes no
            answer.
        shards: Into how many tasks the work on a shared join is divided; its SteMs are partitioned
            by the join key. About as many as there are cores.
        max_pairs: How many pairs one task may find in one batch; a query whose own join finds more
            is suspended.
        strategy, eager_expiration, lazy_expiration: How changes are computed where a query's own
            options of these names do not say. They change none.
        max_seconds, max_rows: How long the evaluation of an answer may take, and how many rows it
            may have, whatever a query's options of these names say.

    Raises:
        MillpondError: CQL-214 for a value a setting cannot have, SERVE-702 without Java, STORE-601
            to STORE-604.
    """
    from millpond.runtime.spark.runtime import SparkRuntime

    on_close = None
    if store is None:
        directory = Path(tempfile.mkdtemp(prefix="millpond-"))

        def on_close() -> None:
            shutil.rmtree(directory, ignore_errors=True)

    else:
        directory = Path(store)
    return Pond(
        directory,
        SparkRuntime(master, spark),
        bounded=bounded,
        progress=progress,
        on_close=on_close,
        function_seconds=function_seconds,
        ceilings=Limits(
            seconds=math.inf if max_seconds is None else max_seconds,
            rows=sys.maxsize if max_rows is None else max_rows,
        ),
        joins=with_settings(
            JoinSettings(),
            {
                "routing": routing,
                "shards": shards or JoinSettings.shards,
                "max_pairs": max_pairs or JoinSettings.max_pairs,
            },
        ),
        changes=settings.with_settings(
            ChangeSettings(),
            {
                "strategy": strategy,
                "eager_expiration": eager_expiration,
                "lazy_expiration": lazy_expiration,
            },
        ),
    )
