"""`/v1/backups`: backups of the store while it is served, as `millpond backup` makes them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from millpond.api import encode
from millpond.api.contract import DocumentedRoute
from millpond.api.document import BODY, WRITES, describe_answer, describe_errors
from millpond.api.shapes.backup_shapes import Backup, BackupList
from millpond.api.surface import ServedPond
from millpond.service import json_values
from millpond.service.definitions.access_policy import AccessPolicy

_Number = Annotated[int, Path(description="The number of a backup.")]


class BackupBody(BaseModel):
    """Where a backup goes, and how."""

    model_config = ConfigDict(extra="forbid")

    to: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="A directory of backups below one that the server was started with "
            "(`--backup-root`): its path, or its place below the first of them.",
        ),
    ]
    copy_files: Annotated[
        bool, Field(alias="copy", description="Copy files that could be hard links.")
    ] = False


def router(pond: ServedPond, policy: AccessPolicy) -> APIRouter:
    """Make the calls that make backups; `policy` says where."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["backups"])

    @routes.post(
        "/v1/backups",
        status_code=202,
        response_class=Response,
        responses=describe_answer(Backup, status=202) | describe_errors(*BODY, *WRITES),
    )
    def begin_backup(body: BackupBody) -> Response:
        """Begins a backup, which is made in the background while everything goes on.

        One is made at a time.
        """
        return _json(pond.begin_backup(body.to, body.copy_files, policy), 202)

    @routes.get("/v1/backups", response_class=Response, responses=describe_answer(BackupList))
    def list_backups() -> Response:
        """Lists the last hundred backups that were begun since the server started."""
        return _json({"backups": pond.backups()})

    @routes.get(
        "/v1/backups/{backup}",
        response_class=Response,
        responses=describe_answer(Backup) | describe_errors(404),
    )
    def show_backup(backup: _Number) -> Response:
        """Returns the state of a backup, and how far it is."""
        return _json(pond.backup(backup))

    @routes.delete(
        "/v1/backups/{backup}",
        response_class=Response,
        responses=describe_answer(Backup) | describe_errors(404),
    )
    def cancel_backup(backup: _Number) -> Response:
        """Cancels a backup that is being made; the backups there were stay, and what was copied
        stays for the next one. A backup that is over stays as it is.
        """
        return _json(pond.cancel_backup(backup))

    return routes


def _json(body: Any, status: int = 200) -> Response:
    return Response(json_values.dumps(body), status, media_type=encode.JSON)
