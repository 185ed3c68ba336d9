"""What Kafka's clients say of their connections: into the log, and into errors.

To a client's calls a password that is wrong is a broker that does not answer in time; only its
callback for errors is told the reason. A client tries to connect several times a second, so each of
these texts is logged once a minute.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

_EVERY_SECONDS = 60.0
#: Errors of connections that say why nobody answers.
_REASONS = ("_AUTHENTICATION", "_SSL", "_RESOLVE", "SASL_AUTHENTICATION_FAILED")
_NUMBER = re.compile(r"\d+")


class Repeats(logging.Filter):
    """Leaves out a text, whatever its numbers are, that was logged less than a minute ago."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, text = time.monotonic(), _NUMBER.sub("", record.getMessage())
        if now - self._logged_at.get(text, float("-inf")) < _EVERY_SECONDS:
            return False
        if len(self._logged_at) > 1_000:
            self._logged_at.clear()
        self._logged_at[text] = now
        return True


#: The logger that is given to clients.
log = logging.getLogger("millpond.kafka")
log.addFilter(Repeats())


class Complaints:
    """The last reason that clients gave for why nobody answers; `note` is their `error_cb`."""

    def __init__(self) -> None:
        self.last: str | None = None

    def note(self, error: Any) -> None:
        """Take an error of a client."""
        if error.name() in _REASONS:
            self.last = str(error.str())
