"""The steps of a call to a server, which a connection takes, blocking or for asyncio.

A call is a generator. It yields a step, is sent what the step gave, and returns what the call
gives; an error of a step is thrown into it. So a call is written once, and whether its thread waits
or its event loop is a matter of who takes the steps.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
import orjson

from millpond.api import decode, encode
from millpond.errors import MillpondError
from millpond.model.time import check_value, timedelta_text
from millpond.model.unicode_text import check_unicode
from millpond.service import json_values

#: Seconds to wait for an answer that has nothing new yet.
POLL_SECONDS = 25.0
#: Seconds to wait for a connection; for an answer there is no limit but the server's own.
CONNECT_TIMEOUT = 5.0
#: How often a call that may be made twice is made before the server counts as gone, and the seconds
#: before the second time; they double each time.
ATTEMPTS = 3
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class HttpRequest:
    """Make a request; gives its `httpx.Response`, an error or not.

    Attributes:
        timeout: Seconds to wait for each piece of the answer; None for the connection's own.
    """

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None

    def build(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """Build the request as a client sends it.

        Raises:
            MillpondError: SERVE-703, a text of the request is not Unicode; POND-410, the client is
                closed.
        """
        if http.is_closed:
            raise ClosedError
        timeout = http.timeout if self.timeout is None else httpx.Timeout(self.timeout)
        try:
            return http.build_request(
                self.method,
                self.path,
                params=dict(self.params) or None,
                content=self.content,
                headers=dict(self.headers),
                timeout=timeout,
            )
        except UnicodeEncodeError as error:
            # A text in the URL, in a header or of rows; those in JSON are the server's to refuse.
            check_unicode(str(error.object), "a text of the request", "SERVE-703")
            raise


@dataclass(frozen=True)
class Lines:
    """Make a request whose answer comes line by line, in place of an earlier one of the call."""

    request: HttpRequest


@dataclass(frozen=True)
class NextLine:
    """Read the next line of the answer; gives None at its end."""


@dataclass(frozen=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


_T = TypeVar("_T")


@dataclass(frozen=True)
class Give(Generic[_T]):
    """Give the caller an item, of a call that gives many."""

    item: _T


Step: TypeAlias = HttpRequest | Lines | NextLine | Pause
#: A call that gives a T.
Steps: TypeAlias = Generator[Step, Any, _T]
#: A call that gives many T, one by one.
Items: TypeAlias = Generator[Step | Give[_T], Any, None]


class ClosedError(MillpondError):
    """The connection was closed by the program itself, so there is nothing to wait for."""

    def __init__(self) -> None:
        super().__init__(
            "POND-410", "the connection is closed", hint="Call millpond.connect() again."
        )


def get(path: str, **params: Any) -> Steps[dict[str, Any]]:
    """Get the JSON the server has at a path."""
    response = check((yield from repeat(HttpRequest("GET", path, params))))
    try:
        body: dict[str, Any] = response.json()
    except json.JSONDecodeError:
        raise decode.error(response.status_code, response.content) from None
    return body


def send(
    method: str,
    path: str,
    body: Any = None,
    *,
    text: str | None = None,
    accept: str = encode.JSON,
    params: Mapping[str, Any] | None = None,
    again: bool = False,
) -> Steps[httpx.Response]:
    """Make a call with a JSON body; an error's place is shown in `text`.

    Args:
        again: Whether the call does the same when it is made twice, and may be made again if the
            connection breaks. GET always may.
    """
    content = None if body is None else json_values.dumps(json_values.to_json_value(body))
    headers = {"Accept": accept, "Content-Type": encode.JSON}
    request = HttpRequest(method, path, params or {}, content, headers)
    if again or method == "GET":
        return check((yield from repeat(request)), text)
    return check((yield request), text)


def repeat(request: HttpRequest) -> Steps[httpx.Response]:
    """Make a request that may be made twice, again while the connection breaks."""
    for attempt in range(1, ATTEMPTS):
        try:
            response: httpx.Response = yield request
        except MillpondError as error:
            if error.code != "SERVE-705":
                raise
            yield Pause(_PAUSE_SECONDS * 2 ** (attempt - 1))
        else:
            return response
    last: httpx.Response = yield request
    return last


def check(response: httpx.Response, text: str | None = None) -> httpx.Response:
    """Return a response that is no error, else raise its error with its place in `text`."""
    if response.is_success:
        return response
    raise decode.error(response.status_code, response.content, text)


def unreachable_error(
    http: httpx.Client | httpx.AsyncClient,
    reason: httpx.TransportError | httpx.UnsupportedProtocol | str,
) -> MillpondError:
    """The error for a server that does not answer."""
    return MillpondError(
        "SERVE-705",
        f"the server at {http.base_url} cannot be reached",
        detail=f"{str(reason).rstrip('.') or type(reason).__name__}.",
        hint="Check the URL, and start a server with `millpond serve`.",
    )


def segment(name: str | int) -> str:
    """Escape a name as a segment of a URL's path.

    Raises:
        MillpondError: CQL-201, nothing can have the name, which would lead elsewhere in a path.
    """
    text = check_unicode(str(name), "the name", "SERVE-703")
    if text in ("", ".", "..") or "/" in text:
        raise MillpondError("CQL-201", f'nothing has the name "{text}"')
    return quote(text, safe="")


def in_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Encode options and `params` for JSON: lengths of time become texts.

    Raises:
        MillpondError: CQL-103, CQL has no constant for a value of `params`.
    """
    body = {k: timedelta_text(v) if isinstance(v, timedelta) else v for k, v in options.items()}
    if isinstance(values := body.get("params"), Mapping):
        body["params"] = {n: _parameter(check_value(v, n)) for n, v in values.items()}
    return body


def _parameter(value: Any) -> Any:
    """A value of a parameter for JSON: a number with all of its digits, a date with its type."""
    match value:
        case bool():
            return value
        case int():
            return orjson.Fragment(str(value))
        case float():
            return orjson.Fragment(repr(value))
        case Decimal():
            return orjson.Fragment(f"{value:f}")
        case datetime():
            return {"type": "TIMESTAMP", "value": value.isoformat()}
        case date():
            return {"type": "DATE", "value": value.isoformat()}
    return value


def given(**params: Any) -> dict[str, Any]:
    """The parameters that are given: all that are not None."""
    return {name: value for name, value in params.items() if value is not None}
