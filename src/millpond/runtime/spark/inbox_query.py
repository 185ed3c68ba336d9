"""The streaming query that makes epochs of pushed rows."""

from __future__ import annotations

import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.errors import MillpondError
from millpond.runtime.protocol import INBOX, Pipeline, abandoned_if_failed
from millpond.runtime.spark import sources
from millpond.runtime.spark.batches import build_inbox
from millpond.runtime.spark.jvm.class_archive import note_work
from millpond.state.file_share import share_of
from millpond.state.inbox.push_file import shared_name

#: How many pushes a streaming query handles before it is replaced by a new one, because Spark keeps
#: a line for each push for ever.
_INBOX_BATCHES = 2_000
_MAX_PUSHES = 4_096
#: How many pushed rows one task builds: two tasks would take longer to start, and to merge after.
_ROWS_A_TASK = 20_000
#: How long Spark waits between two looks at the inbox. It has few files, so a look takes 2 ms of a
#: processor.
_POLLING_DELAY = "25ms"
#: Spark writes what it read and what is done beside the batches, and once a minute: a batch waited
#: 40 ms for that, and nobody reads it. Spark allows it for sinks it knows to bear a batch twice;
#: this one passes over pushes that are part of an epoch.
_LOGS_BEHIND = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


class InboxQuery:
    """Starts the inbox's streaming query, again and again."""

    def __init__(self, pipeline: Pipeline, store: Path) -> None:
        self._pipeline = pipeline
        self._store = store
        self._batches = 0
        self._listed_often = False

    def forget_pipeline(self) -> None:
        """Let go of the pond: Py4J keeps for ever what `foreachBatch` was given, and so this."""
        del self._pipeline

    def is_worn(self) -> bool:
        """Whether the streaming query has handled so much that it is to be started anew."""
        return self._batches > _INBOX_BATCHES

    def start(self, spark: SparkSession, scratch: Path) -> StreamingQuery:
        """Start the inbox's streaming query, always from a new checkpoint.

        The epoch log knows by number which pushes are done. So Spark's own record of them, which
        would grow with every push for ever, is not needed.
        """
        checkpoint = scratch / f"inbox-{uuid.uuid4().hex[:8]}"
        self._batches = 0
        inbox = str(self._store / "inbox")
        # Spark lists a file under a path with a bracket once for every file of the batch.
        self._listed_often = sources.literal_glob(inbox) != inbox
        session = spark.newSession()
        session.conf.set("spark.sql.streaming.pollingDelay", _POLLING_DELAY)
        frame = (
            session.readStream.format("binaryFile")
            .schema(sources.FILES)
            .option("pathGlobFilter", "*.arrow")
            .option("maxFilesPerTrigger", str(_MAX_PUSHES))
            .load(sources.literal_glob(inbox))
        )
        return (
            frame.select("path")
            .writeStream.foreachBatch(self._build)
            .queryName(f"millpond inbox {uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", str(checkpoint))
            .options(**_LOGS_BEHIND)
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _build(self, frame: DataFrame, batch_id: int) -> None:
        pipeline = self._pipeline
        self._batches += 1
        # Read after Spark listed the batch's files, so every push among them is known.
        waiting = pipeline.waiting_pushes()
        if not waiting:
            return
        plan = pipeline.plan(INBOX, None)
        try:
            # A task costs more than the files Spark would give it: few tasks, few segments.
            several = frame.sparkSession.sparkContext.defaultParallelism
            is_little = sum(push.rows for push in waiting.values()) < _ROWS_A_TASK
            once = frame.distinct() if self._listed_often else frame
            share = share_of(self._store / "inbox")
            if share is not None and share.spreads:
                # Spark's tasks look at the files it has listed, which are on this machine alone.
                names = [(shared_name(n, push.checksum),) for n, push in waiting.items()]
                once = frame.sparkSession.createDataFrame(names, "path string")
            packed = once.coalesce(1 if is_little else several)
            try:
                with abandoned_if_failed(pipeline, plan):
                    built, numbers = build_inbox(packed, plan, frozenset(waiting))
            except MillpondError as error:
                if error.code == "STORE-602":
                    pipeline.check_pushes()
                raise
            note_work()
            if numbers:
                pipeline.commit(INBOX, batch_id, plan, built, numbers)
        finally:
            pipeline.release(plan)
