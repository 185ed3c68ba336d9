"""The archive of Spark's classes, from which a JVM has them at once.

Spark loads some ten thousand classes until its first batch is done. To read, verify and link them
takes most of the processor's time of a start. The JVM can map them from an archive that an earlier
JVM has written at its end (class data sharing; dynamic archives are in Java since 13). So the first
JVM of an installation writes the archive into the user's cache directory, and later ones use it.

The archive only saves time. The JVM compares it with itself and with Spark's files and passes over
an archive that is another's, or is not whole: its head is written last.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from millpond.model.owner_only import make_directory
from millpond.runtime.spark.jvm.java import find_java

#: What the JVM would say about an archive goes where its other messages go, not to the terminal.
_QUIET = ("-Xlog:disable", "-Xlog:all=warning,cds*=off,class+path*=off:stderr")
#: The archive of Java's own classes, below Java's home; without it there is no other one.
_BASE = "lib/server/classes.jsa"
_DAYS_KEPT = 30


class ClassArchive:
    """The archive of one installation of Spark on one Java.

    Attributes:
        file: Where it is, or will be.
        is_there: Whether it is there, whole.
    """

    def __init__(self, folder: Path, java_home: Path, spark_home: Path) -> None:
        jars = spark_home / "jars"
        about = [
            f"{path} {path.stat().st_mtime_ns}"
            for path in (java_home / _BASE, java_home / "lib" / "modules", jars)
        ]
        digest = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
        self.file = folder / f"spark-{digest}.jsa"
        self.is_there = _is_whole(self.file)

    def options(self) -> list[str]:
        """The JVM's options that use the archive, or write it when the JVM ends."""
        use = "SharedArchiveFile" if self.is_there else "ArchiveClassesAtExit"
        return [*_QUIET, f"-XX:{use}={self.file}"]

    def note_use(self) -> None:
        """Remember that the archive was used now, and remove those that nobody has used for long.

        An archive has 170 MB.
        """
        with suppress(OSError):
            if self.is_there:
                os.utime(self.file)
            for other in self.file.parent.glob("spark-*.jsa"):
                if time.time() - other.stat().st_mtime > _DAYS_KEPT * 86_400:
                    other.unlink()


def find_archive(spark_home: Path) -> ClassArchive | None:
    """Find the archive for the Java that Spark will use; None if there can be none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "millpond"
    try:
        make_directory(folder)
        about = folder.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022 or " " in str(folder):
            return None  # what is in an archive is run as code
        archive = ClassArchive(folder, find_java().resolve().parent.parent, spark_home)
    except OSError:
        return None
    archive.note_use()
    return archive


def _is_whole(file: Path) -> bool:
    """Whether an archive was written to its end: until then its head is empty."""
    try:
        with file.open("rb") as opened:
            return any(opened.read(4))
    except OSError:
        return False


_has_worked: list[bool] = []


def note_work() -> None:
    """A batch was done: the JVM has loaded what an archive should have."""
    if not _has_worked:
        _has_worked.append(True)


def forbid_poor_archive(process: object) -> None:
    """When this process ends, end a JVM that would write an archive and has done no batch."""

    def end() -> None:
        if not _has_worked:
            process.kill()  # type: ignore[attr-defined]

    atexit.register(end)
