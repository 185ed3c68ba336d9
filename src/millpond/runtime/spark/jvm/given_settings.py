"""The settings of Spark that its user gives: which may be given, and which may be why it fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from glob import glob
from typing import Any
from zipfile import is_zipfile

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from millpond.errors import MillpondError
from millpond.planner.resolve.names import find_nearest
from millpond.runtime.spark.jvm.reasons import find_reason

_logger = logging.getLogger("millpond.spark")

#: Settings that are Millpond's, and why: without them it would fail, or say something else.
FIXED = {
    "spark.master": "--master names the master.",
    "spark.sql.session.timeZone": "Times are in UTC.",
    "spark.python.daemon.module": "Workers of Millpond's own bound what they keep.",
    "spark.scheduler.mode": "A batch would wait for a backfill's tasks.",
    "spark.hadoop.fs.permissions.umask-mode": "Files of a store are its owner's alone.",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "Workers would not be shared.",
}
_EXTENSIONS = "spark.sql.extensions"
#: A package of Maven's, as Spark takes it.
_PACKAGE = re.compile(r"[^:/\s]+[:/][^:/\s]+[:/][^:/\s]+")
#: The flags that stand for a setting.
_FLAGS = {"spark.jars": "--jars", "spark.jars.packages": "--packages"}
#: What names begin with that others than Spark's core read, or that name something of the user's.
_OF_OTHERS = (
    *("spark.hadoop.", "spark.executorEnv.", "spark.millpond.", "spark.yarn.", "spark.kubernetes."),
    *("spark.ssl.", "spark.metrics.", "spark.deploy.", "spark.shuffle.io.", "spark.sql.catalog."),
    *("spark.sql.streaming.stateStore.rocksdb.", "spark.app.", "spark.port.", "spark.worker."),
)


def check_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """Check settings that a user gives for Spark.

    Raises:
        MillpondError: CQL-214, one is not Spark's, or is fixed; a package or archive cannot be.
    """
    for name in conf:
        why = FIXED.get(name)
        if why is not None or not name.startswith("spark."):
            raise MillpondError(
                "CQL-214",
                f'the setting "{name}" of Spark cannot be given',
                detail=why or "Settings of Spark begin with spark.",
                hint="Leave it out.",
            )
    for package in _listed(conf, "spark.jars.packages"):
        if not _PACKAGE.fullmatch(package):
            raise _no_package(f'"{package}" is no package', "Write group:name:version.")
    for archive in _listed(conf, "spark.jars"):
        path = archive.removeprefix("file://").removeprefix("file:")
        if ":" in path:
            continue  # it is elsewhere
        found = glob(path)
        if not found:
            raise _no_package(f'there is no archive "{archive}"', "Name a file that is there.")
        for file in found:
            if not is_zipfile(file):
                raise _no_package(f'"{file}" is no Java archive', "Name a whole .jar file.")
    return dict(conf)


def _listed(conf: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in conf.get(name, "").split(",") if part.strip()]


def _no_package(problem: str, hint: str) -> MillpondError:
    return MillpondError("CQL-214", f"Spark cannot load it: {problem}", hint=hint)


def start_error(reason: str, given: Iterable[str] = (), again: bool = False) -> MillpondError:
    """The error of a Spark that does not start; it names the settings that its user gave.

    Args:
        reason: Why.
        given: The settings' names.
        again: Whether it had run.
    """
    names = ", ".join(_FLAGS.get(name, name) for name in sorted(given))
    hint = f"Check what was given: {names}. " if names else ""
    return MillpondError(
        "POND-415",
        "Spark has ended and cannot be started again" if again else "Spark could not be started",
        detail=reason[:600],
        hint=f"{hint}spark.log in the store's directory has what the JVM wrote. Open the store "
        "again once the cause is gone; everything acknowledged is kept.",
    )


def check_values(session: SparkSession, given: Mapping[str, str]) -> None:
    """Look at the settings that were given, once Spark has taken them.

    Spark reads many of them where they are used first, passes over names that it does not have, and
    goes on without extensions that it does not find. A name that it does not have is a warning.

    Raises:
        MillpondError: POND-415, a value cannot be.
    """
    jvm: Any = session.sparkContext._jvm
    entries = getattr(getattr(jvm.org.apache.spark.internal.config, "ConfigEntry$"), "MODULE$")
    conf = session.sparkContext._jsc.sc().conf()
    known: set[str] = set()
    for name in given:
        entry = entries.findEntry(name)  # also by another name of it
        if entry is not None:
            try:
                conf.get(entry)
            except Py4JJavaError as error:
                raise start_error(find_reason(error), [name]) from None
        elif not name.startswith(_OF_OTHERS):
            known = known or _list_names(jvm, entries)
            near = find_nearest(name, known)
            hint = (
                f'did you mean "{near}"?' if near else "it does nothing, unless a package reads it"
            )
            _logger.warning('Spark has no setting "%s": %s', name, hint)
    for extension in _listed(given, _EXTENSIONS):
        if not jvm.org.apache.spark.util.Utils.classIsLoadable(extension):
            reason = f'{_EXTENSIONS}: there is no class "{extension}". --jars or --packages add it.'
            raise start_error(reason, [_EXTENSIONS])


def _list_names(jvm: Any, entries: Any) -> set[str]:
    return set(str(jvm.java.lang.String.join("\n", entries.knownConfigs().keySet())).split())
