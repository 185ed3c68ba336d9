"""The settings of the commands from a file, and `millpond config`, which prints what holds.

A flag counts before the environment, the environment before the file, the file before the default:
that is Click's order, which does all of it here. The file is TOML with a table for each command:

    [serve]
    port = 7000
    allow_host = ["pond.example.org"]
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from typer.core import TyperGroup

from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.cli.checked_settings import find_refusals
from millpond.cli.output_format import Format, ReportFormat
from millpond.errors import MillpondError

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="A TOML file of the commands' settings; see the guide."
    ),
]

#: Options whose values are not printed.
_SECRET = {"token", "spark_conf"}


def use_config(context: typer.Context, path: Path | None) -> None:
    """Take a file's settings as the defaults of the commands.

    Raises:
        MillpondError: SERVE-712, the file cannot be read, names a command or a setting there is
            not, or gives a setting a value it cannot have; or the environment has a variable of
            the command that is no setting.
    """
    if context.invoked_subcommand is not None:
        _check_environment(context, context.invoked_subcommand)
    if path is None:
        return
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _error(
            path, f"{reason.rstrip('.')}.", "Write TOML: [serve], then port = 7000."
        ) from None
    defaults: dict[str, dict[str, Any]] = {}
    for command, settings in tables.items():
        known = _list_settings(context, command)
        if known is None or not isinstance(settings, dict):
            commands = ", ".join(f"[{name}]" for name in _group(context).list_commands(context))
            raise _error(path, f'"{command}" is no command.', f"Tables are {commands}.")
        defaults[command] = {}
        for name, value in settings.items():
            key = name.replace("-", "_")
            if key not in known:
                raise _error(
                    path,
                    f'"{name}" is no setting of {command}.',
                    f"`millpond config {command}` lists them.",
                )
            if (wrong := _find_fault(context, known[key], value)) is not None:
                written = f'The value of "{name}" under [{command}] is wrong: {wrong}'
                raise _error(
                    path, f"{written}.", f"`millpond {command} --help` says what it takes."
                )
            defaults[command][key] = value
    context.default_map = defaults


def show_config(context: typer.Context, command: str, form: ReportFormat) -> None:
    """Print each setting of a command as it would be without flags, and where it comes from.

    What the command would refuse is complained of behind that, as the command would do it.

    Raises:
        MillpondError: SERVE-712, there is no such command, or the environment has a variable of
            it that is no setting.
        typer.Exit: with 1, the command would refuse a setting.
    """
    parent = context.find_root()
    found = _group(parent).get_command(parent, command)
    if found is None:
        raise MillpondError(
            "SERVE-712", f'no command "{command}"', hint="`millpond --help` lists them."
        )
    _check_environment(parent, command)
    rows: list[tuple[str, str | None, str]] = []
    refused: list[str] = []
    with found.make_context(command, [], parent=parent, resilient_parsing=True) as own:
        refusals = find_refusals(own.params)
        for parameter in found.params:
            name = parameter.name
            if name is None or name == "help" or parameter.param_type_name != "option":
                continue
            source = own.get_parameter_source(name)
            where = _SOURCES.get(source.name if source else "", "default")
            value = _write(name, own.params.get(name))
            refusal = refusals[name].render() if name in refusals else None
            if refusal is None and own.params.get(name) is None and where != "default":
                refusal = _find_misfit(own, parameter)
            if refusal is not None:
                value = "(cannot be used)"
                refused += [] if refusal in refused else [refusal]
            rows.append((name, value, where))
    _print_rows(rows, form)
    for refusal in refused:
        print(refusal, file=sys.stderr)
    if refused:
        raise typer.Exit(1)


def _find_misfit(context: Any, option: Any) -> str | None:
    """Say why a setting cannot have the text it is given, as the command would; None if it can."""
    try:
        option.process_value(context, option.consume_value(context, {})[0])
    except typer.BadParameter as error:
        error.ctx, error.param = context, option
        name_variable(error)
        return error.format_message()
    return None


def _print_rows(rows: list[tuple[str, str | None, str]], form: ReportFormat) -> None:
    if form is ReportFormat.JSON:
        print(
            json.dumps([dict(zip(("setting", "value", "from"), row, strict=True)) for row in rows])
        )
        return
    from millpond.cli.result_writers import writer
    from millpond.service.results import StatementResult

    columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
    table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    writer(Format.TABLE).write(StatementResult("config", None, table=table))


_COLUMNS = ("setting", "value", "from")
_SOURCES = {"ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}


def _write(name: str, value: Any) -> str | None:
    if value is None or value == () or value == []:
        return None
    if name in _SECRET:
        return "(not shown)"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _group(context: Any) -> TyperGroup:
    group = context.command
    assert isinstance(group, TyperGroup)
    return group


def _list_settings(context: typer.Context, command: str) -> dict[str, Any] | None:
    """A command's options by their names; None if there is no such command."""
    found = _group(context).get_command(context, command)
    if found is None:
        return None
    return {p.name: p for p in found.params if p.param_type_name == "option" and p.name is not None}


def _check_environment(context: Any, command: str) -> None:
    """Raises SERVE-712 if the environment has a variable of a command that is no setting of it."""
    found = _group(context).get_command(context, command)
    if found is None or isinstance(found, TyperGroup):
        return
    prefix = f"{context.auto_envvar_prefix}_{command.upper()}_"
    known = {f"{prefix}{p.name.upper()}" for p in found.params if p.name is not None}
    for name in sorted(os.environ):
        if name.startswith(prefix) and name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            raise MillpondError(
                "SERVE-712",
                f"the variable {name} of the environment is no setting of {command}",
                hint=f"Did you mean {near[0]}?" if near else "Unset it.",
            )


def _find_fault(context: typer.Context, option: Any, value: Any) -> str | None:
    """Say why an option cannot have a file's value, without the value; None if it can."""
    if option.multiple != isinstance(value, list):
        example = f'{option.name} = ["…"]' if option.multiple else f"{option.name} = …"
        return f"write {example}"
    if isinstance(value, bool) and not option.is_flag:
        return "it is neither true nor false"
    try:
        cast = option.process_value(context, value)
    except typer.BadParameter as error:
        return error.message.rstrip(".")
    return _find_option_fault(option.name, cast)


def _find_option_fault(name: str, value: Any) -> str | None:
    """Say why a setting of the engine or a server cannot have a value; None if it can."""
    if value is None or name not in (*list_options(Scope.ENGINE), *list_options(Scope.SERVER)):
        return None
    try:
        OPTIONS[name].values.check(value)
    except ValueError:
        return f"it takes {OPTIONS[name].takes}"
    return None


def name_variable(error: typer.BadParameter) -> None:
    """Have an error about the value of a flag say the variable from which the value came."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None:
        return
    source = context.get_parameter_source(option.name)
    if source is not None and source.name == "ENVIRONMENT":
        variable = option.envvar or f"{context.auto_envvar_prefix}_{option.name.upper()}"
        error.message = f"{error.message} (from the variable {variable})"


def _error(path: Path, detail: str, hint: str) -> MillpondError:
    return MillpondError(
        "SERVE-712", f'the settings in "{path}" cannot be used', detail=detail, hint=hint
    )
