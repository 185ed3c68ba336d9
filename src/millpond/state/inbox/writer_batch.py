"""Batches of writers: rows that another system writes in numbered batches, each exactly once.

A writer (a streaming query of Spark) has a name and numbers its batches without gaps. Who sends a
batch again, after a crash of either side, may divide its rows otherwise; so a batch is known by its
number alone. The inbox keeps the last batch of each writer for ever, and earlier ones as long as
any idempotency key.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.errors import MillpondError
from millpond.model.names import find_fault_of_line
from millpond.state.database.database import Database

#: The most characters of a writer's name.
LONGEST_WRITER = 200
#: Digits of a batch's number in its key, so that keys are in the order of numbers.
_DIGITS = 20
#: What keys begin with, so that no client's idempotency key, which is printable, is one of them.
_NUMBERED, _SINGLE, _END = "\x01", "\x02", "\x01"

#: Whether a row `old` of the inbox is the last batch of its writer.
IS_LAST_BATCH = f"""(substr(old.idempotency_key, 1, 1) = char({ord(_NUMBERED)}) AND NOT EXISTS (
    SELECT 1 FROM inbox AS later WHERE later.stream_id = old.stream_id
      AND later.idempotency_key > old.idempotency_key
      AND later.idempotency_key < substr(
        old.idempotency_key, 1, length(old.idempotency_key) - {_DIGITS}) || ':'))"""


@dataclass(frozen=True)
class WriterBatch:
    """A batch of a writer.

    Attributes:
        writer: The writer's name.
        number: The batch's number; None for a writer that writes a single batch, which is known
            for a day.
    """

    writer: str
    number: int | None

    def __post_init__(self) -> None:
        fault = find_fault_of_line(self.writer, LONGEST_WRITER)
        if fault is None and not self.writer:
            fault = "It is empty."
        if fault is None and self.number is not None and not 0 <= self.number < 10**18:
            fault = "Batches are numbered from 0."
        if fault is not None:
            raise MillpondError(
                "DATA-501",
                "the batch cannot be taken",
                detail=fault,
                hint="Give the writer a short name, and number its batches from 0.",
            )

    @property
    def key(self) -> str:
        """The idempotency key of the batch."""
        if self.number is None:
            return f"{_SINGLE}{self.writer}"
        return f"{_prefix(self.writer)}{self.number:0{_DIGITS}}"

    def gap_error(self, last: int) -> MillpondError:
        """The error for a batch that does not follow the writer's last one."""
        assert self.number is not None
        return MillpondError(
            "DATA-504",
            f'batches of the writer "{self.writer}" are missing',
            detail=f"The stream has its batches up to {last}, and this is batch {self.number}. An"
            " earlier state of the store was put back, or the writer wrote elsewhere meanwhile.",
            hint="Write what is missing again from the writer's source; another name of the writer"
            " begins anew.",
        )


def _prefix(writer: str) -> str:
    return f"{_NUMBERED}{writer}{_END}"


def last_batch(database: Database, stream_id: int, batch: WriterBatch) -> int | None:
    """Find the number of the last batch of a writer that a stream has; None if it has none."""
    prefix = _prefix(batch.writer)
    [[key]] = database.read(
        "SELECT max(idempotency_key) FROM inbox"
        " WHERE stream_id = ? AND idempotency_key > ? AND idempotency_key < ?",
        (stream_id, prefix, f"{prefix}:"),
    )
    return None if key is None else int(key[-_DIGITS:])
