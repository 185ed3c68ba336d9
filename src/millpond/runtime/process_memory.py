"""The memory of processes: of this one, of Spark's JVM, and of the workers the JVM has started."""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROCESSES = Path("/proc")


@dataclass(frozen=True)
class RuntimeMemory:
    """The bytes that the processes of a runtime have on this machine.

    Attributes:
        resident: By kind (`jvm`, `workers`), the resident memory.
        heap: Of the driver's JVM, how much of its heap is used, and how much it may have; None
            without a JVM, or before it was asked.
    """

    resident: Mapping[str, int]
    heap: tuple[int, int] | None = None


def measure_memory() -> int:
    """The bytes of memory that this process has; where the system does not tell, its most."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_descendants(pid: int) -> dict[str, int]:
    """The resident bytes of a JVM (`jvm`), and of all processes below it (`workers`).

    Empty where the system does not tell. Workers are forked, so pages that they share with each
    other count for each of them.
    """
    children: defaultdict[int, list[int]] = defaultdict(list)
    resident: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError):
        for entry in _PROCESSES.iterdir():
            if entry.name.isdigit():
                with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    children[int(fields[1])].append(int(entry.name))
                    resident[int(entry.name)] = int(fields[21]) * page
    if pid not in resident:
        return {}
    below, waiting = 0, list(children[pid])
    while waiting:
        child = waiting.pop()
        below += resident[child]
        waiting += children[child]
    return {"jvm": resident[pid], "workers": below}
