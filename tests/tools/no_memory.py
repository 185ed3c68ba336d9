"""Memory of no bytes: all state that can lie in files does."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from millpond.engine.dataflow.state_limit import Memory
from millpond.state.scratch_folder import ScratchFolder


@cache
def no_memory() -> Memory:
    """Make memory of no bytes, with files in a folder that lasts as long as the process."""
    folder = tempfile.TemporaryDirectory(prefix="millpond-scratch-")
    _kept.append(folder)
    return Memory(0, ScratchFolder(Path(folder.name), least=0))


_kept: list[tempfile.TemporaryDirectory[str]] = []
