"""A small pond for the surfaces' tests: DuckDB tables for streams, windows ignored.

It keeps to what the surfaces rely on (names, errors, shapes) and means nothing by its answers; what
queries mean is tested against the real pond.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
from prometheus_client import CollectorRegistry, Gauge
from pyarrow import csv

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql import parse_script
from millpond.errors import MillpondError, Span
from millpond.model.schema import Field, Schema
from millpond.service.results import Answer, IngestReceipt, StatementResult

#: 2026-03-01 12:00:00.
AS_OF = 1_772_366_400_000_000

FLIGHTS = Schema(
    (
        Field("ts", "TIMESTAMP"),
        Field("carrier", "VARCHAR"),
        Field("origin", "VARCHAR"),
        Field("delay", "DOUBLE"),
        Field("number", "BIGINT"),
    )
)


class FakeHandle:
    def __init__(self, pond: FakePond, definition: QueryDef) -> None:
        self._pond = pond
        self.id = definition.id
        self.name = definition.name

    def invoke(self, at: Any = None) -> Answer:
        definition = self._pond.definition(self.name)
        if not definition.active:
            raise MillpondError("POND-402", f'query "{self.name}" is inactive')
        if at is not None and at < 0:
            raise MillpondError("POND-403", "the instant is not kept")
        table = self._pond.select(definition.text)
        as_of = AS_OF if at is None else at
        return Answer(table, as_of, final=at is not None, query=self.name, epoch=self._pond.epoch)

    def unregister(self) -> None:
        del self._pond.registered[self.id]

    def describe(self) -> dict[str, Any]:
        definition = self._pond.definition(self.name)
        return {
            "id": self.id,
            "name": self.name,
            "cql": definition.text,
            "active": definition.active,
            "options": definition.options,
            "registered_at": definition.registered_at,
        }

    def plan(self, level: str = "logical") -> str:
        return f"{level} plan of {self.name}"

    def alter(self, **options: Any) -> None:
        if unknown := set(options) - {"active", "weight", "materialize"}:
            raise MillpondError("CQL-214", f'no option is called "{unknown.pop()}"')
        definition = self._pond.definition(self.name)
        definition.options.update(options)


class FakePond:
    def __init__(self) -> None:
        self._duckdb = duckdb.connect()
        self._duckdb.execute(
            "CREATE TABLE flights (ts TIMESTAMP, carrier VARCHAR, origin VARCHAR, "
            "delay DOUBLE, number BIGINT)"
        )
        self.registered: dict[int, QueryDef] = {}
        self._receipts: dict[str, tuple[bytes, IngestReceipt]] = {}
        self._next = 1
        self.epoch = 7
        self.ready = True
        self.closed = False
        self.executed: list[str] = []
        self.metrics = CollectorRegistry()
        Gauge("millpond_epoch", "The last epoch.", registry=self.metrics).set(7)

    def execute(self, text: str) -> list[StatementResult]:
        return list(self.run(text))

    def run(self, text: str) -> Iterator[StatementResult]:
        parsed = parse_script(text)
        self.executed.append(text)
        for statement in parsed:
            try:
                yield self._statement(statement.text)
            except MillpondError as error:
                if error.span is not None:
                    error.text, error.span = text, error.span.shifted(statement.offset)
                raise

    def _statement(self, text: str) -> StatementResult:
        if match := re.fullmatch(r"CREATE QUERY (\w+) AS (.*)", text, re.S):
            self.register(match[2], match[1])
            return StatementResult("create query", match[1], message=f"query {match[1]} registered")
        if match := re.fullmatch(r"INVOKE (\w+)", text):
            return StatementResult("invoke", match[1], answer=self.query(match[1]).invoke())
        if match := re.fullmatch(r"DROP QUERY (\w+)", text):
            self.query(match[1]).unregister()
            return StatementResult("drop query", match[1], message=f"query {match[1]} dropped")
        if match := re.fullmatch(r"INSERT INTO (\w+) VALUES .*", text, re.S):
            self._duckdb.execute(text)
            return StatementResult("insert", match[1], message="1 row inserted")
        if text.startswith("SHOW"):
            table = pa.table({"name": [q.name for q in self.queries()]})
            return StatementResult("show queries", table=table)
        if text.startswith("DESCRIBE"):
            return StatementResult("describe", text.split()[1], table=pa.table({"column": ["ts"]}))
        if match := re.fullmatch(r"EXPLAIN (.*)", text):
            return StatementResult("explain", text=self.explain(match[1]))
        if text.startswith("ISTREAM"):
            raise MillpondError("CQL-301", "ISTREAM is not available yet")
        return StatementResult("ask", answer=self.ask(text))

    def select(self, cql: str) -> pa.Table:
        bare = re.sub(r"\[[^]]*\]", "", cql)
        try:
            return self._duckdb.sql(bare).to_arrow_table()
        except duckdb.CatalogException:
            name = re.search(r"FROM (\w+)", bare)
            assert name is not None
            start = cql.index(name[1])
            raise MillpondError(
                "CQL-201",
                f'no stream or relation is called "{name[1]}"',
                hint='Did you mean "flights"?',
                text=cql,
                span=Span(start, start + len(name[1])),
            ) from None
        except duckdb.BinderException as error:
            raise MillpondError("CQL-202", "no such column", detail=str(error)) from None

    def register(self, cql: str, name: str | None = None, **options: Any) -> FakeHandle:
        return self.register_many([(cql, name, options)])[0]

    def register_many(
        self, queries: list[tuple[str, str | None, dict[str, Any]]]
    ) -> list[FakeHandle]:
        taken = {q.name for q in self.registered.values()}
        new = []
        for cql, name, options in queries:
            if name in taken:
                raise MillpondError("CQL-208", f'"{name}" is taken')
            self.select(cql)
            id = self._next + len(new)
            definition = QueryDef(id, name or f"q{id}", cql, dict(options), self.epoch, AS_OF)
            taken.add(definition.name)
            new.append(definition)
        self._next += len(new)
        self.registered.update({q.id: q for q in new})
        return [FakeHandle(self, q) for q in new]

    def definition(self, name: str) -> QueryDef:
        return next(q for q in self.registered.values() if q.name == name)

    def query(self, name_or_id: str | int) -> FakeHandle:
        for definition in self.registered.values():
            if name_or_id in (definition.id, definition.name):
                return FakeHandle(self, definition)
        raise MillpondError("CQL-201", f'no query is called "{name_or_id}"')

    def ask(self, cql: str) -> Answer:
        if "boom" in cql:
            raise RuntimeError("the secret inner state")
        return Answer(self.select(cql), AS_OF, final=True, epoch=self.epoch)

    def explain(self, text_or_name: str, level: str = "logical") -> str:
        return f"{level} plan of {text_or_name}"

    def ingest(self, stream: str, rows: Any, idempotency_key: str | None = None) -> IngestReceipt:
        if isinstance(rows, list):
            rows = pa.Table.from_pylist(rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as out:
            out.write_table(rows)
        return self.ingest_text(stream, sink.getvalue().to_pybytes(), "arrow", idempotency_key)

    def ingest_text(
        self, stream: str, data: bytes, format: str, idempotency_key: str | None = None
    ) -> IngestReceipt:
        if stream != "flights":
            raise MillpondError("CQL-201", f'no stream is called "{stream}"')
        if idempotency_key in self._receipts:
            before, receipt = self._receipts[idempotency_key]
            if before != data:
                raise MillpondError("DATA-503", "the idempotency key was used for other rows")
            return IngestReceipt(receipt.accepted, receipt.rejected, receipt.rejects, True)
        receipt = self._insert(self._rows(data, format))
        if idempotency_key is not None:
            self._receipts[idempotency_key] = (data, receipt)
        return receipt

    def _rows(self, data: bytes, format: str) -> pa.Table:
        try:
            if format == "csv":
                return csv.read_csv(io.BytesIO(data))
            if format == "arrow":
                return pa.ipc.open_stream(data).read_all()
            rows = [json.loads(line) for line in data.splitlines() if line.strip()]
        except (ValueError, pa.ArrowInvalid) as error:
            raise MillpondError("DATA-501", "the rows cannot be read", detail=str(error)) from None
        return pa.Table.from_pylist(
            rows,
            schema=pa.schema([(f.name, pa.string()) for f in FLIGHTS.fields])
            if any(isinstance(r.get("delay"), str) for r in rows)
            else None,
        )

    def _insert(self, rows: pa.Table) -> IngestReceipt:
        accepted, rejects = 0, []
        for i, row in enumerate(rows.to_pylist()):
            values = [row.get(field.name) for field in FLIGHTS.fields]
            if values[0] is None:
                rejects.append({"row": i, "reason": "no timestamp"})
                continue
            self._duckdb.execute("INSERT INTO flights VALUES (?, ?, ?, ?, ?)", values)
            accepted += 1
        return IngestReceipt(accepted, len(rejects), rejects)

    def streams(self) -> list[StreamDef]:
        return [StreamDef(1, "flights", FLIGHTS, "ts", delay=5_000_000, text="CREATE STREAM …")]

    def relations(self) -> list[RelationDef]:
        schema = Schema((Field("tailnum", "VARCHAR"), Field("model", "VARCHAR")))
        return [RelationDef(1, "planes", schema, ("tailnum",), text="CREATE RELATION …")]

    def queries(self) -> list[QueryDef]:
        return list(self.registered.values())

    def status(self) -> dict[str, Any]:
        [(rows,)] = self._duckdb.execute("SELECT count(*) FROM flights").fetchall()
        flights = {
            "name": "flights",
            "rows": rows,
            "rejected": 0,
            "heartbeat": AS_OF,
            "segments": 1,
            "state": "running",
            "reason": None,
        }
        return {
            "epoch": self.epoch,
            "queries": len(self.registered),
            "streams": [flights],
            "uptime_s": 12.5,
            "problems": [],
        }

    def catch_up(self, timeout: float | None = None) -> None:
        pass

    def close(self) -> None:
        self.closed = True
