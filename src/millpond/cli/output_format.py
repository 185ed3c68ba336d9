"""The output formats a user can choose on the command line."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The formats of `millpond run`."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class ReportFormat(StrEnum):
    """The formats of `millpond check`."""

    TABLE = "table"
    JSON = "json"
