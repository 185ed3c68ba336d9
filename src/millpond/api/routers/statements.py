"""`POST /v1/statements`: CQL as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from millpond.api import encode
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
from millpond.api.shapes import answer_shapes
from millpond.api.surface import ServedPond
from millpond.cql import parse_script, parse_statement
from millpond.cql.tree.statements import Ask, Invoke
from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.results import StatementResult
from millpond.work import keeping_rows

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
        responses=describe_answer(answer_shapes.Results, encode.NDJSON, *encode.FILES)
        | describe_errors(
            *COMMON, *BODY, *BINDS, *WRITES, 406, 429, shape=answer_shapes.StatementsProblem
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
        with keeping_rows():
            return _respond(pond, body.text, policy, form)

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


def _respond(pond: ServedPond, text: str, policy: AccessPolicy, form: str) -> Response:
    results: list[StatementResult] = []
    try:
        _run(pond, text, policy, results)
    except MillpondError as error:
        return problem(error, status_of(error), _encode(encode.results_array, results))
    except Exception:
        log.exception("POST /v1/statements failed")
        return problem(internal_error(), results=_encode(encode.results_array, results))
    if form in encode.FILES:
        answer = next(r.answer for r in results if r.answer is not None)
        return answer_response(answer, form)
    encode_all = encode.results_ndjson if form == encode.NDJSON else encode.results_json
    return Response(_encode(encode_all, results), media_type=form)


def _encode(
    encode_all: Callable[[list[StatementResult]], bytes], results: list[StatementResult]
) -> bytes:
    """Encode the results, large ones when it is their turn."""
    with ENCODING.hold(sum(result.nbytes for result in results)):
        return encode_all(results)


def _run(pond: ServedPond, text: str, policy: AccessPolicy, done: list[StatementResult]) -> None:
    """Run statements and append their results to `done`.

    Raises:
        MillpondError: What is wrong with a statement; POND-404, the answers are too large together.
    """
    size = 0
    for result in pond.run(text, policy):
        done.append(result)
        size += result.nbytes
        if size > _MOST_BYTES and len(done) > 1:
            done.pop()
            raise MillpondError(
                "POND-404",
                f"the answers of one request have more than {_MOST_BYTES:,} bytes",
                hint="Send the statements in several requests.",
            )
