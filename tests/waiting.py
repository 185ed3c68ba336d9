"""Waiting for what other threads and processes do."""

from __future__ import annotations

import math
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


def measure_least(call: Callable[[int], Any], most: float, times: int = 3) -> float:
    """How much of the processor's time a call takes, when nothing else is in its way.

    Other threads, a collection of garbage and a processor that is shared make a call take longer
    and never shorter, so a call that takes too long is made again, and the least counts.

    Args:
        call: What is measured; it is given the number of the attempt, for what may be remembered.
        most: What it may take, in seconds: after an attempt that took less there is no other one.
        times: How often it is called at most.
    """
    least = math.inf
    for attempt in range(times):
        began = time.process_time()
        call(attempt)
        least = min(least, time.process_time() - began)
        if least < most:
            break
    return least


def start_until_there(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process, and return it when it has printed that it is 'there'."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "there\n"
    return started
