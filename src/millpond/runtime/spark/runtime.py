"""Spark's side of the pipeline: one Structured Streaming query per source, one for the inbox.

The pond plans every batch, Spark tasks build it, and the pond commits it as an epoch. The driver
sees descriptions of files, never tuples. The supervisor starts a failed streaming query again after
a while, from the batch it failed in; the stream's status says why it failed.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.catalog.first_look import NOTHING_CREATED, looking_first
from millpond.catalog.objects import RelationDef, StreamDef
from millpond.engine.scalars.user_functions import functions
from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory
from millpond.runtime import batch_tasks
from millpond.runtime.kafka.chunks import partition_name
from millpond.runtime.process_memory import RuntimeMemory
from millpond.runtime.protocol import Done, Job, Pipeline, Waiting, abandoned_if_failed
from millpond.runtime.scans.request_call import RequestCall
from millpond.runtime.spark import sources
from millpond.runtime.spark.batches import InWorker
from millpond.runtime.spark.checkpoint import Checkpoint
from millpond.runtime.spark.choose_builder import choose_builder, find_waiting
from millpond.runtime.spark.cluster.placing import Machines, distribute
from millpond.runtime.spark.delta_source import appended_frame
from millpond.runtime.spark.history_source import find_partitions, history_frame
from millpond.runtime.spark.inbox_query import InboxQuery
from millpond.runtime.spark.jvm.class_archive import note_work
from millpond.runtime.spark.jvm.given_settings import check_conf
from millpond.runtime.spark.jvm.java import check_java
from millpond.runtime.spark.jvm.launch import LOG, Launch, end_launched
from millpond.runtime.spark.jvm.shared_session import (
    find_running,
    is_left,
    is_own,
    remove_scratch,
)
from millpond.runtime.spark.jvm.worker_errors import raising_own_errors
from millpond.runtime.spark.kafka_source import ranges_frame
from millpond.runtime.spark.machine import Machine, starting_error
from millpond.runtime.spark.relation_file import write_relation
from millpond.runtime.spark.session import (
    LOCAL,
    await_end_of_last,
    forget_process,
    note_process,
    quiet_teardown,
    start_session,
    tell_given,
)
from millpond.runtime.spark.supervisor import SupervisedQuery, Supervisor
from millpond.state.arrow_file import FileMeta
from millpond.state.file_share import share_of
from millpond.state.shared.shared_store import tell_workers

log = logging.getLogger("millpond.spark")

#: How long the first look at a source may take, once the JVM has warmed up: meanwhile nothing else
#: can be created or dropped.
_PROBE_SECONDS = 60.0
#: How long the look at a history may take, which is read to its end: a million files are listed.
_HISTORY_SECONDS = 600.0
#: How long a look waits for the JVM to warm up. On a busy machine that took longer than the look.
_WARM_SECONDS = 60.0


class SparkRuntime:
    """Implements `runtime.protocol.Runtime` on a Spark session."""

    def __init__(
        self,
        master: str | None = None,
        spark: SparkSession | None = None,
        conf: Mapping[str, str] | None = None,
        *,
        revives: bool = False,
        behind: bool = False,
        launch: Launch | None = None,
    ) -> None:
        """Describe a runtime; `start` starts it.

        Args:
            master: The URL of a Spark master; None for this machine.
            spark: A session to use instead of one of the runtime's own, and of one that runs in
                this process already.
            conf: Settings of the session that is started; see `start_session`.
            revives: Whether to start Spark behind, and again when its JVM has ended.
            behind: Whether to start Spark behind: `start` does not wait for it.
            launch: The JVM that was launched for this runtime before the store was open.
        """
        self._master = master
        self._conf = check_conf(conf or {})
        if self._conf and spark is not None:
            raise MillpondError(
                "CQL-214",
                "spark_conf cannot be given with a Spark session",
                hint="Build the session with these settings.",
            )
        if spark is not None and spark.sparkContext._jsc is None:
            raise MillpondError(
                "CQL-214",
                "the Spark session that is given was stopped",
                hint="Give one that runs, or leave it out: Millpond starts one of its own.",
            )
        if spark is None and not (revives or behind):
            spark = find_running(master, self._conf)
        self._given = spark
        self._machine = Machine(
            None if spark is not None else self._start_spark,
            spark,
            revives=revives and spark is None,
            on_end=self._handle_end,
            on_start=self._resume,
            end_start=end_launched,
        )
        self._starts_behind = (revives or behind) and spark is None
        self._launch = launch
        self._scratch: Path | None = None
        self._machines = Machines()
        self._is_warm = threading.Event()
        self._given_before: Counter[str] = Counter()
        self._causes: dict[int, Exception] = {}
        #: The tag of the jobs of `run`, and whether these are ended.
        self._tag = f"millpond-run-{uuid.uuid4().hex}"
        self._ends_tasks = False
        #: Streams whose histories were read to their end since the start.
        self._histories_read: set[int] = set()

    # -- Runtime -------------------------------------------------------------------------------

    def start(self, pipeline: Pipeline, store: Path) -> None:
        self._pipeline = pipeline
        self._store = store
        if (share := share_of(store / "files")) is not None:
            share.spreads = self.spreads
        if self._given is not None:
            tell_given(self._given, tell_workers(store))
            self._make_scratch()
            if self._given.sparkContext.master.startswith("local") and not is_own(self._given):
                # Workers must find Millpond where this process found it.
                self._given.sparkContext.pythonExec = sys.executable
        self._supervisor = Supervisor(pipeline)
        self._inbox = InboxQuery(pipeline, store)
        if not self._starts_behind:
            self._machine.start()
            threading.Thread(target=self._warm_up, name="spark-warm-up", daemon=True).start()
            return
        check_java()
        self._supervisor.pause(starting_error())
        self._machine.start(behind=True)

    def _find_master(self) -> str:
        if self._given is not None:
            return str(self._given.sparkContext.master)
        return self._master or LOCAL

    def _make_scratch(self) -> Path:
        """Make a new directory for Spark's scratch files, and remove those that were left."""
        checkpoints = self._store / "checkpoints"
        self._scratch = scratch = checkpoints / f".scratch-{uuid.uuid4().hex[:8]}"
        for left in checkpoints.glob(".scratch-*"):
            if not is_left(left):
                shutil.rmtree(left, ignore_errors=True)
        make_directory(scratch)
        return scratch

    def _start_spark(self) -> SparkSession:
        quiet_teardown()
        if self._launch is not None:
            self._launch.wait()
            self._launch = None
        await_end_of_last(self._store)
        session = start_session(
            self._make_scratch(),
            self._master,
            self._store / LOG,
            self._conf,
            workers=tell_workers(self._store),
        )
        note_process(self._store, session)
        return session

    def _handle_end(self, reason: MillpondError) -> None:
        self._is_warm.clear()
        self._supervisor.pause(reason)
        self._pipeline.report_runtime(reason)

    def _resume(self) -> None:
        """Go on after another JVM was started: every streaming query, and what waits for tasks."""
        # The workers' code is loaded while the JVM begins with the streaming queries.
        threading.Thread(target=self._warm_up, name="spark-warm-up", daemon=True).start()
        self._supervisor.resume()
        self._pipeline.report_runtime(None)

    @property
    def trouble(self) -> MillpondError | None:
        return self._machine.trouble or self._supervisor.inbox_trouble()

    @property
    def failure(self) -> MillpondError | None:
        return self._machine.failure

    @property
    def spark(self) -> SparkSession:
        return self._machine.session

    def wait_until_started(self) -> None:
        self._machine.wait_until_started()
        if self._machine.trouble is None:
            self._is_warm.wait(_WARM_SECONDS)

    def check_source(self, definition: StreamDef | RelationDef) -> None:
        if isinstance(definition, StreamDef) and definition.history is not None:
            self._look_first(definition.as_history(), _HISTORY_SECONDS)
            if definition.source is None:
                return
        self._look_first(definition, _PROBE_SECONDS)

    def _look_first(self, definition: StreamDef | RelationDef, most: float) -> None:
        sources.check_source(definition)
        try:
            with looking_first(), self._machine.using():
                spark = self.spark
                self._is_warm.wait(_WARM_SECONDS)
                _within_seconds(most, lambda: sources.look_first(spark, definition))
        except TimeoutError as error:
            raise MillpondError(
                "DATA-502",
                f'the source of "{definition.name}" could not be looked through in time',
                detail=f"Spark was still reading its schema after {most:g} seconds: it "
                "has too many files, or this machine has too much else to do.",
                hint="Name a directory farther down, leave out recursiveFileLookup, or try again "
                "when the machine has less to do. Nothing was created.",
            ) from error
        except Exception as error:
            raise sources.unreadable_error(definition, error, NOTHING_CREATED) from error

    def open_source(self, stream: StreamDef) -> None:
        self._keep(stream, lambda: self._frame(stream), patient=True)

    def open_frame(self, stream: StreamDef, frame: DataFrame) -> None:
        """Read any DataFrame as a stream's source; a bounded one is read now, as one batch.

        If the program gives equal rows for the n-th time since its start, they are the n-th batch
        of these rows. So rows it gave before it was started again are not read twice.
        """
        if frame.isStreaming:
            self._keep(stream, lambda: frame, patient=False)
        else:
            with self._machine.using():
                source = f"stream:{stream.id}:{sources.fingerprint(frame)}"
                time = self._given_before[source]
                self._batch(stream, source)(frame, time)
                self._given_before[source] += 1

    def columns(self, frame: DataFrame) -> list[tuple[str, str]]:
        """Return a frame's columns and the SQL names of their types."""
        with self._machine.using():
            return [(f.name, sources.sql_type(f.dataType)) for f in frame.schema.fields]

    def close_source(self, stream_id: int) -> None:
        self._supervisor.drop(stream_id)

    def read_to_end(self, stream: StreamDef) -> None:
        with self._machine.using():
            try:
                query = self._write(stream, self._frame(stream), {"availableNow": True})
                query.awaitTermination()
            except Exception as error:
                raise self._cause(stream, error) from error

    def wake_inbox(self) -> None:
        if self._supervisor.get(None) is None:
            self._supervisor.keep(
                SupervisedQuery(None, self._start_inbox, worn=self._inbox.is_worn)
            )

    def catch_up(self, streams: Sequence[StreamDef]) -> None:
        for stream in streams:
            kept = self._supervisor.get(stream.id)
            if kept is None or (stream.source and stream.source.format == "rate"):
                continue
            with self._machine.using():
                self._catch_up(stream, kept)

    def _catch_up(self, stream: StreamDef, kept: SupervisedQuery) -> None:
        self._supervisor.await_begin(kept)
        if kept.query is None:
            raise kept.absent() or sources.unreadable_error(stream, RuntimeError("it never was"))
        try:
            kept.query.processAllAvailable()
            if stream.source is not None and stream.source.format == "kafka":
                # The brokers may have been asked just before; now they are asked after the call.
                kept.query.processAllAvailable()
        except Exception as error:
            raise self._cause(stream, error) from error

    def run(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        return self._run(task, jobs, near, "maintenance", self._tag)

    def _run(
        self,
        task: Callable[[Job], Done],
        jobs: Sequence[Job],
        near: Sequence[str],
        pool: str,
        tag: str,
    ) -> list[Done]:
        if not jobs:
            return []
        done = []
        with self._machine.using():
            context = self.spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", pool)
            context.addJobTag(tag)
            if self._ends_tasks and tag == self._tag:
                raise MillpondError("POND-410", "the pond is being closed")
            collected = self._collect(
                lambda: distribute(context, InWorker(task, self._store), jobs, near).collect()
            )
            for result, usage in collected:
                functions.report(usage)
                done.append(result)
        return done

    def _collect(self, collect: Callable[[], list[Any]]) -> list[Any]:
        """Run a Spark job, again for each file that its tasks could not read and that was put back.

        The driver has read or written most files, so it may have a whole copy of one that was
        damaged in the shared storage.
        """
        while True:
            try:
                with raising_own_errors():
                    return collect()
            except MillpondError as error:
                if error.code != "STORE-602" or not self.spreads:
                    raise
                if not self._pipeline.put_back(error):
                    raise

    def ask(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        self._machine.check()  # a request does not wait for Spark to start
        tag = f"millpond-{uuid.uuid4().hex}"
        call = RequestCall(lambda: self._run(task, jobs, near, "answers", tag))
        try:
            return call.wait()
        except BaseException:
            # With the request its tasks end, also those that are not run yet.
            self.spark.sparkContext.cancelJobsWithTag(tag)
            raise

    def prefer(self, key: str) -> str:
        if self.spreads and self._machine.trouble is None:
            with suppress(Exception):  # it ends just now; whoever runs tasks hears of it
                return self._machines.prefer(self.spark.sparkContext, key)
        return ""

    @property
    def spreads(self) -> bool:
        return not self._find_master().startswith("local")

    def read_relation(self, relation: RelationDef, path: Path) -> FileMeta:
        with self._machine.using():
            return write_relation(self.spark, relation, path)

    @property
    def workers(self) -> int:
        if self.spreads and self._machine.trouble is None:
            with suppress(Exception):  # it ends just now
                return max(1, self._machines.count_cores(self.spark.sparkContext))
        return max(1, self._machine.parallelism or os.cpu_count() or 1)

    def describe(self) -> dict[str, Any]:
        return {
            "spark": self._machine.version,
            "master": self._machine.master or self._master or LOCAL,
            "streaming_queries": len(self._supervisor),
        }

    def measure_memory(self) -> RuntimeMemory:
        return self._machine.measure_memory()

    def end_tasks(self) -> None:
        self._ends_tasks = True
        if self._machine.trouble is None:
            with suppress(Exception):  # it ends just now, and its tasks with it
                self.spark.sparkContext.cancelJobsWithTag(self._tag)

    def stop(self) -> None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        self._supervisor.stop()
        self._machine.stop()
        if self._given is not None:
            for name in tell_workers(self._store):
                self._given.sparkContext.environment.pop(name, None)
        if self._scratch is not None:
            remove_scratch(self._scratch)
        forget_process(self._store)
        # Py4J keeps what was passed to `foreachBatch` for ever, and with it all that it refers to.
        del self._pipeline
        self._inbox.forget_pipeline()

    # -- inside --------------------------------------------------------------------------------

    def _frame(self, stream: StreamDef) -> DataFrame:
        source = stream.source
        try:
            if stream.history is not None:
                folder = self._store / "checkpoints" / f"stream-{stream.id}"
                return history_frame(self.spark, stream, folder)
            assert source is not None
            if source.format in sources.FILE_FORMATS:
                return sources.paths_frame(self.spark, stream, streaming=True)
            if source.format == "kafka":
                folder = self._store / "checkpoints" / f"stream-{stream.id}"
                return ranges_frame(self.spark, stream, folder)
            if source.format == "delta":
                folder = self._store / "checkpoints" / f"stream-{stream.id}"
                return appended_frame(self.spark, stream, folder)
            return sources.other_frame(self.spark, stream)
        except Exception as error:
            raise sources.unreadable_error(stream, error) from error

    def _keep(self, stream: StreamDef, frame: Callable[[], DataFrame], patient: bool) -> None:
        kept = SupervisedQuery(
            stream,
            lambda: self._write(stream, frame(), {"processingTime": "0 seconds"}),
            explain=lambda error: self._cause(stream, error),
            absent=lambda: sources.find_absence(stream),
            is_done=lambda: stream.id in self._histories_read and stream.source is None,
        )
        self._supervisor.keep(kept, patient)

    def _write(
        self, stream: StreamDef, frame: DataFrame, trigger: dict[str, Any]
    ) -> StreamingQuery:
        source = f"stream:{stream.id}"
        folder = self._store / "checkpoints" / f"stream-{stream.id}"
        checkpoint = Checkpoint(folder, stream.name)
        checkpoint.check(self._pipeline.last_batch(source))
        self._causes.pop(stream.id, None)
        return (
            frame.writeStream.foreachBatch(
                self._batch(stream, source, checkpoint, sheds="availableNow" not in trigger)
            )
            .queryName(f"millpond {stream.name} {uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", str(folder))
            .trigger(**trigger)
            .start()
        )

    def _batch(
        self,
        stream: StreamDef,
        source: str,
        checkpoint: Checkpoint | None = None,
        sheds: bool = False,
    ) -> Callable[[DataFrame, int], None]:
        build_batch = choose_builder(stream)

        def on_batch(frame: DataFrame, batch_id: int) -> None:
            pipeline = self._pipeline
            if pipeline.is_committed(source, batch_id):
                return

            def find() -> Waiting | None:
                if checkpoint is None or not sheds:
                    return None
                return find_waiting(stream, frame, checkpoint.folder, batch_id)

            plan = pipeline.plan(source, [stream.id], find)
            try:
                if checkpoint is not None:
                    checkpoint.note_batch(batch_id)
                reads_history = stream.id in plan.streams and plan.streams[stream.id].reads_history
                found = None
                if reads_history and checkpoint is not None:
                    found = find_partitions(checkpoint.folder, batch_id)
                if found is not None:
                    names = {partition_name(topic, number): False for topic, number in found}
                    pipeline.commit(source, batch_id, plan, [], (), names, turn=True)
                    self._histories_read.add(stream.id)
                    return
                with self._supervisor.reading(stream.id), abandoned_if_failed(pipeline, plan):
                    built, partitions = build_batch(frame, plan, stream.id)
                note_work()
                pipeline.commit(source, batch_id, plan, built, (), partitions)
            except Exception as error:
                # Spark reports an error as text inside text; this keeps the original.
                self._causes[stream.id] = error
                raise
            finally:
                pipeline.release(plan)

        return on_batch

    def _start_inbox(self) -> StreamingQuery:
        assert self._scratch is not None
        return self._inbox.start(self.spark, self._scratch)

    def _warm_up(self) -> None:
        """Start the workers now; otherwise the first batch would wait seconds for them."""
        try:
            self.run(batch_tasks.warm_up, range(self.spark.sparkContext.defaultParallelism))
        except Exception as error:
            log.debug("warming up: %s", error)
        finally:
            self._is_warm.set()

    def _cause(self, stream: StreamDef, error: Exception) -> MillpondError:
        """Find why a stream's query failed, without the errors Spark wraps around the reason."""
        cause = self._causes.get(stream.id, error)
        if isinstance(cause, MillpondError):
            return cause
        return _find_task_error(cause) or sources.unreadable_error(stream, cause)


def _within_seconds(seconds: float, work: Callable[[], None]) -> None:
    """Do work of Spark's that cannot be interrupted; raise TimeoutError and leave it if too long.

    Spark lists files in one call, which does not end before all are listed.
    """
    failed: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="spark-probe", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if failed:
        raise failed[0]


def _find_task_error(error: Exception) -> MillpondError | None:
    """Find the Millpond error inside the text of a task's failure."""
    text = str(error)
    at = text.rfind("MillpondError: ")
    if at >= 0:
        first = text[at + len("MillpondError: ") :].split("\n")
        code, _, primary = first[0].partition(": ")
        detail = next((x[8:] for x in first if x.startswith("Detail: ")), None)
        hint = next((x[6:] for x in first if x.startswith("Hint: ")), None)
        try:
            return MillpondError(code, primary, detail=detail, hint=hint)
        except AssertionError:
            return None
    return None
