"""How Spark's JVM is launched: what it writes, whose its files are, and when.

A command knows its store and its settings long before the code that works with Spark is loaded,
which takes about as long as a JVM needs to come up. So a command may have the JVM launched first
(`Launch`); the session, which begins when the store is open, then finds it running.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway

from millpond.model.owner_only import open_owner_only
from millpond.runtime.spark.jvm.class_archive import forbid_poor_archive
from millpond.runtime.spark.prepared_daemon import prepare_daemon

_logger = logging.getLogger("millpond.spark")

#: What a JVM says that ends before it has come up, and Java before that.
_LAUNCH_ERROR = re.compile(r'^(?:Exception in thread "main" |Error: )(.+)$', re.MULTILINE)
#: What the causes of it are, of which the last one says most.
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
#: What Java says behind the option that it cannot take.
_NO_JVM = re.compile(r"^(.+)\nError: Could not create the Java Virtual Machine", re.MULTILINE)
#: The file in a store to which its JVM writes what it would write to the terminal.
LOG = "spark.log"
#: The JVM's command line has the store by this setting: who opens the store next looks for it.
STORE = "spark.millpond.store"


class Launch:
    """A JVM that is launched while this process still loads the rest of its code.

    Args:
        store: The store that will be opened; None for a temporary one, whose directory is made.
        make_settings: Gives the settings of the JVM's command line, in a thread of its own.

    Attributes:
        store: The directory of the store; the JVM writes to `spark.log` in it.
        is_temporary: Whether the directory was made here, for whoever opens the store to remove.
    """

    def __init__(self, store: Path | None, make_settings: Callable[[], Mapping[str, str]]) -> None:
        self.is_temporary = store is None
        self.store = (store or Path(tempfile.mkdtemp(prefix="millpond-"))).absolute()
        self._make_settings = make_settings
        self._thread = threading.Thread(target=self._launch, name="spark-launch", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the JVM has come up, or has failed to; then the session's start says why."""
        self._thread.join()

    def _launch(self) -> None:
        try:
            settings = {**self._make_settings(), STORE: str(self.store)}
            conf = SparkConf(loadDefaults=False)
            conf.setAll(list(settings.items()))
            prefix = "spark.executorEnv."
            workers = {
                name.removeprefix(prefix): value
                for name, value in settings.items()
                if name.startswith(prefix)
            }
            more = prepare_daemon(settings["spark.python.daemon.module"], workers)
            more |= address_of(settings)
            with launching(self.store / LOG, more):
                SparkContext._ensure_initialized(conf=conf)
        except Exception as error:
            _logger.debug("launching Spark's JVM ahead: %s", error)


def find_launch_error(log: Path, begins: int = 0) -> str | None:
    """Find what ended a JVM that did not come up, such as a package that nobody has.

    Args:
        log: What the JVM wrote.
        begins: Where what it wrote begins, in bytes.
    """
    try:
        said = log.read_bytes()[begins:].decode(errors="replace")
    except OSError:
        return None
    found = [*_NO_JVM.finditer(said)] or [*_LAUNCH_ERROR.finditer(said)]
    if not found:
        return None
    last: str = found[-1].group(1).strip()
    causes = [] if ": " in last else _CAUSE.findall(said, found[-1].end())
    return (causes[-1].strip() if causes else last)[:500]


def address_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a JVM that works alone does not look up this machine's name.

    Not every machine can look up its own name, and Spark's JVM ends where it cannot.
    """
    own = settings.get("spark.driver.bindAddress")
    if own is None or "SPARK_LOCAL_HOSTNAME" in os.environ:
        return {}
    return {"SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", own)}


#: The process of the JVM that was started last.
_launched: list[subprocess.Popen[bytes]] = []


def end_launched() -> None:
    """End the JVM that was started last, whose session may not be there yet."""
    for process in _launched:
        process.kill()


@contextmanager
def launching(log: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let PySpark start the JVM with a file as its standard error, and everything its owner's.

    `environment` is what the JVM's environment has beyond this process's.

    What the JVM makes (checkpoints, scratch files, sockets) is for its owner only, by its umask.
    Its workers inherit both. This process keeps its own: others of its threads write and log.

    PySpark has the child ignore Ctrl-C by a function of Python. In a process that has worked for a
    while, with threads of many libraries, such a child crashes before it becomes the JVM. A process
    group of its own keeps Ctrl-C from the JVM too.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    kept = java_gateway.Popen
    file = open_owner_only(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        options |= {"stderr": file, "umask": 0o077, "process_group": 0}
        options.pop("preexec_fn", None)
        options["env"] = {**options["env"], **(environment or {})}
        process = subprocess.Popen(command, **options)
        _launched[:] = [process]
        if any("-XX:ArchiveClassesAtExit=" in part for part in command):
            forbid_poor_archive(process)
        return process

    java_gateway.Popen = start
    try:
        yield
    finally:
        java_gateway.Popen = kept
        os.close(file)
