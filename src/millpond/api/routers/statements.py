"""`POST /v1/statements`: CQL as text."""

from __future__ import annotations

from typing import Annotated

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
from millpond.api.negotiate import answer_response, choose_form
from millpond.api.problems import internal_error, log, problem, status_of
from millpond.api.request_work import MaxSeconds, limit_seconds
from millpond.api.surface import ServedPond
from millpond.cql import parse_script
from millpond.cql.tree.statements import Ask, Invoke
from millpond.errors import MillpondError
from millpond.service import json_values
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.results import StatementResult


class StatementsBody(BaseModel):
    """Statements to run."""

    model_config = ConfigDict(extra="forbid")

    text: str


def router(pond: ServedPond, policy: AccessPolicy) -> APIRouter:
    """Make the call that runs statements."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["statements"])

    @routes.post(
        "/v1/statements",
        response_class=Response,
        responses=describe_answer(shapes.Results, encode.NDJSON, encode.ARROW)
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

        The response is JSON, `{"results": […]}`; or NDJSON with one result a line; or Arrow with
        the answer's rows, if exactly one statement gives an answer. If a statement fails, the
        statements before it stay done, and their results are in `results` beside `error`.
        """
        limit_seconds(max_seconds)
        form = choose_form(accept, [encode.JSON, encode.NDJSON, encode.ARROW])
        if form == encode.ARROW:
            _check_one_answer(body.text)
        results: list[StatementResult] = []
        try:
            results.extend(pond.run(body.text, policy))
        except MillpondError as error:
            return problem(error, status_of(error), results=_results(results))
        except Exception:
            log.exception("POST /v1/statements failed")
            return problem(internal_error(), results=_results(results))
        if form == encode.ARROW:
            answer = next(r.answer for r in results if r.answer is not None)
            return answer_response(answer, form)
        if form == encode.NDJSON:
            lines = b"".join(json_values.dumps(r) + b"\n" for r in _results(results))
            return Response(lines, media_type=form)
        return Response(json_values.dumps({"results": _results(results)}), media_type=form)

    return routes


def _check_one_answer(text: str) -> None:
    """Refuse a text that does not give exactly one answer, before any statement has run."""
    answers = sum(isinstance(statement, Ask | Invoke) for statement in parse_script(text))
    if answers != 1:
        raise MillpondError(
            "SERVE-709",
            f"{answers} answers do not make one Arrow stream",
            hint="Send one query or INVOKE a request, or accept application/json.",
        )


def _results(results: list[StatementResult]) -> list[dict[str, object]]:
    return [encode.result_json(result) for result in results]
