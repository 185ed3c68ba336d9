"""The audit log: who changed what, and who was refused, one line of JSON a request.

A line has the id of the token and never the token, and the path of a request and never its query
string, in which a ticket may stand. Requests that only read, and are answered, have no line.
Of many refusals, most are counted (`refusals.py`).
"""

from __future__ import annotations

import json
import logging
import os
from contextvars import ContextVar
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.rights.caller import Caller
from millpond.api.rights.gate import CALLER
from millpond.api.rights.refusals import Refusals
from millpond.api.rights.rights import find_outer_secret
from millpond.cql.tree.statements import Alter, CreateSink, Statement
from millpond.errors import MillpondError

log = logging.getLogger("millpond.audit")
# Statements are in no log until a file is named for them.
log.setLevel(logging.WARNING)

#: The statuses of refusals that have a line though the request only reads.
_REFUSALS = (401, 403, 404, 413, 421, 429)
#: The code of a name that is not there, or another's: of a text that names it, too.
_NOT_FOUND = "CQL-201"
#: The most characters of one statement's text, and the most statements, of a line.
_MOST_TEXT, _MOST_STATEMENTS = 2_000, 100

_statements: ContextVar[list[str] | None] = ContextVar("audited_statements", default=None)


def note_statement(statement: Statement | str) -> None:
    """Have the line of this thread's request name a statement that is about to be executed."""
    noted = _statements.get()
    if noted is None:
        return
    if len(noted) == _MOST_STATEMENTS:
        noted.append("…")
    elif len(noted) < _MOST_STATEMENTS:
        text = statement if isinstance(statement, str) else audited_text(statement)
        noted.append(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…")


def audited_text(statement: Statement) -> str:
    """A statement's text, without the options of a source or sink if one seems to be a secret."""
    if find_outer_secret(statement) is None:
        return statement.text
    match statement:
        case CreateSink():
            return f"CREATE SINK {statement.name} USING {statement.format} (…)"
        case Alter():
            return f"ALTER SINK {statement.name} SET (…)"
    last = source = statement.source  # type: ignore[attr-defined]
    while last.then is not None:
        last = last.then
    before, behind = statement.text[: source.span.start], statement.text[last.span.end :]
    return f"{before}USING {source.format} OPTIONS (…){behind}"


def write_audit_to(path: Path) -> None:
    """Have the audit log written to the end of a file, which only its owner can read.

    When the file is renamed or removed, the next line begins a new one.

    Raises:
        MillpondError: SERVE-712, the file cannot be written.
    """
    try:
        handler = _AuditFile(path, "a", encoding="utf-8")
    except OSError as error:
        raise MillpondError(
            "SERVE-712",
            f'the audit log "{path}" cannot be written',
            detail=f"{error.strerror}.",
            hint="Name a file in a directory of yours.",
        ) from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    for old in log.handlers:
        log.removeHandler(old)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


class _AuditFile(WatchedFileHandler):
    """The file of the audit log."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return open(descriptor, "a", encoding="utf-8")

    def close(self) -> None:
        """Close the file; what was counted of this minute is written first."""
        if self in log.handlers:
            refusals.end_minute()
        super().close()


def _write_line(line: dict[str, Any]) -> None:
    log.info(json.dumps(line, ensure_ascii=False).encode(errors="replace").decode())


#: The refusals of this minute.
refusals = Refusals(_write_line)


class AuditTrail:
    """Writes a line for each request that may change something, and for each refusal."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not log.isEnabledFor(logging.INFO):
            return await self._app(scope, receive, send)
        statements: list[str] = []
        answer: dict[str, Any] = {"status": 0, "body": b""}

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer["status"] = message["status"]
            elif answer["status"] >= 400 and not answer["body"]:
                answer["body"] = message.get("body", b"")
            await send(message)

        token = _statements.set(statements)
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            _statements.reset(token)
            status, code = answer["status"], _code_of(answer["body"])
            is_refusal = status in _REFUSALS or code == _NOT_FOUND
            if scope["method"] not in ("GET", "HEAD", "OPTIONS") or is_refusal:
                line = _describe(scope, status, code, statements)
                (refusals.note if status >= 400 else _write_line)(line)


def _describe(scope: Scope, status: int, code: str | None, statements: list[str]) -> dict[str, Any]:
    caller: Caller | None = scope.get(CALLER)
    client = scope.get("client")
    return {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "owner": caller.owner if caller else None,
        "role": caller.role.word if caller else None,
        "token": caller.id if caller else None,
        "client": client[0] if client else None,
        "method": scope["method"],
        "path": scope["path"][:_MOST_TEXT],
        "status": status,
        "code": code,
        "statements": statements,
    }


def _code_of(body: bytes) -> str | None:
    """The code of an error that was answered; None of anything else."""
    try:
        code: str = json.loads(body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code
