"""Finding Java before Spark fails without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from millpond.errors import MillpondError

_LEAST = 17


def check_java() -> None:
    """Raise SERVE-702 unless a Java that Spark can use is to be found."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, where there is none" if home else "There is no java on PATH"
        raise _missing(f"{where}; Spark needs Java {_LEAST} or newer.")
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _missing(f"{java} does not run: {error}.") from error
    match = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    if match and int(match[1]) < _LEAST:
        raise _missing(f"{java} is Java {match[1]}; Spark needs Java {_LEAST} or newer.")


def _missing(detail: str) -> MillpondError:
    return MillpondError(
        "SERVE-702",
        "Java is missing or too old",
        detail=detail,
        hint="On Debian or Ubuntu: sudo apt-get install -y openjdk-17-jre-headless",
    )
