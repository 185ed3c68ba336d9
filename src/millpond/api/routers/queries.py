"""`/v1/queries`: register, list, invoke, alter, explain, unregister."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field
from starlette.responses import Response

from millpond.api import decode, encode
from millpond.api.document import (
    BINDS,
    BODY,
    WRITES,
    Absent,
    QueryChanges,
    QueryOptions,
    describe_answer,
    describe_errors,
)
from millpond.api.negotiate import ANSWER_HEADERS, answer_response, choose_form
from millpond.api.request_work import MaxSeconds, limit_seconds
from millpond.api.rights.audit import note_statement
from millpond.api.routers.parameters import ParameterRoute, Parameters, read_values
from millpond.api.shapes import answer_shapes, plan_shapes, query_shapes
from millpond.api.surface import QueryHandle, ServedHandle, ServedPond
from millpond.cql.tree.explain_levels import Level
from millpond.errors import MillpondError
from millpond.service import json_values
from millpond.service.ingest.parameter_table import fill_table, place_in, read_parameters
from millpond.service.queries.given_registration import Registration, parts
from millpond.service.queries.options import check_options
from millpond.service.queries.query_selection import QuerySelection, read_names
from millpond.work import keeping_rows

#: Queries that are turned into JSON at once.
_PIECE = 1_000

#: An instant whose zone's "+" was not escaped in the URL and has become a space.
_LOST_PLUS = re.compile(r"^(\S+[T ]\S+) (\d\d:?\d\d)$")


class RegistrationBody(BaseModel):
    """A query to register."""

    model_config = ConfigDict(extra="forbid")

    cql: str
    name: str | None = None
    options: QueryOptions = Field(default_factory=dict)
    params: Parameters = Field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The options, and the values of the text's parameters."""
        if not self.params:
            return dict(self.options)
        return {**self.options, "params": read_values(self.params)}


class ParameterTable(BaseModel):
    """Values of parameters, one query a row: CSV with a header, or an Arrow IPC stream in base64.

    The column `name` has the queries' names. `types` has the SQL types of columns of CSV; without
    one, a column of numbers, booleans, dates or times is taken as such.
    """

    model_config = ConfigDict(extra="forbid")

    csv: str | None = None
    arrow: Base64Bytes | None = None
    types: dict[str, str] = Field(default_factory=dict)


class TableRegistrationBody(BaseModel):
    """One text with a table of its parameters: a query for each row."""

    model_config = ConfigDict(extra="forbid")

    cql: str
    table: ParameterTable
    options: QueryOptions = Field(default_factory=dict)


#: A list of queries; reading it ends at the first that is wrong, since each error takes memory.
Registrations = Annotated[list[RegistrationBody], Field(fail_fast=True)]

#: The orders of a list of queries.
Order = Literal["id", "name", "owner", "registered_at", "-id", "-name", "-owner", "-registered_at"]


#: What costs are sorted by, and what they are summed up by.
CostOrder = Literal[
    "memory", "files", "seconds", "changes", "matching", "matches", "invocations", "answering"
]
_SUMMED = ("matching", "matches", "invocations", "answering", "memory", "files", "seconds")


@dataclass(frozen=True)
class SelectionParameters:
    """Which queries a call is about: those that fulfil every condition that is given."""

    queries: Annotated[
        str | Absent,
        Query(
            description="Names or ids of queries, with commas between them; a name with a comma or "
            "a double quote in it stands in double quotes, a quote in it twice."
        ),
    ] = None
    owner: Annotated[str | Absent, Query(description="Only queries of this owner.")] = None
    tag: Annotated[str | Absent, Query(description="Only queries that have this tag.")] = None
    state: Annotated[
        Literal["active", "inactive", "suspended"] | Absent,
        Query(description="Only queries in this state."),
    ] = None
    containing: Annotated[
        str, Query(description="Only queries that have this text in their name or their CQL.")
    ] = ""

    def read(self) -> QuerySelection:
        """The selection."""
        names = None if self.queries is None else read_names(self.queries)
        return QuerySelection(self.containing, self.owner, self.tag, self.state, names)

    def read_some(self) -> QuerySelection:
        """The selection. Raises SERVE-703 if there is no condition."""
        return require_condition(self.read())


def require_condition(selection: QuerySelection) -> QuerySelection:
    """Return a selection that has a condition. Raises SERVE-703 if there is none."""
    if selection.is_everything:
        raise MillpondError(
            "SERVE-703",
            "no queries are selected",
            hint="Give queries, owner, tag, state or containing.",
        )
    return selection


def router(pond: ServedPond) -> APIRouter:
    """Make the calls on standing queries."""
    routes = APIRouter(route_class=ParameterRoute, tags=["queries"])

    @routes.post(
        "/v1/queries",
        status_code=201,
        response_class=Response,
        responses=describe_answer(
            query_shapes.Query | list[query_shapes.Query],
            status=201,
            headers={"Location": "The path of the one query that was registered."},
        )
        | describe_errors(*BODY, *BINDS, *WRITES),
    )
    def register(
        body: RegistrationBody | TableRegistrationBody | Registrations,
    ) -> Response:
        """Registers one query, a list of queries, or one text with a table of parameters.

        `params` are the values of the parameters in the text: `$most` stands for `params["most"]`,
        as one constant of its type; `{"type": "DATE", "value": "2026-03-01"}` is a date, and with
        TIMESTAMP a time. With `table` instead, each row has the values of one query,
        by columns, and in the column `name` its name.

        All queries of a list or table are registered, or none of them. If a query has an error, the
        error's `detail` begins with the query's position in the list, counting from 0.
        """
        if isinstance(body, TableRegistrationBody):
            _check_options(body.options)
            filled = fill_table(body.cql, _read_table(body.table), body.options)
            return _register_many(pond, filled)
        if isinstance(body, list):
            for index, item in enumerate(body):
                _check_options(item.options, place_in(index, len(body)))
            return _register_many(pond, [(item.cql, item.name, item.settings) for item in body])
        _check_options(body.options)
        handle = pond.register(body.cql, body.name, **body.settings)
        response = _json(_handle(handle), 201)
        response.headers["Location"] = f"/v1/queries/{handle.id}"
        return response

    @routes.get(
        "/v1/queries",
        response_class=Response,
        responses=describe_answer(query_shapes.QueryPage) | describe_errors(404),
    )
    def list_queries(
        selection: Annotated[SelectionParameters, Depends()],
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        after: Annotated[
            int, Query(description="The id of the query behind which the page begins.")
        ] = -1,
        sort: Annotated[
            Order, Query(description="What queries are sorted by; a `-` before it: descending.")
        ] = "id",
    ) -> Response:
        """Lists registered queries in the order of their ids, one page at a time.

        Send `next` as `after` to get the next page; `next` is null on the last page.
        """
        page = pond.list_queries(
            selection.read(),
            sort.removeprefix("-"),
            sort.startswith("-"),
            None if after < 0 else after,
            limit,
        )
        body = {
            "queries": [encode.definition_json(query) for query in page.queries],
            "total": page.total,
            "next": page.next,
        }
        return _json(body)

    @routes.get(
        "/v1/costs",
        response_class=Response,
        responses=describe_answer(query_shapes.QueryCosts) | describe_errors(404),
    )
    def list_costs(
        selection: Annotated[SelectionParameters, Depends()],
        sort: Annotated[
            CostOrder,
            Query(description="What is most of the first."),
        ] = "memory",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> Response:
        """Lists what queries cost: their shares of matching, of memory, of files and of time."""
        chosen = selection.read()
        found = pond.query_costs(
            None if chosen.is_everything else pond.list_queries(chosen).queries
        )
        found.sort(key=lambda cost: (-getattr(cost, sort), cost.id))
        totals = {name: sum(getattr(cost, name) for cost in found) for name in _SUMMED}
        return _json(
            {
                "queries": [cost.to_json() for cost in found[:limit]],
                "total": len(found),
                "followed": sum(cost.followed for cost in found),
                **totals,
            }
        )

    @routes.patch(
        "/v1/queries",
        response_class=Response,
        responses=describe_answer(query_shapes.QueryCount)
        | describe_errors(404, *BODY, *BINDS, *WRITES),
    )
    def alter_many(
        selection: Annotated[SelectionParameters, Depends()], options: QueryOptions
    ) -> Response:
        """Changes options of all selected queries in one epoch: of all of them, or of none.

        At least one condition must be given. Returns how many queries were selected.
        """
        _check_options(options)
        return _json({"queries": pond.alter_queries(selection.read_some(), **options)})

    @routes.delete(
        "/v1/queries",
        response_class=Response,
        responses=describe_answer(query_shapes.QueryCount) | describe_errors(404, *WRITES),
    )
    def drop_many(selection: Annotated[SelectionParameters, Depends()]) -> Response:
        """Drops all selected queries in one epoch: all of them, or none.

        At least one condition must be given. Returns how many queries were dropped.
        """
        return _json({"queries": pond.drop_queries(selection.read_some())})

    @routes.get(
        "/v1/queries/{query}",
        response_class=Response,
        responses=describe_answer(query_shapes.Query) | describe_errors(404),
    )
    def describe(query: str) -> Response:
        """Returns a query: its definition, its columns, and how far its changes are computed."""
        return _json(_handle(find_query(pond, query)))

    @routes.patch(
        "/v1/queries/{query}",
        response_class=Response,
        responses=describe_answer(query_shapes.Query)
        | describe_errors(404, *BODY, *BINDS, *WRITES),
    )
    def alter(query: str, options: QueryChanges) -> Response:
        """Changes options of a query, `{"weight": 0.5}`, or the values of parameters of its text,
        `{"params": {"most": 10}}`: then it is another query from now on, with the same id.
        """
        note_statement(f"SET {json_values.dumps(json_values.to_json_value(options)).decode()}")
        handle = find_query(pond, query)
        if isinstance(values := options.get("params"), dict):
            options = {**options, "params": read_values(values)}
        _check_options({name: value for name, value in options.items() if name != "params"})
        handle.alter(**options)
        return _json(_handle(handle))

    @routes.delete(
        "/v1/queries/{query}",
        status_code=204,
        response_class=Response,
        responses=describe_errors(404, *WRITES),
    )
    def unregister(query: str) -> Response:
        """Unregisters a query."""
        find_query(pond, query).unregister()
        return Response(status_code=204)

    @routes.get(
        "/v1/queries/{query}/result",
        response_class=Response,
        responses=describe_answer(
            answer_shapes.Answer, encode.NDJSON, *encode.FILES, headers=ANSWER_HEADERS
        )
        | describe_errors(404, 406, *BINDS),
    )
    def invoke(
        query: str,
        at: Annotated[
            str | Absent,
            Query(description="The instant of the answer, in ISO 8601; now if it is missing."),
        ] = None,
        budget: Annotated[
            str | Absent,
            Query(description="What may be looked at: `20 ms`, or `5000 probes`."),
        ] = None,
        after: Annotated[
            str | Absent, Query(description="The cursor of an earlier part, to go on behind it.")
        ] = None,
        max_seconds: MaxSeconds = None,
        accept: Annotated[str | Absent, Header()] = None,
    ) -> Response:
        """Returns the query's answer as of now, or as of an instant whose elements are kept.

        With a budget, the answer is its most promising part.
        """
        limit_seconds(max_seconds)
        form = choose_form(accept, [encode.JSON, encode.NDJSON, *encode.FILES])
        instant = None if at is None else _instant(at)
        with keeping_rows():
            return answer_response(find_query(pond, query).invoke(instant, budget, after), form)

    @routes.get(
        "/v1/queries/{query}/plan",
        response_class=Response,
        responses=describe_answer(plan_shapes.QueryPlan) | describe_errors(404, *BINDS),
    )
    def plan(query: str, level: Level = Level.LOGICAL) -> Response:
        """Returns the query's plan as text, at one of the levels of EXPLAIN."""
        handle = find_query(pond, query)
        return _json({"id": handle.id, "level": level, "plan": handle.plan(level)})

    return routes


def _json(body: Any, status: int = 200) -> Response:
    return Response(json_values.dumps(body), status, media_type=encode.JSON)


def _read_table(table: ParameterTable) -> pa.Table:
    """Read the table of parameters. Raises SERVE-703 unless it is in one form."""
    if (table.csv is None) == (table.arrow is None):
        raise MillpondError(
            "SERVE-703", "a table of parameters has one form", hint='Give either "csv" or "arrow".'
        )
    return read_parameters(table.csv, table.arrow, table.types)


def _register_many(pond: ServedPond, queries: Sequence[Registration]) -> Response:
    """Register queries all together, and answer with their handles."""
    try:
        handles = pond.register_many(queries)
    except MillpondError as error:
        raise _add_index(error, [parts(query)[0] for query in queries]) from error
    described = pond.describe_queries(handle.definition for handle in handles)
    # Piece by piece: as values of Python they take ten times their bytes.
    pieces: list[bytes] = []
    while some := [_description(facts) for facts in islice(described, _PIECE)]:
        pieces.append(json_values.dumps(some)[1:-1])
    return Response(b"[%b]" % b",".join(pieces), 201, media_type=encode.JSON)


def _handle(handle: QueryHandle) -> dict[str, Any]:
    return _description(handle.describe())


def _description(facts: dict[str, Any]) -> dict[str, Any]:
    """A query's description as JSON values: all but its options and its instant are such."""
    facts = {**facts, "options": json_values.to_json_value(facts["options"])}
    return json_values.with_instant(facts, "registered_at")


def find_query(pond: ServedPond, query: str) -> ServedHandle:
    """Find the query that a path names by id or by name. Raises CQL-201."""
    if not query.isdigit():
        return pond.query(query)
    if not query.isdecimal() or len(query) > 18:
        # Digits that are no id: neither int() nor a 64-bit id has room for them.
        raise MillpondError("CQL-201", f'no query "{query[:40]}"')
    return pond.query(int(query))


def _instant(text: str) -> int:
    try:
        return decode.instant(_LOST_PLUS.sub(r"\1+\2", text)) or 0
    except (ValueError, OverflowError):
        raise MillpondError(
            "SERVE-703",
            f'"{text}" is not an instant',
            hint="Write it like 2026-03-01T12:00:00 or 2026-03-01T12:00:00Z.",
        ) from None


def _check_options(options: dict[str, Any], place: str | None = None) -> None:
    """Refuse a name that is no option, before it becomes another parameter of `register`."""
    try:
        check_options(options)
    except MillpondError as error:
        error.detail = " ".join(text for text in (place, error.detail) if text)
        raise


def _add_index(error: MillpondError, texts: Sequence[str]) -> MillpondError:
    """Add the position of the query to the error of a list."""
    if (error.detail or "").startswith("Query "):
        return error
    for index, text in enumerate(texts):
        if text == error.text:
            error.detail = f"{place_in(index, len(texts))} {error.detail or ''}".strip()
            break
    return error
