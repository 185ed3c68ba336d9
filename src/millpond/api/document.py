"""The parts of the OpenAPI document besides a call's parameters: its answers and its errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from pydantic import WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from millpond.api import encode
from millpond.api.problems import status_of
from millpond.api.shapes.answer_shapes import Problem
from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.errors import CODES, MillpondError

#: What a parameter is that was not given: in a URL there is no null.
Absent = SkipJsonSchema[None]

#: A call's answers by their status, as FastAPI takes them.
Responses = dict[int | str, dict[str, Any]]

TEXT: dict[str, Any] = {"type": "string"}
BYTES: dict[str, Any] = {"type": "string", "format": "binary"}

#: The schema of each form an answer may have besides JSON.
_FORMS = {
    encode.NDJSON: TEXT,
    "text/event-stream": TEXT,
    encode.ARROW: BYTES,
    encode.PARQUET: BYTES,
    "text/plain": TEXT,
}

#: Errors every call may answer with.
COMMON = (400, 403, 421, 422, 500, 503)
#: The errors of a call with a body, of a call that binds a query, of a call that writes the store.
BODY = (413, 415)
BINDS = (409, 410, 501)
WRITES = (409, 507)


def _describe_options(scope: Scope) -> dict[str, Any]:
    """The JSON schema of each option that things of a kind have."""
    return {
        name: {**OPTIONS[name].values.schema, "description": OPTIONS[name].text}
        for name in list_options(scope)
    }


#: A query's options, which `check_options` checks.
QueryOptions = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "Options",
            "additionalProperties": False,
            "properties": _describe_options(Scope.QUERY),
        }
    ),
]

#: What can be told a query: options, and values of the parameters of its text.
QueryChanges = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "Changes",
            "additionalProperties": False,
            "properties": {
                **_describe_options(Scope.QUERY),
                "params": {
                    "type": "object",
                    "additionalProperties": {
                        "anyOf": [
                            {"type": ["string", "number", "boolean", "null"]},
                            {"$ref": "#/components/schemas/TimeValue"},
                        ]
                    },
                    "description": "values of parameters of the text; the others keep theirs",
                },
            },
        }
    ),
]

#: What can be told a stream.
StreamOptions = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "Options",
            "additionalProperties": False,
            "properties": {
                **_describe_options(Scope.INPUT),
                **_describe_options(Scope.CLAUSE),
                "active": {"type": "boolean", "description": "true lets a derived stream go on"},
            },
        }
    ),
]

#: What can be set of an entity, which is said by its `settings`.
EntitySettings = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "Settings",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
    ),
]


def describe_errors(*statuses: int, shape: Any = Problem) -> Responses:
    """Errors by their status, each with the codes it may stand for."""
    return {status: {"model": shape, "description": _codes_of(status)} for status in statuses}


def describe_answer(
    shape: Any, *forms: str, status: int = 200, headers: dict[str, str] | None = None
) -> Responses:
    """Describe the answer of a call.

    Args:
        shape: The answer's shape as JSON; None if the answer is never JSON.
        forms: The other media types of the answer.
        status: The answer's status.
        headers: The answer's headers, each with its description.
    """
    found: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if shape is not None:
        found["model"] = shape
    if forms:
        # JSON first: generators of clients take the first form they know.
        found["content"] = {encode.JSON: {}} if shape is not None else {}
        found["content"] |= {form: {"schema": _FORMS[form]} for form in forms}
    if headers:
        found["headers"] = {
            name: {"description": text, "schema": TEXT} for name, text in headers.items()
        }
    return {status: found}


def _codes_of(status: int) -> str:
    codes = [code for code in CODES if status_of(MillpondError(code, "")) == status]
    listed = "; ".join(f"{code}: {CODES[code]}" for code in codes)
    phrase = HTTPStatus(status).phrase
    return f"{phrase} ({listed})" if listed and len(codes) <= 12 else phrase
