"""Calls with plain parameters are read as FastAPI reads them, only faster."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header, Query
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse

from millpond.api.contract import DocumentedRoute, _handle_plainly

PATHS = [
    "/v1/things/a%20b?number=3&choice=x",
    "/v1/things/a?number=3",
    "/v1/things/a?number=3&number=4&choice=y&factor=0.5",
    "/v1/things/a",
    "/v1/things/a?number=three",
    "/v1/things/a?number=0&choice=z&factor=-1",
    "/v1/things/a?number=&choice=",
]
HEADERS = [{}, {"X-Kind": "one"}, {"X-Kind": ""}]


def application(route_class: type) -> FastAPI:
    """An application with one call that takes a parameter of each kind."""
    routes = APIRouter(route_class=route_class)

    @routes.get("/v1/things/{thing}", response_class=JSONResponse)
    def call(
        thing: str,
        number: Annotated[int, Query(ge=1)],
        choice: Literal["x", "y"] = "x",
        factor: Annotated[float | None, Query(gt=0)] = None,
        x_kind: Annotated[str | None, Header()] = None,
    ) -> JSONResponse:
        return JSONResponse([thing, number, choice, factor, x_kind])

    app = FastAPI()
    app.include_router(routes)
    return app


def get(app: FastAPI, path: str, headers: dict[str, str]) -> httpx.Response:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(call())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", HEADERS)
def test_plain_parameters_are_read_as_fastapi_reads_them(path: str, headers: dict[str, str]):
    found = get(application(DocumentedRoute), path, headers)
    wanted = get(application(APIRoute), path, headers)
    assert found.status_code == wanted.status_code
    if found.is_success:
        assert found.json() == wanted.json()
    else:
        kinds = [[(e["type"], e["loc"]) for e in r.json()["detail"]] for r in (found, wanted)]
        assert kinds[0] == kinds[1]


def test_what_is_not_plain_is_left_to_fastapi():
    def several(of: Annotated[list[str], Query()]) -> None: ...

    def several_or_none(of: Annotated[list[str] | None, Query()] = None) -> None: ...

    def body(of: dict[str, int]) -> None: ...

    def plain(of: str) -> None: ...

    async def on_the_loop(of: str) -> None: ...

    routes = APIRouter(route_class=DocumentedRoute)
    left = []
    for endpoint in (several, several_or_none, body, on_the_loop, plain):
        routes.post(f"/{endpoint.__name__}")(endpoint)
        if _handle_plainly(routes.routes[-1].dependant) is None:
            left.append(endpoint)
    assert left == [several, several_or_none, body, on_the_loop]
