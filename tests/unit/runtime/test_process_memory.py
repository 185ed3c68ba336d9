"""The memory of a process and of all below it, as the system tells it."""

from __future__ import annotations

import subprocess
import sys

from millpond.runtime.process_memory import measure_descendants, measure_memory

#: Two processes, the lower one with fifty megabytes; both wait for their input to end.
PROGRAM = """
import subprocess, sys
below = "import sys; a = bytearray(50_000_000); print(1, flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", below]).wait()
"""


def test_a_process_and_those_below_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        found = measure_descendants(process.pid)
        process.stdin.close()
    assert 1_000_000 < found["jvm"] < 50_000_000 < found["workers"]
    assert measure_descendants(process.pid) == {}
    assert measure_memory() > 1_000_000
