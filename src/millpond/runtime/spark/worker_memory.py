"""How much memory each of Spark's Python workers may have."""

from __future__ import annotations

import os
import re

from millpond.errors import MillpondError
from millpond.state.machine_memory import find_memory_limit

#: The variable that says it.
WORKER_MEMORY = "MILLPOND_WORKER_MEMORY"
_LEAST = 4 << 30
_UNITS = {"m": 1 << 20, "g": 1 << 30}


def worker_memory() -> int:
    """The bytes that `MILLPOND_WORKER_MEMORY` allows.

    Else half of what the machine or the container has, where the worker runs: executors may have
    other memory than the driver. At least 4 GB, but never more than there are.

    Raises:
        MillpondError: CQL-214, the variable is not like `512m` or `4g`.
    """
    given = os.environ.get(WORKER_MEMORY)
    if given is None:
        whole = find_memory_limit()
        return max(whole // 2, min(whole, _LEAST))
    found = re.fullmatch(r"([1-9][0-9]{0,6})([mg])", given.strip().lower())
    if found is None:
        raise MillpondError(
            "CQL-214",
            f"{WORKER_MEMORY} cannot be {given!r}",
            hint="Write megabytes or gigabytes: 512m or 4g.",
        )
    return int(found[1]) * _UNITS[found[2]]
