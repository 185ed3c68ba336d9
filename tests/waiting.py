"""Waiting for what other threads and processes do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 120, said: str = "") -> Any:
    """Call a condition until it is true.

    Args:
        condition: What is waited for; an error it raises says that it is not so yet.
        seconds: How long at most.
        said: What is said then; how long it took if empty.

    Returns:
        What the condition gave.

    Raises:
        AssertionError: it never was true; with its last error as the cause.
    """
    end = time.monotonic() + seconds
    while True:
        error: Exception | None = None
        try:
            if found := condition():
                return found
        except Exception as caught:
            error = caught
        if time.monotonic() > end:
            raise AssertionError(said or f"not within {seconds} seconds") from error
        time.sleep(0.02)


def start_until_there(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process, and return it when it has printed that it is 'there'."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "there\n"
    return started
