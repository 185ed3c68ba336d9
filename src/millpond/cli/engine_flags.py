"""Gives a command one flag for each of the engine's settings in the catalog's list of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer

from millpond.catalog.options import OPTIONS, Scope, list_options


def with_engine_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command flags for the engine's settings; their values become its `settings`."""
    names = list_options(Scope.ENGINE)

    def run(**given: Any) -> None:
        settings = {name: given.pop(name) for name in names}
        command(**given, settings=settings)

    hints = get_type_hints(command, include_extras=True)
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
    parameters = [p.replace(annotation=hints[p.name]) for p in own]
    for name in names:
        option = OPTIONS[name]
        help = f"{option.what[0].upper()}{option.what[1:]}: {option.takes}."
        flag = typer.Option(option.default, f"--{name.replace('_', '-')}", help=help)
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=flag, annotation=option.type
            )
        )
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
