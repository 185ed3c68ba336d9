"""Snapshots of Query SteMs as tasks open them, on the driver's machine or on another."""

from __future__ import annotations

from pathlib import Path

from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.state.file_share import fetch


def load_stem(path: str | Path) -> StemSnapshot:
    """Map a saved snapshot; what is missing of it on this machine is fetched.

    Raises:
        OSError: a file is missing, and nobody has given it.
        ValueError: a file is not what it should be.
        MillpondError: STORE-603, the shared storage gives no answer.
    """
    asked: set[str] = set()
    while True:
        try:
            return StemSnapshot.load(path)
        except FileNotFoundError as missing:
            name = str(missing.filename)
            if name in asked or not fetch(Path(name)):
                raise
            asked.add(name)
