"""What tells a client what became of its rows, and a push from another one under the same key."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.admission.admit import AdmittedRows

_SHOWN_REJECTS = 100


def add_to_receipt(receipt: dict[str, Any], admitted: AdmittedRows, first: int) -> None:
    """Add rows to an `IngestReceipt`'s fields, as the inbox keeps them for who sends again.

    Args:
        receipt: The fields; changed.
        admitted: The rows.
        first: The position of the first of them among all that were sent.
    """
    shown = admitted.reject_rows[: _SHOWN_REJECTS - len(receipt["rejects"])]
    reasons = admitted.rejects["reason"].slice(0, len(shown)).to_pylist()
    receipt["accepted"] += admitted.elements.num_rows
    receipt["rejected"] += admitted.rejects.num_rows
    if admitted.shed is not None:
        receipt["shed"] += int(pc.sum(admitted.shed["elements"]).as_py())
    receipt["rejects"] += [
        {"row": first + int(row), "reason": reason}
        for row, reason in zip(shown, reasons, strict=True)
    ]


def fingerprint_of(rows: pa.Table) -> str:
    """A digest of the rows with their columns' names and types, and dictionaries."""
    rows = rows.replace_schema_metadata().combine_chunks()
    sink = _HashingFile()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), rows.schema) as writer:
        writer.write_table(rows)
    return sink.hexdigest()


class _HashingFile(io.RawIOBase):
    """A file that keeps only the digest of what is written to it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        return len(view)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
