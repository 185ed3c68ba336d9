"""How much waits in a source of which a batch is planned: for streams that shed.

It is of what the checkpoint has of the batch, so a batch that comes again has the same answer.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame

from millpond.catalog.objects import StreamDef
from millpond.runtime.kafka.options import kafka_options
from millpond.runtime.protocol import Waiting
from millpond.runtime.spark.headers import local_path
from millpond.runtime.spark.kafka_source import WAITING

#: Of a topic may wait so many of its largest batches.
_BATCHES = 4


def find_waiting(
    stream: StreamDef, frame: DataFrame, folder: Path, batch_id: int
) -> Waiting | None:
    """Find what waits in the source of a stream.

    Of topics that is what the brokers had when the batch's end was fixed. Of files it is the
    batch's own: Spark does not say what it found beyond `maxFilesPerTrigger`.

    Args:
        stream: The stream.
        frame: The batch: of ranges of topics, or of the paths of files.
        folder: The checkpoint's folder.
        batch_id: The number of the batch.

    Returns:
        None if nobody knows.
    """
    if stream.source is not None and stream.source.format == "kafka":
        most = _BATCHES * kafka_options(stream).max_records
        lines = (folder / "offsets" / str(batch_id)).read_text().splitlines()
        offsets = json.loads(lines[2])
        found = offsets.get("live", offsets).get(WAITING)
        return None if found is None else Waiting(found["all"], found["left"], most, "records")
    if "path" not in frame.columns:
        return None
    found = [local_path(row.path) for row in frame.select("path").distinct().collect()]
    return Waiting(sum(path.stat().st_size for path in found if path is not None and path.exists()))
