"""`POST /v1/statements`: CQL as text."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from millpond.api import encode, shapes
from millpond.api.contract import DocumentedRoute
from millpond.api.document import (
    BINDS,
    BODY,
    COMMON,
    WRITES,
    Absent,
    describe_answer,
    describe_errors,
)
from millpond.api.negotiate import ENCODING, answer_response, choose_form
from millpond.api.problems import internal_error, log, problem, status_of
from millpond.api.request_work import MaxSeconds, limit_seconds
from millpond.api.surface import ServedPond
from millpond.cql import parse_script, parse_statement
from millpond.cql.tree.statements import Ask, Invoke
from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.results import StatementResult

#: The most bytes that the answers of one request's statements have together.
_MOST_BYTES = 1 << 27


class StatementsBody(BaseModel):
    """Statements to run; with `only`, one question and nothing else."""

    model_config = ConfigDict(extra="forbid")

    text: str
    only: Literal["query"] | None = None


def router(pond: ServedPond, policy: AccessPolicy) -> APIRouter:
    """Make the call that runs statements."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["statements"])

    @routes.post(
        "/v1/statements",
        response_class=Response,
        responses=describe_answer(shapes.Results, encode.NDJSON, *encode.FILES)
        | describe_errors(
            *COMMON, *BODY, *BINDS, *WRITES, 406, 429, shape=shapes.StatementsProblem
        ),
    )
    def run_statements(
        body: StatementsBody,
        max_seconds: MaxSeconds = None,
        accept: Annotated[str | Absent, Header()] = None,
    ) -> Response:
        """Runs statements in order, as `millpond run` does.

        The response is JSON, `{"results": […]}`; or NDJSON with one result a line; or Arrow or
        Parquet with the answer's rows, if exactly one statement gives an answer. If a statement
        fails, the statements before it stay done, and their results are in `results` beside
        `error`. With `"only": "query"`, a text that is not one SELECT is refused before anything
        is done.
        """
        limit_seconds(max_seconds)
        form = choose_form(accept, [encode.JSON, encode.NDJSON, *encode.FILES])
        if body.only is not None:
            _check_question(body.text)
        elif form in encode.FILES:
            _check_one_answer(body.text)
        results: list[StatementResult] = []
        try:
            _run(pond, body.text, policy, results)
        except MillpondError as error:
            return problem(error, status_of(error), results=_done(results))
        except Exception:
            log.exception("POST /v1/statements failed")
            return problem(internal_error(), results=_done(results))
        if form in encode.FILES:
            answer = next(r.answer for r in results if r.answer is not None)
            return answer_response(answer, form)
        if form == encode.NDJSON:
            return Response(b"".join(r + b"\n" for r in _encode(results)), media_type=form)
        text = b'{"results":[' + b",".join(_encode(results)) + b"]}"
        return Response(text, media_type=form)

    return routes


def _check_question(text: str) -> None:
    """Refuse a text that is not one query to be asked once, before any statement has run."""
    if not isinstance(parse_statement(text), Ask):
        raise MillpondError(
            "CQL-216", "not a query", hint="Statements go to execute(), or without `only`."
        )


def _check_one_answer(text: str) -> None:
    """Refuse a text that does not give exactly one answer, before any statement has run."""
    answers = sum(isinstance(statement, Ask | Invoke) for statement in parse_script(text))
    if answers != 1:
        raise MillpondError(
            "SERVE-709",
            f"{answers} answers do not make one file of rows",
            hint="Send one query or INVOKE a request, or accept application/json.",
        )


def _encode(results: list[StatementResult]) -> list[bytes]:
    """Encode the results as JSON objects, large ones when it is their turn."""
    return [_encode_one(result) for result in results]


def _encode_one(result: StatementResult) -> bytes:
    with ENCODING.hold(_size(result)):
        return encode.result_json(result)


def _done(results: list[StatementResult]) -> list[Any]:
    """The results that stand beside an error."""
    return [json.loads(text) for text in _encode(results)]


def _size(result: StatementResult) -> int:
    """The bytes of a result's rows."""
    table = result.table if result.answer is None else result.answer.table
    return 0 if table is None else table.nbytes


def _run(pond: ServedPond, text: str, policy: AccessPolicy, done: list[StatementResult]) -> None:
    """Run statements and append their results to `done`.

    Raises:
        MillpondError: What is wrong with a statement; POND-404, the answers are too large together.
    """
    size = 0
    for result in pond.run(text, policy):
        done.append(result)
        size += _size(result)
        if size > _MOST_BYTES and len(done) > 1:
            done.pop()
            raise MillpondError(
                "POND-404",
                f"the answers of one request have more than {_MOST_BYTES:,} bytes",
                hint="Send the statements in several requests.",
            )
