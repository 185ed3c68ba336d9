"""Serves the console's files, which lie beside this one and need nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, Response

_FILES = Path(__file__).parent / "static"

#: The page may load what this server serves and nothing else, and nobody may frame it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def mount(app: FastAPI) -> None:
    """Puts the page at `/` and its files under `/console/`."""

    async def index(request: Request) -> Response:
        return FileResponse(_FILES / "index.html", media_type="text/html", headers=_HEADERS)

    app.add_route("/", index, methods=["GET"], include_in_schema=False)
    for path in sorted(_FILES.iterdir()):
        if media_type := _TYPES.get(path.suffix):
            app.add_route(f"/console/{path.name}", _file(path, media_type), include_in_schema=False)


def _file(path: Path, media_type: str):  # type: ignore[no-untyped-def]
    async def file(request: Request) -> Response:
        return FileResponse(path, media_type=media_type, headers=_HEADERS)

    return file
