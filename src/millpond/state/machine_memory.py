"""How much memory there is: the machine's, or a container's, which may have less."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Where the kernel says how much memory a container may have.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def find_memory_limit() -> int:
    """How many bytes this process and the others of its container may have together."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(int(file.read_text()))
    return min(found)
