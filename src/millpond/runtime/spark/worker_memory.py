"""How much memory each of Spark's Python workers may have."""

from __future__ import annotations

import os
import re

from millpond.errors import MillpondError

#: The variable that says it.
WORKER_MEMORY = "MILLPOND_WORKER_MEMORY"
_LEAST = 4 << 30
_UNITS = {"m": 1 << 20, "g": 1 << 30}


def worker_memory() -> int:
    """The bytes that `MILLPOND_WORKER_MEMORY` allows; else half of the machine's, at least 4 GB.

    Raises:
        MillpondError: CQL-214, the variable is not like `512m` or `4g`.
    """
    given = os.environ.get(WORKER_MEMORY)
    if given is None:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return max(whole // 2, _LEAST)
    found = re.fullmatch(r"([1-9][0-9]{0,6})([mg])", given.strip().lower())
    if found is None:
        raise MillpondError(
            "CQL-214",
            f"{WORKER_MEMORY} cannot be {given!r}",
            hint="Write megabytes or gigabytes: 512m or 4g.",
        )
    return int(found[1]) * _UNITS[found[2]]
