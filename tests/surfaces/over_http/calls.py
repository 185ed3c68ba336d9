"""Every call an application has, as its routes say: for what is claimed of every call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fastapi import FastAPI


class Call(NamedTuple):
    """A documented call: how it is made, and what the document has of it."""

    method: str
    path: str
    document: dict[str, Any]

    @property
    def url(self) -> str:
        """The path with a name of nothing that exists wherever it takes a name."""
        return self.path.replace("{", "").replace("}", "")

    @property
    def bodies(self) -> list[str]:
        """The media types its body may have."""
        return list(self.document.get("requestBody", {}).get("content", {}))


def every_call(app: FastAPI) -> Iterator[Call]:
    """The calls of the document."""
    for path, calls in app.openapi()["paths"].items():
        for method, document in calls.items():
            yield Call(method.upper(), path, document)


def every_path(app: FastAPI) -> list[str]:
    """Every path that is answered with GET, documented or not: the console's files too."""
    undocumented = [route.path for route in app.router.routes if hasattr(route, "methods")]
    documented = [call.url for call in every_call(app) if call.method == "GET"]
    return [*documented, *(p for p in undocumented if "{" not in p and p not in documented)]
