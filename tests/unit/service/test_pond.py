"""A pond is closed once, whoever closes it, and how often."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime


class SlowRuntime(LocalRuntime):
    """Stops slowly, and remembers how often it was to."""

    stopped = 0

    def stop(self) -> None:
        time.sleep(0.1)
        self.stopped += 1


def test_several_threads_close_it_at_once(tmp_path: Path) -> None:
    runtime = SlowRuntime()
    ended: list[str] = []
    pond = Pond(tmp_path / "store", runtime, on_close=lambda: ended.append("on_close"))

    def close() -> None:
        pond.close()
        ended.append(f"closed with {runtime.stopped} stopped")

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pond.close()
    assert ended == ["on_close", *3 * ["closed with 1 stopped"]]
    with pytest.raises(MillpondError, match="POND-410"):
        pond.execute("SHOW STREAMS")
    Pond(tmp_path / "store", LocalRuntime()).close()


def test_what_is_called_at_its_end_may_close_it_again(tmp_path: Path) -> None:
    ended: list[str] = []

    def end() -> None:
        pond.close()
        ended.append("once")

    pond = Pond(tmp_path / "store", LocalRuntime(), on_close=end)
    pond.close()
    assert ended == ["once"]
