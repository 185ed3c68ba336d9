"""The shapes of what is told of backups."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millpond.api.shapes.answer_shapes import ErrorFields
from millpond.api.shapes.shape import Instant, Shape


class Backup(Shape):
    """A backup since it was begun: its number, where it goes, and how far it is.

    `files` `of` the files it needs are there; `new_bytes` is the length of those that were added.
    When it is done, `epoch` is the last it has, of `committed_at`, and `bytes` the length of all
    its files. `error`: why it failed.
    """

    backup: int
    to: str
    copied: Annotated[bool, Field(alias="copy")]
    state: Literal["running", "done", "cancelled", "failed"]
    begun_at: Instant
    ended_at: Instant | None
    files: int
    of: int | None
    new_bytes: int
    epoch: int | None
    committed_at: Instant | None
    bytes: int | None
    error: ErrorFields | None


class BackupList(Shape):
    """The last backups that were begun since the server started, the newest first."""

    backups: list[Backup]
