"""The program by which Spark starts processes of Python on this machine.

Spark puts the archive that an installed PySpark has of itself before everything else on Python's
path. Code in an archive is compiled anew by each process: of the second that a process which asks
Kafka's brokers took to begin, that was more than half.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pyspark


def write_python(folder: Path, python: str = sys.executable) -> str:
    """Write a script that runs Python with the installed PySpark instead of its archive.

    Args:
        folder: Where the script is written.
        python: Python's program.

    Returns:
        The script's path, or Python's own where no script may be run in the folder.
    """
    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    if not archive.is_file():
        return python
    script = folder / "python"
    begins = shlex.quote(f"{archive}{os.pathsep}")
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH=${{PYTHONPATH#{begins}}} exec {shlex.quote(python)} "$@"\n'
    )
    script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else python
