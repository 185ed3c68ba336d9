"""Flink SQL as a peer: scripts run by a Python that has PyFlink, an installation of its own.

PyFlink pins versions of what Millpond needs at others, so it stands in `.venv-flink` beside the
project's own environment (`make peers` makes it). Where it is not there, benchmarks leave its
column empty and say so.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

PYTHON = Path(__file__).parents[2] / ".venv-flink" / "bin" / "python"
MISSING = "Flink is not installed (make peers): its column is empty."


def is_installed() -> bool:
    """Whether `run` can run anything."""
    return PYTHON.exists()


def run(script: str, *arguments: object, timeout: float = 600) -> dict[str, float]:
    """Run a script of this directory; it prints one line of JSON, its last, which is returned.

    Raises:
        RuntimeError: the script failed or took too long, with the end of what it said.
    """
    command = [str(PYTHON), str(Path(__file__).parent / script), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{script} took more than {timeout:.0f} s") from error
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def rate(script: str, few: int, many: int, *arguments: object, timeout: float = 600) -> float:
    """Elements a second, from what `many` take longer than `few`: starting a job takes seconds.

    The script's arguments are the number of elements, then `arguments`; it gives `seconds`.
    """
    short = run(script, few, *arguments, timeout=timeout)["seconds"]
    long = run(script, many, *arguments, timeout=timeout)["seconds"]
    if long <= short:
        raise RuntimeError(f"{script}: {many:,} elements took no longer than {few:,}; give it more")
    return (many - few) / (long - short)
