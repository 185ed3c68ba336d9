"""A pond that is closed ends what runs behind the scenes, and waits for none of it for long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from millpond.runtime.maintenance_tasks import backfill
from millpond.runtime.protocol import Done, Job
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime, open_local

#: Longer than closing takes: reached only by what is broken.
PATIENCE = 20.0


class Busy(LocalRuntime):
    """Has backfill run until it is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.is_ended = threading.Event(), threading.Event()

    def run(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        if task is not backfill:
            return super().run(task, jobs, near)
        self.begun.set()
        assert self.is_ended.wait(PATIENCE)
        raise RuntimeError("it was ended")

    def end_tasks(self) -> None:
        self.is_ended.set()


def test_a_task_of_maintenance_is_ended_when_the_pond_closes(tmp_path: Path) -> None:
    runtime = Busy()
    pond = Pond(tmp_path / "store", runtime)
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.execute("INSERT INTO s VALUES ('2026-03-01', 7)")
    query = pond.register("SELECT v FROM s WHERE v = 7", "q")
    assert runtime.begun.wait(PATIENCE)
    thread = pond._components.maintenance._thread
    assert thread is not None
    closing = threading.Thread(target=pond.close)
    closing.start()
    closing.join(PATIENCE / 2)
    assert not closing.is_alive()
    assert not thread.is_alive()
    # What was not done is done when the store is opened again.
    with open_local(tmp_path / "store") as again:
        assert again.query(query.id).invoke().rows() == [(7,)]
        again.wait_until_matched()
        assert again.query("q").describe()["name"] == "q"
