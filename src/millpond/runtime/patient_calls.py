"""Calls of a server by Spark jobs, made again while the server cannot take them.

A job outlives its server's restarts: it waits for as long as its option `patience` says. Only calls
that may be made twice are made here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import millpond
from millpond.errors import MillpondError

#: The address `millpond serve` uses by default.
DEFAULT_URL = "http://127.0.0.1:6455"
#: What a server answers that will take the same call later, and how long to wait for it then.
_LATER = (
    *("POND-406", "POND-410", "POND-415", "POND-417", "POND-419"),
    *("SERVE-705", "SERVE-714", "SERVE-715"),
)
_PAUSE_SECONDS = 1.0
_MOST_SECONDS = 86_400

_T = TypeVar("_T")


def read_patience(options: Mapping[str, str]) -> float:
    """Read the option `patience`, in seconds; a minute if it is not given.

    Raises:
        MillpondError: SERVE-703, it is no number of seconds up to a day.
    """
    try:
        patience = float(options.get("patience", "60"))
    except ValueError:
        patience = -1.0
    if not 0 <= patience <= _MOST_SECONDS:
        raise MillpondError(
            "SERVE-703",
            f'the option "patience" cannot be "{options["patience"]}"',
            hint="It is a number of seconds, 86,400 at most.",
        )
    return patience


def call(url: str, token: str | None, patience: float, ask: Callable[[Any], _T]) -> _T:
    """Connect and ask, again while the server is away or cannot take the call.

    Args:
        url, token: The server, and its token if it has one.
        patience: For how many seconds the call is repeated.
        ask: What is asked of the connected pond; it may happen twice.

    Raises:
        MillpondError: what the server answered, at last.
    """
    end = time.monotonic() + patience
    while True:
        try:
            with millpond.connect(url, token) as pond:
                return ask(pond)
        except MillpondError as error:
            if error.code not in _LATER or time.monotonic() >= end:
                raise
        time.sleep(_PAUSE_SECONDS)
