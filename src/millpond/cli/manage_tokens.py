"""`millpond token`: adds, lists and revokes the tokens of a server, also while it runs."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millpond.errors import MillpondError

app = typer.Typer(
    help="Adds, lists and revokes tokens; a running server notices within a second.",
    no_args_is_help=True,
)

File = Annotated[
    Path,
    typer.Option(
        "--tokens", envvar="MILLPOND_TOKENS", metavar="FILE", help="The file of the tokens."
    ),
]


class RoleName(StrEnum):
    """The roles, as the command line takes them."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


@app.command()
def add(
    owner: Annotated[str, typer.Argument(help="Whose token it is; its queries are this owner's.")],
    tokens: File,
    role: Annotated[RoleName, typer.Option(help="What the token may do.")] = RoleName.READER,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A stream or relation it may use; NAME* for all that begin so; repeatable.",
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0.0001, help="After how many days the token ends.")
    ] = None,
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="How many queries the owner may have.")
    ] = None,
    max_followed: Annotated[
        int | None, typer.Option(min=1, help="How many of these may be followed.")
    ] = None,
    max_kept_changes: Annotated[
        int | None, typer.Option(min=1, help="How many changes are kept of each query.")
    ] = None,
    max_running: Annotated[
        int | None,
        typer.Option(min=1, help="How many requests of the owner may be under way at once."),
    ] = None,
    max_rate: Annotated[
        float | None, typer.Option(min=0.001, help="How many requests a second it may send.")
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, help="How many rows an answer may have.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="How long a request may take.")
    ] = None,
) -> None:
    """Makes a token and prints it, this once: the file keeps its hash."""
    from millpond.api.rights.caller import Caller
    from millpond.api.rights.make_caller import make_caller
    from millpond.api.rights.token_file import add_token

    given = {
        "queries": max_queries,
        "followed": max_followed,
        "kept_changes": max_kept_changes,
        "running": max_running,
        "rate": max_rate,
        "rows": max_rows,
        "seconds": max_seconds,
    }
    quotas = {name: value for name, value in given.items() if value is not None}

    def make(id: str) -> Caller:
        try:
            return make_caller(id, owner, role.value, stream or [], **quotas)
        except ValueError as error:
            raise MillpondError(
                "SERVE-712", "the token cannot be made", detail=f"{error}."
            ) from error

    token, _ = add_token(tokens, make, None if days is None else time.time() + days * 86_400)
    print(token)


@app.command(name="list")
def list_tokens(tokens: File) -> None:
    """Lists the tokens by their ids, and what each may do; the tokens themselves are not kept."""
    from rich.console import Console
    from rich.table import Table

    from millpond.api.rights.token_file import read_entries

    table = Table("id", "owner", "role", "streams", "ends", "quotas", box=None)
    for entry in read_entries(tokens):
        caller, body = entry.caller, entry.to_json()
        ends = entry.expires_at
        until = "" if ends is None else time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(ends))
        quotas = ", ".join(f"{name} {value:g}" for name, value in body["quotas"].items())
        streams = "*" if caller.is_admin else ", ".join(caller.streams)
        table.add_row(caller.id, caller.owner, caller.role.word, streams, until, quotas)
    Console(soft_wrap=True).print(table)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="The token's id, as `millpond token list` shows it.")],
    tokens: File,
) -> None:
    """Takes a token away: from the next second on it lets nobody in, and ends open feeds."""
    from millpond.api.rights.token_file import revoke_token

    revoke_token(tokens, id)
