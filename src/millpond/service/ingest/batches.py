"""Batches that another system writes into a pushed stream: first their parts, then the batch.

The tasks of a job send parts, each by itself; the job says which of them make batch n of its
writer. So what tasks sent that failed, or ran twice, counts nothing, and a batch counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.model.time import now
from millpond.service.ingest import given_rows, row_formats
from millpond.service.ingest.intake import Intake, check_pushed
from millpond.service.results import IngestReceipt
from millpond.state.inbox.staged_parts import StagedParts
from millpond.state.inbox.writer_batch import WriterBatch


class Batches:
    """Takes parts and batches; safe to call from any thread."""

    def __init__(
        self,
        staged: StagedParts,
        intake: Intake,
        find_stream: Callable[[str], StreamDef],
        wake: Callable[[], None],
    ) -> None:
        """Take batches; `find_stream` gives the stream of a name, `wake` is called after each."""
        self._staged = staged
        self._intake = intake
        self._find_stream = find_stream
        self._wake = wake

    def stage(self, stream: str, part: str, rows: Any) -> int:
        """Keep rows for a batch; see `Pond.stage`."""
        return self._stage(stream, part, given_rows.from_rows(rows))

    def stage_text(self, stream: str, part: str, data: bytes, format: str) -> int:
        """Keep rows that are written as 'ndjson', 'json', 'csv' or 'arrow'."""
        schema = self._find_stream(stream).schema
        return self._stage(stream, part, row_formats.from_text(data, format, schema))

    def _stage(self, stream: str, part: str, table: pa.Table) -> int:
        definition = self._find_stream(stream)
        check_pushed(definition)
        self._staged.write(definition.id, part, table, now())
        return table.num_rows

    def unstage(self, stream: str, parts: Sequence[str]) -> None:
        """Remove parts that will not be in a batch."""
        definition = self._find_stream(stream)
        check_pushed(definition)
        self._staged.remove(definition.id, parts)

    def push(
        self, stream: str, writer: str, batch: int | None, parts: Sequence[str]
    ) -> IngestReceipt:
        """Make parts a batch of a writer; see `Pond.ingest_batch`."""
        definition = self._find_stream(stream)
        receipt, _ = self._intake.push_batch(
            definition, WriterBatch(writer, batch), lambda: self._staged.open(definition.id, parts)
        )
        self._staged.remove(definition.id, parts)
        self._wake()
        return receipt
