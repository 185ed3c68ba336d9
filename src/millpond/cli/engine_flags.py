"""Gives a command one flag for each setting of a scope in the catalog's list of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer

from millpond.catalog.option import Option, Scope
from millpond.catalog.options import OPTIONS, list_options


def with_engine_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command flags for the engine's settings; their values become its `settings`."""
    return _with_flags(command, Scope.ENGINE, "settings")


def with_server_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command flags for a server's settings; their values become its `client_limits`."""
    return _with_flags(command, Scope.SERVER, "client_limits")


def _with_flags(command: Callable[..., None], scope: Scope, parameter: str) -> Callable[..., None]:
    names = list_options(scope)

    def run(**given: Any) -> None:
        settings = {name: given.pop(name) for name in names}
        command(**given, **{parameter: settings})

    hints = get_type_hints(command, include_extras=True)
    own = [p for p in inspect.signature(command).parameters.values() if p.name != parameter]
    parameters = [p.replace(annotation=hints[p.name]) for p in own]
    for name in names:
        option = OPTIONS[name]
        help = f"{option.what[0].upper()}{option.what[1:]}: {option.takes}."
        flag = typer.Option(option.default, f"--{name.replace('_', '-')}", help=help)
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=flag, annotation=_annotation(option)
            )
        )
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _annotation(option: Option) -> Any:
    """The type of a flag, which is not there if its option has no default."""
    return option.type if option.default is not None else option.type | None
