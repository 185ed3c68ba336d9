"""Millpond: a data stream management system on Apache Spark, in which queries are data.

Reading order. The path of a query: `cql` reads text into a syntax tree, `catalog` holds what a name
stands for, `planner` resolves names and types and plans. The path of a tuple: `engine` (no clock,
no files, no Spark) admits rows, matches them with the standing queries, joins them and answers;
`state` keeps segments and epochs; `runtime` is what Spark's workers run. The path of a change:
`operators` compute what changes in an answer when its inputs change, over the state structures of
`synopses`. `service` puts all of it together as a pond. People reach a pond through `api` (HTTP),
`console` and `cli`. `demo` shows one at work; `testing` is public. ARCHITECTURE.md walks through
the paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.errors import MillpondError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from pathlib import Path

    from millpond.api.client import AsyncRemotePond, RemotePond
    from millpond.service.pond import Pond

__version__ = "0.1.0"

__all__ = ["MillpondError", "__version__", "connect", "connect_async", "open"]


def open(
    store: Path | str | None = None,
    *,
    master: str | None = None,
    spark: Any = None,
    spark_conf: Mapping[str, str] | None = None,
    bounded: bool = False,
    progress: Callable[[dict[str, Any]], None] | None = None,
    function_seconds: float = 10.0,
    function_key: str | Path | None = None,
    ahead: str | timedelta = "1 DAY",
    routing: str = "ticket",
    shards: int = 2,
    max_pairs: int = 50_000_000,
    max_cores: int = 64,
    strategy: str = "aware",
    eager_expiration: str | timedelta = "0 SECONDS",
    lazy_expiration: str | timedelta = "auto",
) -> Pond:
    """Open a pond embedded in this process, on Spark.

    The settings from `routing` on change no answer and no change. What is set by `strategy`,
    `eager_expiration` and `lazy_expiration` holds for queries whose own options of these names do
    not say otherwise.

    Args:
        store: Its directory; None for a temporary one that is removed when the pond is closed.
        master: The URL of a Spark master: where tasks run; None for this machine.
        spark: A Spark session, used instead of one of Millpond's own, and left running; None for
            the one that runs in this process, if there is one, and else one of Millpond's own.
        spark_conf: Settings of the Spark session that is started, `{"spark.jars.packages": …}`,
            beside Millpond's or in their place; not for a session that is given.
        bounded: Whether file sources are finite: they are read to their end before the first
            answer instead of being watched for more.
        progress: A function called while sources are read, with `{"stream", "rows", "done"}`.
        function_seconds: How long one call of a user-defined function may take that does not say
            so itself.
        function_key: The file of the key that seals functions; code that it has not sealed is not
            run. None for MILLPOND_FUNCTION_KEY, or the one in the user's configuration directory.
        ahead: How far ahead of the clock an element may be whose stream has no AHEAD clause, as
            '1 hour', or 'unbounded'; what is further is rejected. Bounded runs have no limit.
        routing: The eddies' routing policy: 'ticket', 'fixed', 'random' or 'worst'; 'ticket'
            adapts to what is measured.
        shards: Into how many tasks the work on a shared join is divided; about as many as there
            are cores.
        max_pairs: How many pairs one task may find in one batch; of a query whose own join finds
            more none are stored: it is joined at invocation.
        max_cores: How many joins are kept up to date, those with the most queries; the others are
            joined at invocation.
        strategy: How operators learn that rows have left: 'aware', 'direct' or 'negative'.
        eager_expiration: How long changes that time alone brings may wait to be computed, as
            '10 seconds'.
        lazy_expiration: How often rows that have expired are dropped from state that nobody needs
            to read at once, as '5 minutes'; by 'auto', when they are as many as those alive.

    Raises:
        MillpondError: CQL-214 for a value a setting cannot have, SERVE-702 without Java, STORE-601
            to STORE-604.
    """
    try:
        from millpond.service.open_pond import open_pond
    except ModuleNotFoundError as error:
        if error.name != "millpond.service.open_pond":
            raise
        raise ImportError(
            "this is the client alone: `pip install millpond` to open a pond, or use connect()"
        ) from error

    return open_pond(
        store,
        master=master,
        spark=spark,
        spark_conf=spark_conf,
        bounded=bounded,
        progress=progress,
        function_seconds=function_seconds,
        function_key=function_key,
        ahead=ahead,
        routing=routing,
        shards=shards,
        max_pairs=max_pairs,
        max_cores=max_cores,
        strategy=strategy,
        eager_expiration=eager_expiration,
        lazy_expiration=lazy_expiration,
    )


def connect(url: str | None = None, token: str | None = None) -> RemotePond:
    """Reach a served pond over HTTP, with the same surface as an embedded one.

    Args:
        url: The server's URL; None for the variable MILLPOND_URL, or http://127.0.0.1:6455. Several
            with commas between them are those of one shared store: whichever leads is asked.
        token: The server's token, if it has one; None for the variable MILLPOND_TOKEN.

    Raises:
        MillpondError: SERVE-705, no Millpond server answers; SERVE-706, not to this token.
    """
    from millpond.api.client import connect as connect_to

    return connect_to(url, token)


async def connect_async(url: str | None = None, token: str | None = None) -> AsyncRemotePond:
    """As `connect`, for asyncio: `async with await millpond.connect_async() as mp: …`.

    Its methods are those of `connect`, to be awaited; what yields there is read with `async for`.
    """
    from millpond.api.client import connect_async as connect_to

    return await connect_to(url, token)
