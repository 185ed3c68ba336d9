"""Where the commands log: on stderr, as text or as JSON lines."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

from millpond.model.log_lines import JsonLines, TextLines


class LogLevel(StrEnum):
    """From which level on lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The forms of the log."""

    TEXT = "text"
    JSON = "json"


def start_log(level: LogLevel, form: LogFormat) -> None:
    """Write what Millpond logs from a level on, and warnings of all others, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("millpond").setLevel(level.value.upper())
    # Its logger writes the stack of every error of a batch, which the stream's status reports.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
