"""Serves the console's files, which lie beside this one and need nothing from elsewhere.

They are made from the sources in the repository's folder `console` by `make console`.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

_FILES = Path(__file__).parent / "static"

#: The paths of pages and their files. FastAPI's own page at `/docs` loads scripts from elsewhere.
PAGES = {"/": "index.html", "/docs": "docs.html"}

#: The page may load what this server serves and nothing else, and nobody may frame it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def mount(app: FastAPI) -> None:
    """Puts the console at `/`, the page of all calls at `/docs`, their files under `/console/`."""
    for place, name in PAGES.items():
        app.add_route(place, _file(_FILES / name, "text/html"), include_in_schema=False)
    for path in sorted(_FILES.iterdir()):
        if media_type := _TYPES.get(path.suffix):
            app.add_route(f"/console/{path.name}", _file(path, media_type), include_in_schema=False)


def _file(path: Path, media_type: str):  # type: ignore[no-untyped-def]
    def file(request: Request) -> Response:
        plain, packed, tag = _read(path)
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        body = plain
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["Content-Encoding"] = packed, "gzip"
        return Response(body, headers=headers, media_type=media_type)

    return file


@cache
def _read(path: Path) -> tuple[bytes, bytes, str]:
    """A file as it is and packed, and what tells it from other versions of itself."""
    plain = path.read_bytes()
    return plain, gzip.compress(plain, mtime=0), f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
