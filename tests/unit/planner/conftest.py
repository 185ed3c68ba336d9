"""A small catalog to bind against."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.catalog.objects import (
    REJECTS,
    Definition,
    FunctionDef,
    QueryDef,
    RelationDef,
    StreamDef,
)
from millpond.cql.print.dialect import parse_query
from millpond.model.schema import Field, Schema
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery


def schema(text: str) -> Schema:
    """`"ts TIMESTAMP, delay DOUBLE"` as a schema."""
    pairs = (item.split(maxsplit=1) for item in text.split(", "))
    return Schema(tuple(Field(name, type_) for name, type_ in pairs))


class StaticNames:
    """A catalog of fixed definitions that can be replaced one by one."""

    def __init__(self, *definitions: Definition) -> None:
        self._definitions = {d.name.lower(): d for d in definitions}
        self.defined: dict[str, FunctionDef] = {}

    def put(self, definition: Definition) -> None:
        self._definitions[definition.name.lower()] = definition

    def find(self, name: str) -> Definition | None:
        stream = self._definitions.get(name.lower().removesuffix("$rejects"))
        if name.lower().endswith("$rejects") and isinstance(stream, StreamDef):
            return stream.pseudo(REJECTS)
        return self._definitions.get(name.lower())

    def names(self) -> list[str]:
        return [d.name for d in self._definitions.values()]

    def function(self, name: str) -> FunctionDef | None:
        return self.defined.get(name)

    def functions(self) -> list[str]:
        return list(self.defined)

    def summary(self, name: str) -> None:
        return None

    def summaries(self) -> list[str]:
        return []


@pytest.fixture
def names() -> StaticNames:
    return StaticNames(
        StreamDef(
            1,
            "flights",
            schema(
                "ts TIMESTAMP, carrier VARCHAR, origin VARCHAR, dest VARCHAR, delay DOUBLE, "
                "distance INTEGER, tailnum VARCHAR"
            ),
            timestamp_by="ts",
        ),
        StreamDef(
            2,
            "weather",
            schema("ts TIMESTAMP, origin VARCHAR, wind DOUBLE, temp DOUBLE"),
            timestamp_by="ts",
        ),
        RelationDef(3, "planes", schema("tailnum VARCHAR, model VARCHAR, seats INTEGER")),
        RelationDef(
            4, "fares", schema("carrier VARCHAR, price DECIMAL(10,2)"), non_retroactive=True
        ),
        QueryDef(5, "late", "SELECT * FROM flights WHERE delay > 60"),
    )


@pytest.fixture
def binding(names: StaticNames) -> Callable[[str], BoundQuery]:
    """Parses and binds a text."""
    return lambda text: bind(parse_query(text), text, names)


def stream(id: int, name: str, columns: str) -> StreamDef:
    """A stream on application time, by its column `ts`."""
    return StreamDef(id, name, schema(columns), timestamp_by="ts")
