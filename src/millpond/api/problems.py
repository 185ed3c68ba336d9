"""Errors over HTTP: one shape for all, and the one table that gives each code its status."""

from __future__ import annotations

import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path

from millpond.api.encode import JSON
from millpond.errors import MillpondError
from millpond.service.json_values import dumps

log = logging.getLogger("millpond.api")

_CALLS = "The calls and their parameters are described at /openapi.json."
#: Names of the forms a body may have, among the places in it.
_BRANCH = re.compile(r"list\[\w+\]$|\w+Body$")

#: The status of each code; a code that is not here has its family's.
STATUSES: dict[str, int] = {
    "CQL-208": 409,
    "CQL-301": 501,
    "POND-401": 409,
    "POND-402": 409,
    "POND-403": 410,
    "POND-404": 422,
    "POND-405": 422,
    "POND-406": 503,
    "POND-407": 409,
    "POND-408": 409,
    "POND-409": 409,
    "POND-410": 503,
    "POND-414": 403,
    "POND-417": 429,
    "POND-415": 503,
    "POND-419": 503,
    "POND-413": 409,
    "DATA-503": 409,
    "DATA-504": 409,
    "STORE-601": 503,
    "STORE-603": 507,
    "STORE-606": 503,
    "STORE-607": 503,
    "SERVE-703": 400,
    "SERVE-704": 404,
    "SERVE-705": 502,
    "SERVE-706": 401,
    "SERVE-707": 413,
    "SERVE-708": 415,
    "SERVE-709": 406,
    "SERVE-710": 421,
    "SERVE-711": 403,
    "SERVE-713": 403,
    "SERVE-714": 429,
    "SERVE-715": 503,
}

#: Seconds after which a client may ask again while Spark is started again.
RETRY_AFTER = 5

#: After how many seconds a request that was refused because of too much work may be sent again.
RETRY_SECONDS = 1

#: What every answer says: no page may frame it, and it is what its media type says.
SAFE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}

_FAMILIES = {"CQL": 400, "POND": 409, "DATA": 400, "STORE": 500, "SERVE": 500, "INTERNAL": 500}


def status_of(error: MillpondError) -> int:
    """The HTTP status of an error.

    >>> status_of(MillpondError("CQL-201", "")), status_of(MillpondError("STORE-603", ""))
    (400, 507)
    """
    return STATUSES.get(error.code, _FAMILIES[error.code.partition("-")[0]])


def problem(
    error: MillpondError, status: int | None = None, results: bytes | None = None
) -> Response:
    """Make the response for an error; `results`, an array of JSON, stands next to "error"."""
    headers = dict(SAFE_HEADERS)
    if error.code == "SERVE-706":
        headers["WWW-Authenticate"] = "Bearer"
    if error.code in ("POND-417", "SERVE-714", "SERVE-715"):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if error.code in ("POND-415", "POND-419"):
        headers["Retry-After"] = str(RETRY_AFTER)
    body = dumps(error.to_json())
    if results is not None:
        body = b"".join((body[:-1], b',"results":', results, b"}"))
    return Response(body, status or status_of(error), headers, media_type=JSON)


def install(app: FastAPI) -> None:
    """Makes every error of the app a `problem`."""
    app.add_exception_handler(MillpondError, _handle_millpond_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle_unknown)


async def _handle_millpond_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MillpondError)
    if error.code == "CQL-201" and (request.path_params or error.text is None):
        # The name that is not found is in no text: it is the call's own, of its path or parameters.
        return problem(error, 404)
    if status_of(error) >= 500 and error.code != "CQL-301":
        log.error("%s %s: %s", request.method, request.url.path, error)
    return problem(error)


async def _handle_disconnect(request: Request, error: Exception) -> Response:
    """A client that leaves before its body is whole is no failure, and nobody reads the answer."""
    return Response(status_code=400)


async def _handle_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = _find_meant_error(error)
    where = ".".join(str(part) for part in first["loc"] if not _BRANCH.match(str(part)))
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        detail = f"The body is not JSON: {reason} at offset {first['loc'][-1]}."
        return problem(MillpondError("SERVE-703", "malformed JSON", detail=detail))
    detail = f"{where}: {first['msg'].removeprefix('Value error, ')}."
    is_list = "params" in first["loc"] and isinstance(first.get("input"), list)
    hint = "A parameter is one value: for a list write IN ($a, $b)." if is_list else _CALLS
    malformed = MillpondError("SERVE-703", "malformed request", detail=detail, hint=hint)
    return problem(malformed, 422)


def _find_meant_error(error: RequestValidationError) -> dict[str, Any]:
    """Return the first error; if the body may be a list, the first for the form that was sent."""
    errors: list[dict[str, Any]] = list(error.errors())
    sent_list = isinstance(error.body, list)
    same_form = [
        e for e in errors if any(str(p).startswith("list[") for p in e["loc"]) == sent_list
    ]
    return (same_form or errors)[0]


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, MillpondError):
        # Raised while the body was being read: the framework has wrapped it.
        return problem(error.__cause__)
    path = request.url.path
    if error.status_code == 404:
        missing = MillpondError("SERVE-704", f'no such resource: "{path}"', hint=_CALLS)
        return problem(missing, 404)
    if error.status_code == 405:
        allowed = _methods(request) or (error.headers or {}).get("Allow", "")
        message = f'"{path}" does not take {request.method}'
        detail = f"It takes {allowed}."
        wrong = MillpondError("SERVE-704", message, detail=detail, hint=_CALLS)
        response = problem(wrong, 405)
        response.headers["Allow"] = allowed
        return response
    return problem(MillpondError("SERVE-703", str(error.detail)), error.status_code)


def _methods(request: Request) -> str:
    """The methods a path takes; the framework's own error knows those of its first route only."""
    paths = request.app.openapi()["paths"].items()
    taken = [calls for path, calls in paths if compile_path(path)[0].match(request.url.path)]
    return ", ".join(sorted(method.upper() for calls in taken for method in calls))


async def _handle_unknown(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(internal_error())


def internal_error() -> MillpondError:
    """Make the error a client gets for an unexpected exception; the log has the rest."""
    return MillpondError(
        "INTERNAL-901",
        "the server failed at this request",
        detail="This is a defect of Millpond, not of the request; the server's log has the trace.",
    )
