"""Calls to a server: sends and reads JSON or Arrow, and raises the server's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx

from millpond.api import decode, encode
from millpond.cql.parse.durations import timedelta_text
from millpond.errors import MillpondError
from millpond.model.unicode_text import check_unicode
from millpond.service import json_values

#: Seconds to wait for an answer that has nothing new yet.
POLL_SECONDS = 25.0


class Calls:
    """Calls a server; safe to use from several threads.

    Every call raises the `MillpondError` the server answers with, SERVE-705 when it cannot be
    reached, and POND-410 when the connection was closed here.
    """

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Get the JSON the server has at a path."""
        response = self.check(self.request("GET", path, params=params))
        try:
            body: dict[str, Any] = response.json()
        except json.JSONDecodeError:
            raise decode.error(response.status_code, response.content) from None
        return body

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        text: str | None = None,
        accept: str = encode.JSON,
        params: dict[str, Any] | None = None,
    ) -> httpx.Response:
        """Make a call with a JSON body; an error's place is shown in `text`."""
        content = None if body is None else json_values.dumps(json_values.to_json_value(body))
        headers = {"Accept": accept, "Content-Type": encode.JSON}
        response = self.request(method, path, content=content, headers=headers, params=params)
        return self.check(response, text)

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Make a call and return the response, an error or not."""
        try:
            if self.http.is_closed:
                raise MillpondError(
                    "POND-410", "the connection is closed", hint="Call millpond.connect() again."
                )
            return self.http.request(method, path, **arguments)
        except UnicodeEncodeError as error:
            # A text in the URL, in a header or of rows; those in JSON are the server's to refuse.
            check_unicode(str(error.object), "a text of the request", "SERVE-703")
            raise
        except (httpx.TransportError, httpx.UnsupportedProtocol) as error:
            raise MillpondError(
                "SERVE-705",
                f"the server at {self.http.base_url} cannot be reached",
                detail=f"{str(error).rstrip('.') or type(error).__name__}.",
                hint="Check the URL, and start a server with `millpond serve`.",
            ) from error

    @staticmethod
    def check(response: httpx.Response, text: str | None = None) -> httpx.Response:
        """Return a response that is no error, else raise its error with its place in `text`."""
        if response.is_success:
            return response
        raise decode.error(response.status_code, response.content, text)


def segment(name: str | int) -> str:
    """Escape a name as a segment of a URL's path."""
    return quote(check_unicode(str(name), "the name", "SERVE-703"), safe="")


def in_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Encode a query's options for JSON: lengths of time become texts."""
    return {k: timedelta_text(v) if isinstance(v, timedelta) else v for k, v in options.items()}
