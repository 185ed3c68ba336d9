"""Millpond: a data stream management system on Apache Spark, in which queries are data.

Reading order. The path of a query: `cql` reads text into a syntax tree, `catalog` holds what a
name stands for, `algebra` says naively what a query means, `planner` resolves names and types and
plans. The path of a tuple: `engine` (no clock, no files, no Spark) admits rows, matches them with
the standing queries, joins them and answers; `state` keeps segments and epochs; `runtime` is what
Spark's workers run. The path of a change: `operators` compute what changes in an answer when its
inputs change, over the state structures of `synopses`. `service` puts all of it together as a
pond. People reach a pond through `api` (HTTP), `console` and `cli`. `demo` shows one at work;
`testing` is public. ARCHITECTURE.md walks through the paths.
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
