"""`millpond plan`: exports the plan of a running server, compares and adopts one, takes it back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.api.surface import Surface

app = typer.Typer(
    help="Exports the plan by which changes are computed, compares and adopts one, takes it back.",
    no_args_is_help=True,
)

Url = Annotated[
    str, typer.Option("--url", envvar="MILLPOND_URL", metavar="URL", help="The server's URL.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="MILLPOND_TOKEN",
        help="The token of an admin; auto: the one from a file that only you can read.",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The document; - for the standard input.")
]
HERE = "http://127.0.0.1:6455"


@app.command()
def export(
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="[QUERY]...", help="Followed queries; else all.")
    ] = None,
    url: Url = HERE,
    token: Token = None,
) -> None:
    """Prints the plan as a document."""
    with _connect(url, token) as pond:
        _print(pond.export_plan(queries or None))


@app.command()
def compare(file: File, url: Url = HERE, token: Token = None) -> None:
    """Prints what would be other if a document were adopted; nothing changes."""
    document = _read(file)
    with _connect(url, token) as pond:
        _print(pond.compare_plan(document))


@app.command()
def adopt(
    file: File,
    base: Annotated[
        str | None,
        typer.Option(help="As compare printed it: adopts nothing if something changed since."),
    ] = None,
    url: Url = HERE,
    token: Token = None,
) -> None:
    """Adopts a document while queries run, and prints what is other."""
    document = _read(file)
    with _connect(url, token) as pond:
        _print(pond.adopt_plan(document, base=base))


@app.command()
def adopted(url: Url = HERE, token: Token = None) -> None:
    """Prints the adopted plans that can be taken back, the last one first."""
    with _connect(url, token) as pond:
        _print(pond.adopted_plans())


@app.command()
def undo(
    plan: Annotated[
        int | None, typer.Argument(metavar="[PLAN]", help="Its number, for it to be no other.")
    ] = None,
    url: Url = HERE,
    token: Token = None,
) -> None:
    """Takes the plan back that was adopted last."""
    with _connect(url, token) as pond:
        _print(pond.undo_plan(plan))


@contextmanager
def _connect(url: str, token: str | None) -> Iterator[Surface]:
    from millpond.api import tokens
    from millpond.api.client import connect

    with connect(url, tokens.read_token() if token == tokens.AUTO else token) as pond:
        yield pond


def _read(file: Path) -> dict[str, Any]:
    """Read a document. Raises CQL-214 if the file has none."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise MillpondError("CQL-214", f'"{file}" has no plan', detail=f"{error}.") from error
    if not isinstance(found, dict):
        raise MillpondError("CQL-214", f'"{file}" has no plan', detail="It is no JSON object.")
    return found


def _print(what: Any) -> None:
    print(json.dumps(what, indent=2, ensure_ascii=False))
