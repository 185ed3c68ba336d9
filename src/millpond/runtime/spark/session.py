"""The Spark session: local by default, quiet, and set up for small batches."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, write_owner_only
from millpond.model.secret_options import find_literal_secret, name_of_secret
from millpond.runtime.secrets_file import fill_in_secrets
from millpond.runtime.spark.jvm.class_archive import find_archive
from millpond.runtime.spark.jvm.given_settings import check_values, start_error
from millpond.runtime.spark.jvm.java import check_java
from millpond.runtime.spark.jvm.launch import Launch, address_of, find_launch_error, launching
from millpond.runtime.spark.jvm.reasons import find_reason
from millpond.runtime.spark.jvm.shared_session import remove_later
from millpond.runtime.spark.jvm.worker_python import write_python
from millpond.runtime.spark.worker_memory import WORKER_MEMORY, worker_memory
from millpond.state.disk_floor import DISK_FLOOR

_logger = logging.getLogger("millpond.spark")

#: The longest path of a directory, in bytes, so that a socket in it has a path Unix accepts; with a
#: longer one Spark refuses every job.
_SOCKET_DIRECTORY = 60
#: The stack of a JVM thread: Spark's regular expressions need a large one for a long error text.
_STACK = "8m"
#: The master if none is given: all cores of this machine.
LOCAL = "local[*]"
#: Later versions of Java warn about VFORK.
_FORKS_QUICKLY = 21
#: What makes a worker keep the memory it works in from task to task: Arrow's until it was idle for
#: ten seconds, NumPy's up to a quarter of a GiB. On a virtual machine fresh pages cost a batch of
#: 750,000 elements and a thousand queries one to two times as much as matching it. No threshold of
#: mapping is greater, and it no longer moves once it is set.
_KEEPS_MEMORY = {
    "MIMALLOC_PURGE_DELAY": "10000",
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**28),
}


#: What keeps a cluster's traffic and spilled data from others, once its processes know each other:
#: by a secret that YARN and Kubernetes make, and that a standalone cluster is given.
_AUTHENTICATE, _SECRET = "spark.authenticate", "spark.authenticate.secret"
_ENCRYPT, _ENCRYPT_FILES = "spark.network.crypto.enabled", "spark.io.encryption.enabled"
_PRIVATE = {_AUTHENTICATE: "true", _ENCRYPT: "true", _ENCRYPT_FILES: "true"}
#: What encrypts the traffic of executors in another way.
_ENCRYPT_OTHERWISE = ("spark.authenticate.enableSaslEncryption", "spark.ssl.rpc.enabled")
#: What is set for the driver holds for the workers too; unset, each looks at its own machine.
_TOLD_WORKERS = {DISK_FLOOR, WORKER_MEMORY}
#: Spark's file of settings in a folder of its configuration.
_DEFAULTS = "spark-defaults.conf"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Settings of other files and other collectors, with which the JVM would not take an archive.
_ARCHIVELESS = {"spark.driver.extraClassPath", _JAVA_OPTIONS}
#: One collector without threads, and the quick compiler alone. The other compiler takes half of the
#: JVM's time in a short run, and pays where the JVM itself parses many rows.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PYTHON, _DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
_DAEMON, _OUR_DAEMON = "spark.python.daemon.module", "millpond.runtime.spark.daemon"


def start_session(
    directory: Path,
    master: str | None,
    log: Path,
    conf: Mapping[str, str] | None = None,
    workers: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session of Millpond's own.

    Args:
        directory: For Spark's scratch files.
        master: A Spark master URL; None for all cores of this machine.
        log: Where the JVM writes what it would write to the terminal.
        conf: More settings, by `check_conf`; they replace those of Millpond's that are not fixed.
        workers: More variables of the workers' environment.

    Raises:
        MillpondError: POND-415, Spark does not start, but its JVM has said why.
    """
    local = is_local(master)
    given = dict(conf or {})
    hidden = take_secrets(given)
    own = {
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory),
        **{f"spark.executorEnv.{name}": value for name, value in (workers or {}).items()},
    }
    if local:
        own |= _place_sockets(directory)
    elif _SECRET in hidden or not str(master).startswith("spark://"):
        own |= _PRIVATE
    settings = {**own, **make_settings(master, given)}
    builder = SparkSession.builder.appName("millpond").master(master or LOCAL)
    for key, value in settings.items():
        builder = builder.config(key, value)
    environment = address_of(settings)
    if hidden:
        environment["SPARK_CONF_DIR"] = str(write_defaults(directory / "conf", hidden))
    with launching(log, environment):
        begins = log.stat().st_size if log.exists() else 0
        try:
            session = builder.getOrCreate()
            _read_settings(session, given)
        except (PySparkException, Py4JJavaError) as error:
            why = find_launch_error(log, begins) if SparkContext._gateway is None else None
            reason = why or find_reason(error)
            if not local:
                reason = name_master(reason, str(master))
            raise start_error(reason, conf or ()) from None
    if local and not {_PYTHON, _DRIVER_PYTHON} & set(given) and _is_own_python():
        session.sparkContext.pythonExec = write_python(directory)
    _quiet_accumulators(session)
    if not local:
        held = session.sparkContext._jsc.sc().conf()
        for exposure in find_exposures(lambda name: str(held.get(name, ""))):
            _logger.warning("%s (%s)", exposure, master)
    return session


def find_exposures(setting: Callable[[str], str]) -> list[str]:
    """Say who can read or change what executors work on, by what is not set, or was switched off.

    Args:
        setting: Gives the value of a setting of Spark; "" if it has none.
    """

    def is_on(*names: str) -> bool:
        return any(setting(name).lower() == "true" for name in names)

    if not is_on(_AUTHENTICATE):
        return [
            "whoever reaches the executors or their network reads and changes what they work on: "
            f"{_AUTHENTICATE} is not set"
        ]
    found = []
    if not is_on(_ENCRYPT, *_ENCRYPT_OTHERWISE):
        found.append(
            "whoever reads along in the network of the executors reads what they work on: "
            f"{_ENCRYPT} is not set"
        )
    if not is_on(_ENCRYPT_FILES):
        found.append(
            "whoever reads the disks of the executors' machines reads what tasks leave there for a "
            f"while: {_ENCRYPT_FILES} is not set"
        )
    return found


def _read_settings(session: SparkSession, given: Mapping[str, str]) -> None:
    """Have Spark read its settings, which it does else where they are used first."""
    try:
        session._jsparkSession.sessionState()
        check_values(session, given)
    except Exception:
        session.stop()
        raise


def _is_own_python() -> bool:
    """Whether tasks run by the Python of this process, and nobody has named another."""
    return os.environ.get("PYSPARK_PYTHON") == sys.executable


def is_local(master: str | None) -> bool:
    """Whether tasks run in this machine's JVM."""
    return master is None or master.startswith("local")


def name_master(reason: str, master: str) -> str:
    """Why Spark does not start on a cluster, with the master's name, which Spark leaves out.

    Of a standalone master that nobody reaches it says only that its own session is gone.
    """
    if "stopped SparkContext" in reason:
        return f"The master {master} does not answer."
    return f"The master is {master}. {reason}"


def launch_ahead(
    store: Path | None,
    master: str | None,
    conf: Mapping[str, str] | None,
    reads_sources: bool = True,
) -> Launch | None:
    """Launch the JVM of a store that will be opened; None where the session has to do it.

    It does where the store is still to be made, and where settings are secrets: these need a folder
    in a store that is locked.

    Args:
        store: The store's directory; None for a temporary one, which is made.
        master: As of `start_session`.
        conf: As of `start_session`.
        reads_sources: Whether Spark may have to read rows, in which case its code is compiled well
            and not only quickly.
    """
    given = dict(conf or {})
    if store is not None and not (store / "FORMAT").is_file():
        return None
    if not is_local(master) or SparkContext._gateway is not None or take_secrets(given):
        return None

    def make() -> dict[str, str]:
        settings = {"spark.master": master or LOCAL, **make_settings(master, given)}
        if not reads_sources:
            settings[_JAVA_OPTIONS] += f" {_QUICK}"
        return settings

    return Launch(store, make)


#: The directory of the sockets of this process's JVM.
_sockets: list[Path] = []


def _place_sockets(directory: Path) -> dict[str, str]:
    """Say where the JVM makes its sockets: in a directory, unless its path is too long.

    A killed process leaves its sockets, and there they go with the other scratch files. The JVM
    goes on with the directory of its first job, whatever later sessions are told. So all sessions
    of a process have the same one, which is made again if its store was closed meanwhile.
    """
    if not _sockets and len(os.fsencode(directory.absolute())) <= _SOCKET_DIRECTORY:
        _sockets.append(directory.absolute())
    if not _sockets:
        return {}
    make_directory(_sockets[0])
    remove_later(_sockets[0])
    return {"spark.python.unix.domain.socket.dir": str(_sockets[0])}


def make_settings(master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Make the settings of Spark that do not depend on the store, with those that are given."""
    java = check_java()
    worker_memory()  # a wrong value is refused here and not by each worker
    log4j = resources.files(__package__) / "log4j2.properties"
    options = [f"-Dlog4j2.configurationFile=file:{log4j}", f"-Xss{_STACK}"]
    # A JVM without memory would go on with some of its threads dead; another one is started.
    options.append("-XX:+ExitOnOutOfMemoryError")
    if java is not None and java <= _FORKS_QUICKLY:
        options.append("-Djdk.lang.Process.launchMechanism=VFORK")
    if is_local(master) and not os.environ.get("SPARK_CONF_DIR") and not _ARCHIVELESS & set(given):
        archive = find_archive(Path(_find_spark_home()))
        options += [] if archive is None else archive.options()
    settings = {
        "spark.driver.extraJavaOptions": " ".join(options),
        # Hadoop runs chmod for every file it makes, and beside each file of a checkpoint makes
        # one with a checksum. Without those, and with quick forks, a batch takes 150 ms less.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.hadoop.fs.permissions.umask-mode": "077",  # checkpoints are their owner's
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": os.environ.get("MILLPOND_DRIVER_MEMORY", "2g"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
        # Otherwise a batch waits for a backfill's tasks.
        "spark.scheduler.mode": "FAIR",
        # A task waits so long for the machine that has its files, and then takes any.
        "spark.locality.wait": "300ms",
        # A look at a directory of 365 files takes 8 ms of a processor, whether or not one is new.
        # The inbox, which has few, is looked at more often.
        "spark.sql.streaming.pollingDelay": "100ms",
        "spark.sql.streaming.numRecentProgressUpdates": "4",
        # A source that lists a whole file system cannot be interrupted; it is left to end alone.
        "spark.sql.streaming.stopTimeout": "10s",
        "spark.sql.streaming.minBatchesToRetain": "4",
        # Looking at a few dozen new files is quicker than a job that looks at them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.python.worker.reuse": "true",
        **{f"spark.executorEnv.{name}": value for name, value in _KEEPS_MEMORY.items()},
        _DAEMON: _OUR_DAEMON,
        **{f"spark.executorEnv.{k}": v for k, v in os.environ.items() if k in _TOLD_WORKERS},
        # Over TCP a worker waits 40 ms for a batch's last packet, which waits for an answer.
        "spark.python.unix.domain.socket.enabled": "true",
        # With it workers of streaming queries and of other tasks could not be the same ones.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    if is_local(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= given
    if _JAVA_OPTIONS in given:
        settings[_JAVA_OPTIONS] = " ".join([*options, given[_JAVA_OPTIONS]])
    return settings


def take_secrets(given: dict[str, str]) -> dict[str, str]:
    """Take the settings that are secrets, or name one, out of those that are given.

    Returns:
        Them, with the secrets. The others go onto the JVM's command line, which everybody can read.

    Raises:
        MillpondError: CQL-214, a secret that is named is missing.
    """
    hidden = {
        name: given.pop(name)
        for name, value in list(given.items())
        if name_of_secret(value) is not None or find_literal_secret({name: value}) is not None
    }
    return fill_in_secrets(hidden)


def write_defaults(folder: Path, hidden: Mapping[str, str]) -> Path:
    """Write settings into a folder of Spark's own configuration, which is its owner's alone.

    What is in the folder that SPARK_CONF_DIR names stays in force.

    Returns:
        The folder.

    Raises:
        MillpondError: CQL-214, a value has more than one line.
    """
    make_directory(folder)
    lines = []
    before = os.environ.get("SPARK_CONF_DIR")
    for file in Path(before).iterdir() if before else ():
        if file.name == _DEFAULTS:
            lines += file.read_text().splitlines()
        else:
            (folder / file.name).symlink_to(file.absolute())
    for name, value in hidden.items():
        if "\n" in value or "\r" in value:
            raise MillpondError("CQL-214", f'the setting "{name}" of Spark has more than one line')
        lines.append(f"{name}={value.replace(chr(92), chr(92) * 2)}")
    write_owner_only(folder / _DEFAULTS, "\n".join([*lines, ""]).encode())
    return folder


def find_running() -> SparkSession:
    """The session that runs in this process, which another pond has started or was given."""
    return SparkSession.active()


def tell_given(session: SparkSession, workers: Mapping[str, str]) -> None:
    """Give the workers of a session that is given more variables of their environment.

    Raises:
        MillpondError: STORE-604, the session's workers cannot share a store's files: they are not
            forked from Millpond's daemon, or are told of another store.
    """
    told = session.sparkContext.environment
    if not workers:
        return
    if session.conf.get(_DAEMON, "") != _OUR_DAEMON:
        why, hint = "Its workers load Millpond's code too late.", f"Set {_DAEMON} to {_OUR_DAEMON}"
    elif any(told.get(name, value) != value for name, value in workers.items()):
        why, hint = "It has the workers of another shared store.", "Give each a session"
    else:
        told.update(workers)
        return
    raise MillpondError(
        "STORE-604",
        "the Spark session that is given cannot work on a shared store",
        detail=why,
        hint=f"{hint}, or let Millpond start its own session.",
    )


def _quiet_accumulators(session: SparkSession) -> None:
    """Say nothing when the JVM goes away under PySpark's server of accumulators.

    A signal to the whole process group (Ctrl-C, a supervisor) ends the JVM first. That server then
    ends because its connection is closed, which is no error.
    """
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    default_handler = server.handle_error

    def handle_error(request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            default_handler(request, client_address)

    server.handle_error = handle_error


def quiet_teardown() -> None:
    """Say nothing on standard error once the program's own end has been reached.

    Threads of Spark's gateway outlive the interpreter's teardown and hold on to DuckDB's objects,
    which its bindings report, fifty lines long, after everything is closed and done.
    """
    if not _quieted:
        _quieted.append(True)
        atexit.register(_silence)


_quieted: list[bool] = []


def _silence() -> None:
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)


def await_end_of_last(store: Path, seconds: float = 10.0) -> None:
    """Wait for the JVM that a killed process left on the same store, and end it if it stays.

    A JVM ends when its Python does, but not at the same instant; until then it could still write
    to the checkpoints. This process has the store's lock, so any JVM with the store on its command
    line is an orphan.
    """
    file = store / "spark.pid"
    deadline = time.monotonic() + seconds
    while (pid := _find_alive(file, store)) is not None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    file.unlink(missing_ok=True)


def note_process(store: Path, spark: SparkSession) -> None:
    """Record the JVM's process id in the store, for the process that opens the store next."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None:
        write_owner_only(store / "spark.pid", str(process.pid).encode())


def forget_process(store: Path) -> None:
    """Let the process that opens the store next not wait for a JVM that goes on with others."""
    (store / "spark.pid").unlink(missing_ok=True)


def _find_alive(file: Path, store: Path) -> int | None:
    try:
        pid = int(file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    gateway = SparkContext._gateway
    if gateway is not None and getattr(gateway, "proc", None) and gateway.proc.pid == pid:
        return None  # the JVM is this process's own, from an earlier pond
    return pid if str(store).encode() in command else None
