"""Composition: a pond from a directory and a Spark master."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from millpond.cql.parse.durations import parse_duration
from millpond.errors import MillpondError
from millpond.model.time import END
from millpond.service.changes import settings
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.observe.control_settings import with_settings
from millpond.service.pond import Pond

#: How far ahead of the clock an element may be unless somebody says otherwise, in microseconds.
_DAY = 86_400_000_000


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
    ahead: str | timedelta | None = None,
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
        ahead: How far ahead of the clock an element on application time may be whose stream has no
            AHEAD clause; what is further is rejected. A day if it is not given; 'unbounded', and
            any bounded run, for no limit.

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
        ahead=_read_ahead(ahead, bounded),
        progress=progress,
        on_close=on_close,
        function_seconds=function_seconds,
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


def _read_ahead(ahead: str | timedelta | None, bounded: bool) -> int:
    """The setting `ahead` in microseconds; END for no limit."""
    if ahead is None:
        return END if bounded else _DAY
    if isinstance(ahead, timedelta):
        return ahead // timedelta(microseconds=1)
    if ahead == "unbounded":
        return END
    try:
        return parse_duration(ahead)
    except ValueError as error:
        raise MillpondError(
            "CQL-214",
            f'setting "ahead" is a length of time, not "{ahead}"',
            hint="Write ahead='1 day', or 'unbounded'.",
        ) from error
