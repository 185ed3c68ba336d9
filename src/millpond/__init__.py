"""Millpond: a data stream management system on Apache Spark, in which queries are data.

Reading order. A query's journey: `cql` (text to tree), `catalog` (names), `algebra` (what it
means), `planner` (names and types resolved, leaves, dataflows, explain). A tuple's journey:
`engine` (pure: admission, grouped filters, joins, windows), `state` (segments, epochs), `runtime`
(tasks, Spark). A change's journey: `operators` (what a relation changes by when its inputs do) over
`synopses` (what they remember). How people reach them: `service` (the pond), `api`, `console`,
`cli`. `testing` is public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.api.client import RemotePond
    from millpond.service.pond import Pond

__version__ = "0.1.0"

__all__ = ["MillpondError", "__version__", "connect", "open"]


def open(store: Any = None, **settings: Any) -> Pond:
    """Open a pond embedded in this process, on local Spark or a session given as `spark=`.

    See `millpond.service.open_pond.open_pond`.
    """
    from millpond.service.open_pond import open_pond

    return open_pond(store, **settings)


def connect(url: str, token: str | None = None) -> RemotePond:
    """Reach a served pond over HTTP, with the same surface as an embedded one."""
    from millpond.api.client import connect as connect_to

    return connect_to(url, token=token)
