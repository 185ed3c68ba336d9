"""`/v1/parse`, `/v1/language`, `/v1/caller`: what editors ask while somebody types."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from millpond.api import encode
from millpond.api.contract import DocumentedRoute
from millpond.api.document import BINDS, BODY, describe_answer, describe_errors
from millpond.api.rights.caller import caller_or_everybody
from millpond.api.shapes import query_shapes
from millpond.api.surface import ServedPond
from millpond.cql import parse_script, print_statement
from millpond.cql.parse.keywords import KEYWORDS
from millpond.cql.tree import statements
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError
from millpond.planner.resolve.function_signatures import list_signatures
from millpond.service import json_values

#: Statements that change no name: the statements behind them are about what there is now.
_CHANGE_NO_NAME = (
    statements.Ask,
    statements.Invoke,
    statements.Fetch,
    statements.Explain,
    statements.Describe,
    statements.Show,
    statements.ShowCreate,
    statements.Insert,
    statements.Heartbeat,
)


class ParseBody(BaseModel):
    """A text to read."""

    model_config = ConfigDict(extra="forbid")

    text: str


def router(pond: ServedPond) -> APIRouter:
    """Make the calls on the language, and the one that says who calls."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["language"])

    @routes.post(
        "/v1/parse",
        response_class=Response,
        responses=describe_answer(query_shapes.Parsed) | describe_errors(*BODY, *BINDS),
    )
    def parse(body: ParseBody) -> Response:
        """Reads statements without running them, and says what is wrong with them, and where.

        Names and types of queries are looked up too, up to the first statement that changes names.
        """
        script: list[Statement] = []
        try:
            script = parse_script(body.text)
            _check_names(pond, script, body.text)
            wrong = None
        except MillpondError as error:
            wrong = error.to_json()["error"]
        read = [
            {
                "statement": type(statement).__name__,
                "start": statement.offset,
                "end": statement.offset + len(statement.text),
                "printed": print_statement(statement),
            }
            for statement in script
        ]
        return _json({"statements": read, "wrong": wrong})

    @routes.get(
        "/v1/language", response_class=Response, responses=describe_answer(query_shapes.Language)
    )
    def language() -> Response:
        """Lists the words of the grammar, and the functions that queries may call."""
        functions = [
            {"name": found.name, "kind": found.kind, "calls": list(found.calls)}
            for found in list_signatures()
        ]
        return _json({"keywords": list(KEYWORDS), "functions": functions})

    @routes.get(
        "/v1/caller", response_class=Response, responses=describe_answer(query_shapes.CallerFacts)
    )
    def caller() -> Response:
        """Returns the owner and the role of the token that the request bears."""
        found = caller_or_everybody()
        return _json({"owner": found.owner, "role": found.role.word})

    return routes


def _check_names(pond: ServedPond, script: list[Statement], text: str) -> None:
    """Look up the names that queries use. Raises what is wrong, placed in the whole text."""
    for statement in script:
        query = _query_of(statement)
        try:
            if query is not None:
                pond.explain(query)
            elif isinstance(statement, statements.Invoke):
                _find_invoked(pond, statement)
        except MillpondError as error:
            start = -1 if error.text is None else text.find(error.text, statement.offset)
            if error.span is not None and start >= 0:
                error.text, error.span = text, error.span.shift(start)
            raise
        if not isinstance(statement, _CHANGE_NO_NAME):
            return


def _find_invoked(pond: ServedPond, statement: statements.Invoke) -> None:
    """Find the query that a statement invokes. Raises CQL-201 at its name."""
    try:
        pond.query(statement.name)
    except MillpondError as error:
        raise error.at(statement.text, statement.name_span) from None


def _query_of(statement: Statement) -> str | None:
    """The text of the query in a statement, if there is one that can be looked up."""
    if isinstance(statement, statements.Ask | statements.CreateQuery | statements.CreateDerived):
        return statement.query_text
    if isinstance(statement, statements.Explain) and statement.name is None:
        return statement.query_text
    return None


def _json(body: dict[str, Any]) -> Response:
    return Response(json_values.dumps(body), media_type=encode.JSON)
