"""A source's checkpoint is damaged while the store is closed: the stream stops and says so.

Without that, Spark would number its batches anew, and new files would be passed over in silence as
batches that are committed already.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def newest(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda file: int(file.name.partition(".")[0]))


def cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the folder gone": shutil.rmtree,
    "offsets removed": lambda c: newest(c / "offsets").unlink(),
    "offsets cut": lambda c: cut(newest(c / "offsets")),
    "offsets emptied": lambda c: newest(c / "offsets").write_bytes(b""),
    "files removed": lambda c: newest(c / "sources/0").unlink(),
    "files cut": lambda c: cut(newest(c / "sources/0")),
    "commits cut": lambda c: cut(newest(c / "commits")),
    "commits removed": lambda c: shutil.rmtree(c / "commits"),
}
#: Spark does a batch again that it knows to have begun; it is in an epoch, and is passed over.
HARMLESS = {"commits removed"}
#: One of each kind: everything gone, a file that cannot be read, and what does no harm.
QUICK = {"the folder gone", "offsets cut", *HARMLESS}


def write(folder: Path, name: str, *numbers: int) -> None:
    (folder / f".{name}").write_text("".join(f"{n}\n" for n in numbers))
    (folder / f".{name}").rename(folder / f"{name}.csv")


@pytest.mark.parametrize(
    "damage",
    [pytest.param(d, marks=[] if d in QUICK else [pytest.mark.slow]) for d in DAMAGES],
)
def test_a_damaged_checkpoint(
    open_store: Callable[..., Any], tmp_path: Path, eventually: Callable[..., Any], damage: str
) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    folder.mkdir()
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    for number in range(3):
        write(folder, f"a{number}", number)
        pond.catch_up(timeout=120)
    pond.close()
    kept = tmp_path / "kept"
    shutil.copytree(store / "checkpoints" / "stream-1", kept)
    DAMAGES[damage](store / "checkpoints" / "stream-1")
    write(folder, "b", 3)
    pond = open_store()
    whole = [(4, 6, 4)]

    def answer() -> list[tuple[int, int, int]]:
        rows = pond.ask("SELECT count(*), sum(n), count(DISTINCT n) FROM s").rows()
        return [tuple(row) for row in rows]

    if damage in HARMLESS:
        eventually(lambda: answer() == whole)
        return
    stopped = eventually(
        lambda: pond.status()["streams"][0]["state"] == "stopped" and pond.status()
    )
    assert stopped["streams"][0]["reason"]
    assert "stands still" in stopped["problems"][0]["message"]
    assert answer() == [(3, 3, 3)]
    pond.close()
    shutil.rmtree(store / "checkpoints" / "stream-1", ignore_errors=True)
    shutil.copytree(kept, store / "checkpoints" / "stream-1")
    pond = open_store()
    eventually(lambda: answer() == whole)
