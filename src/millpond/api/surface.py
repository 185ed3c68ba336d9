"""The pond's surface: the calls of a pond in this process or behind HTTP.

The command line, the shell and the HTTP interface are written against these protocols, so each
works alike on `millpond.service.pond.Pond` and on `millpond.api.client.RemotePond`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from prometheus_client import CollectorRegistry

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError
from millpond.planner.resolve.names import Names
from millpond.service.changes.feeds.feed import Feed
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.definitions.reset_clock import ClockReset
from millpond.service.ingest.given_rows import RowFormat
from millpond.service.observe.control_tables import Entity
from millpond.service.observe.history import Span
from millpond.service.observe.query_costs import QueryCost
from millpond.service.queries.given_registration import Registration
from millpond.service.queries.query_directory import QueryListing
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.results import Answer, Change, Changes, IngestReceipt, StatementResult


class QueryHandle(Protocol):
    """A standing query, from its registration until it is unregistered."""

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    def invoke(
        self, at: Any = None, budget: str | None = None, after: str | None = None
    ) -> Answer: ...

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes: ...

    def subscribe(
        self, after: str | int | None = None, follow: bool = True
    ) -> Iterator[Change]: ...

    def describe(self) -> dict[str, Any]: ...

    def plan(self, level: str = "logical") -> str: ...

    def alter(self, **options: Any) -> Any: ...

    def unregister(self) -> None: ...


class StreamHandle(Protocol):
    """A derived stream, from its creation until it is dropped."""

    @property
    def name(self) -> str: ...

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes: ...

    def subscribe(
        self, after: str | int | None = None, follow: bool = True
    ) -> Iterator[Change]: ...

    def plan(self, level: str = "logical") -> str: ...

    def alter(self, **options: Any) -> Any: ...


class Followable(Protocol):
    """A standing query or derived stream in this process, whose changes can be waited for."""

    @property
    def name(self) -> str: ...

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes: ...

    def page(self, after: str | int | None = None, limit: int | None = None) -> Changes: ...

    def has_more(self, position: int) -> bool: ...

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]: ...


class ServedHandle(QueryHandle, Followable, Protocol):
    """A standing query in this process."""

    @property
    def definition(self) -> QueryDef: ...


class ServedStream(StreamHandle, Followable, Protocol):
    """A derived stream in this process."""


class Surface(Protocol):
    """A pond, wherever it is."""

    def execute(self, text: str) -> list[StatementResult]: ...

    def register(self, cql: str, name: str | None = None, **options: Any) -> QueryHandle: ...

    def register_many(self, queries: Sequence[Registration]) -> Sequence[QueryHandle]: ...

    def query(self, name_or_id: str | int) -> QueryHandle: ...

    def derived(self, name: str) -> StreamHandle: ...

    def subscribe(
        self,
        queries: Sequence[str | int] | None = None,
        *,
        owner: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        follow: bool = True,
        snapshot: bool = False,
    ) -> Iterator[FeedEvent]: ...

    def ask(self, cql: str) -> Answer: ...

    def ingest(
        self,
        stream: str,
        rows: pa.Table | list[dict[str, Any]],
        idempotency_key: str | None = None,
    ) -> IngestReceipt: ...

    def ingest_text(
        self,
        stream: str,
        data: bytes,
        format: RowFormat,
        idempotency_key: str | None = None,
    ) -> IngestReceipt: ...

    def stage(self, stream: str, part: str, rows: pa.Table | list[dict[str, Any]]) -> int: ...

    def unstage(self, stream: str, parts: Sequence[str]) -> None: ...

    def ingest_batch(
        self, stream: str, writer: str, batch: int | None, parts: Sequence[str]
    ) -> IngestReceipt: ...

    def explain(self, text_or_name: str, level: str = "logical") -> str: ...

    def export_plan(self, queries: Sequence[str] | None = None) -> dict[str, Any]: ...

    def compare_plan(self, document: Mapping[str, Any]) -> dict[str, Any]: ...

    def adopt_plan(
        self, document: Mapping[str, Any], *, base: str | None = None
    ) -> dict[str, Any]: ...

    def adopted_plans(self) -> list[dict[str, Any]]: ...

    def undo_plan(self, plan: int | None = None) -> dict[str, Any]: ...

    def streams(self) -> Sequence[StreamDef]: ...

    def relations(self) -> Sequence[RelationDef]: ...

    def functions(self) -> list[dict[str, Any]]: ...

    def queries(self, **selection: Any) -> Sequence[QueryDef]: ...

    def backups(self) -> list[dict[str, Any]]: ...

    def backup(self, number: int) -> dict[str, Any]: ...

    def cancel_backup(self, number: int) -> dict[str, Any]: ...

    def status(self) -> dict[str, Any]: ...

    @property
    def ready(self) -> bool: ...

    def catch_up(self, timeout: float | None = None) -> Any: ...

    def close(self) -> None: ...


class ControlTables(Protocol):
    """Operators, queues and synopses, with their figures."""

    def every(self) -> Sequence[Entity]: ...

    def one(self, id: str) -> Entity: ...

    def set(self, id: str, settings: Mapping[str, Any]) -> Entity: ...


class ServedPond(Surface, Protocol):
    """A pond in this process: its results come as they are given, and it has metrics."""

    def register_many(self, queries: Sequence[Registration]) -> Sequence[ServedHandle]: ...

    def stage_text(self, stream: str, part: str, data: bytes, format: RowFormat) -> int: ...

    def run(
        self,
        text: str,
        policy: AccessPolicy | None = None,
        approve: Callable[[Statement], Statement | StatementResult] | None = None,
    ) -> Iterable[StatementResult]: ...

    def query(self, name_or_id: str | int) -> ServedHandle: ...

    def derived(self, name: str) -> ServedStream: ...

    def list_queries(
        self,
        selection: QuerySelection,
        order: str = "id",
        descending: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> QueryListing: ...

    def alter_queries(self, selection: QuerySelection, **options: Any) -> int: ...

    def drop_queries(self, selection: QuerySelection) -> int: ...

    def open_feed(
        self,
        selection: QuerySelection,
        after: str | None = None,
        snapshot: bool = False,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> Feed: ...

    def followed_among(self, queries: Iterable[QueryDef]) -> list[QueryDef]: ...

    def describe_queries(self, queries: Iterable[QueryDef]) -> Iterator[dict[str, Any]]: ...

    @property
    def names(self) -> Names: ...

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]: ...

    def shared_plan(self) -> str: ...

    def trace(
        self, stream: str, query: str | int | None = None, tuples: int = 20
    ) -> dict[str, Any]: ...

    def history(self, span: Span = "hour") -> dict[str, Any]: ...

    def query_costs(self, queries: Iterable[QueryDef] | None = None) -> list[QueryCost]: ...

    def adopt_plan(
        self, document: Mapping[str, Any], by: str | None = None, base: str | None = None
    ) -> dict[str, Any]: ...

    def plan_graph(self, query: str | int | None = None) -> dict[str, Any]: ...

    def begin_backup(
        self, directory: str | Path, copy: bool = False, policy: AccessPolicy | None = None
    ) -> dict[str, Any]: ...

    def alter_stream(self, name: str, **options: Any) -> None: ...

    def reset_clock(self, name: str, to: str) -> ClockReset: ...

    @property
    def trouble(self) -> MillpondError | None: ...

    @property
    def failure(self) -> MillpondError | None: ...

    @property
    def entities(self) -> ControlTables: ...

    @property
    def metrics(self) -> CollectorRegistry: ...
