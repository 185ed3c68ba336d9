"""Tasks of what runs behind the scenes end with the pond that called for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

pytestmark = pytest.mark.spark

#: Longer than ending a task takes, and shorter than the task.
PATIENCE, LONG = 60.0, 3600.0


def test_tasks_end_and_no_others_begin(open_store: Callable[..., Pond], spark: Any) -> None:
    runtime: Any = open_store()._components.runtime
    failed: list[Exception] = []

    def run() -> None:
        try:
            runtime.run(time.sleep, [LONG])
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    tracker = spark.sparkContext.statusTracker()
    until = time.monotonic() + PATIENCE
    while not tracker.getActiveStageIds() and time.monotonic() < until:
        threading.Event().wait(0.02)
    while not failed and time.monotonic() < until:
        runtime.end_tasks()
        thread.join(0.1)
    assert not thread.is_alive()
    assert len(failed) == 1
    with pytest.raises(MillpondError, match="POND-410"):
        runtime.run(time.sleep, [0.0])
