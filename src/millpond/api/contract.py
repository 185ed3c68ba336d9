"""Refuses calls that the OpenAPI document does not allow: query parameters, media types, texts.

Otherwise a misspelt parameter would be ignored, and the answer would be to another question. The
routers' declarations make the document, so nothing is listed twice.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from millpond.engine.admission.json_size import has_more
from millpond.errors import MillpondError
from millpond.model.unicode_text import check_unicode
from millpond.planner.resolve.names import did_you_mean

#: An escape of JSON: a surrogate pair, half of one (the only group), or another.
_ESCAPE = re.compile(
    rb"""\\(?: u[dD][89abAB]..\\u[dD][c-fC-F].. | (u[dD][89a-fA-F]..) | . )""",
    re.VERBOSE | re.DOTALL,
)

#: The most values of a JSON body, and the most members of an object in it.
MOST_VALUES, MOST_MEMBERS = 1_000_000, 1_000

#: Types of parameters of several values.
_SEVERAL = (list, tuple, set, frozenset, BaseModel)


class DocumentedRoute(APIRoute):
    """A call that is refused unless it is made as the document says.

    It is a kind of route, and no dependency of each call, because FastAPI takes 0.1 ms of a request
    for every dependency. For the same reason a call that takes nothing but plain parameters reads
    those that were sent, and FastAPI reads the others: that is 0.3 ms less for an invocation.
    """

    #: How requests read their bodies.
    request_class: type[Request] = Request

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = _handle_plainly(self.dependant) or super().get_route_handler()

        async def check_and_handle(request: Request) -> Response:
            if self.request_class is not Request:
                request = self.request_class(request.scope, request.receive)
            await _check_documented(request, self.path_format, bool(self.dependant.body_params))
            return await handle(request)

        return check_and_handle


def _handle_plainly(call: Dependant) -> Callable[[Request], Coroutine[Any, Any, Response]] | None:
    """How a call is handled whose parameters are all single values; None if others are among them.

    Raises:
        RequestValidationError: A value that was sent does not fit, or one is missing.
    """
    endpoint = call.call
    if endpoint is None or call.dependencies or call.body_params or call.cookie_params:
        return None
    special = (call.request_param_name, call.response_param_name, call.background_tasks_param_name)
    if any(special) or inspect.iscoroutinefunction(endpoint):
        return None
    groups = (
        ("path", call.path_params),
        ("query", call.query_params),
        ("header", call.header_params),
    )
    fields = [(place, field) for place, group in groups for field in group]
    if any(_takes_several(field.field_info.annotation) for _, field in fields):
        return None

    async def handle(request: Request) -> Response:
        sent: dict[str, Mapping[str, str]] = {
            "path": request.path_params,
            "query": request.query_params,
            "header": request.headers,
        }
        values: dict[str, Any] = {}
        errors: list[Any] = []
        for place, field in fields:
            where = (place, field.alias)
            value = sent[place].get(field.alias)
            if value is not None:
                values[field.name], found = field.validate(value, values, loc=where)
                errors.extend(found)
            elif field.field_info.is_required():
                errors.append({"type": "missing", "loc": where, "msg": "Field required"})
            else:
                values[field.name] = field.default
        if errors:
            raise RequestValidationError(errors)
        response: Response = await run_in_threadpool(endpoint, **values)
        return response

    return handle


def _takes_several(annotation: Any) -> bool:
    """Whether a parameter may be sent several times, or is a model of several parameters."""
    kind = get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, _SEVERAL):
        return True
    return any(_takes_several(part) for part in get_args(annotation))


async def _check_documented(request: Request, path: str, has_fields: bool) -> None:
    """Refuses a call that is not made as the document says.

    Raises:
        MillpondError: SERVE-703 for a query parameter, half of a surrogate pair in the body, or a
            body where none is taken; SERVE-708 for a media type.
    """
    method = "get" if request.method == "HEAD" else request.method.lower()
    call = request.app.openapi()["paths"][path][method]
    if request.query_params:
        known = [p["name"] for p in call.get("parameters", ()) if p["in"] == "query"]
        for name in request.query_params:
            if name not in known:
                raise MillpondError(
                    "SERVE-703",
                    f'no query parameter "{name}"',
                    detail=f"There are: {', '.join(known)}." if known else "The call takes none.",
                    hint=did_you_mean(name, known) or "Remove it.",
                )
    if "requestBody" in call:
        await _check_body(request, list(call["requestBody"]["content"]), has_fields)
    else:
        _refuse_body(request)


def _refuse_body(request: Request) -> None:
    """Refuse a body sent to a call that takes none, and a form, by its media type."""
    media = media_type(request)
    length = request.headers.get("content-length", "0")
    if media in ("", "application/json") and length == "0" and not _is_chunked(request):
        return
    raise MillpondError(
        "SERVE-703",
        "the call takes no body",
        detail=f'The request has one, or says that it would come as "{media}".' if media else None,
        hint="Send none, and no header Content-Type.",
    )


def _is_chunked(request: Request) -> bool:
    return "transfer-encoding" in request.headers


async def _check_body(request: Request, taken: list[str], has_fields: bool) -> None:
    """Refuse a body by its media type, and JSON that FastAPI reads by what is in it."""
    media = media_type(request)
    if media not in taken:
        raise MillpondError(
            "SERVE-708",
            f'the body cannot come as "{media}"' if media else "the body has no media type",
            hint=f"Set the header Content-Type: {' or '.join(taken)}.",
        )
    if media == "application/json" and has_fields:
        await _check_json(request)
        halves = (m[1] for m in _ESCAPE.finditer(await request.body()) if m[1])
        for half in halves:
            character = chr(int(half[1:], 16))
            check_unicode(character, "a text in the body", "SERVE-703")


async def _check_json(request: Request) -> None:
    """Refuse JSON of very many values: each that is wrong becomes an error, of a kilobyte.

    Raises:
        MillpondError: SERVE-707, it has more than `MOST_VALUES` values, or an object has more than
            `MOST_MEMBERS` members.
    """
    body = await request.body()
    if body.count(b",") > MOST_VALUES and await run_in_threadpool(
        has_more, body, b",", MOST_VALUES
    ):
        raise _too_many_error(f"the body has more than {MOST_VALUES:,} values")
    if len(body) <= MOST_MEMBERS:
        return
    try:
        value = await request.json()
    except (ValueError, RecursionError):
        return  # FastAPI says what is wrong with it
    items = value if isinstance(value, list) else [value]
    objects = [item for item in items if isinstance(item, dict)]
    objects += [part for item in objects for part in item.values() if isinstance(part, dict)]
    if any(len(item) > MOST_MEMBERS for item in objects):
        raise _too_many_error(f"an object in the body has more than {MOST_MEMBERS:,} members")


def _too_many_error(primary: str) -> MillpondError:
    return MillpondError("SERVE-707", primary, hint="Send it in several requests.")


def media_type(request: Request) -> str:
    """Return the media type of a request's body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
