"""Checks for Java, so that a missing Java is reported before Spark fails without it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from millpond.errors import MillpondError

_LEAST = 17


def find_java() -> Path:
    """Find the Java that Spark will use.

    Raises:
        MillpondError: SERVE-702, there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, where there is none" if home else "There is no java on PATH"
        raise _no_java_error(f"{where}; Spark needs Java {_LEAST} or newer.")
    return Path(java)


def check_java() -> int | None:
    """Find the major version of the Java that Spark will use; None if Java does not report one.

    Raises:
        MillpondError: SERVE-702, there is no Java that Spark can use.
    """
    return _read_version(find_java())


@functools.cache
def _read_version(java: Path) -> int | None:
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _no_java_error(f"{java} does not run: {error}.") from error
    match = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    version = int(match[1]) if match else None
    if version is not None and version < _LEAST:
        raise _no_java_error(f"{java} is Java {version}; Spark needs Java {_LEAST} or newer.")
    return version


def _no_java_error(detail: str) -> MillpondError:
    return MillpondError(
        "SERVE-702",
        "Java is missing or too old",
        detail=detail,
        hint="On Debian or Ubuntu: sudo apt-get install -y openjdk-17-jre-headless",
    )
