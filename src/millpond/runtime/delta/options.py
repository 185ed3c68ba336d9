"""The options of `USING delta`, checked: an option that nobody reads is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.planner.resolve.names import did_you_mean

OPTIONS = ("path", "start", "max_files")
#: How many files a batch has at most unless `max_files` says so.
_MAX_FILES = 1_000


@dataclass(frozen=True)
class DeltaOptions:
    """How one stream reads its table.

    Attributes:
        stream: The stream's name, for errors.
        path: The table's directory, absolute.
        start: 'earliest' for what the table has when the stream begins and all that is appended
            later, 'latest' for what is appended later, or the version that is read first.
        max_files: How many files a batch has at most.
    """

    stream: str
    path: Path
    start: str | int
    max_files: int


def delta_options(definition: StreamDef | RelationDef) -> DeltaOptions:
    """Read the options of a stream's source.

    Raises:
        MillpondError: CQL-214, an option is missing, unknown, or has a value it cannot have.
    """
    source = definition.source
    assert source is not None
    given = source.options
    if isinstance(definition, RelationDef):
        raise MillpondError(
            "CQL-214",
            f'relation "{definition.name}" cannot be read from a Delta table',
            hint="CREATE STREAM reads what is appended to the table.",
        )
    for name in given:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"Options are {', '.join(OPTIONS)}."
            raise option_error(definition, f'the option "{name}" is none of a Delta source', hint)
    if not given.get("path", "").strip():
        using = "USING delta OPTIONS (path '/data/orders')"
        raise option_error(definition, "the Delta source has no path", using)
    return DeltaOptions(
        definition.name,
        table_path(given["path"], f'the source of "{definition.name}"'),
        _read_start(definition, given),
        int(given.get("max_files", _MAX_FILES)),  # checked when the stream was declared
    )


def table_path(path: str, whose: str) -> Path:
    """The directory of a table, absolute; a relative path starts where the program was started.

    Raises:
        MillpondError: CQL-214, the path is the address of something that is no directory.
    """
    local = path.removeprefix("file://").removeprefix("file:")
    if "://" in local or "\0" in local:
        raise MillpondError(
            "CQL-214",
            f'{whose} cannot be the table "{path}"',
            detail="Tables are directories of this machine, or mounted on all that run tasks.",
            hint="Mount the storage, and name the directory.",
        )
    return Path(local).absolute()


def _read_start(definition: StreamDef, given: Mapping[str, str]) -> str | int:
    start = given.get("start", "earliest").strip().lower()
    if start in ("earliest", "latest"):
        return start
    if start.isascii() and start.isdigit() and len(start) < 19:
        return int(start)
    raise option_error(
        definition,
        f'the Delta source cannot start at "{start[:100]}"',
        "start is 'earliest', 'latest', or the number of a version.",
    )


def option_error(definition: StreamDef | RelationDef, primary: str, hint: str) -> MillpondError:
    """Make the error CQL-214 of a source's option."""
    return MillpondError("CQL-214", f'{primary} (stream "{definition.name}")', hint=hint)
